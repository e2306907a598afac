"""Reads that span relations, each with a known number of SQL statements."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from django.contrib.auth.models import AnonymousUser
from django.db.models import Prefetch, Q, QuerySet
from django.http import Http404

from bandwidth_config import MAX_BANDWIDTH_KBIT, Limits, RuleError, format_kbit
from scionlab.isd_as import parse_isd_as
from scionlab.local_time import say_time
from scionlab.models import (
    AttachmentPoint,
    BandwidthPolicy,
    Host,
    HostReceipt,
    Link,
    LinkEnforcement,
    ServiceState,
    TimedLimit,
    User,
    UserAS,
)

SILENT_AFTER_S = 180  # the agent sends a receipt at least once a minute (docs/api.md)

STEP_GRACE_S = 5  # between the agent's decision and its look at the kernel, a step may have come


Stage = Literal["inactive", "waiting", "delivered", "enforced", "not_verified", "failed", "silent"]

LINK_RELATIONS = [
    f"interface_{end}__{path}" for end in "ab" for path in ("AS__isd", "AS__useras", "border_router", "host")
]
LINK_RELATIONS += [
    "interface_a__AS__attachment_point__host",
    "interface_a__host__receipt",
    "interface_b__vpn_client__vpn",
    "enforcement",
]


# What attachment points limit: the attachments of user ASes.
USER_LINKS = Q(
    type=Link.Type.PROVIDER,
    interface_b__AS__useras__isnull=False,
    interface_a__AS__attachment_point__isnull=False,
)

# Those that `link_status` looks at, to be read along with Links.
TIMED_LIMITS = Prefetch("timed_limits", queryset=TimedLimit.objects.filter(cancelled_at=None, retired_at=None))


def with_relations(links: QuerySet[Link]) -> QuerySet[Link]:
    """With all that `link_status` looks at: one more statement than the Links, at any number."""
    return links.select_related(*LINK_RELATIONS).prefetch_related(TIMED_LIMITS)


def policy() -> BandwidthPolicy:
    """The site's one policy; the row is made on demand."""
    return BandwidthPolicy.objects.get_or_create(pk=1)[0]


def generation() -> int:
    """G of every version string."""
    return ServiceState.objects.get_or_create(pk=1)[0].generation


def host_named(written: str) -> Host | None:
    """The host with this host id or key, or of the AS with this ISD-AS: its attachment point's, else its only one."""
    hosts = Host.objects.select_related("AS__isd")
    try:
        isd, as_id = parse_isd_as(written)
    except RuleError:
        by_key = Q(pk=written) if re.fullmatch(r"[0-9]{1,18}", written, flags=re.ASCII) else Q()
        return hosts.filter(Q(uid=written) | by_key).first()
    found = list(hosts.filter(AS__as_id=as_id, AS__isd__isd_id=isd).select_related("attachment_point"))
    chosen = [host for host in found if hasattr(host, "attachment_point")] or found
    return chosen[0] if len(chosen) == 1 else None


def hosts_ahead() -> QuerySet[Host]:
    """Hosts that proved to have something newer than this database knows, or another thing of the same version.

    That is so after a backup was restored, until the generation is raised above it: their agents refuse what is older.
    """
    return Host.objects.filter(ahead_generation__gte=generation()).order_by("pk")


def open_attachment_points() -> QuerySet[AttachmentPoint]:
    """Where a user AS may attach, in the order of their ISD-AS; one statement."""
    related = ("AS__isd", "AS__useras", "host__vpn")
    return AttachmentPoint.objects.select_related(*related).order_by("AS__isd__isd_id", "AS__as_id")


def default_in_force(ap: AttachmentPoint) -> int:
    """x of the attachment point [kbit/s]: what the form starts with and allows at most."""
    return ap.default_in_force(policy()) if ap.default_bandwidth_kbit is None else ap.default_bandwidth_kbit


# --- a user's ASes ------------------------------------------------------------------------------------------


def user_ases_of(user: User) -> list[UserAS]:
    """The user's ASes with their Links (`links_of` asks no more); three statements at any number."""
    ases = list(UserAS.objects.filter(owner=user).select_related("isd", "owner").order_by("as_id"))
    by_as = _links_by_as(ases)
    for as_ in ases:
        as_._links = by_as[as_.pk]  # type: ignore[attr-defined]  # read by links_of alone
    return ases


def user_as_of(user: User | AnonymousUser, pk: int) -> UserAS:
    """The AS if it is this user's, or the user is staff. Raises `Http404`: strangers do not learn whether it exists."""
    rows = UserAS.objects.select_related("isd", "owner")
    if not user.is_staff:
        rows = rows.filter(owner_id=user.pk)
    found = rows.filter(pk=pk).first() if user.is_authenticated else None
    if found is None:
        raise Http404("There is no such AS among yours.")
    return found


def links_of(user_as: UserAS) -> list[Link]:
    """Its Links to attachment points with all that a page shows of them, in the order of their interface ids.

    Two statements; none for an AS of `user_ases_of`.
    """
    found: list[Link] | None = getattr(user_as, "_links", None)
    return _links_by_as([user_as])[user_as.pk] if found is None else found


def _links_by_as(ases: Iterable[UserAS]) -> dict[int, list[Link]]:
    by_as: dict[int, list[Link]] = {as_.pk: [] for as_ in ases}
    links = Link.objects.filter(type=Link.Type.PROVIDER, interface_b__AS__in=list(by_as))
    for link in with_relations(links).order_by("interface_b__AS", "interface_b__interface_id"):
        by_as[link.interface_b.AS_id].append(link)
    return by_as


# --- requested, delivered, enforced -------------------------------------------------------------------------


@dataclass(frozen=True)
class LinkStatus:
    """How far a Link's limits got on their way to the kernel of the attachment point.

    `requested` is what the user chose for all times; `wanted` is what should be enforced now: that, or the timed limit
    that is `running`, clamped to `maximum_kbit`. `enforced` is what the attachment point's newest receipt says the
    kernel has, None where it says nothing that counts now. `upcoming` are the timed limits still to begin, in order.
    The figures in kbit are the lower of both directions.
    """

    link: Link
    requested: Limits
    maximum_kbit: int
    wanted: Limits
    enforced: Limits | None
    running: TimedLimit | None
    upcoming: list[TimedLimit]
    stage: Stage
    since: datetime | None
    delivered_at: datetime | None
    text: str

    @property
    def requested_kbit(self) -> int:
        return self.requested.lowest_kbit

    @property
    def wanted_kbit(self) -> int:
        return self.wanted.lowest_kbit

    @property
    def enforced_kbit(self) -> int | None:
        return None if self.enforced is None else self.enforced.lowest_kbit


def link_status(link: Link, *, now: datetime) -> LinkStatus:
    """Judge the rows that `links_of` read; no statement, no clock of its own.

    A Link that no attachment point limits (infrastructure) is "inactive": there is nothing to enforce.
    """
    ap = link.attachment_point
    host = link.interface_a.host
    timed = link.timed_in_configuration if ap is not None else []
    receipt: HostReceipt | None = getattr(host, "receipt", None)
    enforcement: LinkEnforcement | None = getattr(link, "enforcement", None)
    if receipt is not None and enforcement is not None and enforcement.received_at < receipt.received_at:
        enforcement = None  # the newest receipt does not speak of this Link any more
    stage, since, text = _judge(link, ap, host, receipt=receipt, enforcement=enforcement, now=now)
    speaks = enforcement is not None and stage not in {"inactive", "silent"} and is_in_kernel(enforcement)
    return LinkStatus(
        link=link,
        requested=link.requested,
        maximum_kbit=MAX_BANDWIDTH_KBIT if ap is None else ap.maximum_kbit,
        wanted=link.limits_at(now) if timed else link.enforced,
        enforced=enforcement.in_kernel if enforcement is not None and speaks else None,
        running=next((one for one in timed if one.begins_at <= now < one.ends_at), None),
        upcoming=[one for one in timed if one.begins_at > now],
        stage=stage,
        since=since,
        delivered_at=host.delivered_at if _is_delivered(link, host) else None,
        text=text,
    )


def _judge(
    link: Link,
    ap: AttachmentPoint | None,
    host: Host,
    *,
    receipt: HostReceipt | None,
    enforcement: LinkEnforcement | None,
    now: datetime,
) -> tuple[Stage, datetime | None, str]:
    if ap is None:
        return "inactive", None, "Not limited: no attachment point provides this link to a user AS."
    if not link.active:
        return "inactive", link.changed_at, "Inactive: the link is in no configuration."
    where = link.interface_a.AS.isd_as
    if receipt is None:
        return _without_agent(link, host, where)
    if now - receipt.received_at > timedelta(seconds=SILENT_AFTER_S):
        heard = say_time(receipt.received_at)
        return "silent", receipt.received_at, f"Unknown: the agent of {where} was last heard at {heard}."
    if enforcement is not None and _covers(enforcement, link, host):
        return _confirmed(enforcement, link)
    return _on_its_way(link, host, where)


def _without_agent(link: Link, host: Host, where: str) -> tuple[Stage, datetime | None, str]:
    if host.config_version_deployed >= link.wanted_config_version and _is_delivered(link, host):
        text = f"Delivered, not verified: {where} has no agent that could say what its kernel enforces."
        return "not_verified", host.delivered_at, text
    return _on_its_way(link, host, where)


def _on_its_way(link: Link, host: Host, where: str) -> tuple[Stage, datetime | None, str]:
    if _is_delivered(link, host):
        return "delivered", host.delivered_at, f"Delivered to {where}, which has not confirmed it yet."
    return "waiting", link.changed_at, f"Waiting until {where} fetches its configuration."


def _confirmed(enforcement: LinkEnforcement, link: Link) -> tuple[Stage, datetime | None, str]:
    if enforcement.state != LinkEnforcement.State.ENFORCED:
        return "failed", enforcement.since, f"Not enforced: {enforcement.problem or 'the agent gave no reason.'}"
    if not is_as_wanted(enforcement, link):
        found = [enforcement.to_user_rate_kbit, enforcement.from_user_rate_kbit]
        to_user, from_user = ("no limit" if rate is None else format_kbit(rate) for rate in found)
        text = f"Not enforced: the kernel has {to_user} to the user AS and {from_user} from it."
        return "failed", enforcement.since, text
    since = _since(enforcement, link)
    return "enforced", since, f"{_ENFORCED_WORDS[_blocked(enforcement.wanted)]} since {say_time(since)}."


_ENFORCED_WORDS = {
    (False, False): "Enforced in both directions",
    (True, False): "Blocked to the user AS, and enforced from it,",
    (False, True): "Enforced to the user AS, and blocked from it,",
    (True, True): "Blocked in both directions",
}


def _blocked(limits: Limits) -> tuple[bool, bool]:
    return limits.to_user_kbit == 0, limits.from_user_kbit == 0


def _since(enforcement: LinkEnforcement, link: Link) -> datetime:
    """Receipts go on saying that all is as wanted while a timed limit makes its steps; the last one counts."""
    observed_at = observed(enforcement)
    steps = [one.limits.last_change(observed_at) for one in link.timed_in_configuration]
    return max([enforcement.since, *(step for step in steps if step is not None)])


def observed(enforcement: LinkEnforcement) -> datetime:
    """When the kernel was read, by the clock that decided what it should have."""
    return enforcement.observed_at or enforcement.received_at


def is_as_wanted(enforcement: LinkEnforcement, link: Link) -> bool:
    """The kernel had what the Link wanted when it was read. Around a step both sides of it count: the agent decides by
    its clock what to enforce, and reads the kernel a moment later."""
    found = enforcement.in_kernel
    if not is_in_kernel(enforcement) or found is None:
        return False
    at = observed(enforcement)
    return found == link.limits_at(at) or found in _limits_around(link, at)


def _limits_around(link: Link, at: datetime) -> Iterator[Limits]:
    grace = timedelta(seconds=STEP_GRACE_S)
    for one in link.timed_in_configuration:
        moment: datetime | None = at - grace
        while moment is not None and moment <= at + grace:
            yield link.limits_at(moment)
            moment = one.limits.next_change(moment)


def _covers(enforcement: LinkEnforcement, link: Link, host: Host) -> bool:
    """The receipt is about a configuration that has what the Link wants; one from the future (after a restored backup)
    is about something that we do not know."""
    return (
        link.wanted_config_version <= (enforcement.config_version or 0) <= host.config_version
        and link.wanted_limits_version <= (enforcement.limits_version or 0) <= host.limits_version
    )


def is_in_kernel(enforcement: LinkEnforcement) -> bool:
    """The kernel has in both directions what the configuration wanted that the agent had."""
    return enforcement.state == LinkEnforcement.State.ENFORCED and enforcement.in_kernel == enforcement.wanted


def _is_delivered(link: Link, host: Host) -> bool:
    return (
        host.delivered_config_version >= link.wanted_config_version
        and host.delivered_limits_version >= link.wanted_limits_version
    )
