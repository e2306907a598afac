"""A Link on a page, in words. Read-only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from django.db.models import Q, QuerySet, Subquery

from bandwidth_config import Limits
from contract.scion_files import join_address
from scionlab.enforcement.counters import Counters
from scionlab.enforcement.models import LinkEnforcement
from scionlab.enforcement.status import LinkStatus, link_status
from scionlab.enforcement.words import WORDS
from scionlab.limits.framing import Framing, counted_sentence
from scionlab.platform.notation.bandwidth import limits_warning
from scionlab.platform.notation.shown import duration
from scionlab.testbed.models import BandwidthChange, BandwidthPolicy, Interface, Link, TimedLimit
from scionlab.testbed.selectors import policy
from scionlab.web.pages.plots import ProfilePlot, profile_plot

UNSETTLED = {"waiting", "delivered"}  # states in transition: the page refreshes itself


@dataclass(frozen=True)
class Direction:
    """One direction of a Link in the AP's kernel."""

    name: str
    rate_kbit: int | None
    counters: Counters | None


@dataclass(frozen=True)
class TimedPanel:
    """A timed limit, running or upcoming."""

    timed: TimedLimit
    plot: ProfilePlot
    left: str  # until it ends, or begins
    is_running: bool

    @classmethod
    def of(cls, timed: TimedLimit, link: Link, *, now: datetime) -> TimedPanel:
        is_running = timed.begins_at <= now
        elapsed_s = (now - timed.begins_at).total_seconds() if is_running else None
        limits = timed.limits
        plot = profile_plot(limits.steps, limits.duration_s, standing=link.enforced, elapsed_s=elapsed_s)
        until = timed.ends_at if is_running else timed.begins_at
        return cls(timed, plot, duration((until - now).total_seconds()), is_running)

    @property
    def changes_at(self) -> datetime:
        return self.timed.ends_at if self.is_running else self.timed.begins_at

    @property
    def length(self) -> str:
        return duration(self.timed.limits.duration_s)

    @property
    def limits(self) -> Limits | None:
        """If there is only one step."""
        steps = self.timed.limits.steps
        return steps[0].limits if len(steps) == 1 else None

    @property
    def count(self) -> int:
        return len(self.timed.steps)


@dataclass(frozen=True)
class LinkPanel:
    """One Link on a page; `since` has the dates of the user's and the administrators' last changes."""

    status: LinkStatus
    now: datetime
    since: dict[str, datetime] = field(default_factory=dict)

    @property
    def link(self) -> Link:
        return self.status.link

    @property
    def running(self) -> TimedPanel | None:
        found = self.status.running
        return None if found is None else TimedPanel.of(found, self.link, now=self.now)

    @property
    def upcoming(self) -> list[TimedPanel]:
        return [TimedPanel.of(one, self.link, now=self.now) for one in self.status.upcoming]

    @property
    def is_clamped(self) -> bool:
        return self.link.requested != self.link.enforced

    @property
    def enforcement(self) -> LinkEnforcement | None:
        return getattr(self.link, "enforcement", None)

    @property
    def directions(self) -> list[Direction]:
        found = self.enforcement
        if found is None or self.status.stage == "inactive":
            return []
        return [
            Direction(words, getattr(found, f"{name}_rate_kbit"), Counters.of(found, name))
            for name, words in (("to_user", "To your AS"), ("from_user", "From your AS"))
        ]

    @property
    def drops_name(self) -> str:
        """Label of the counter of packets that did not pass; on an observed Link they passed."""
        row = self.enforcement
        is_observed = row is not None and row.state == LinkEnforcement.State.OBSERVED
        return "Would not have passed" if is_observed else "Did not pass"

    @property
    def warning(self) -> str | None:
        return limits_warning(self.status.wanted)

    @property
    def counted(self) -> str | None:
        """What the limits in force count, and leave for SCION."""
        return counted_sentence(self.status.wanted, Framing.of(self.link))

    @property
    def problems(self) -> list[str]:
        """Problems of the AP's agent beyond the sentence on the state."""
        found = self.enforcement
        text = "" if found is None else found.problem
        return [text] if text and text not in self.status.text else []

    @property
    def is_plain(self) -> bool:
        """Whether the figures say everything."""
        return self.status.stage == "enforced" and self.status.remark is None

    @property
    def is_delivered(self) -> bool:
        """A state judged by the agent implies delivery, so "failed" is delivered, too."""
        if self.status.stage == "inactive":
            return False
        return self.status.delivered_at is not None or self.status.stage in {"enforced", "observed", "failed"}

    @property
    def delivered_at(self) -> datetime | None:
        """The host's newest delivery; None if it was after this Link was enforced, for another Link."""
        at, since = self.status.delivered_at, self.status.since
        return None if self.status.stage in {"enforced", "observed"} and at and since and at > since else at

    @property
    def not_delivered(self) -> str:
        return WORDS["inactive" if self.status.stage == "inactive" else "waiting"].word

    @property
    def delivered_class(self) -> str:
        return "done" if self.is_delivered else "pending"

    @property
    def enforced_class(self) -> str:
        return {"good": "good", "warn": "warned", "bad": "bad"}.get(self.status.tone, "pending")

    @property
    def your_end(self) -> str:
        return join_address(self.link.interface_b.public_ip, self.link.interface_b.public_port)

    @property
    def its_end(self) -> str:
        return join_address(self.link.interface_a.public_ip, self.link.interface_a.public_port)

    @property
    def bound_to(self) -> str:
        end: Interface = self.link.interface_b
        return join_address(end.local_ip, end.local_port)


def history_of(link: Link) -> QuerySet[BandwidthChange]:
    return BandwidthChange.objects.filter(link=link).select_related("actor")


def policy_and_dates(
    link: Link, *, beside: Mapping[str, Subquery] | None = None
) -> tuple[BandwidthPolicy, dict[str, datetime]]:
    """The policy, and the dates of the last change by the user (`requested`), of the attachment point's maximum
    (`maximum`), and those `beside`; missing ones are omitted. One statement."""
    kinds, ap = BandwidthChange.Kind, link.attachment_point
    dates = {
        "requested": Q(kind=kinds.LINK, link=link),
        "maximum": Q(kind=kinds.AP_DEFAULT, attachment_point=ap),
    }
    if ap is not None and ap.default_bandwidth_kbit is None:
        dates["site"] = Q(kind=kinds.SITE_DEFAULT)  # each is an index lookup: together they would be a scan
    newest = {name: BandwidthChange.objects.filter(which).order_by("-at") for name, which in dates.items()}
    wanted = {name: Subquery(changes.values("at")[:1]) for name, changes in newest.items()} | dict(beside or {})
    rows = BandwidthPolicy.objects.filter(pk=1).annotate(**{f"{name}_at": one for name, one in wanted.items()})
    found = rows.first()
    if found is None:  # the row is created later
        return policy(), {}
    known = {name: at for name in wanted if (at := getattr(found, f"{name}_at")) is not None}
    if (site := known.pop("site", None)) is not None:
        known["maximum"] = max(site, known.get("maximum", site))
    return found, known


def is_live(statuses: Iterable[LinkStatus]) -> bool:
    return any(status.stage in UNSETTLED for status in statuses)


def statuses_of(links: Iterable[Link], *, now: datetime) -> list[LinkStatus]:
    return [link_status(link, now=now) for link in links]
