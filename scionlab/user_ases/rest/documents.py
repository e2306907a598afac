"""Responses of the REST API, made from loaded objects."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, get_args

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from scionlab.enforcement.counters import COUNTERS, REQUIRED
from scionlab.enforcement.judgement import Stage
from scionlab.enforcement.status import link_status
from scionlab.enforcement.words import State
from scionlab.limits.measured import DirectionUsage
from scionlab.platform.clock import database_now
from scionlab.testbed.models import AttachmentPoint, BandwidthPolicy, Host, Link, TimedLimit, UserAS
from scionlab.testbed.models.audit import KINDS_OF_A_LINK
from scionlab.testbed.models.installed import FILES_WORDS, files_state
from scionlab.web.rest.derived import DerivedSerializer
from scionlab.web.rest.fields import Present


class LimitsDocument(serializers.Serializer[Any]):
    """kbit/s in each direction; 0 blocks that direction."""

    to_user_kbit = serializers.IntegerField(help_text="To the user AS.")
    from_user_kbit = serializers.IntegerField(help_text="From the user AS.")


class TimedBriefDocument(serializers.Serializer[Any]):
    """A timed limit without its steps; they stand at /api/v1/timed-limits/{id}/."""

    id = serializers.IntegerField(source="pk")
    kind = serializers.ChoiceField(choices=TimedLimit.Kind.choices)
    begins_at = serializers.DateTimeField()
    ends_at = serializers.DateTimeField()


class StepDocument(LimitsDocument):
    """Limits that hold from `offset_s` after the beginning on, until the next step or the end."""

    offset_s = serializers.IntegerField()


class TimedLimitDocument(TimedBriefDocument):
    """Limits for a time. Before and after it the Link's own limits apply automatically."""

    link_id = serializers.IntegerField()
    steps = serializers.SerializerMethodField(help_text="The requested limits; a lower maximum takes precedence.")
    created_at = serializers.DateTimeField()
    created_by = serializers.EmailField(source="created_by.email", allow_null=True, default=None)
    cancelled_at = serializers.DateTimeField(allow_null=True)
    state = serializers.SerializerMethodField()

    @extend_schema_field(StepDocument(many=True))
    def get_steps(self, timed: TimedLimit) -> list[dict[str, int]]:
        return [{"offset_s": offset_s, **limits._asdict()} for offset_s, limits in timed.limits.steps]

    @extend_schema_field(serializers.ChoiceField(choices=["upcoming", "running", "ended", "cancelled"]))
    def get_state(self, timed: TimedLimit) -> str:
        if timed.cancelled_at is not None:
            return "cancelled"
        if (now := database_now()) < timed.begins_at:
            return "upcoming"
        return "running" if now < timed.ends_at else "ended"


class RemarkDocument(serializers.Serializer[Any]):
    """A remark beside the state."""

    code = serializers.CharField(
        help_text="Code of a problem of the agent, or clock, foreign_content, not_observed, unproven."
    )
    text = serializers.CharField()


class CountersDocument(serializers.Serializer[Any]):
    """One direction, as of the newest receipt; counters begin again when the attachment point's host does."""

    def get_fields(self) -> dict[str, Any]:
        return {
            name: serializers.IntegerField(help_text=text, allow_null=name not in REQUIRED)
            for name, text in COUNTERS.items()
        }


class BothCountersDocument(serializers.Serializer[Any]):
    """null: the direction is not in the kernel."""

    to_user = CountersDocument(allow_null=True)
    from_user = CountersDocument(allow_null=True)


class TotalDocument(serializers.Serializer[Any]):
    """What all Links of the attachment point may carry together, in each direction. They share it in proportion to
    their limits, and none gets more than its own."""

    wanted_kbit = serializers.IntegerField()
    is_in_force = serializers.BooleanField(help_text="The newest receipt confirms it for both directions.")
    text = serializers.CharField(help_text="For people.")


class LinkStatusDocument(serializers.Serializer[Any]):
    """From the requested limits to those in the kernel of the attachment point."""

    stage = serializers.ChoiceField(choices=get_args(Stage))
    state = serializers.ChoiceField(choices=get_args(State), help_text="The state as shown on pages and in emails.")
    remark = RemarkDocument(allow_null=True)
    maximum_kbit = serializers.IntegerField(
        help_text="The applied maximum: that of the attachment point, or an exception above it."
    )
    requested = LimitsDocument()
    wanted = LimitsDocument(
        help_text="The limits to enforce now: those of a running timed limit, otherwise the requested ones."
    )
    enforced = LimitsDocument(
        allow_null=True, help_text="The limits in the kernel; null: not known, or different from what the agent wanted."
    )
    last_known = LimitsDocument(allow_null=True, help_text="The limits in the kernel according to the newest receipt.")
    read_at = serializers.DateTimeField(allow_null=True, help_text="Time of that receipt.")
    counters = BothCountersDocument(
        allow_null=True, help_text="For an observed Link, drops counts packets that a limit would have dropped."
    )
    observe_only = serializers.BooleanField(
        source="link.is_to_observe", help_text="An administrator set this Link to be measured, not limited."
    )
    total = TotalDocument(allow_null=True, help_text="null: no total.")
    requested_kbit = serializers.IntegerField(help_text="The lower of both directions; so are the next two.")
    wanted_kbit = serializers.IntegerField()
    enforced_kbit = serializers.IntegerField(allow_null=True)
    since = serializers.DateTimeField(allow_null=True)
    delivered_at = serializers.DateTimeField(allow_null=True)
    text = serializers.CharField(help_text="The state and the remark, for people.")
    running = TimedBriefDocument(allow_null=True, help_text="The timed limit that is running.")
    upcoming = TimedBriefDocument(many=True, help_text="Timed limits that begin later.")


_FILES_HELP = (
    "Which service manages its SCION files: this_service; limits_only: another service, by a setting; other: the "
    "host has files of another service and is rejected until an administrator takes it over; taken_over: taken "
    "over, but not fetched yet."
)


class LinkDocument(serializers.Serializer[Any]):
    """A Link of a user AS to an attachment point."""

    id = serializers.IntegerField(source="pk")
    as_id = serializers.IntegerField(source="interface_b.AS_id", help_text="Id of the AS in /api/v1/ases/.")
    isd_as = serializers.CharField(source="interface_b.AS.isd_as")
    as_label = serializers.CharField(source="interface_b.AS.label")
    interface_id = serializers.IntegerField(source="interface_b.interface_id")
    attachment_point_id = serializers.IntegerField(
        source="attachment_point.pk", allow_null=True, read_only=True, default=None
    )
    attachment_point = serializers.CharField(
        source="interface_a.AS.isd_as", help_text="ISD-AS of the attachment point."
    )
    attachment_point_interface_id = serializers.IntegerField(
        source="interface_a.interface_id", help_text="Interface id at the AP: the key of the Link in link_info.json."
    )
    attachment_point_ip = serializers.IPAddressField(source="interface_a.public_ip")
    attachment_point_port = serializers.IntegerField(source="interface_a.public_port")
    use_vpn = Present(source="interface_b.vpn_client_id", read_only=True)
    public_ip = serializers.IPAddressField(source="interface_b.public_ip")
    public_port = serializers.IntegerField(source="interface_b.public_port")
    bind_ip = serializers.IPAddressField(source="interface_b.bind_ip", allow_null=True)
    bind_port = serializers.IntegerField(source="interface_b.bind_port", allow_null=True)
    active = serializers.BooleanField()
    bandwidth_kbit = serializers.IntegerField(source="requested.lowest_kbit", help_text="The lower of both directions.")
    to_user_kbit = serializers.IntegerField(source="requested.to_user_kbit")
    from_user_kbit = serializers.IntegerField(source="requested.from_user_kbit")
    changed_at = serializers.DateTimeField()
    status = serializers.SerializerMethodField()

    @cached_property
    def _status_document(self) -> LinkStatusDocument:
        """One for all Links of a list: to make its fields takes longer than to read them."""
        return LinkStatusDocument()

    @extend_schema_field(LinkStatusDocument)
    def get_status(self, link: Link) -> dict[str, Any]:
        return dict(self._status_document.to_representation(link_status(link, now=database_now())))

    def get_fields(self) -> dict[str, Any]:
        return super().get_fields() | {one.name: one.field() for one in LINK_FIELDS}


@dataclass(frozen=True)
class LinkField:
    """A field of another app: `of` returns its values by Link, with a constant number of statements; a missing Link has
    None."""

    name: str
    field: Callable[[], serializers.Field[Any, Any, Any, Any]]
    of: Callable[[Sequence[Link]], Mapping[int, Any]]


LINK_FIELDS: Final[list[LinkField]] = []  # appended in `AppConfig.ready`


def with_fields(links: Sequence[Link]) -> Sequence[Link]:
    """The Links with the values of other apps, which `LinkDocument` reads."""
    for one in LINK_FIELDS:
        values = one.of(links)
        for link in links:
            setattr(link, one.name, values.get(link.pk))
    return links


def link_documents(links: Sequence[Link]) -> list[dict[str, Any]]:
    return [dict(one) for one in LinkDocument(with_fields(links), many=True).data]


class UserASDocument(serializers.Serializer[Any]):
    """A user AS with its Links."""

    id = serializers.IntegerField(source="pk")
    isd_as = serializers.CharField()
    label = serializers.CharField()  # type: ignore[assignment]  # its name on the wire
    installation_type = serializers.ChoiceField(choices=UserAS.Installation.choices)
    scion_packages = serializers.SerializerMethodField(help_text="Installed on its host.")
    owner = serializers.EmailField(source="owner.email")
    created_at = serializers.DateTimeField()
    scion_files = serializers.SerializerMethodField(help_text=_FILES_HELP)
    links = serializers.SerializerMethodField()

    @extend_schema_field(serializers.ChoiceField(choices=Host.ScionPackages.choices))
    def get_scion_packages(self, user_as: UserAS) -> str:
        hosts: Mapping[int, Host] = self.context["hosts"]
        return hosts[user_as.pk].scion_packages if user_as.pk in hosts else Host.ScionPackages.SCIONLAB.value

    @extend_schema_field(serializers.ChoiceField(choices=list(FILES_WORDS)))
    def get_scion_files(self, user_as: UserAS) -> str:
        hosts: Mapping[int, Host] = self.context["hosts"]
        return files_state(hosts[user_as.pk]) if user_as.pk in hosts else "this_service"

    @cached_property
    def _link_document(self) -> LinkDocument:
        return LinkDocument()

    @extend_schema_field(LinkDocument(many=True))
    def get_links(self, user_as: UserAS) -> list[dict[str, Any]]:
        by_as: Mapping[int, list[Link]] = self.context["links_by_as"]
        return [dict(self._link_document.to_representation(link)) for link in by_as.get(user_as.pk, [])]


class AttachmentPointDocument(serializers.Serializer[Any]):
    """Where a user AS may attach."""

    id = serializers.IntegerField(source="pk")
    isd_as = serializers.CharField(source="AS.isd_as")
    label = serializers.CharField(source="AS.label")  # type: ignore[assignment]  # its name on the wire
    default_bandwidth_kbit = serializers.SerializerMethodField(
        help_text="The default in force: initial value and maximum of the Links."
    )
    own_default_bandwidth_kbit = serializers.IntegerField(
        source="default_bandwidth_kbit", allow_null=True, help_text="null: the site default applies."
    )
    total_kbit = serializers.IntegerField(
        allow_null=True, help_text="Maximum for all Links together in each direction; null: no total."
    )
    observe_only = serializers.BooleanField(help_text="All Links are measured, not limited.")
    publishes_limits = serializers.BooleanField(
        help_text="The limits of the Links are published as SCION path metadata."
    )
    scion_files = serializers.SerializerMethodField(help_text=_FILES_HELP)
    has_vpn = Present(source="host.vpn", read_only=True, default=None)
    has_ipv4 = Present(source="host.public_ipv4", read_only=True)
    has_ipv6 = Present(source="host.public_ipv6", read_only=True)

    def get_default_bandwidth_kbit(self, ap: AttachmentPoint) -> int:
        policy: BandwidthPolicy = self.context["policy"]
        return ap.default_in_force(policy)

    @extend_schema_field(serializers.ChoiceField(choices=list(FILES_WORDS)))
    def get_scion_files(self, ap: AttachmentPoint) -> str:
        return files_state(ap.host)


class ChangeDocument(serializers.Serializer[Any]):
    """One line of the history of a Link: it is only ever added to."""

    id = serializers.IntegerField(source="pk")
    at = serializers.DateTimeField()
    kind = serializers.ChoiceField(choices=KINDS_OF_A_LINK)
    actor = serializers.CharField(source="actor_email", help_text="Email address; empty: the service itself.")
    old = LimitsDocument(allow_null=True, help_text="null: none.")
    new = LimitsDocument(allow_null=True, help_text="null: none.")
    text = serializers.CharField(help_text="Description of the change, for people.")
    reason = serializers.CharField()


class PolicyDocument(serializers.Serializer[Any]):
    """The site's default: initial value and maximum of every Link whose attachment point has none of its own."""

    default_bandwidth_kbit = serializers.IntegerField()


class UsedDocument(DerivedSerializer):
    """What went in one direction in one step."""

    of = DirectionUsage
    left_out = frozenset({"rated_bytes"})
    kbit = serializers.IntegerField(allow_null=True, help_text="Mean rate over the measured time.")


class UsagePointDocument(serializers.Serializer[Any]):
    """One step; null is a gap, of which nothing is known, and not zero."""

    begins_at = serializers.DateTimeField()
    to_user = UsedDocument(allow_null=True)
    from_user = UsedDocument(allow_null=True)
