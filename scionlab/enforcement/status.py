"""A Link with its judgement, figures and text.

Pages, mails, the REST API and the CLI share these texts. They are formatted only when shown. Times are in the reader's
zone (`platform.notation.local_time`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

from bandwidth_config import MAX_BANDWIDTH_KBIT, Limits, format_kbit
from scionlab.enforcement.agents import Agent, agent_of, no_report_since
from scionlab.enforcement.counters import Counters
from scionlab.enforcement.directions import DIRECTIONS
from scionlab.enforcement.facts import Facts, asked_at, facts_of, is_in_kernel, newest_of
from scionlab.enforcement.judgement import Stage, Verdict, judge
from scionlab.enforcement.models import LinkEnforcement
from scionlab.enforcement.remarks import Remark, remark_on
from scionlab.enforcement.total import TotalStatus, total_status
from scionlab.enforcement.words import WORDS, State
from scionlab.platform.notation.local_time import say_time
from scionlab.testbed import selectors
from scionlab.testbed.models import Link, TimedLimit
from scionlab.web.admin.columns import Tone


@dataclass(frozen=True, slots=True)
class LinkStatus:
    """State of a Link's limits between saving and the kernel. `requested` is the user's regular choice; `wanted` is
    what should be enforced now: that or the `running` timed limit, clamped to `maximum_kbit`. `last_known` is what the
    kernel had at `read_at`; `enforced` is the same while it counts, and None without reports or if the kernel differs.
    `upcoming` are the future timed limits in order. The `_kbit` values are the lower of both directions."""

    link: Link
    requested: Limits
    maximum_kbit: int
    wanted: Limits
    verdict: Verdict
    agent: Agent | None = None  # this and the next: None if no attachment point limits the Link
    facts: Facts | None = None
    last_known: Limits | None = None
    read_at: datetime | None = None
    is_agents_wish: bool = False
    running: TimedLimit | None = None
    upcoming: list[TimedLimit] = field(default_factory=list)
    since: datetime | None = None
    delivered_at: datetime | None = None

    @property
    def stage(self) -> Stage:
        return self.verdict.stage

    @property
    def state(self) -> State:
        return self.verdict.state

    @property
    def word(self) -> str:
        return WORDS[self.state].word

    @property
    def tone(self) -> Tone:
        """Tone of the state; "warn" if a good state has a warning."""
        tone, remark = WORDS[self.state].tone, self.remark
        return "warn" if tone == "good" and remark is not None and remark.is_warning else tone

    @property
    def explanation(self) -> str:
        """Meaning of the state's word, for any Link."""
        return WORDS[self.state].explanation

    @property
    def enforced(self) -> Limits | None:
        is_void = self.agent is None or self.agent.voided_by is not None or self.stage in {"inactive", "silent"}
        return self.last_known if self.is_agents_wish and not is_void else None

    @property
    def row(self) -> LinkEnforcement | None:
        return None if self.agent is None else newest_of(self.link, self.agent.receipt)

    @property
    def remark(self) -> Remark | None:
        if self.agent is None:
            return None
        return remark_on(self.agent, self.row, self.stage, is_to_observe=self.link.is_to_observe)

    @property
    def total(self) -> TotalStatus | None:
        """The total of the attachment point's Links; None without one, and for an inactive Link."""
        ap = self.link.attachment_point
        if ap is None or ap.total_kbit is None or self.agent is None or self.stage == "inactive":
            return None
        return total_status(ap, self.agent, generation=selectors.generation_beside(self.link))

    @property
    def counters(self) -> dict[str, Counters | None] | None:
        """Counters by direction, None for one that the kernel lacks; None if no receipt mentions the Link."""
        row = self.row
        if row is None:
            return None
        return {name: Counters.of(row, name) for name in DIRECTIONS}

    @property
    def text(self) -> str:
        """A sentence on the state, and one with the remark."""
        remark = self.remark
        state = _state(self)
        return state if remark is None else f"{state} {remark.text}."

    @property
    def requested_kbit(self) -> int:
        return self.requested.lowest_kbit

    @property
    def wanted_kbit(self) -> int:
        return self.wanted.lowest_kbit

    @property
    def enforced_kbit(self) -> int | None:
        return None if self.enforced is None else self.enforced.lowest_kbit


def link_status(link: Link, *, now: datetime, agent: Agent | None = None) -> LinkStatus:
    """Judge a Link of `selectors.with_relations`; no SQL statement. `agent`: that of its attachment point, if already
    judged. A Link that no attachment point limits (infrastructure) is "inactive"."""
    ap = link.attachment_point
    if ap is None:
        inactive = Verdict("inactive", "inactive")
        return LinkStatus(link, link.requested, MAX_BANDWIDTH_KBIT, wanted=link.enforced, verdict=inactive)
    host = link.interface_a.host
    agent = agent or agent_of(host, link.interface_a.AS.isd_as, now=now)
    row = newest_of(link, agent.receipt)
    timed = link.timed_in_configuration
    asked = asked_at(link, timed, now)
    wanted = asked.clamped(link.maximum_kbit)
    facts = facts_of(link, row, read_at=agent.reported_at or now, asked=asked, wanted=wanted, now=now)
    verdict = judge(agent, facts)
    return LinkStatus(
        link=link,
        agent=agent,
        facts=facts,
        requested=link.requested,
        maximum_kbit=link.maximum_kbit,
        wanted=wanted,
        last_known=None if row is None or agent.removed_at is not None else row.limited_to,
        read_at=None if row is None else agent.read_at,
        is_agents_wish=row is not None and is_in_kernel(row),
        running=next((one for one in timed if one.begins_at <= now < one.ends_at), None),
        upcoming=[one for one in timed if one.begins_at > now],
        verdict=verdict,
        since=_since(verdict.stage, agent, link, row, timed),
        delivered_at=host.delivered_at if facts.is_delivered else None,
    )


def _since(
    stage: Stage, agent: Agent, link: Link, row: LinkEnforcement | None, timed: list[TimedLimit]
) -> datetime | None:
    if stage == "silent":
        return agent.read_at
    if stage == "failed":
        return agent.removed_at or (link.changed_at if row is None else row.since)
    if stage == "observed" and row is not None:
        return row.since
    if stage == "enforced" and row is not None and agent.reported_at is not None:
        # Receipts keep confirming while a timed limit makes its steps; the last step counts.
        steps = [one.limits.last_change(agent.reported_at) for one in timed]
        return max([row.since, *(step for step in steps if step is not None)])
    return agent.host.delivered_at if stage in {"delivered", "not_verified"} else link.changed_at


def _state(status: LinkStatus) -> str:
    if status.agent is None:
        return "Not limited: this is not the link of a user AS to an attachment point."
    return _SAID[status.stage](status, status.agent)


def _inactive(status: LinkStatus, agent: Agent) -> str:
    held = _held(status, agent)
    return f"{status.word}: {held}" if held else f"{status.word}: the link is in no configuration."


def _waiting(status: LinkStatus, agent: Agent) -> str:
    return f"{status.word}: {_held(status, agent) or f'{agent.name} has not fetched the new limit yet.'}"


def _held(status: LinkStatus, agent: Agent) -> str:
    """Why a change waits for a restart of SCION there; empty if it does not."""
    due_at = status.link.held_until
    if due_at is None:
        return ""
    return (
        f"{agent.name} gets the newest change by {say_time(due_at)}. Each change of an address, a port or an "
        "attachment restarts SCION there, and there were many: further ones are delivered together."
    )


def _delivered(status: LinkStatus, agent: Agent) -> str:
    if status.facts is not None and status.facts.is_step_open:
        return f"{status.word}: {agent.name} has not confirmed the newest step of the temporary limit yet."
    return f"{status.word}: {agent.name} has not confirmed the new limit yet."


def _not_verified(status: LinkStatus, agent: Agent) -> str:
    return f"{status.word}, not verified: {agent.name} has no agent that reports what its kernel enforces."


def _silent(status: LinkStatus, agent: Agent) -> str:
    if status.row is not None and status.row.state == LinkEnforcement.State.OBSERVED:
        return f"{no_report_since(agent)}. At that time nothing was limited."
    known = "none" if status.last_known is None else str(status.last_known)
    return f"{no_report_since(agent)}. Last known limit: {known}."


def _observed(status: LinkStatus, _agent: Agent) -> str:
    since = "" if status.since is None else f" (since {say_time(status.since)})"
    return f"{status.word}: nothing is limited{since}."


def _failed(status: LinkStatus, agent: Agent) -> str:
    row = status.row
    if agent.removed_at is not None:
        return f"{status.word}: the operator of {agent.name} removed the limits at {say_time(agent.removed_at)}."
    if row is None:
        return (
            f"{status.word}: no agent at {agent.name} fetches limits. The client there fetches only the SCION "
            "configuration."
        )
    if agent.voided_by is not None:
        return f"{status.word}: {agent.voided_by.in_words}."
    if row.state == LinkEnforcement.State.OBSERVED:
        return f"{status.word}: {_who_observes(agent)}. The link is measured, not limited."
    if row.state != LinkEnforcement.State.ENFORCED:
        return f"{status.word}: {row.problem or 'the agent gave no reason.'}"
    found = [row.to_user_rate_kbit, row.from_user_rate_kbit]
    to_user, from_user = ("no limit" if rate is None else format_kbit(rate) for rate in found)
    return f"{status.word}: the kernel has {to_user} to the user AS and {from_user} from it."


def _who_observes(agent: Agent) -> str:
    """Why it is observed, although administrators want the limits enforced."""
    if agent.receipt is not None and agent.receipt.observe_only:
        return f"the operator of {agent.name} set it to observe only"
    return f"the agent of {agent.name} observes this link only"


def _enforced(status: LinkStatus, _agent: Agent) -> str:
    since = "" if status.since is None else f" since {say_time(status.since)}"
    if status.state == "clamped":
        return f"{status.word}: enforced at the maximum of {format_kbit(status.maximum_kbit)}{since}."
    to_user, from_user = ("limited" if kbit else "blocked" for kbit in status.last_known or status.wanted)
    where = " in both directions" if to_user == from_user else f": {to_user} to the user AS, {from_user} from it,"
    return f"{status.word}{where}{since}."


_SAID: dict[Stage, Callable[[LinkStatus, Agent], str]] = {
    "inactive": _inactive,
    "waiting": _waiting,
    "delivered": _delivered,
    "not_verified": _not_verified,
    "silent": _silent,
    "failed": _failed,
    "enforced": _enforced,
    "observed": _observed,
}
