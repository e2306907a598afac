"""User ASes: whose they are and how they are attached; they are edited on the users' pages, also by administrators."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import Count, Q, QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html

from scionlab.admin.base import ServiceAdmin, actor_of, apply_to_each, kbit, link_to, table
from scionlab.admin.link import state_badge
from scionlab.admin.search import search_query
from scionlab.admin.trust import certificate_table
from scionlab.enforcement.status import link_status
from scionlab.links.user_as import user_as_delete, user_as_set_active
from scionlab.models import UserAS, selectors


@admin.register(UserAS)
class UserASAdmin(ServiceAdmin):
    change_form_template = "admin/scionlab/as/change_form.html"
    list_display = ["isd_as", "label", "owner_link", "attachments", "installation_type", "created_at"]
    list_filter = ["isd", "installation_type", "created_at"]
    list_select_related = ["isd", "owner"]
    search_fields = ["pk"]  # makes the search box appear; get_search_results does the work
    search_help_text = "ISD-AS (17-ffaa:1:b6, ffaa:1:b6 or b6), email address, label, IP address"
    actions = ["activate", "deactivate"]
    fields = ["isd_as", "label", "owner_link", "installation_type", "created_at", "links", "certificates", "edit"]
    readonly_fields = [
        "isd_as",
        "label",
        "owner_link",
        "installation_type",
        "created_at",
        "links",
        "certificates",
        "edit",
    ]
    note = "Label, attachments and addresses are edited on the user AS's own page, which checks every rule."

    def has_add_permission(self, request: HttpRequest, *args: Any) -> bool:
        """A user AS needs attachments: it is made on the users' page."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Nothing is typed here: a button to save would promise something."""
        return False

    def get_queryset(self, request: HttpRequest) -> QuerySet[UserAS]:
        link = "interfaces__link_as_b"
        active = Count(link, filter=Q(**{f"{link}__active": True}))
        rows: QuerySet[UserAS] = super().get_queryset(request)
        return rows.select_related("isd", "owner").annotate(all_links=Count(link), active_links=active)

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[UserAS], search_term: str
    ) -> tuple[QuerySet[UserAS], bool]:
        query = search_query(
            search_term,
            as_paths=[""],
            text=["label", "owner__email"],
            ips=["interfaces__public_ip", "interfaces__bind_ip"],
        )
        found = UserAS.objects.filter(query).values("pk")  # apart from the counts, which a join would multiply
        return queryset.filter(pk__in=found), False

    def delete_model(self, request: HttpRequest, obj: UserAS) -> None:
        user_as_delete(user_as_id=obj.pk, actor=actor_of(request))

    @admin.action(description="Activate all attachments of the selected user ASes")
    def activate(self, request: HttpRequest, queryset: QuerySet[UserAS]) -> None:
        self._set_active(request, queryset, active=True)

    @admin.action(description="Deactivate all attachments of the selected user ASes")
    def deactivate(self, request: HttpRequest, queryset: QuerySet[UserAS]) -> None:
        self._set_active(request, queryset, active=False)

    def _set_active(self, request: HttpRequest, queryset: QuerySet[UserAS], *, active: bool) -> None:
        def service(user_as: UserAS) -> None:
            user_as_set_active(user_as_id=user_as.pk, actor=actor_of(request), active=active)

        state = "active" if active else "inactive"
        apply_to_each(self, request, queryset.order_by("pk"), service, f"{{count}} user ASes are {state}.")

    @admin.display(description="ISD-AS", ordering="as_id")
    def isd_as(self, obj: UserAS) -> str:
        return obj.isd_as

    @admin.display(description="owner", ordering="owner__email")
    def owner_link(self, obj: UserAS) -> str:
        return link_to(obj.owner)

    @admin.display(description="attachments", ordering="active_links")
    def attachments(self, obj: Any) -> str:
        inactive = obj.all_links - obj.active_links
        return f"{obj.active_links}" + (f" and {inactive} inactive" if inactive else "")

    @admin.display(description="attachments")
    def links(self, obj: UserAS) -> str:
        now = timezone.now()
        rows = []
        for link in selectors.links_of(obj):
            status = link_status(link, now=now)
            limits = (kbit(status.requested_kbit), kbit(status.maximum_kbit), kbit(status.enforced_kbit))
            rows.append((link_to(link), link_to(link.attachment_point), *limits, state_badge(status)))
        return table(["Link", "Attachment point", "Requested", "Maximum", "Enforced", "State"], rows)

    @admin.display(description="certificates")
    def certificates(self, obj: UserAS) -> str:
        return certificate_table(obj)

    @admin.display(description="edit")
    def edit(self, obj: UserAS) -> str:
        url = reverse("user_as_edit", args=[obj.pk])
        return format_html('<a href="{}">Edit {} on the users\' page</a>', url, obj.isd_as)
