"""User ASes: owner and attachments; administrators edit them on the users' pages, too."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import Count, Q, QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html

from scionlab.testbed.models import Link, UserAS
from scionlab.user_ases.user_as import user_as_change, user_as_delete
from scionlab.web.admin.base import ServiceAdmin, actor_of, apply_to_each, reason_of
from scionlab.web.admin.columns import link_to_list, linked
from scionlab.web.admin.search import FoundByAs


@admin.register(UserAS)
class UserASAdmin(FoundByAs, ServiceAdmin):
    offers = ("delete",)  # created and edited on the users' pages, which check every rule
    list_display = ["isd_as", "label", linked("owner", ordering="owner__email"), "attachments", "installation_type"]
    list_display += ["created_at"]
    list_filter = ["isd", "installation_type", "created_at"]
    list_select_related = ["isd", "owner"]
    as_paths = [""]
    search_text = ["label", "owner__email"]
    search_ips = ["interfaces__public_ip", "interfaces__bind_ip"]
    search_help_text = "ISD-AS (17-ffaa:1:b6, ffaa:1:b6 or b6), email address, label, IP address"
    actions = ["activate", "deactivate"]
    fields = ["isd_as", "label", "owner", "installation_type", "created_at", "attachments", "edit"]
    note = "Label, attachments and addresses are edited on the user AS's own page, which checks every rule."

    def get_queryset(self, request: HttpRequest) -> QuerySet[UserAS]:
        link = "interfaces__link_as_b"
        active = Count(link, filter=Q(**{f"{link}__active": True}))
        rows: QuerySet[UserAS] = super().get_queryset(request)
        return rows.select_related("isd", "owner").annotate(all_links=Count(link), active_links=active)

    def delete_model(self, request: HttpRequest, obj: UserAS) -> None:
        user_as_delete(user_as_id=obj.pk, actor=actor_of(request), reason=reason_of(request))

    @admin.action(description="Activate all attachments of the selected user ASes")
    def activate(self, request: HttpRequest, queryset: QuerySet[UserAS]) -> None:
        self._set_active(request, queryset, active=True)

    @admin.action(description="Deactivate all attachments of the selected user ASes")
    def deactivate(self, request: HttpRequest, queryset: QuerySet[UserAS]) -> None:
        self._set_active(request, queryset, active=False)

    def _set_active(self, request: HttpRequest, queryset: QuerySet[UserAS], *, active: bool) -> None:
        def service(user_as: UserAS) -> None:
            user_as_change(user_as_id=user_as.pk, actor=actor_of(request), active=active, reason=reason_of(request))

        state = "active" if active else "inactive"
        apply_to_each(self, request, queryset.order_by("pk"), service, f"{{count}} user ASes are {state}.")

    @admin.display(description="ISD-AS", ordering="as_id")
    def isd_as(self, obj: UserAS) -> str:
        return obj.isd_as

    @admin.display(description="attachments", ordering="active_links")
    def attachments(self, obj: Any) -> str:
        inactive = obj.all_links - obj.active_links
        text = f"{obj.active_links}" + (f" and {inactive} inactive" if inactive else "")
        return link_to_list(Link, text, q=obj.isd_as) if obj.all_links else "0"

    @admin.display(description="own page")
    def edit(self, obj: UserAS) -> str:
        show, edit = reverse("user_as_detail", args=[obj.pk]), reverse("user_as_edit", args=[obj.pk])
        return format_html('<a href="{}">Limits, states and history</a>, <a href="{}">edit</a>', show, edit)
