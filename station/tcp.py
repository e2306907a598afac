"""What a phase of TCP knows of its connections, and when its rate is certain. Pure; sockets are in `connections`."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple, Protocol

MAX_CHUNK_BYTES = 65_536
SAMPLE_S = 0.25
_PER_SECOND = round(1 / SAMPLE_S)
SETTLE_S = 1  # until then a queue fills and TCP looks for its rate
STEADY_SECONDS, STEADY_PERCENT = 4, 2


class Info(NamedTuple):
    """Of struct tcp_info (<linux/tcp.h>, Linux 4.19 or newer): bytes of payload, all and those sent again; counts of
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
        """A kernel that is older says less: the rest is 0."""
        found = found.ljust(216, b"\0")
        rtt_us, _, _, cwnd = struct.unpack_from("@4I", found, 68)
        (retransmitted,) = struct.unpack_from("@I", found, 100)
        (acked,) = struct.unpack_from("@Q", found, 120)
        (delivery,) = struct.unpack_from("@Q", found, 160)
        sent, resent = struct.unpack_from("@2Q", found, 200)
        return cls(acked, sent, resent, rtt_us, cwnd, retransmitted, delivery * 8 // 1000)


class Connection(Protocol):
    """One that is open and proved. `is_broken`: the other end, or the network, has ended it."""

    is_broken: bool

    def send(self, count: int) -> int:
        """Gives the kernel at most so many bytes; how many it took."""

    def take(self) -> int:
        """How many bytes have arrived since the last call."""

    def info(self) -> Info: ...


class Connections(Protocol):
    """Of one phase. `up`: by their number, also those that broke; `why`: what kept one from coming about."""

    up: dict[int, Connection]
    why: str

    def step(self, now: float) -> None:
        """Opens, accepts and proves. `now`: monotonic, s."""

    def close(self) -> None:
        """Ends all of them."""


def is_steady(arrived: Sequence[tuple[float, int]]) -> bool:
    """Whether the rate is certain: the first second apart, each of the last four seconds carried what they carried on
    average, within 2 % of it. So a phase lasts for five seconds at least. `arrived`: time in the phase [s] and bytes
    until then, each 250 ms.
    """
    if len(arrived) <= STEADY_SECONDS * _PER_SECOND:
        return False
    marks = arrived[-1 - STEADY_SECONDS * _PER_SECOND :: _PER_SECOND]
    if marks[0][0] < SETTLE_S:
        return False
    rates = [(later[1] - one[1]) / (later[0] - one[0]) for one, later in pairwise(marks)]
    mean = sum(rates) / len(rates)
    return mean > 0 and all(abs(one - mean) * 100 <= mean * STEADY_PERCENT for one in rates)
