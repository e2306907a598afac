"""The one remark beside a Link's state: the most important problem of its attachment point."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final, NamedTuple

from scionlab.enforcement.agents import Agent
from scionlab.enforcement.judgement import Stage
from scionlab.enforcement.models import HostReceipt, LinkEnforcement

_WITHOUT: frozenset[Stage] = frozenset({"inactive", "silent", "not_verified"})


_CATCHES: Final = "hook_obstructed"  # lets packets pass unlimited


class Remark(NamedTuple):
    """`code` is that of an agent's problem, or "clock", "foreign_content", "not_observed", "unproven". `text` has no
    full stop."""

    code: str
    text: str
    is_warning: bool = True


def remark_on(agent: Agent, row: LinkEnforcement | None, stage: Stage, *, is_to_observe: bool = False) -> Remark | None:
    """Return the most important remark. `row` is the Link's row of the newest receipt, `is_to_observe` the
    administrators' setting."""
    if stage in _WITHOUT or agent.receipt is None or agent.removed_at is not None:
        return None
    return next(_remarks(agent, agent.receipt, row, stage, is_to_observe), None)


def _remarks(
    agent: Agent, receipt: HostReceipt, row: LinkEnforcement | None, stage: Stage, is_to_observe: bool
) -> Iterator[Remark]:
    if is_to_observe and stage == "enforced":
        why = "does not support that" if receipt.observe_only is None else "enforces its limit"
        yield Remark("not_observed", f"This link is set to observe only, but the agent of {agent.name} {why}")
    if not _is_explained(agent, row, stage):
        devices = {row.to_user_dev, row.from_user_dev} - {""} if row is not None else set()
        yield from _problem(agent, devices | agent.devices)
    if agent.clock_off is not None:
        yield Remark("clock", clock_words(agent))
    if agent.is_foreign:
        yield Remark("foreign_content", f"{agent.name} reports limits that this service did not issue")
    if receipt.content == HostReceipt.Content.COUNTED and stage in {"enforced", "observed", "failed"}:
        yield Remark("unproven", "The agent does not prove which limits it has", is_warning=False)


def _is_explained(agent: Agent, row: LinkEnforcement | None, stage: Stage) -> bool:
    is_error = row is not None and row.state == LinkEnforcement.State.ERROR
    return is_error or (stage == "failed" and agent.voided_by is not None)


def _problem(agent: Agent, devices: Collection[str]) -> Iterator[Remark]:
    """Of the problems that concern a Link on these devices, those that let packets pass unlimited come first."""
    found = [one for one in agent.problems if one.explanation.remark and one.concerns(devices)]
    if found:
        first = min(found, key=lambda one: (one.code != _CATCHES, one.explanation.is_warning))
        yield Remark(first.code, first.explanation.remark.format(name=agent.name, subject=first.subject))


def clock_words(agent: Agent) -> str:
    """Return `The clock of 17-ffaa:0:1107 is 10 min behind`. Its clock must be out of bounds."""
    off = agent.clock_off
    assert off is not None  # noqa: S101  for the type checker
    seconds = abs(off.total_seconds())
    amount = next(
        (f"{seconds / size:.0f} {unit}" for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")) if seconds >= size),
        f"{seconds:.0f} s",
    )
    return f"The clock of {agent.name} is {amount} {'ahead' if off.total_seconds() > 0 else 'behind'}"
