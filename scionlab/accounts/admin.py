"""Accounts: email address, rights and quota of user ASes."""

from __future__ import annotations

from typing import Any

from allauth.account.models import EmailAddress
from allauth.mfa.models import Authenticator
from django.contrib import admin, messages
from django.contrib.auth.admin import UserAdmin as DjangoUserAdmin
from django.contrib.auth.forms import BaseUserCreationForm
from django.db.models import Count, QuerySet
from django.http import HttpRequest

from scionlab.accounts.account import account_delete, account_update
from scionlab.accounts.models import User
from scionlab.accounts.second_factor import has_second_factor, second_factor_remove
from scionlab.web.admin.base import ServiceAdmin
from scionlab.web.admin.columns import badge, link_to_list
from scionlab.web.pages.stale_pages import values_of

# allauth's pages would show encrypted secrets, and addresses that are not used.
admin.site.unregister([EmailAddress, Authenticator])


@admin.register(User)
class UserAdmin(ServiceAdmin, DjangoUserAdmin):  # type: ignore[type-arg]  # generic in the stubs only
    add_form = BaseUserCreationForm  # always with a password
    list_display = ["email", "full_name", "quota", "is_staff", "is_active", "last_login"]
    list_filter = ["is_staff", "is_active"]
    search_fields = ["email", "full_name"]
    compared = ("email", "full_name", "as_quota", "is_staff", "is_active")
    ordering = ["email"]
    filter_horizontal = ()
    fieldsets = [
        (None, {"fields": ["email", "full_name", "password"]}),
        ("Permissions", {"fields": ["as_quota", "quota", "is_staff", "is_active", "second_factor"]}),
        ("Dates", {"fields": ["last_login", "date_joined"]}),
    ]
    add_fieldsets = [(None, {"fields": ["email", "full_name", "as_quota", "is_staff", "password1", "password2"]})]
    actions = ("remove_second_factor",)

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        """Prevent administrators from locking themselves out."""
        own = ["is_staff", "is_active"] if obj == request.user else []
        return ["quota", "second_factor", "last_login", "date_joined", *own]

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return super().has_delete_permission(request, obj) and obj != request.user

    def get_queryset(self, request: HttpRequest) -> QuerySet[User]:
        rows: QuerySet[User] = super().get_queryset(request)
        return rows.annotate(ases=Count("user_ases"))

    def save_model(self, request: HttpRequest, obj: User, form: Any, change: bool) -> None:
        if not change:
            obj.save()
            return
        names = tuple(name for name in self.compared if name in form.fields)
        account_update(user_id=obj.pk, values=values_of(obj, names), shown=self.known(request, names))

    def delete_model(self, request: HttpRequest, obj: User) -> None:
        account_delete(user_id=obj.pk)

    @admin.display(description="user ASes", ordering="ases")
    def quota(self, obj: Any) -> str:
        text = f"{obj.ases} of {obj.as_quota}"
        shown = badge("warn", text, "The quota is used.") if obj.ases >= obj.as_quota else text
        return link_to_list(obj.user_ases.model, shown, owner__id__exact=obj.pk) if obj.ases else shown

    @admin.display(description="second factor", boolean=True)
    def second_factor(self, obj: User) -> bool:
        return has_second_factor(obj)

    @admin.action(description="Remove the second factor (lost phone or key)")
    def remove_second_factor(self, request: HttpRequest, users: QuerySet[User]) -> None:
        """Excludes the administrator's own, which the account page removes after asking for the password."""
        removed = [user.email for user in users if user != request.user and second_factor_remove(user_id=user.pk)]
        text = f"Removed, and notified by email: {', '.join(removed)}." if removed else "There was no second factor."
        messages.success(request, text)
