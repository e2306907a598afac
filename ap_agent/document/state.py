"""What the limiter says of the kernel: one file, written whole, which the agent and every command read.

    <limiter_run_dir>/state.json, mode 0644; schema 1

The limiter writes it when something changed and every `usage_interval_s`. Its counters are those of the program's maps,
so they survive the limiter; `closed` has the last counters of segments that ended, for a day.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, NamedTuple

from ap_agent.common.problem import Problem
from ap_agent.document.signed_text import Version
from bandwidth_config import Limits

SCHEMA = 1
Direction = Literal["to_user", "from_user"]


class Counters(NamedTuple):
    """Of one direction of a link since its segment began. `passed_*` includes heartbeats; what an observed link would
    have been refused is in both `passed_*` and `refused_*`."""

    passed_bytes: int
    passed_packets: int
    refused_bytes: int
    refused_packets: int
    heartbeat_bytes: int
    heartbeat_packets: int


@dataclass(frozen=True)
class DirectionState:
    """One direction of a link as the kernel has it. `segment` (nonzero) names the life of the counters: another one
    means that they began anew. `dropped_packets` and `backlog_bytes` are HTB's, as of the last look at its tree."""

    rate_kbit: int
    segment: int
    counters: Counters
    dropped_packets: int
    backlog_bytes: int

    @property
    def drops(self) -> int:
        """Packets that did not pass: refused in front, and dropped by HTB."""
        return self.counters.refused_packets + self.dropped_packets


@dataclass(frozen=True)
class LinkState:
    """A link that is to be limited, as the kernel has it; a direction that the kernel does not have is None.

    `enforced`: the kernel has exactly `limits`. `observed`: it would, and counts what it would refuse, but refuses
    nothing. `error`: neither; `problem` says why.
    """

    interface_id: int
    limits: Limits  # that the document wanted when the kernel was read
    state: Literal["enforced", "observed", "error"]
    problem: str | None
    to_user: DirectionState | None
    from_user: DirectionState | None


class ClosedSegment(NamedTuple):
    """The last counters of one direction of a link, read after its last packet."""

    interface_id: int
    direction: Direction
    segment: int
    rate_kbit: int
    closed_at_ms: int  # since 1970
    counters: Counters


class LinkSample(NamedTuple):
    """Of a link that the agent asked to have sampled each second."""

    at_ms: int
    to_user: Counters
    from_user: Counters


@dataclass(frozen=True)
class Total:
    """The cap of all links together, in each direction: what the document wants, and what is in force (kbit/s)."""

    wanted_kbit: int
    to_user_kbit: int | None
    from_user_kbit: int | None


@dataclass(frozen=True)
class LimiterState:
    """`host_id`, `order` and `limits_digest` are None while the limiter has no document: then nothing is limited.

    `run` (32 hexadecimal digits) names this start of the limiter, `number` counts what it wrote since. `reset_reason`
    is set by `reset`, and says who removed all limits and why. `is_running` is false in the last state of a limiter
    that was stopped: the limits stay in the kernel.
    """

    run: str
    number: int
    written_at: datetime
    observed_at: datetime  # when the kernel was read
    host_id: str | None
    order: Version | None
    limits_digest: str | None
    is_ok: bool
    writes: int  # operations that the kernel took since the limiter started
    links: Mapping[int, LinkState]
    problems: tuple[Problem, ...] = ()
    is_step: bool = False  # nothing but the clock made the last change necessary
    is_observe_only: bool = False
    total: Total | None = None
    unmatched: tuple[DirectionState | None, DirectionState | None] | None = None  # to the users, from them
    devices: tuple[str, ...] = ()  # whose packets are looked at
    next_step_at: datetime | None = None  # of a timed limit
    closed: tuple[ClosedSegment, ...] = ()
    samples: Mapping[int, tuple[LinkSample, ...]] = field(default_factory=dict)
    reset_reason: str | None = None
    is_running: bool = True
