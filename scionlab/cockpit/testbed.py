"""The whole testbed in a handful of SQL statements, whatever its size: each attachment point with its Links judged.

`selectors.link_status` judges Links, as everywhere. To have ten thousand within a page, those that are plainly enforced
are counted by the database, and of the others only what is looked at is read: the Link's own row and its receipt; what
all Links of an attachment point share is one object.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NamedTuple

from django.db.models import BooleanField, Case, Count, Exists, F, OuterRef, Q, QuerySet, Sum, When

from bandwidth_config import Limits
from scionlab import selectors
from scionlab.cockpit.problems import Reported, in_short, reported
from scionlab.models import (
    AttachmentPoint,
    Host,
    HostReceipt,
    Interface,
    Link,
    LinkEnforcement,
    TimedLimit,
    UsageCounter,
    UserAS,
)
from scionlab.selectors import USER_LINKS, LinkStatus
from scionlab.usage.report import NOW, traffic_now

SETTLED_AFTER = timedelta(seconds=60)  # a change takes a second; what waits longer is worth a look
STAGES = ("failed", "silent", "waiting", "delivered", "not_verified", "enforced", "inactive")
NOT_ENFORCED = ("failed", "silent", "waiting", "delivered", "not_verified")


class Rate(NamedTuple):
    """What passes now [kbit/s], by the newest samples of the Links."""

    to_user_kbit: int
    from_user_kbit: int

    @property
    def highest_kbit(self) -> int:
        return max(self)


@dataclass(frozen=True)
class Trouble:
    """A thing to look at. The heavier, the higher its attachment point stands."""

    weight: int
    tone: str
    words: str


@dataclass
class ApState:
    """An attachment point as the cockpit shows it. `standing` sums what active Links may carry when all are used."""

    ap: AttachmentPoint
    now: datetime
    statuses: list[LinkStatus] = field(default_factory=list)
    used: Rate | None = None  # through all Links together; None while there are no fresh samples

    def __post_init__(self) -> None:
        self.host: Host = self.ap.host
        self.receipt: HostReceipt | None = getattr(self.host, "receipt", None)
        self.problems: list[Reported] = reported(self.receipt.problems) if self.receipt else []
        self.stages: Counter[str] = Counter()
        self.clamped = 0
        self.standing = Limits(0, 0)
        self.waiting_since: datetime | None = None

    def add(self, status: LinkStatus) -> None:
        link = status.link
        self.statuses.append(status)
        self.stages[status.stage] += 1
        if not link.active:
            return
        enforced = status.wanted if status.running is None else link.enforced
        self.clamped += enforced != link.requested
        self.standing = Limits(
            self.standing.to_user_kbit + enforced.to_user_kbit, self.standing.from_user_kbit + enforced.from_user_kbit
        )
        if status.stage in {"waiting", "delivered"}:
            self.waiting_since = min(self.waiting_since or link.changed_at, link.changed_at)

    def add_enforced(self, count: int, kbit: int) -> None:
        """So many Links of which there is nothing to say but that they are enforced, `kbit` in each direction."""
        self.stages["enforced"] += count
        self.standing = Limits(self.standing.to_user_kbit + kbit, self.standing.from_user_kbit + kbit)

    @property
    def name(self) -> str:
        return self.ap.AS.isd_as

    @property
    def active_links(self) -> int:
        return self.stages.total() - self.stages["inactive"]

    @property
    def not_enforced(self) -> int:
        return sum(self.stages[stage] for stage in NOT_ENFORCED)

    @property
    def stage_counts(self) -> list[tuple[str, int]]:
        return [(stage, self.stages[stage]) for stage in STAGES if self.stages[stage]]

    # --- the uplink ---------------------------------------------------------------------------------------

    @property
    def oversubscription(self) -> float | None:
        """The sum of the limits in the busier direction, as a multiple of the uplink; None without one."""
        return max(self.standing) / self.ap.uplink_kbit if self.ap.uplink_kbit else None

    @property
    def used_share(self) -> float | None:
        """What passes now in the busier direction, as a part of the uplink."""
        if not self.ap.uplink_kbit or self.used is None:
            return None
        return self.used.highest_kbit / self.ap.uplink_kbit

    # --- the agent ----------------------------------------------------------------------------------------

    @property
    def heard_at(self) -> datetime | None:
        return self.receipt.received_at if self.receipt is not None else self.host.last_seen_at

    @property
    def is_silent(self) -> bool:
        heard = self.heard_at
        return heard is not None and self.now - heard > timedelta(seconds=selectors.SILENT_AFTER_S)

    @property
    def agent(self) -> str:
        """One of "reports", "silent", "no agent", "never heard"."""
        if self.heard_at is None:
            return "never heard"
        if self.is_silent:
            return "silent"
        return "reports" if self.receipt is not None else "no agent"

    @property
    def wanted(self) -> str:
        return f"H {self.host.config_version}, L {self.host.limits_version}"

    @property
    def has(self) -> str | None:
        """The versions that the agent enforces by its receipt; without one, those that were handed out."""
        if self.receipt is None:
            return f"H {self.host.delivered_config_version}, L {self.host.delivered_limits_version} delivered"
        if self.receipt.config_version is None:
            return None
        return f"H {self.receipt.config_version}, L {self.receipt.limits_version}"

    @property
    def is_behind(self) -> bool:
        """It was heard of, and has not what it should have by now."""
        if self.heard_at is None:
            return False
        host, receipt = self.host, self.receipt
        if receipt is None:
            has = (host.delivered_config_version, host.delivered_limits_version)
        else:
            has = (receipt.config_version or 0, receipt.limits_version or 0)
        return has[0] < host.config_version or has[1] < host.limits_version

    # --- trouble ------------------------------------------------------------------------------------------

    @property
    def troubles(self) -> list[Trouble]:
        """The heaviest first."""
        found = [*self._of_the_agent(), *self._of_links(), *self._of_the_uplink()]
        return sorted(found, key=lambda one: -one.weight)

    @property
    def weight(self) -> int:
        return sum(trouble.weight for trouble in self.troubles)

    def _of_the_agent(self) -> Iterable[Trouble]:
        if self.agent == "silent" and self.active_links:
            yield Trouble(100, "bad", "agent is silent")
        elif self.agent == "never heard" and self.active_links:
            yield Trouble(70, "bad", "never heard of, and has links")
        elif self.agent == "no agent" and self.active_links:
            yield Trouble(20, "warn", "no agent: nobody verifies")
        bad = [one for one in self.problems if not one.explanation.is_warning]
        for words in in_short(bad):
            yield Trouble(80, "bad", words)
        for words in dict.fromkeys(one.in_words for one in self.problems if one.explanation.is_warning):
            yield Trouble(15, "warn", words)
        if (
            self.is_behind
            and not self.is_silent
            and self.waiting_since is not None
            and self.now - self.waiting_since > SETTLED_AFTER
        ):
            yield Trouble(40, "warn", "behind: has not taken the newest limits")

    def _of_links(self) -> Iterable[Trouble]:
        if failed := self.stages["failed"]:
            yield Trouble(90, "bad", f"{failed} link{'' if failed == 1 else 's'} not enforced")

    def _of_the_uplink(self) -> Iterable[Trouble]:
        if self.used_share is not None and self.used_share > 0.8:
            yield Trouble(60, "warn", f"uplink {self.used_share:.0%} used")
        if self.oversubscription is not None and self.oversubscription > 1:
            yield Trouble(5, "warn", f"limits are {self.oversubscription:.1f} times the uplink")


# --- reading ----------------------------------------------------------------------------------------------


def read_testbed(*, now: datetime, attachment_point_id: int | None = None) -> list[ApState]:
    """All attachment points, or the one, in the order of their ISD-ASes. Four SQL statements, for one point three.

    Of all of them, the Links that are plainly enforced are only counted: then `statuses` has the others, on which there
    is something to say. Of one, `statuses` has every Link.
    """
    rows = AttachmentPoint.objects.select_related("AS__isd", "host__receipt")
    links = Link.objects.filter(USER_LINKS)
    if attachment_point_id is not None:
        rows = rows.filter(pk=attachment_point_id)
        links = links.filter(interface_a__AS__attachment_point=attachment_point_id)
    states = {ap.pk: ApState(ap, now) for ap in rows.order_by("AS__isd__isd_id", "AS__as_id")}
    if attachment_point_id is None:
        is_plain = Case(When(_plainly_enforced(now), then=True), default=False, output_field=BooleanField())
        links = links.alias(is_plain=is_plain)
        _count(links.filter(is_plain=True), states)
        links = links.filter(is_plain=False)
    _judge(links, states, _timed_limits(attachment_point_id), now)
    return list(states.values())


def _plainly_enforced(now: datetime) -> Q:
    """Links of which `selectors.link_status` says "enforced", as the database can tell: those without a timed limit,
    with one number for both directions that is not above the maximum. All others are judged one by one."""
    host, kbit = "interface_a__host", F("bandwidth_kbit")
    timed = TimedLimit.objects.filter(link=OuterRef("pk"), cancelled_at=None, retired_at=None)
    said = Q(enforcement__state=LinkEnforcement.State.ENFORCED, enforcement__kbit=kbit)
    for end in ("to_user", "from_user"):
        said &= Q(**{f"enforcement__{end}_kbit": None}) | Q(**{f"enforcement__{end}_kbit": kbit})
        said &= Q(**{f"enforcement__{end}_rate_kbit": kbit})
    covers = Q(
        enforcement__config_version__gte=F("wanted_config_version"),
        enforcement__config_version__lte=F(f"{host}__config_version"),
        enforcement__limits_version__gte=F("wanted_limits_version"),
        enforcement__limits_version__lte=F(f"{host}__limits_version"),
    )
    fresh = Q(
        **{f"{host}__receipt__received_at__gte": now - timedelta(seconds=selectors.SILENT_AFTER_S)},
        enforcement__received_at__gte=F(f"{host}__receipt__received_at"),
    )
    plain = Q(
        active=True, from_user_kbit=None, bandwidth_kbit__lte=F("interface_a__AS__attachment_point__maximum_kbit")
    )
    return plain & said & covers & fresh & ~Q(Exists(timed))


def _count(links: QuerySet[Link], states: Mapping[int, ApState]) -> None:
    by_ap = links.values(ap_key=F("interface_a__AS__attachment_point")).annotate(
        n=Count("pk"), kbit=Sum("bandwidth_kbit")
    )
    for row in by_ap.order_by():
        if row["ap_key"] in states:
            states[row["ap_key"]].add_enforced(row["n"], row["kbit"])


def _judge(
    links: QuerySet[Link], states: Mapping[int, ApState], timed: Mapping[int, QuerySet[TimedLimit]], now: datetime
) -> None:
    ends = {key: _near_end(state.ap) for key, state in states.items()}
    far, none = Interface(AS=UserAS()), _read([])
    rows = links.select_related("enforcement").order_by("pk")
    for link in rows.annotate(ap_key=F("interface_a__AS__attachment_point"), far_as_id=F("interface_b__AS__as_id")):
        if link.ap_key in states:
            link._state.fields_cache.update(interface_a=ends[link.ap_key], interface_b=far)
            link._prefetched_objects_cache = {"timed_limits": timed.get(link.pk, none)}  # type: ignore[attr-defined]
            states[link.ap_key].add(selectors.link_status(link, now=now))


def _timed_limits(attachment_point_id: int | None) -> dict[int, QuerySet[TimedLimit]]:
    """By Link; most have none, so this is quicker than asking for those of ten thousand Links by their keys."""
    rows = TimedLimit.objects.filter(cancelled_at=None, retired_at=None)
    if attachment_point_id is not None:
        rows = rows.filter(link__interface_a__AS__attachment_point=attachment_point_id)
    found: dict[int, list[TimedLimit]] = {}
    for one in rows:
        found.setdefault(one.link_id, []).append(one)
    return {link_id: _read(timed) for link_id, timed in found.items()}


def _read(timed: list[TimedLimit]) -> QuerySet[TimedLimit]:
    """As `prefetch_related` leaves them behind: a queryset that asks no more."""
    rows = TimedLimit.objects.none()
    rows._result_cache = timed
    return rows


def _near_end(ap: AttachmentPoint) -> Interface:
    """Stands for the near ends of all Links there: what judging a Link asks of them is the same."""
    near = Interface(AS=ap.AS, host=ap.host)
    ap.AS._state.fields_cache["attachment_point"] = ap
    ap.host.AS = ap.AS
    return near


def load_use(states: Iterable[ApState], *, now: datetime) -> None:
    """What passes now, summed up; one SQL statement. Like `traffic_now`, which has each Link."""
    by_ap = {state.ap.pk: state for state in states}
    newer = UsageCounter.objects.filter(
        series=OuterRef("series"), direction=OuterRef("direction"), at__gt=OuterRef("at")
    )  # a class that was made anew has two counters for a while
    counters = UsageCounter.objects.filter(at__gte=now - NOW, series__link__isnull=False).filter(~Exists(newer))
    sums: dict[int, dict[str, int]] = {}
    for row in counters.values("series__attachment_point", "direction").annotate(total=Sum("kbit")).order_by():
        sums.setdefault(row["series__attachment_point"], {})[row["direction"]] = row["total"] or 0
    for key, rates in sums.items():
        if key in by_ap:
            by_ap[key].used = Rate(rates.get("to_user", 0), rates.get("from_user", 0))


def load_talkers(state: ApState, *, now: datetime) -> dict[int, Rate]:
    """What passes now through each Link of one attachment point, the one with the most first; one SQL statement."""
    rates = {
        talker.link_id: Rate(talker.to_user_kbit or 0, talker.from_user_kbit or 0)
        for talker in traffic_now([state.ap.pk], now=now)
    }
    if rates:
        state.used = Rate(*(sum(one) for one in zip(*rates.values(), strict=True)))
    return rates


def load_ends(statuses: Iterable[LinkStatus]) -> None:
    """Give the Links of one page their far ends, with the AS and its owner; one SQL statement."""
    links = {status.link.pk: status.link for status in statuses}
    ends = Interface.objects.filter(link_as_b__in=links).select_related("AS__isd", "AS__useras__owner", "link_as_b")
    for end in ends:
        links[end.link_as_b.pk]._state.fields_cache["interface_b"] = end
