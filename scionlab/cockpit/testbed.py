"""The whole testbed in a constant number of SQL statements: each attachment point with counts of its Links.

`enforcement.census` judges the Links; this module aggregates them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Q, Subquery

from bandwidth_config import Limits, default_in_force
from scionlab.enforcement.agents import SILENT_AFTER, Agent, no_report_since
from scionlab.enforcement.census import Census, Group, attachment_points, take_census
from scionlab.enforcement.models import HostReceipt
from scionlab.enforcement.problems import in_short
from scionlab.enforcement.remarks import clock_words
from scionlab.enforcement.total import total_status
from scionlab.enforcement.words import NOT_IN_FORCE, WORDS, State
from scionlab.platform.notation.local_time import say_time
from scionlab.testbed import selectors
from scionlab.testbed.cockpit import OFFERS, Rate, Trouble, sum_of
from scionlab.testbed.models import AttachmentPoint, BandwidthPolicy, Host
from scionlab.testbed.models.installed import FILES_WORDS, FilesState, files_state

SETTLED_AFTER = timedelta(seconds=60)  # a change takes a second; a longer wait is a problem


class ApState:
    """An attachment point as shown in the cockpit. `standing` is the sum of the limits of its active Links."""

    def __init__(self, ap: AttachmentPoint, agent: Agent, *, generation: int, now: datetime) -> None:
        self.ap, self.agent, self.now = ap, agent, now
        self.total = total_status(ap, agent, generation=generation)
        self.host: Host = ap.host
        self.receipt: HostReceipt | None = agent.receipt
        self.problems = agent.problems
        self.is_behind = self.contact_at is not None and agent.is_behind(generation)  # the agent reports, but is behind
        self.states: Counter[State] = Counter()
        self.clamped = 0
        self.standing = Limits(0, 0)
        self.waiting_since: datetime | None = None
        self.used: Rate | None = None  # of all Links together; None without recent samples

    def add(self, group: Group) -> None:
        state = group.verdict.state
        self.states[state] += group.count
        if state == "inactive":
            return
        self.clamped += group.clamped
        self.standing = Limits(*(sum(both) for both in zip(self.standing, group.standing, strict=True)))
        if group.verdict.stage in {"waiting", "delivered"}:
            self.waiting_since = min(self.waiting_since or group.changed_at, group.changed_at)

    @property
    def name(self) -> str:
        return self.agent.name

    @property
    def currency(self) -> str:
        found: str | None = getattr(self.ap, "site_currency", None)
        return BandwidthPolicy().currency if found is None else found

    @property
    def coming_maximum_kbit(self) -> int | None:
        """The default that the worker has not applied as the maximum yet; None otherwise."""
        site_kbit = getattr(self.ap, "site_default_kbit", None)
        if site_kbit is None:
            site_kbit = BandwidthPolicy().default_bandwidth_kbit
        default_kbit = default_in_force(site_kbit, self.ap.default_bandwidth_kbit)
        return None if default_kbit == self.ap.maximum_kbit else default_kbit

    @property
    def active_links(self) -> int:
        return self.states.total() - self.states["inactive"]

    @property
    def not_enforced(self) -> int:
        return sum(self.states[state] for state in NOT_IN_FORCE)

    @property
    def state_counts(self) -> list[tuple[State, int]]:
        return counts_of(self.states)

    # --- the uplink ---------------------------------------------------------------------------------------

    @property
    def oversubscription(self) -> float | None:
        """Committed bandwidth of the busier direction, as a multiple of the uplink; None without one."""
        return max(self.committed) / self.ap.uplink_kbit if self.ap.uplink_kbit else None

    @property
    def committed(self) -> Limits:
        """The sum of the limits of all Links, capped by a total in force."""
        total = self.ap.total_kbit
        return self.standing if total is None or not self.is_total_in_force else self.standing.clamped(total)

    @property
    def is_total_in_force(self) -> bool:
        return self.total is not None and self.total.is_in_force

    @property
    def used_share(self) -> float | None:
        """Current traffic of the busier direction, as a fraction of the uplink."""
        highest_kbit = None if self.used is None else self.used.highest_kbit
        return highest_kbit / self.ap.uplink_kbit if self.ap.uplink_kbit and highest_kbit is not None else None

    # --- the agent ----------------------------------------------------------------------------------------

    @property
    def contact_at(self) -> datetime | None:
        return self.agent.reported_at or self.host.last_seen_at

    @property
    def is_silent(self) -> bool:
        if self.receipt is not None:
            return self.agent.is_silent
        return self.contact_at is not None and self.now - self.contact_at > SILENT_AFTER

    @property
    def contact(self) -> str:
        """One of "reports", "no report", "limits removed", "no agent", "never connected"."""
        if self.agent.removed_at is not None:
            return "limits removed"
        if self.contact_at is None:
            return "never connected"
        if self.is_silent:
            return "no report"
        return "reports" if self.receipt is not None else "no agent"

    @property
    def clock(self) -> str:
        """Offset of the agent's clock, in words; empty within bounds."""
        return "" if self.agent.clock_off is None else clock_words(self.agent)

    @property
    def has(self) -> str:
        """The versions that the agent enforces according to its receipt; without a receipt, the fetched ones."""
        if self.receipt is None:
            return (
                f"fetched configuration {self.host.delivered_config_version}, "
                f"limits {self.host.delivered_limits_version}"
            )
        if self.receipt.config_version is None:
            return "reports none"
        return f"reports configuration {self.receipt.config_version}, limits {self.receipt.limits_version}"

    @property
    def scion_files(self) -> FilesState:
        return files_state(self.host)

    @property
    def scion_files_words(self) -> str:
        """Empty if this service manages them."""
        return FILES_WORDS[self.scion_files]

    # --- trouble ------------------------------------------------------------------------------------------

    @property
    def troubles(self) -> list[Trouble]:
        """Problems, highest weight first."""
        found = [*self._of_the_agent(), *self._of_links(), *self._of_the_uplink()]
        return sorted(found, key=lambda one: -one.weight)

    @property
    def weight(self) -> int:
        return sum(trouble.weight for trouble in self.troubles)

    def _of_the_agent(self) -> Iterable[Trouble]:
        if self.scion_files == "other":
            yield Trouble(65, "bad", "SCION files of another service: set limits only, or take over")
        if self.active_links:
            yield from self._of_contact()
        bad = [one for one in self.problems if not one.explanation.is_warning]
        for words in in_short(bad):
            yield Trouble(80, "bad", words)
        if self.clock:
            yield Trouble(50, "warn", self.clock)
        warnings = [one for one in self.problems if one.explanation.is_warning and one.code != "clock_skewed"]
        for words in dict.fromkeys(one.in_words for one in warnings):
            yield Trouble(15, "warn", words)
        if (
            self.is_behind
            and not self.is_silent
            and self.waiting_since is not None
            and self.now - self.waiting_since > SETTLED_AFTER
        ):
            yield Trouble(40, "warn", "behind: the agent does not have the newest limits")

    def _of_contact(self) -> Iterable[Trouble]:
        links = f"{self.active_links} link{'' if self.active_links == 1 else 's'}"
        if self.contact == "no report" and self.receipt is not None:
            yield Trouble(100, WORDS["no_report"].tone, no_report_since(self.agent))
        elif self.contact == "no report":
            yield Trouble(100, WORDS["no_report"].tone, "no agent, and the client has stopped fetching")
        elif self.contact == "never connected":
            yield Trouble(70, "bad", f"agent has never connected ({links} depend{'s' * (links == '1 link')} on it)")
        elif self.contact == "no agent":
            yield Trouble(20, "warn", "no agent: limits are not verified")

    def _of_links(self) -> Iterable[Trouble]:
        if failed := self.states["failed"]:
            yield Trouble(90, WORDS["failed"].tone, f"{failed} link{'' if failed == 1 else 's'} failed")
        for offer in OFFERS:
            yield from offer.troubles(self.ap)
        if self.host.restart_due_at is not None:
            words = f"one user's many changes wait until {say_time(self.host.restart_due_at)}: each restarts SCION here"
            yield Trouble(30, "warn", words)
        if observed := self.states["observed"]:
            words = f"{observed} link{'' if observed == 1 else 's'} observed: nothing is limited"
            yield Trouble(10, WORDS["observed"].tone, words)

    def _of_the_uplink(self) -> Iterable[Trouble]:
        if self.total is not None and self.total.tone == "bad" and not self.is_silent:
            yield Trouble(75, "bad", f"total {self.total.remark}")
        if self.used_share is not None and self.used_share > 0.8:
            yield Trouble(60, "warn", f"uplink {self.used_share:.0%} used")
        if self.oversubscription is not None and self.oversubscription > 1:
            yield Trouble(5, "warn", f"limits are {self.oversubscription:.1f} times the uplink")


def counts_of(states: Counter[State]) -> list[tuple[State, int]]:
    """Number of Links by state, most urgent first."""
    return [(state, states[state]) for state in WORDS if states[state]]


# --- reading ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Testbed:
    """All attachment points, or one, ordered by ISD-AS."""

    states: list[ApState]
    census: Census

    @property
    def site_default_kbit(self) -> int:
        """No SQL statement if there is an attachment point."""
        found: int | None = getattr(self.states[0].ap, "site_default_kbit", None) if self.states else None
        return selectors.policy().default_bandwidth_kbit if found is None else found


def read_testbed(*, now: datetime, attachment_point_id: int | None = None) -> Testbed:
    """Load the testbed; two SQL statements, and two more if Links have timed limits."""
    policy = BandwidthPolicy.objects.filter(pk=1)
    aps = attachment_points().order_by("AS__isd__isd_id", "AS__as_id")
    aps = aps.annotate(
        site_currency=Subquery(policy.values("currency")),
        site_default_kbit=Subquery(policy.values("default_bandwidth_kbit")),
    )
    for offer in OFFERS:
        aps = offer.with_columns(aps, now)
    of = None
    if attachment_point_id is not None:
        aps, of = aps.filter(pk=attachment_point_id), Q(interface_a__AS__attachment_point=attachment_point_id)
    rows = list(aps)
    census = take_census(now=now, aps=rows, of=of)
    states = {}
    for ap in rows:
        states[ap.pk] = ApState(ap, census.agents[ap.pk], generation=census.generation, now=now)
    for group in census.groups:
        states[group.ap_id].add(group)
    return Testbed(list(states.values()), census)


def load_use(states: Iterable[ApState], *, now: datetime) -> None:
    """Load the current traffic of each attachment point."""
    by_ap = {state.ap.pk: state for state in states}
    for offer in OFFERS:
        for key, rate in offer.rates_of_points(now).items():
            if key in by_ap:
                by_ap[key].used = rate


def load_talkers(state: ApState, *, now: datetime) -> dict[int, Rate]:
    """Load the Links of one attachment point with the most traffic."""
    rates = {key: rate for offer in OFFERS for key, rate in offer.rates_of_links(state.ap, now).items()}
    if rates:
        state.used = sum_of(rates.values())
    return rates
