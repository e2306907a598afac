"""Accounts: by email address, with a quota of user ASes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from allauth.account.models import EmailAddress
from allauth.mfa.models import Authenticator
from django import forms
from django.contrib import admin, messages
from django.contrib.auth.admin import UserAdmin as DjangoUserAdmin
from django.contrib.auth.forms import BaseUserCreationForm, UserChangeForm
from django.db.models import Count, QuerySet
from django.http import HttpRequest

from scionlab.admin.base import ServiceAdmin, badge, link_to_list
from scionlab.models import User, UserAS
from scionlab.people.account import account_delete, account_update
from scionlab.people.second_factor import has_second_factor, second_factor_remove
from scionlab.people.stale_pages import values_of

if TYPE_CHECKING:  # generic for the type checker only
    _CreationForm = BaseUserCreationForm[User]
    _ChangeForm = UserChangeForm[User]
else:
    _CreationForm = BaseUserCreationForm
    _ChangeForm = UserChangeForm


# allauth's own pages would show sealed secrets, and addresses that nobody uses.
admin.site.unregister([EmailAddress, Authenticator])


class UserAddForm(_CreationForm):
    class Meta:
        model = User
        fields = ("email", "full_name", "as_quota", "is_staff")

    def clean_email(self) -> str:
        """In lower case, as it is stored: so that the same address in another case is found to be taken."""
        return str(self.cleaned_data["email"]).lower()


class UserEditForm(_ChangeForm):
    class Meta:
        model = User
        fields = ("email", "full_name", "as_quota", "is_staff", "is_active", "password")

    def clean_email(self) -> str:
        return str(self.cleaned_data["email"]).lower()


@admin.register(User)
class UserAdmin(ServiceAdmin, DjangoUserAdmin):  # type: ignore[type-arg]  # generic in the stubs only
    form = UserEditForm
    add_form = UserAddForm
    list_display = ["email", "full_name", "quota", "administrator", "is_active", "last_login"]
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
    readonly_fields = ["quota", "second_factor", "last_login", "date_joined"]
    actions = ("remove_second_factor",)

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        """Nobody locks themselves out."""
        return [*self.readonly_fields, "is_staff", "is_active"] if obj == request.user else self.readonly_fields

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
        shown = self.shown(request)
        known = None if shown is None else {name: shown.get(name) for name in names}
        account_update(user_id=obj.pk, values=values_of(obj, names), shown=known)

    def delete_model(self, request: HttpRequest, obj: User) -> None:
        account_delete(user_id=obj.pk)

    def get_form(
        self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any
    ) -> type[forms.ModelForm[User]]:
        form: type[forms.ModelForm[User]] = super().get_form(request, obj, change=change, **kwargs)
        return form

    @admin.display(description="user ASes", ordering="ases")
    def quota(self, obj: Any) -> str:
        text = f"{obj.ases} of {obj.as_quota}"
        shown = badge("warn", text, "The quota is used.") if obj.ases >= obj.as_quota else text
        return link_to_list(UserAS, shown, owner__id__exact=obj.pk) if obj.ases else shown

    @admin.display(description="second factor", boolean=True)
    def second_factor(self, obj: User) -> bool:
        return has_second_factor(obj)

    @admin.action(description="Remove the second factor (lost phone or key)")
    def remove_second_factor(self, request: HttpRequest, users: QuerySet[User]) -> None:
        """Not one's own, which its page removes after asking for the password."""
        removed = [user.email for user in users if user != request.user and second_factor_remove(user_id=user.pk)]
        text = f"Removed, and told by email: {', '.join(removed)}." if removed else "There was none to remove."
        messages.success(request, text)

    @admin.display(description="administrator", boolean=True, ordering="is_staff")
    def administrator(self, obj: User) -> bool:
        return obj.is_staff
