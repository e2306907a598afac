"""Sentences on the state of a Link: the same on every page, in mails, in the REST API and in the CLI.

Each begins with the word of the state (`words`). Built when they are shown; times are in the reader's zone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bandwidth_config import Limits, format_kbit, format_limits
from scionlab.enforcement.words import WORDS
from scionlab.local_time import say_time
from scionlab.models import LinkEnforcement

if TYPE_CHECKING:
    from collections.abc import Callable

    from scionlab.enforcement.agents import Agent
    from scionlab.enforcement.judgement import Stage
    from scionlab.enforcement.status import LinkStatus


def text_of(status: LinkStatus) -> str:
    """The state, and the remark where there is one."""
    remark = status.remark
    state = _state(status)
    return state if remark is None else f"{state} {remark.text}."


def no_report_since(agent: Agent) -> str:
    """`No report since 2026-11-22 07:29:00 CET`; only of an agent that reported once."""
    assert agent.read_at is not None  # noqa: S101  for the type checker
    since = f"{WORDS['no_report'].word} since {say_time(agent.read_at)}"
    return f"{since}: the limiter does not answer its agent" if agent.is_limiter_silent else since


def _state(status: LinkStatus) -> str:
    if status.agent is None:
        return "Not limited: this is not the link of a user AS to an attachment point."
    return _SAID[status.stage](status, status.agent)


def _inactive(status: LinkStatus, _agent: Agent) -> str:
    return f"{status.word}: the link is in no configuration."


def _waiting(status: LinkStatus, agent: Agent) -> str:
    return f"{status.word}: {agent.name} has not fetched the new limit yet."


def _delivered(status: LinkStatus, agent: Agent) -> str:
    if status.facts is not None and status.facts.is_step_open:
        return f"{status.word}: {agent.name} has not confirmed the newest step of the temporary limit yet."
    return f"{status.word}: {agent.name} has not confirmed the new limit yet."


def _not_verified(status: LinkStatus, agent: Agent) -> str:
    return f"{status.word}, not verified: {agent.name} has no agent that reports what its kernel enforces."


def _silent(status: LinkStatus, agent: Agent) -> str:
    if status.row is not None and status.row.state == LinkEnforcement.State.OBSERVED:
        return f"{no_report_since(agent)}. At that time nothing was limited."
    known = "none" if status.last_known is None else format_limits(status.last_known)
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
    """Where the administrators want the limits enforced."""
    if agent.receipt is not None and agent.receipt.observe_only:
        return f"the operator of {agent.name} set it to observe only"
    return f"the agent of {agent.name} observes this link only"


def _enforced(status: LinkStatus, _agent: Agent) -> str:
    since = "" if status.since is None else f" since {say_time(status.since)}"
    if status.state == "clamped":
        return f"{status.word}: enforced at the maximum of {format_kbit(status.maximum_kbit)}{since}."
    return f"{status.word}{_DIRECTIONS[_blocked(status.last_known or status.wanted)]}{since}."


_DIRECTIONS = {
    (False, False): " in both directions",
    (True, False): ": blocked to the user AS, limited from it,",
    (False, True): ": limited to the user AS, blocked from it,",
    (True, True): " in both directions",
}


def _blocked(limits: Limits) -> tuple[bool, bool]:
    return limits.to_user_kbit == 0, limits.from_user_kbit == 0


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
