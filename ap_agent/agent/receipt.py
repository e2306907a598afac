"""The enforcement receipt: what the limiter read back from the kernel, in the shape of docs/api.md. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ap_agent import __version__
from ap_agent.common.problem import Problem
from ap_agent.common.times import time_text
from ap_agent.document.state import DirectionState, LimiterState, LinkState, Total

SCHEMA = 1
DEVICE_TO_USER, DEVICE_FROM_USER = "slbw0", "slbw1"
# The service refuses a receipt with longer texts as a whole; a shortened sentence is better than no receipt.
_MAX_TEXT_CHARS = 2000
_MAX_SUBJECT_CHARS = 200
_MAX_PROBLEMS = 1000


@dataclass(frozen=True)
class Sender:
    """`run` names the start of the agent and `number` counts its receipts from 1, so that the service knows the newest
    whatever the clock does."""

    run: str
    number: int
    clock_skew_ms: int | None = None


def build_receipt(
    state: LimiterState | None,
    problems: Iterable[Problem],
    sender: Sender,
    *,
    now: datetime,
    writes: int = 0,
    evidence: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """One receipt of this state. Versions, digest and time are those that the limiter says are in force; without a
    state nothing is. `writes` counts operations since the receipt before; `evidence` is the signed text of the document
    in force, where the service asked for it."""
    order = state.order if state is not None else None
    receipt = {
        "schema": SCHEMA,
        "agent_version": __version__,
        "version": f"{order.generation}.{order.config_version}" if order is not None else None,
        "limits_version": order.limits_version if order is not None else None,
        "observed_at": time_text(state.observed_at if state is not None else now, "microseconds"),
        "writes": writes,
        "links": {str(one.interface_id): link_fields(one) for one in (state.links.values() if state else ())},
        "problems": [_problem(problem) for problem in list(problems)[:_MAX_PROBLEMS]],
        "limits_digest": state.limits_digest if state is not None else None,
        "devices": list(state.devices) if state is not None else [],
        "total": total_fields(state.total) if state is not None else None,
        "observe_only": state.is_observe_only if state is not None else False,
        "run": sender.run,
        "number": sender.number,
        "clock_skew_ms": sender.clock_skew_ms,
    }
    return receipt if evidence is None else {**receipt, "evidence": dict(evidence)}


def link_fields(link: LinkState) -> dict[str, Any]:
    """`kbit` is the lower of both directions, for readers that know one limit."""
    return {
        "kbit": link.limits.lowest_kbit,
        **link.limits._asdict(),
        "state": link.state,
        "problem": _clipped(link.problem, _MAX_TEXT_CHARS) if link.problem is not None else None,
        "to_user": _direction(link.to_user, DEVICE_TO_USER),
        "from_user": _direction(link.from_user, DEVICE_FROM_USER),
    }


def _direction(side: DirectionState | None, device: str) -> dict[str, Any] | None:
    if side is None:
        return None
    return {
        "dev": device,
        "rate_kbit": side.rate_kbit,
        "bytes": side.counters.passed_bytes,
        "packets": side.counters.passed_packets,
        "drops": side.drops,
        "backlog_bytes": side.backlog_bytes,
        "refused": side.counters.refused_packets,
        "dropped": side.dropped_packets,
    }


def total_fields(total: Total | None) -> dict[str, int | None] | None:
    if total is None:
        return None
    return {
        "wanted_kbit": total.wanted_kbit,
        "to_user_kbit": total.to_user_kbit,
        "from_user_kbit": total.from_user_kbit,
    }


def _problem(problem: Problem) -> dict[str, str]:
    return {
        "code": problem.code,
        "subject": _clipped(problem.subject, _MAX_SUBJECT_CHARS),
        "message": _clipped(problem.message, _MAX_TEXT_CHARS),
    }


def _clipped(text: str, chars: int) -> str:
    storable = text.encode("utf-8", "replace").decode().replace("\0", "?")  # no half characters, no NUL
    return storable if len(storable) <= chars else storable[: chars - 3] + "..."


def news(state: LimiterState | None, problems: Iterable[Problem]) -> object:
    """What makes a receipt worth sending at once: everything but times, counters and the number of writes.

    Nor what a timed limit changes by the clock while the kernel follows: the service has the same timetable, and a
    receipt of thousands of links every second would tell it nothing new.
    """
    listed = sorted((one.code, one.subject) for one in problems)
    if state is None:
        return None, listed
    links = [_said(link) for link in state.links.values()]
    return state.order, state.limits_digest, state.is_observe_only, state.total, state.devices, links, listed


def _said(link: LinkState) -> tuple[object, ...]:
    rates = [side.rate_kbit if side is not None else None for side in (link.to_user, link.from_user)]
    follows = link.state != "error" and rates == list(link.limits)
    return link.interface_id, link.state, link.problem, None if follows else (link.limits, rates)
