"""Which limits are tried, at which addresses, with which load. Pure.

Every case is a user AS at an address of its own behind one wire, as at a real attachment point. Datagrams use a link's
own ports; TCP has others, so its link is an entry with the thesis' four keys, which holds for the whole address.

The controls are part of every run: an address that nobody limits, and one whose limit is not the one it is judged by.
A judge that finds nothing wrong with these would find nothing wrong with anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from bandwidth_config import LinkInfo, check_link_info

AP_ADDRESS = "192.0.2.1"
PREFIX_LENGTH = 24
_FIRST_USER = 10
MBIT = 1_000
GIGABIT = 1_000_000

WARM_UP_S = 1.0  # by then every bucket is spent (`measuring.judge`)
SLOW_S, FAST_S, TCP_S = 6.0, 4.0, 3.2  # a window of 5 s carries 206 full frames at 500 kbit/s
OVERLOAD = 2.0
FAST_OVERLOAD = 1.3  # at 100 Mbit/s: the sender's own work would slow down what is measured


class Protocol(StrEnum):
    """`UDP`: datagrams as SCION's border routers send them. `TCP`: one flow with cubic."""

    UDP = "UDP"
    TCP = "TCP"


class Direction(StrEnum):
    """Seen from the attachment point."""

    TO_USER = "to the user AS"
    FROM_USER = "from the user AS"


@dataclass(frozen=True)
class Case:
    """One address: what is enforced (None: nothing), and the limit by which it is judged."""

    number: int
    judged_kbit: int
    enforced_kbit: int | None
    protocol: Protocol = Protocol.UDP
    overload: float = OVERLOAD

    @property
    def is_control(self) -> bool:
        """It must be called wrong."""
        return self.enforced_kbit != self.judged_kbit

    @property
    def name(self) -> str:
        return f"case{self.number}"

    @property
    def user_address(self) -> str:
        return f"192.0.2.{_FIRST_USER + self.number}"

    @property
    def local(self) -> tuple[str, int]:
        return AP_ADDRESS, 51_000 + self.number

    @property
    def remote(self) -> tuple[str, int]:
        return self.user_address, 50_000 + self.number

    def entry(self) -> dict[str, object]:
        """In link_info.json."""
        four: dict[str, object] = {
            "AS_ID": self.number,
            "IsUserAS": True,
            "Bandwidth": self.enforced_kbit,
            "IP-Address": self.user_address,
        }
        if self.protocol is Protocol.TCP:
            return four
        return four | {"Port": self.remote[1], "Local-IP": self.local[0], "Local-Port": self.local[1], "VPN": False}


@dataclass(frozen=True)
class Round:
    """Cases that are measured at the same time, in these directions."""

    title: str
    cases: tuple[Case, ...]
    directions: tuple[Direction, ...]
    seconds: float

    @property
    def protocol(self) -> Protocol:
        return self.cases[0].protocol

    @property
    def measured_s(self) -> float:
        """Of them, after the warm-up."""
        return self.seconds - WARM_UP_S


SLOW = (
    Case(1, 500, 500),
    Case(2, 1 * MBIT, 1 * MBIT),
    Case(3, 10 * MBIT, 10 * MBIT),
    Case(4, 2 * MBIT, None),
    Case(5, 2 * MBIT, 2 * MBIT * 105 // 100),
)
FAST = Case(6, 100 * MBIT, 100 * MBIT, overload=FAST_OVERLOAD)
FASTEST = Case(7, GIGABIT, GIGABIT, Protocol.TCP)
UNLIMITED_TCP = Case(8, GIGABIT, None, Protocol.TCP)
_BOTH = (Direction.TO_USER, Direction.FROM_USER)

# 100 Mbit/s and 1 Gbit/s go alone, and the latter one way at a time: two processors send, limit and receive it.
ROUNDS = (
    Round("0.5, 1 and 10 Mbit/s", SLOW, _BOTH, SLOW_S),
    Round("100 Mbit/s", (FAST,), _BOTH, FAST_S),
    *(Round(f"TCP without a limit, {way}", (UNLIMITED_TCP,), (way,), TCP_S) for way in _BOTH),
    *(Round(f"1 Gbit/s {way}", (FASTEST,), (way,), TCP_S) for way in _BOTH),
)


def all_cases(rounds: Iterable[Round] = ROUNDS) -> list[Case]:
    """Each once, in order."""
    return list(dict.fromkeys(case for one in rounds for case in one.cases))


def links(cases: Iterable[Case]) -> Mapping[int, LinkInfo]:
    """What the engine is told: every case that has a limit at all."""
    return check_link_info({str(case.number): case.entry() for case in cases if case.enforced_kbit is not None})
