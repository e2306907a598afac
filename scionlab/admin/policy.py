"""How much bandwidth there is to give away: the site's default and the attachment points' own ones."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin, messages
from django.db.models import BigIntegerField, Count, F, Q, QuerySet, Sum, Value
from django.db.models.functions import Coalesce, Least
from django.forms import ModelChoiceField
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils import timezone

from bandwidth_config import format_kbit
from scionlab.admin.base import (
    NOTHING,
    KbitField,
    ReasonForm,
    ServiceAdmin,
    actor_of,
    badge,
    kbit,
    link_to,
    link_to_list,
)
from scionlab.admin.host import last_seen
from scionlab.enforcement.agents import agent_of
from scionlab.enforcement.total import TotalStatus, total_status
from scionlab.links import defaults
from scionlab.links.bulk import default_preview
from scionlab.links.bulk_plan import SITE
from scionlab.models import AS, VPN, AttachmentPoint, BandwidthChange, BandwidthPolicy, Host, Link, selectors
from scionlab.network import infrastructure
from scionlab.network.path_metadata import checked_metadata
from scionlab.pages.forms import RuleField

DEFAULT = "default_bandwidth_kbit"


class BandwidthPolicyForm(ReasonForm):
    default_bandwidth_kbit = KbitField(
        label="Site default [kbit/s]",
        help_text="Initial value and maximum of every Link, unless its attachment point has a default of its own. "
        "0 blocks them all.",
    )


class DefaultAdmin(ServiceAdmin):
    """A page with a default. Where existing Links get another maximum by a new one, saving the page leads to the
    preview of that change, and the default is stored once it is confirmed there; everything else is saved at once."""

    rule_field = DEFAULT

    def preview(self, request: HttpRequest, key: int, form: Any) -> bool:
        """Whether the default waits for the confirmation. The log then does not say that it was changed."""
        wanted, reason = form.cleaned_data[DEFAULT], form.cleaned_data["reason"]
        made = default_preview(key=key, default_kbit=wanted, actor=actor_of(request), reason=reason)
        if made is None:
            return False
        form.changed_data = [name for name in form.changed_data if name not in {DEFAULT, "reason"}]
        if form.changed_data:
            self.message_user(request, "The other changes on the page were saved.", messages.SUCCESS)
        request._preview = made  # type: ignore[attr-defined]  # read by `response_change`
        return True

    def response_change(self, request: HttpRequest, obj: Any) -> HttpResponse:
        made = getattr(request, "_preview", None)
        if made is None:
            return super().response_change(request, obj)
        return HttpResponseRedirect(reverse("cockpit_defaults_change", args=[made.pk]))


@admin.register(BandwidthPolicy)
class BandwidthPolicyAdmin(DefaultAdmin):
    """The one row; the list page leads straight to it."""

    form = BandwidthPolicyForm
    fields = ["default_bandwidth_kbit", "reason", "attachment_points", "changes"]
    readonly_fields = ["attachment_points", "changes"]
    compared = (DEFAULT,)
    note = (
        "Lowering the default clamps Links above it; the requested limits are kept and apply again "
        "when the default rises again. A default that concerns existing Links is previewed before it is set."
    )

    def has_add_permission(self, request: HttpRequest, *args: Any) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        row = selectors.policy()
        return HttpResponseRedirect(reverse("admin:scionlab_bandwidthpolicy_change", args=[row.pk]))

    @admin.display(description="Applies to")
    def attachment_points(self, obj: BandwidthPolicy) -> str:
        aps = AttachmentPoint.objects.all()
        own = aps.filter(default_bandwidth_kbit__isnull=False).count()
        total = aps.count()
        return link_to_list(
            AttachmentPoint, f"{total - own} of {total} attachment points; {own} have a default of their own"
        )

    @admin.display(description="Changes")
    def changes(self, obj: BandwidthPolicy) -> str:
        kind = BandwidthChange.Kind.SITE_DEFAULT
        return link_to_list(BandwidthChange, "history of changes", kind__exact=kind.value)

    def save_model(self, request: HttpRequest, obj: BandwidthPolicy, form: Any, change: bool) -> None:
        wanted, reason = form.cleaned_data[DEFAULT], form.cleaned_data["reason"]
        defaults.refuse_older_page(attachment_point_id=None, values={DEFAULT: wanted}, shown=self.shown(request))
        if not self.preview(request, SITE, form):
            defaults.site_default_set(default_bandwidth_kbit=wanted, actor=actor_of(request), reason=reason)


class AttachmentPointForm(ReasonForm):
    default_bandwidth_kbit = KbitField(
        optional=True,
        label="Default here [kbit/s]",
        help_text="Initial value and maximum of the Links here. Empty: the site default. 0 blocks all of them.",
    )
    total_kbit = KbitField(
        optional=True,
        label="Total of all Links [kbit/s]",
        help_text="Maximum for all Links here together, in each direction. They share it in proportion to their "
        "limits; no Link gets more than its own limit. Empty: no total.",
    )
    observe_only = forms.BooleanField(
        label="Observe only",
        required=False,
        help_text="All Links here are measured but not limited.",
    )
    publishes_limits = forms.BooleanField(
        label="Publish limits",
        required=False,
        help_text="This tells the world how much each user chose: everybody who has a SCION path through an active "
        "Link of a user AS here sees its limit (scion showpaths --extended). It is the Link's own limit [kbit/s] as it "
        "is enforced, the lower of both directions; no temporary limit; nothing for a Link at 0 or only observed. "
        "etc/scion/staticInfoConfig.json has it, which SCION's control service reads once, at its start. A changed "
        "limit restarts nothing: it is published after the host's next configuration, and caches delay it by 5 more "
        "minutes. Switching this on or off raises H: SCION restarts on the host of the control service.",
    )
    path_metadata = RuleField(
        checked_metadata,
        label="Path metadata of the operator",
        widget=forms.Textarea(attrs={"class": "vLargeTextField", "rows": 8, "spellcheck": "false"}),
        help_text="JSON in the form of SCION's staticInfoConfig.json: Latency, Bandwidth, Geo, LinkType, Hops by "
        'interface id, and Note. For example {"LinkType": {"1": "direct"}, "Bandwidth": {"1": {"Inter": 1000000}}}. '
        "Where limits are published they take the place of Bandwidth, Inter of the Links of user ASes, also where none "
        "is published (at 0, or only observed); all the rest stays as it is written here. Empty: none. A change raises "
        "H: SCION restarts on the host of the control service.",
    )


def with_usage(queryset: QuerySet[AttachmentPoint]) -> QuerySet[AttachmentPoint]:
    """Adds what its Links to user ASes come to: `links`, `active_links`, `clamped_links`, `sum_kbit` (of what is
    enforced); and `wanted_kbit`, the default in force, which `maximum_kbit` follows."""
    link = "AS__interfaces__link_as_a"
    mine = Q(**{f"{link}__type": Link.Type.PROVIDER, f"{link}__interface_b__AS__useras__isnull": False})
    active = mine & Q(**{f"{link}__active": True})
    above = Q(**{f"{link}__bandwidth_kbit__gt": F("maximum_kbit")})
    site_kbit = Value(selectors.policy().default_bandwidth_kbit)
    above |= Q(**{f"{link}__from_user_kbit__gt": F("maximum_kbit")})
    return queryset.annotate(
        links=Count(link, filter=mine),
        active_links=Count(link, filter=active),
        clamped_links=Count(link, filter=active & above),
        wanted_kbit=Coalesce("default_bandwidth_kbit", site_kbit, output_field=BigIntegerField()),
        sum_kbit=Sum(Least(F(f"{link}__bandwidth_kbit"), F("maximum_kbit")), filter=active, default=0),
    )


@admin.register(AttachmentPoint)
class AttachmentPointAdmin(DefaultAdmin):
    form = AttachmentPointForm
    list_display = [
        "isd_as",
        "label",
        "default_here",
        "in_force",
        "user_links",
        "clamped",
        "sum_of_limits",
        "total",
        "has_vpn",
        "agent",
    ]
    search_fields = ["AS__label"]
    compared = (DEFAULT, "total_kbit", "observe_only", "publishes_limits", "path_metadata")
    note = (
        "Links above the default are clamped to it; the requested limits are kept. A default that concerns existing "
        "Links is previewed before it is set. Only the agent of this host gets a new configuration. The two fields of "
        "path metadata restart SCION, once for each save."
    )
    add_fields = ("AS", "default_bandwidth_kbit")
    change_fields = (
        "AS_link",
        "host_link",
        "default_bandwidth_kbit",
        "total_kbit",
        "observe_only",
        "publishes_limits",
        "path_metadata",
        "reason",
        "in_force",
        "total_in_force",
        "user_links",
        "clamped",
        "sum_of_limits",
        "agent",
        "vpn",
        "changes",
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[AttachmentPoint]:
        related = ("AS__isd", "host__vpn", "host__receipt")
        return with_usage(super().get_queryset(request).select_related(*related).annotate(**selectors.GENERATION))

    def get_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        return self.add_fields if obj is None else self.change_fields

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        editable = {"AS", "reason", *self.compared}
        return [name for name in self.change_fields if name not in editable]

    def formfield_for_foreignkey(
        self, db_field: Any, request: HttpRequest, **kwargs: Any
    ) -> ModelChoiceField[Any] | None:
        if db_field.name == "AS":
            kwargs["queryset"] = (
                AS.objects.filter(attachment_point=None, hosts__isnull=False).select_related("isd").distinct()
            )
        return super().formfield_for_foreignkey(db_field, request, **kwargs)

    def save_model(self, request: HttpRequest, obj: AttachmentPoint, form: Any, change: bool) -> None:
        actor, reason = actor_of(request), form.cleaned_data["reason"]
        if not change:
            made = infrastructure.attachment_point_create(
                as_=form.cleaned_data["AS"],
                default_bandwidth_kbit=form.cleaned_data[DEFAULT],
                actor=actor,
                reason=reason,
            )
            obj.pk, obj.host, obj.maximum_kbit = made.pk, made.host, made.maximum_kbit
            return
        values = {name: form.cleaned_data[name] for name in self.compared}
        defaults.refuse_older_page(attachment_point_id=obj.pk, values=values, shown=self.shown(request))
        if self.preview(request, obj.pk, form):
            del values[DEFAULT]
        defaults.ap_update(attachment_point_id=obj.pk, values=values, actor=actor, reason=reason)

    def delete_model(self, request: HttpRequest, obj: AttachmentPoint) -> None:
        infrastructure.attachment_point_delete(attachment_point_id=obj.pk, actor=actor_of(request))

    @admin.display(description="ISD-AS", ordering="AS__as_id")
    def isd_as(self, obj: AttachmentPoint) -> str:
        return obj.AS.isd_as

    @admin.display(description="label", ordering="AS__label")
    def label(self, obj: AttachmentPoint) -> str:
        return obj.AS.label

    @admin.display(description="AS")
    def AS_link(self, obj: AttachmentPoint) -> str:  # noqa: N802  the field's word
        return link_to(obj.AS)

    @admin.display(description="host")
    def host_link(self, obj: AttachmentPoint) -> str:
        return link_to(obj.host)

    @admin.display(description="default here", ordering="default_bandwidth_kbit")
    def default_here(self, obj: AttachmentPoint) -> str:
        return "(site default)" if obj.default_bandwidth_kbit is None else kbit(obj.default_bandwidth_kbit)

    @admin.display(description="maximum in force", ordering="maximum_kbit")
    def in_force(self, obj: Any) -> str:
        wanted = obj.wanted_kbit
        if wanted == obj.maximum_kbit:
            return kbit(wanted)
        return badge("info", f"{format_kbit(wanted)} (being applied; {format_kbit(obj.maximum_kbit)} until then)")

    @admin.display(description="Links to user ASes", ordering="links")
    def user_links(self, obj: Any) -> str:
        inactive = obj.links - obj.active_links
        text = f"{obj.active_links}" + (f" and {inactive} inactive" if inactive else "")
        return link_to_list(Link, text, ap=obj.pk) if obj.links else "0"

    @admin.display(description="clamped", ordering="clamped_links")
    def clamped(self, obj: Any) -> str:
        return link_to_list(Link, obj.clamped_links, ap=obj.pk, clamped="yes") if obj.clamped_links else "0"

    @admin.display(description="sum of limits", ordering="sum_kbit")
    def sum_of_limits(self, obj: Any) -> str:
        return kbit(obj.sum_kbit)

    @admin.display(description="total", ordering="total_kbit")
    def total(self, obj: Any) -> str:
        found = self._total(obj)
        if found is None:
            return NOTHING
        shown = kbit(obj.total_kbit)
        return shown if found.is_in_force else badge(found.tone, shown, found.text)

    @admin.display(description="total enforced")
    def total_in_force(self, obj: Any) -> str:
        found = self._total(obj)
        return "not set" if found is None else found.text

    def _total(self, obj: Any) -> TotalStatus | None:
        agent = agent_of(obj.host, obj.AS.isd_as, now=timezone.now())
        return total_status(obj, agent, generation=obj.service_generation or 0)

    @admin.display(description="VPN")
    def has_vpn(self, obj: AttachmentPoint) -> str:
        vpn: VPN | None = getattr(obj.host, "vpn", None)
        return link_to(vpn, vpn.subnet) if vpn else NOTHING

    @admin.display(description="VPN")
    def vpn(self, obj: AttachmentPoint) -> str:
        vpn: VPN | None = getattr(obj.host, "vpn", None)
        return link_to(vpn)

    @admin.display(description="agent", ordering="host__last_seen_at")
    def agent(self, obj: AttachmentPoint) -> str:
        host: Host = obj.host
        return last_seen(host, obj.AS, now=timezone.now())

    @admin.display(description="Changes")
    def changes(self, obj: AttachmentPoint) -> str:
        return link_to_list(BandwidthChange, "history of changes", attachment_point__id__exact=obj.pk)
