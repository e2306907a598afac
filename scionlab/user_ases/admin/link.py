"""Links: their ends, the requested limits, and whether they are active."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html

from bandwidth_config import Limits
from contract.scion_files import join_address
from scionlab.limits.update import link_update
from scionlab.testbed import infrastructure_links
from scionlab.testbed.models import AS, BorderRouter, Link
from scionlab.testbed.models.link_settings import LINK_SETTINGS
from scionlab.testbed.selectors import USER_LINKS
from scionlab.web.admin.base import KbitField, ReasonForm, ServiceAdmin, actor_of, reason_of
from scionlab.web.admin.columns import NOTHING, ChoiceFilter, link_to
from scionlab.web.admin.search import FoundByAs


class KindFilter(ChoiceFilter):
    title = "kind"
    parameter_name = "kind"
    found = {"user": ("to user ASes", USER_LINKS), "infrastructure": ("infrastructure, not limited", ~USER_LINKS)}


class RouterField(forms.ModelChoiceField):  # type: ignore[type-arg]  # generic for the type checker only
    """One end of a Link between infrastructure ASes; each choice shows AS, host and router."""

    def __init__(self, **kwargs: Any) -> None:
        routers = BorderRouter.objects.filter(host__AS__isnull=False, host__AS__useras=None, vpn=None)
        in_order = routers.order_by("host__AS__isd__isd_id", "host__AS__as_id", "number")
        super().__init__(queryset=in_order.select_related("host__AS__isd"), **kwargs)

    def label_from_instance(self, obj: BorderRouter) -> str:
        return f"{obj.host.AS}: {obj}"


class NewLinkForm(ReasonForm):
    """A Link between two infrastructure ASes; the service assigns addresses, ports and interface ids."""

    router_a = RouterField(label="End A", help_text="For a provider Link: the border router of the provider.")
    router_b = RouterField(label="End B", help_text="For a provider Link: the border router of the customer.")
    bandwidth_kbit = KbitField(
        label="Bandwidth of the Link [kbit/s]",
        initial=infrastructure_links.INFRASTRUCTURE_BANDWIDTH_KBIT,
        help_text="For information only: Links between infrastructure ASes are not limited.",
    )


@admin.register(Link)
class LinkAdmin(FoundByAs, ServiceAdmin):
    form = ReasonForm
    add_form = NewLinkForm
    list_display = ["customer", "provider", "requested", "owner", "underlay", "active"]
    list_display_links = ["customer"]
    list_filter = [KindFilter, "active"]
    as_paths = ["interface_a__AS__", "interface_b__AS__"]
    search_text = ["interface_b__AS__useras__owner__email", "interface_a__AS__label", "interface_b__AS__label"]
    search_ips = [f"interface_{end}__{ip}" for end in "ab" for ip in ("public_ip", "bind_ip")]
    search_help_text = "ISD-AS (17-ffaa:1:b6, ffaa:1:b6 or b6), email address, IP address, label"
    rule_field = "bandwidth_kbit"
    compared = ("bandwidth_kbit", "from_user_kbit", *LINK_SETTINGS)
    note = (
        "Changing the bandwidth sends new limits to the attachment point and restarts nothing. Activating or "
        "deactivating a Link changes the SCION configuration of both ends."
    )
    add_fieldsets = [(None, {"fields": ["type", "router_a", "router_b", "bandwidth_kbit", "reason"]})]
    add_note = (
        "Creates a Link between two infrastructure ASes. Both ends get a new configuration. User ASes are attached on "
        "their own page."
    )
    fieldsets = [
        (None, {"fields": [*compared, "reason"]}),
        ("Ends", {"fields": ["provider", "customer", "owner", "underlay", "local_underlay", "mtu", "status"]}),
    ]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Link]:
        related = [
            f"interface_{end}__AS__{row}" for end in "ab" for row in ("isd", "attachment_point", "useras__owner")
        ]
        return super().get_queryset(request).select_related(*related)

    def save_model(self, request: HttpRequest, obj: Link, form: Any, change: bool) -> None:
        actor, values = actor_of(request), form.cleaned_data
        if not change:
            ends = {end: values[f"router_{end}"].host.AS for end in "ab"}
            made = infrastructure_links.infrastructure_link_create(**ends, **values, actor=actor)
            obj.pk, obj.interface_a, obj.interface_b = made.pk, made.interface_a, made.interface_b
            return
        settings = {name: values[name] for name in LINK_SETTINGS}
        settings["observe_only"] &= obj.is_limited
        link_update(
            link_id=obj.pk,
            limits=Limits.of_columns(values["bandwidth_kbit"], values["from_user_kbit"]),
            actor=actor,
            reason=values["reason"],
            shown=self.shown(request),
            **settings,
        )

    def delete_model(self, request: HttpRequest, obj: Link) -> None:
        infrastructure_links.infrastructure_link_delete(
            link_id=obj.pk, actor=actor_of(request), reason=reason_of(request)
        )

    @admin.display(description="end A (provider)", ordering="interface_a__AS__as_id")
    def provider(self, obj: Link) -> str:
        as_ = obj.interface_a.AS
        return link_to(getattr(as_, "attachment_point", None) or as_, _two_lines(as_))

    @admin.display(description="end B (user AS)", ordering="interface_b__AS__as_id")
    def customer(self, obj: Link) -> str:
        return _two_lines(obj.interface_b.AS)

    @admin.display(description="owner", ordering="interface_b__AS__useras__owner__email")
    def owner(self, obj: Link) -> str:
        user_as = getattr(obj.interface_b.AS, "useras", None)
        return NOTHING if user_as is None else link_to(user_as.owner)

    @admin.display(description="address of B", ordering="interface_b__public_ip")
    def underlay(self, obj: Link) -> str:
        end = obj.interface_b
        shown = join_address(end.public_ip, end.public_port)
        return f"{shown} (VPN)" if end.vpn_client_id is not None else shown

    @admin.display(description="provider's end")
    def local_underlay(self, obj: Link) -> str:
        end = obj.interface_a
        return format_html(
            "interface {} on {}: {} port {}", end.interface_id, link_to(end.host), end.local_ip, end.local_port
        )

    @admin.display(description="requested", ordering="bandwidth_kbit")
    def requested(self, obj: Link) -> str:
        return str(obj.requested)

    @admin.display(description="state and history")
    def status(self, obj: Link) -> str:
        user_as = getattr(obj.interface_b.AS, "useras", None)
        if user_as is None:
            history = reverse("cockpit_history", query={"link": obj.pk})
            return format_html('This Link is not limited. <a href="{}">History</a>', history)
        page = reverse("link_detail", args=[user_as.pk, obj.pk])
        return format_html('<a href="{}">Limits, state, counters and history</a>', page)


def _two_lines(as_: AS) -> str:
    """Two lines, so that all columns fit."""
    return format_html('{}<br><span class="slb-label">{}</span>', as_.isd_as, as_.label)
