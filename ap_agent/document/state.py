"""The limiter's state of the kernel: one file, replaced atomically, read by the agent and every command.

    <limiter_run_dir>/state.json, mode 0644; schema 1

Written on changes and every `usage_interval_s`. Its counters are those of the program's maps, so they survive the
limiter; `closed` has the last counters of ended segments, for a day.

In the file a value of this module is a list of its fields: with thousands of links, names would cost too much time.
Readers ignore unknown keys, and additional list items.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import astuple, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, NamedTuple, NoReturn, get_type_hints

from ap_agent.common.files import read_own, readable, write_atomically
from ap_agent.common.problem import Problem
from ap_agent.common.times import time_text
from ap_agent.document.series import REMEDY, of_schema
from ap_agent.document.signed_text import Version
from bandwidth_config import Limits

SCHEMA = 1
FILE_NAME = "state.json"
MAX_BYTES = 64 * 1024 * 1024
Direction = Literal["to_user", "from_user"]


class Counters(NamedTuple):
    """Counters of one direction of a link since its segment began. `passed_*` includes heartbeats; packets above the
    limit of an observed link are in both `passed_*` and `refused_*`."""

    passed_bytes: int
    passed_packets: int
    refused_bytes: int
    refused_packets: int
    heartbeat_bytes: int
    heartbeat_packets: int


class DirectionState(NamedTuple):
    """One direction of a link in the kernel. `segment` (nonzero) identifies the counters' lifetime: a different one
    means that they were reset. `dropped_packets` (since then) and `backlog_bytes` are HTB's, from the last read."""

    rate_kbit: int
    segment: int
    counters: Counters
    dropped_packets: int
    backlog_bytes: int

    @property
    def drops(self) -> int:
        """Packets that did not pass: refused before the queue, or dropped by HTB."""
        return self.counters.refused_packets + self.dropped_packets


class LinkState(NamedTuple):
    """A limited link in the kernel; a direction that the kernel lacks is None. `enforced`: the kernel has exactly
    `limits`. `observed`: it has them, and counts but does not drop. `error`: neither; `problem` says why."""

    interface_id: int
    limits: Limits  # as wanted by the document when the kernel was read
    state: Literal["enforced", "observed", "error"]
    problem: str | None
    to_user: DirectionState | None
    from_user: DirectionState | None


class ClosedSegment(NamedTuple):
    """The last counters of one direction of a link."""

    interface_id: int
    direction: Direction
    segment: int
    rate_kbit: int
    closed_at_ms: int  # since 1970
    counters: Counters


class Total(NamedTuple):
    """Cap of all links together, in each direction: as in the document, and in force (kbit/s)."""

    wanted_kbit: int
    to_user_kbit: int | None
    from_user_kbit: int | None


@dataclass(frozen=True)
class LimiterState:
    """`host_id`, `order` and `limits_digest` are None while the limiter has no document: then nothing is limited. `run`
    (32 hexadecimal digits) identifies this start of the limiter, `number` counts its writes. `reset_reason` is set by
    `reset`. `is_running` is false in the last state of a stopped limiter: the limits stay in the kernel."""

    run: str
    number: int
    written_at: datetime
    observed_at: datetime  # when the kernel was read
    host_id: str | None
    order: Version | None
    limits_digest: str | None
    is_ok: bool
    writes: int  # operations that the kernel accepted since the limiter started
    links: Mapping[int, LinkState]
    problems: tuple[Problem, ...] = ()
    is_step: bool = False  # the last change was only due to the clock
    is_observe_only: bool = False
    total: Total | None = None
    unmatched: tuple[DirectionState | None, DirectionState | None] | None = None  # to the users, from them
    unmatched_problem: str | None = None  # why its limit is not in force
    devices: tuple[str, ...] = ()  # devices on which packets are classified
    next_step_at: datetime | None = None  # of a timed limit
    closed: tuple[ClosedSegment, ...] = ()
    tests: tuple[str, ...] = ()  # ids of tests that are armed or running
    reset_reason: str | None = None
    is_running: bool = True

    def count(self, state: Literal["enforced", "observed", "error"]) -> int:
        """Number of links in this state."""
        return sum(one.state == state for one in self.links.values())


# --- the file -------------------------------------------------------------------------------------------------------


def write_state(folder: Path, state: LimiterState) -> None:
    """Raises `OSError`. Not durable: a power cut also resets the kernel."""
    write_atomically(folder / FILE_NAME, state_bytes(state), mode=0o644, is_durable=False)


def read_state(folder: Path) -> LimiterState | None:
    """The limiter's last state; None if none. Raises `StoreError`, `NotPermittedError`."""
    return read_own(folder / FILE_NAME, MAX_BYTES, parse_state, REMEDY)


def state_bytes(state: LimiterState) -> bytes:
    document = {"schema": SCHEMA, **vars(state), "links": list(state.links.values())}
    return json.dumps(document, separators=(",", ":"), default=_written).encode()


def _written(value: Any) -> Any:
    return time_text(value, "microseconds") if isinstance(value, datetime) else astuple(value)  # a `Problem`


@readable()
def parse_state(data: bytes) -> LimiterState:
    """Inverse of `state_bytes`. Raises `ValueError` with the reason, for any bytes."""
    if len(data) > MAX_BYTES:
        raise ValueError(f"it has more than {MAX_BYTES} bytes")
    return _state(of_schema(SCHEMA, json.loads(data, parse_float=_no_fraction, parse_constant=_no_fraction)))


def _no_fraction(_text: str) -> NoReturn:
    raise ValueError("a number is not an integer")


_PLAIN = {name: kind for name, kind in get_type_hints(LimiterState).items() if kind in (str, int, bool, str | None)}
_STATES = frozenset({"enforced", "observed", "error"})
_DIRECTIONS = frozenset({"to_user", "from_user"})


def _state(document: dict[str, Any]) -> LimiterState:
    plain = {name: document[name] for name in _PLAIN}
    for name, kind in _PLAIN.items():
        if not isinstance(plain[name], kind):
            raise TypeError(name)
    numbers: list[int] = []  # of thousands of links: checked all at once
    total, unmatched, order = document["total"], document["unmatched"], document["order"]
    for several in (total, order):
        numbers += [one for one in several or () if one is not None]
    found = LimiterState(
        **plain,
        written_at=_moment(document["written_at"]),
        observed_at=_moment(document["observed_at"]),
        next_step_at=_moment(document["next_step_at"]) if document["next_step_at"] is not None else None,
        order=Version(*order) if order is not None else None,
        total=Total(*total) if total is not None else None,
        unmatched=_both(unmatched, numbers) if unmatched is not None else None,
        links={row[0]: _link(row, numbers) for row in document["links"]},
        problems=tuple(Problem(*map(_text, one[:3])) for one in document["problems"]),
        devices=tuple(map(_text, document["devices"])),
        closed=tuple(_closed(row, numbers) for row in document["closed"]),
        tests=tuple(map(_text, document["tests"])),
    )
    if min(numbers, default=0) < 0:  # a `TypeError` if it is not a number
        raise ValueError("a count or a rate is below 0")
    return found


def _link(row: list[Any], numbers: list[int]) -> LinkState:
    number, limits, said, problem, to_user, from_user = row[:6]
    numbers += (number, *limits)
    if said not in _STATES or not isinstance(problem, str | None):
        raise ValueError("a link has no state")
    return LinkState(number, Limits._make(limits), said, problem, *_both([to_user, from_user], numbers))


def _both(rows: list[Any], numbers: list[int]) -> tuple[DirectionState | None, DirectionState | None]:
    return _direction(rows[0], numbers), _direction(rows[1], numbers)


def _direction(row: list[Any] | None, numbers: list[int]) -> DirectionState | None:
    if row is None:
        return None
    rate, segment, counters, dropped, backlog = row[:5]
    numbers += (rate, segment, dropped, backlog)
    return DirectionState(rate, segment, _counters(counters, numbers), dropped, backlog)


def _counters(row: list[Any], numbers: list[int]) -> Counters:
    counted = row[: len(Counters._fields)]
    numbers += counted
    return Counters._make(counted)


def _closed(row: list[Any], numbers: list[int]) -> ClosedSegment:
    number, direction, segment, rate, at_ms, counters = row[:6]
    if direction not in _DIRECTIONS:
        raise ValueError("a segment has no direction")
    numbers += (number, segment, rate, at_ms)
    return ClosedSegment(number, direction, segment, rate, at_ms, _counters(counters, numbers))


def _moment(text: str) -> datetime:
    found = datetime.fromisoformat(text)
    if found.tzinfo is None:
        raise ValueError("a time has no zone")
    return found


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("no text")
    return value
