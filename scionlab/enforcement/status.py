"""A Link with its judgement and the figures beside it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from bandwidth_config import MAX_BANDWIDTH_KBIT, Limits, format_number
from scionlab import selectors
from scionlab.enforcement import sentences
from scionlab.enforcement.agents import Agent, agent_of
from scionlab.enforcement.facts import Facts, asked_at, facts_of, is_in_kernel, newest_of
from scionlab.enforcement.judgement import Stage, Verdict, judge
from scionlab.enforcement.remarks import Remark, remark_on
from scionlab.enforcement.total import TotalStatus, total_status
from scionlab.enforcement.words import WORDS, State, Tone
from scionlab.models import Link, LinkEnforcement, TimedLimit


class Counters(NamedTuple):
    """Of one direction. `drops` did not pass: those that were `refused` in front of the queue, and those `dropped` from
    it; None where the agent does not tell them apart. Of an observed Link they did pass, and would not have."""

    bytes: int
    packets: int
    drops: int
    refused: int | None
    dropped: int | None

    @classmethod
    def of(cls, row: LinkEnforcement, direction: str) -> Counters | None:
        if getattr(row, f"{direction}_rate_kbit") is None:
            return None
        found = {name: getattr(row, f"{direction}_{name}") for name in cls._fields}
        return cls(**{**found, **{name: found[name] or 0 for name in ("bytes", "packets", "drops")}})

    @property
    def parts(self) -> str:
        """`10 refused, 2 dropped from the queue`; empty where they are not told apart, and without any."""
        if self.refused is None or self.dropped is None or self.drops == 0:
            return ""
        return f"{format_number(self.refused)} refused, {format_number(self.dropped)} dropped from the queue"


@dataclass(frozen=True, slots=True)
class LinkStatus:
    """How far a Link's limits got on their way to the kernel of the attachment point.

    `requested` is what the user chose for all times; `wanted` is what should be enforced now: that, or the timed limit
    that is `running`, clamped to `maximum_kbit`. `last_known` is what the newest receipt says the kernel has, read at
    `read_at`; `enforced` is the same while it counts: None without reports, and where the kernel was not made to agree.
    `upcoming` are the timed limits still to begin, in order. The figures in kbit are the lower of both directions.
    """

    link: Link
    agent: Agent | None  # this and the next: None where nobody limits the Link
    facts: Facts | None
    requested: Limits
    maximum_kbit: int
    wanted: Limits
    last_known: Limits | None
    read_at: datetime | None
    is_agents_wish: bool
    running: TimedLimit | None
    upcoming: list[TimedLimit]
    verdict: Verdict
    since: datetime | None
    delivered_at: datetime | None

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
        """Of the state; "warn" where a warning stands beside a good one."""
        tone, remark = WORDS[self.state].tone, self.remark
        return "warn" if tone == "good" and remark is not None and remark.is_warning else tone

    @property
    def explanation(self) -> str:
        """What the word means, for any Link in this state."""
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
        """What the attachment point's Links are to carry together; None without one, and of an inactive Link."""
        ap = self.link.attachment_point
        if ap is None or ap.total_kbit is None or self.agent is None or self.stage == "inactive":
            return None
        return total_status(ap, self.agent, generation=selectors.generation_beside(self.link))

    @property
    def counters(self) -> dict[str, Counters | None] | None:
        """By direction, None for one that the kernel does not have; None without a receipt that speaks of the Link."""
        row = self.row
        if row is None:
            return None
        return {name: Counters.of(row, name) for name in ("to_user", "from_user")}

    @property
    def text(self) -> str:
        """One sentence on the state, and one on the remark."""
        return sentences.text_of(self)

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
    """Judge a Link that `selectors.with_relations` read; no statement then, and no clock of its own.

    `agent`: that of its attachment point, where it was judged already. A Link that no attachment point limits
    (infrastructure) is "inactive": there is nothing to enforce.
    """
    ap = link.attachment_point
    if ap is None:
        return _not_limited(link)
    host = link.interface_a.host
    agent = agent or agent_of(host, link.interface_a.AS.isd_as, now=now)
    row = newest_of(link, agent.receipt)
    timed = link.timed_in_configuration
    asked = asked_at(link, timed, now)
    wanted = asked.clamped(ap.maximum_kbit)
    generation = selectors.generation_beside(link)
    facts = facts_of(link, host, row, asked=asked, wanted=wanted, generation=generation, now=now)
    verdict = judge(agent, facts)
    return LinkStatus(
        link=link,
        agent=agent,
        facts=facts,
        requested=link.requested,
        maximum_kbit=ap.maximum_kbit,
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


def _not_limited(link: Link) -> LinkStatus:
    return LinkStatus(
        link=link,
        agent=None,
        facts=None,
        requested=link.requested,
        maximum_kbit=MAX_BANDWIDTH_KBIT,
        wanted=link.enforced,
        last_known=None,
        read_at=None,
        is_agents_wish=False,
        running=None,
        upcoming=[],
        verdict=Verdict("inactive", "inactive"),
        since=None,
        delivered_at=None,
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
    if stage == "enforced" and row is not None:
        # Receipts go on saying that all is as wanted while a timed limit makes its steps; the last one counts.
        steps = [one.limits.last_change(row.received_at) for one in timed]
        return max([row.since, *(step for step in steps if step is not None)])
    return agent.host.delivered_at if stage in {"delivered", "not_verified"} else link.changed_at
