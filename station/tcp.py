"""State of a phase's TCP connections, and when its rate is steady. Pure; `connections` has the sockets."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple, Protocol

MAX_CHUNK_BYTES = 65_536
SAMPLE_S = 0.25
_PER_SECOND = round(1 / SAMPLE_S)
SETTLE_S = 1  # until then a queue fills during slow start
STEADY_SECONDS, STEADY_PERCENT = 4, 2


class Info(NamedTuple):
    """From struct tcp_info (<linux/tcp.h>, Linux 4.19 or newer): payload bytes, total and retransmitted; counts of
    segments."""

    acked_bytes: int
    sent_bytes: int
    resent_bytes: int
    rtt_us: int
    cwnd: int
    retransmitted: int
    delivery_kbit: int

    @classmethod
    def read(cls, found: bytes) -> Info:
        """Fields missing in older kernels are 0."""
        found = found.ljust(216, b"\0")
        rtt_us, _, _, cwnd = struct.unpack_from("@4I", found, 68)
        (retransmitted,) = struct.unpack_from("@I", found, 100)
        (acked,) = struct.unpack_from("@Q", found, 120)
        (delivery,) = struct.unpack_from("@Q", found, 160)
        sent, resent = struct.unpack_from("@2Q", found, 200)
        return cls(acked, sent, resent, rtt_us, cwnd, retransmitted, delivery * 8 // 1000)


class Connection(Protocol):
    """An open, authenticated connection. `is_broken`: closed by the other end or the network."""

    is_broken: bool

    def send(self, count: int) -> int:
        """Give the kernel at most so many bytes; return how many it took."""

    def take(self) -> int:
        """Bytes arrived since the last call."""

    def info(self) -> Info: ...


class Connections(Protocol):
    """Of one phase. `up`: by number, including broken ones; `why`: why one could not be opened."""

    up: dict[int, Connection]
    why: str

    def step(self, now: float) -> None:
        """Open, accept and authenticate. `now`: monotonic, s."""

    def close(self) -> None:
        """Ends all of them."""


def is_steady(arrived: Sequence[tuple[float, int]]) -> bool:
    """Whether the rate is steady: after the first second, each of the last four seconds is within 2 % of their mean. So
    a phase lasts at least five seconds. `arrived`: time in the phase [s] and bytes until then, each 250 ms."""
    if len(arrived) <= STEADY_SECONDS * _PER_SECOND:
        return False
    marks = arrived[-1 - STEADY_SECONDS * _PER_SECOND :: _PER_SECOND]
    if marks[0][0] < SETTLE_S:
        return False
    rates = [(later[1] - one[1]) / (later[0] - one[0]) for one, later in pairwise(marks)]
    mean = sum(rates) / len(rates)
    return mean > 0 and all(abs(one - mean) * 100 <= mean * STEADY_PERCENT for one in rates)
