"""The one remark that stands beside a Link's state: what of its attachment point a reader must know as well."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from scionlab.enforcement.agents import Agent
from scionlab.enforcement.judgement import Stage
from scionlab.models import HostReceipt, LinkEnforcement

_WITHOUT: frozenset[Stage] = frozenset({"inactive", "silent", "not_verified"})


class Remark(NamedTuple):
    """`code` is that of an agent's problem, or "clock", "foreign_content", "unproven". `text` has no full stop."""

    code: str
    text: str
    is_warning: bool = True


def remark_on(agent: Agent, row: LinkEnforcement | None, stage: Stage) -> Remark | None:
    """The weightiest. `row` is what the newest receipt says of the Link."""
    if stage in _WITHOUT or agent.receipt is None or agent.removed_at is not None:
        return None
    is_explained = row is not None and row.state == LinkEnforcement.State.ERROR  # its own sentence gives the reason
    devices = {row.to_user_dev, row.from_user_dev} - {""} if row is not None else set()
    problem = None if is_explained else _problem(agent, devices)
    if problem is not None:
        return problem
    if agent.clock_off is not None:
        return Remark("clock", clock_words(agent))
    if agent.is_foreign:
        return Remark("foreign_content", f"{agent.name} reports limits that this service did not issue")
    if agent.receipt.content == HostReceipt.Content.COUNTED and stage in {"enforced", "failed"}:
        return Remark("unproven", "The agent is too old to prove content", is_warning=False)
    return None


def _problem(agent: Agent, devices: Collection[str]) -> Remark | None:
    """Of those that concern the limits of a Link on these devices; what catches packets unlimited comes first."""
    found = [one for one in agent.problems if one.explanation.remark and one.concerns(devices)]
    if not found:
        return None
    first = min(found, key=lambda one: (one.code != "foreign_filter_in_front", one.explanation.is_warning))
    return Remark(first.code, first.explanation.remark.format(name=agent.name, subject=first.subject))


def clock_words(agent: Agent) -> str:
    """`The clock of 17-ffaa:0:1107 is 10 min behind`; only of an agent whose clock is off."""
    off = agent.clock_off
    assert off is not None  # noqa: S101  for the type checker
    seconds = abs(off.total_seconds())
    amount = next(
        (f"{seconds / size:.0f} {unit}" for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")) if seconds >= size),
        f"{seconds:.0f} s",
    )
    return f"The clock of {agent.name} is {amount} {'ahead' if off.total_seconds() > 0 else 'behind'}"
