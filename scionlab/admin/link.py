"""Links: what is requested, what may be, what the kernel of the attachment point really has, and since when."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django import forms
from django.contrib import admin
from django.db.models import F, Q, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html

from bandwidth_config import format_kbit
from scionlab.admin.base import (
    NOTHING,
    KbitField,
    ReasonForm,
    ServiceAdmin,
    ServiceForm,
    actor_of,
    ago,
    apply_to_each,
    badge,
    kbit,
    link_to,
    link_to_list,
)
from scionlab.admin.search import search_query
from scionlab.enforcement.census import take_census
from scionlab.enforcement.status import Counters, LinkStatus, link_status
from scionlab.enforcement.words import WORDS
from scionlab.links.update import link_set_active, link_update
from scionlab.models import AS, AttachmentPoint, BandwidthChange, BorderRouter, Link, LinkEnforcement, selectors
from scionlab.network import infrastructure_links

USER_LINKS = Q(type=Link.Type.PROVIDER, interface_b__AS__useras__isnull=False)
_MAXIMUM = F("interface_a__AS__attachment_point__maximum_kbit")
CLAMPED = USER_LINKS & (Q(bandwidth_kbit__gt=_MAXIMUM) | Q(from_user_kbit__gt=_MAXIMUM))


def with_status_rows(queryset: QuerySet[Link]) -> QuerySet[Link]:
    """Fetches with the Links all that their rows on a page say, in two statements."""
    return selectors.with_relations(queryset).select_related("interface_b__AS__useras__owner")


def state_badge(status: LinkStatus) -> str:
    shown = badge(status.tone, status.word.lower(), status.text)
    remark = status.remark
    if remark is None or not remark.is_warning:
        return shown
    return format_html('{} <span class="slb-remark">{}</span>', shown, remark.text)


class AttachmentPointFilter(admin.SimpleListFilter):
    title = "attachment point"
    parameter_name = "ap"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Iterable[tuple[str, str]]:
        return [(str(ap.pk), str(ap)) for ap in AttachmentPoint.objects.select_related("AS__isd")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Link]) -> QuerySet[Link]:
        value = self.value()
        if value is None:
            return queryset
        if not (value.isascii() and value.isdigit() and len(value) < 19):
            return queryset.none()
        return queryset.filter(USER_LINKS, interface_a__AS__attachment_point=int(value))


class KindFilter(admin.SimpleListFilter):
    """Links to user ASes unless something else is asked for: only those are limited."""

    title = "kind"
    parameter_name = "kind"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Iterable[tuple[str, str]]:
        return [("infrastructure", "infrastructure, not limited"), ("all", "all")]

    def choices(self, changelist: Any) -> Any:
        default, *others = super().choices(changelist)
        yield {**default, "display": "to user ASes"}
        yield from others

    def queryset(self, request: HttpRequest, queryset: QuerySet[Link]) -> QuerySet[Link]:
        if self.value() == "all":
            return queryset
        return queryset.exclude(USER_LINKS) if self.value() == "infrastructure" else queryset.filter(USER_LINKS)


class StateFilter(admin.SimpleListFilter):
    title = "state"
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Iterable[tuple[str, str]]:
        return [(state, one.word.lower()) for state, one in WORDS.items()]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Link]) -> QuerySet[Link]:
        state = next((state for state in WORDS if state == self.value()), None)
        if state is None:
            return queryset
        return take_census(now=timezone.now()).only(queryset.filter(USER_LINKS), state=state)


class LimitFilter(admin.SimpleListFilter):
    title = "limit"
    parameter_name = "clamped"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Iterable[tuple[str, str]]:
        return [("yes", "clamped by the maximum"), ("no", "as requested"), ("blocked", "blocked (0)")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Link]) -> QuerySet[Link]:
        if self.value() == "yes":
            return queryset.filter(CLAMPED)
        if self.value() == "no":
            return queryset.filter(USER_LINKS).exclude(CLAMPED)
        if self.value() == "blocked":
            return queryset.filter(
                USER_LINKS,
                Q(bandwidth_kbit=0) | Q(from_user_kbit=0) | Q(interface_a__AS__attachment_point__maximum_kbit=0),
            )
        return queryset


class LinkForm(ReasonForm):
    bandwidth_kbit = KbitField(
        label="Bandwidth requested [kbit/s]", help_text="0 blocks the Link of a user AS in both directions."
    )
    active = forms.BooleanField(required=False, help_text="An inactive Link is in no configuration.")
    observe_only = forms.BooleanField(required=False, help_text="The Link of a user AS is measured but not limited.")


class RouterField(forms.ModelChoiceField):  # type: ignore[type-arg]  # generic for the type checker only
    """One end of a Link between infrastructure ASes: names the AS, the host and the router on it."""

    def __init__(self, **kwargs: Any) -> None:
        routers = BorderRouter.objects.filter(host__AS__isnull=False, host__AS__useras=None, vpn=None)
        in_order = routers.order_by("host__AS__isd__isd_id", "host__AS__as_id", "number")
        super().__init__(queryset=in_order.select_related("host__AS__isd"), **kwargs)

    def label_from_instance(self, obj: BorderRouter) -> str:
        return f"{obj.host.AS}: {obj}"


class NewLinkForm(ServiceForm):
    """A Link between two infrastructure ASes; addresses, ports and interface ids are given by the service."""

    router_a = RouterField(label="End A", help_text="For a provider Link: the border router of the provider.")
    router_b = RouterField(label="End B", help_text="For a provider Link: the border router of the customer.")
    bandwidth_kbit = KbitField(
        label="Bandwidth of the Link [kbit/s]",
        initial=infrastructure_links.INFRASTRUCTURE_BANDWIDTH_KBIT,
        help_text="For information only: Links between infrastructure ASes are not limited.",
    )


@admin.register(Link)
class LinkAdmin(ServiceAdmin):
    form = LinkForm
    list_display = [
        "customer",
        "provider",
        "requested",
        "maximum",
        "enforced",
        "state",
        "since",
        "owner",
        "underlay",
        "is_active",
    ]
    list_display_links = ["customer"]
    list_filter = [KindFilter, AttachmentPointFilter, StateFilter, LimitFilter, "active"]
    list_per_page = 100
    search_fields = ["pk"]  # makes the search box appear; get_search_results does the work
    search_help_text = "ISD-AS (17-ffaa:1:b6, ffaa:1:b6 or b6), email address, IP address, label"
    actions = ["activate", "deactivate"]
    rule_field = "bandwidth_kbit"
    compared = ("bandwidth_kbit", "active", "observe_only")
    note = (
        "Changing the bandwidth sends new limits to the attachment point and restarts nothing. Activating or "
        "deactivating a Link changes the SCION configuration of both ends."
    )
    add_fieldsets = [(None, {"fields": ["type", "router_a", "router_b", "bandwidth_kbit"]})]
    add_note = (
        "Creates a Link between two infrastructure ASes. Both ends get a new configuration. User ASes are attached on "
        "their own page."
    )
    fieldsets = [
        (None, {"fields": ["bandwidth_kbit", "active", "observe_only", "reason"]}),
        ("Status", {"fields": ["requested", "maximum", "enforced", "state", "status_text", "since"]}),
        ("Ends", {"fields": ["provider", "customer", "owner", "underlay", "local_underlay", "mtu", "changes"]}),
        ("Counters of the newest receipt", {"fields": ["to_user", "from_user", "received"]}),
    ]
    readonly_fields = [
        "requested",
        "maximum",
        "enforced",
        "state",
        "status_text",
        "since",
        "provider",
        "customer",
        "owner",
        "underlay",
        "local_underlay",
        "mtu",
        "changes",
        "to_user",
        "from_user",
        "received",
    ]

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        return self.add_fieldsets if obj is None else self.fieldsets

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        return () if obj is None else self.readonly_fields

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:
        return super().get_form(request, obj, change=change, **{"form": LinkForm if change else NewLinkForm, **kwargs})

    def add_view(
        self, request: HttpRequest, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        return super().add_view(request, form_url, {"note": self.add_note, **(extra_context or {})})

    def response_post_save_add(self, request: HttpRequest, obj: Link) -> HttpResponseRedirect:
        """To the list that has the new Link: without a filter only Links to user ASes are shown."""
        return HttpResponseRedirect(reverse("admin:scionlab_link_changelist", query={"kind": "infrastructure"}))

    def get_queryset(self, request: HttpRequest) -> QuerySet[Link]:
        return with_status_rows(super().get_queryset(request))

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Link], search_term: str
    ) -> tuple[QuerySet[Link], bool]:
        ends = ["interface_a", "interface_b"]
        query = search_query(
            search_term,
            as_paths=[f"{end}__AS__" for end in ends],
            text=["interface_b__AS__useras__owner__email", *(f"{end}__AS__label" for end in ends)],
            ips=[f"{end}__{ip}" for end in ends for ip in ("public_ip", "bind_ip")],
        )
        return queryset.filter(query), False

    def save_model(self, request: HttpRequest, obj: Link, form: Any, change: bool) -> None:
        actor, values = actor_of(request), form.cleaned_data
        if not change:
            made = infrastructure_links.infrastructure_link_create(
                a=values["router_a"].host.AS,
                b=values["router_b"].host.AS,
                type=Link.Type(values["type"]),
                bandwidth_kbit=values["bandwidth_kbit"],
                router_a=values["router_a"],
                router_b=values["router_b"],
            )
            obj.pk, obj.interface_a, obj.interface_b = made.pk, made.interface_a, made.interface_b
            return
        link_update(
            link_id=obj.pk,
            bandwidth_kbit=values["bandwidth_kbit"],
            active=values["active"],
            observe_only=values["observe_only"] and obj.is_limited,
            actor=actor,
            reason=values["reason"],
            shown=self.shown(request),
        )

    def delete_model(self, request: HttpRequest, obj: Link) -> None:
        infrastructure_links.infrastructure_link_delete(link_id=obj.pk)

    @admin.action(description="Activate the selected Links")
    def activate(self, request: HttpRequest, queryset: QuerySet[Link]) -> None:
        self._set_active(request, queryset, active=True)

    @admin.action(description="Deactivate the selected Links")
    def deactivate(self, request: HttpRequest, queryset: QuerySet[Link]) -> None:
        self._set_active(request, queryset, active=False)

    def _set_active(self, request: HttpRequest, queryset: QuerySet[Link], *, active: bool) -> None:
        def service(link: Link) -> None:
            link_set_active(link_id=link.pk, actor=actor_of(request), active=active)

        state = "active" if active else "inactive"
        apply_to_each(self, request, queryset.order_by("pk"), service, f"{{count}} Links are {state}.")

    def _status(self, obj: Link) -> LinkStatus:
        """Worked out once per row and page."""
        if not hasattr(obj, "_status"):
            obj._status = link_status(obj, now=timezone.now())  # type: ignore[attr-defined]
        status: LinkStatus = obj._status  # type: ignore[attr-defined]
        return status

    @admin.display(description="attachment point", ordering="interface_a__AS__as_id")
    def provider(self, obj: Link) -> str:
        as_ = obj.interface_a.AS
        return link_to(getattr(as_, "attachment_point", None) or as_, _two_lines(as_))

    @admin.display(description="user AS", ordering="interface_b__AS__as_id")
    def customer(self, obj: Link) -> str:
        return _two_lines(obj.interface_b.AS)

    @admin.display(description="owner", ordering="interface_b__AS__useras__owner__email")
    def owner(self, obj: Link) -> str:
        user_as = getattr(obj.interface_b.AS, "useras", None)
        return NOTHING if user_as is None else link_to(user_as.owner)

    @admin.display(description="remote address", ordering="interface_b__public_ip")
    def underlay(self, obj: Link) -> str:
        end = obj.interface_b
        shown = f"[{end.public_ip}]:{end.public_port}" if ":" in end.public_ip else f"{end.public_ip}:{end.public_port}"
        return f"{shown} (VPN)" if end.vpn_client_id is not None else shown

    @admin.display(description="provider's end")
    def local_underlay(self, obj: Link) -> str:
        end = obj.interface_a
        return format_html(
            "interface {} on {}: {} port {}", end.interface_id, link_to(end.host), end.local_ip, end.local_port
        )

    @admin.display(description="requested", ordering="bandwidth_kbit")
    def requested(self, obj: Link) -> str:
        return kbit(obj.bandwidth_kbit)

    @admin.display(description="maximum", ordering="interface_a__AS__attachment_point__maximum_kbit")
    def maximum(self, obj: Link) -> str:
        if not obj.is_limited:
            return NOTHING
        status = self._status(obj)
        shown = kbit(status.maximum_kbit)
        if status.requested_kbit <= status.maximum_kbit:
            return shown
        return format_html("{} {}", shown, badge("warn", "below request", "The requested limit is above the maximum."))

    @admin.display(description="enforced", ordering="enforcement__kbit")
    def enforced(self, obj: Link) -> str:
        return kbit(self._status(obj).enforced_kbit) if obj.is_limited else "not limited"

    @admin.display(description="state")
    def state(self, obj: Link) -> str:
        return state_badge(self._status(obj)) if obj.is_limited else NOTHING

    @admin.display(description="status")
    def status_text(self, obj: Link) -> str:
        return self._status(obj).text if obj.is_limited else "Infrastructure: this Link is not limited."

    @admin.display(description="since", ordering="enforcement__since")
    def since(self, obj: Link) -> str:
        since = self._status(obj).since if obj.is_limited else None
        return NOTHING if since is None else ago(since, now=timezone.now())

    @admin.display(description="active", boolean=True, ordering="active")
    def is_active(self, obj: Link) -> bool:
        return obj.active

    @admin.display(description="changes")
    def changes(self, obj: Link) -> str:
        return link_to_list(BandwidthChange, "history of changes", link__id__exact=obj.pk)

    @admin.display(description="to the user AS")
    def to_user(self, obj: Link) -> str:
        return _counters(obj, "to_user")

    @admin.display(description="from the user AS")
    def from_user(self, obj: Link) -> str:
        return _counters(obj, "from_user")

    @admin.display(description="received")
    def received(self, obj: Link) -> str:
        found: LinkEnforcement | None = getattr(obj, "enforcement", None)
        return NOTHING if found is None else ago(found.received_at, now=timezone.now())


def _two_lines(as_: AS) -> str:
    """Narrow, so that the columns about limits stay in sight."""
    return format_html('{}<br><span class="slb-label">{}</span>', as_.isd_as, as_.label)


def _counters(obj: Link, direction: str) -> str:
    found: LinkEnforcement | None = getattr(obj, "enforcement", None)
    if found is None:
        return NOTHING
    rate, counters = getattr(found, f"{direction}_rate_kbit"), Counters.of(found, direction)
    if counters is None:
        return NOTHING
    parts = f" ({counters.parts})" if counters.parts else ""
    counted = f"{counters.packets:,} packets, {counters.bytes:,} bytes; {counters.drops:,} dropped{parts}"
    return f"{NOTHING if rate is None else format_kbit(rate)} in the kernel; {counted}"
