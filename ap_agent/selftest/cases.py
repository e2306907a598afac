"""The test cases: links in every state, packets in every form, each at its own load. Pure.

Every case is a user AS with its own address behind one wire; the bystander is another port of an address that has a
blocked link. TCP uses other ports than a link, so its case owns its address.

Every run includes negative controls: an address without a limit, and one with another limit than the one it is judged
by. If they pass, no result is reliable.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import ip_address

from ap_agent.dataplane.program import Key
from ap_agent.dataplane.wanted import LimitedLink, Wanted

PREFIX_LENGTH = {4: 24, 6: 64}
AP_ADDRESS = {4: "192.0.2.1", 6: "2001:db8::1"}
_FIRST_USER = 10
MBIT = 1_000

WARM_UP_S = 1.0  # by then every queue is full (`measuring.judge`)
SLOW_S, FAST_S, TCP_S = 6.0, 4.0, 3.2  # a window of 5 s carries 206 full frames at 500 kbit/s
OVERLOAD = 2.0
FAST_OVERLOAD = 1.3  # at 100 Mbit/s: the sender would slow down what is measured


class State(StrEnum):
    """State of a link. A bystander has none: it is another port of an address with a link."""

    LIMITED = "limited"
    BLOCKED = "blocked"
    OBSERVED = "observed"
    BYSTANDER = "bystander"


class Form(StrEnum):
    """How packets look on the wire."""

    PLAIN = "full frames"
    OPTIONS = "IP options"  # IPv6: an extension header
    TAGGED = "priority tag"
    FRAGMENTS = "10,000 B"
    LARGEST = "65,507 B"
    TCP = "TCP, 1 flow"


PAYLOAD_BYTES = {Form.FRAGMENTS: 10_000, Form.LARGEST: 65_507}
_FULL_FRAME_PAYLOAD_BYTES = {4: 1472, 6: 1452}
OPTION_BYTES = {4: 4, 6: 8}  # that a station puts into a packet


class Direction(StrEnum):
    """From the attachment point's view."""

    TO_USER = "to the user AS"
    FROM_USER = "from the user AS"


@dataclass(frozen=True)
class Case:
    """One link: the limit by which it is judged, and the enforced one (None: none)."""

    number: int
    judged_kbit: int
    enforced_kbit: int | None
    form: Form = Form.PLAIN
    family: int = 4
    state: State = State.LIMITED
    overload: float = OVERLOAD
    beside: int = 0  # the case whose address it shares

    @property
    def is_control(self) -> bool:
        """A negative control: it must fail."""
        return self.state is State.LIMITED and self.enforced_kbit != self.judged_kbit

    @property
    def offered_kbit(self) -> float:
        return self.judged_kbit * self.overload if self.judged_kbit else MBIT

    @property
    def name(self) -> str:
        return f"case{self.number}"

    @property
    def user_address(self) -> str:
        user = _FIRST_USER + (self.beside or self.number)
        return f"192.0.2.{user}" if self.family == 4 else f"2001:db8::{user}"

    @property
    def local(self) -> tuple[str, int]:
        return AP_ADDRESS[self.family], 51_000 + self.number

    @property
    def remote(self) -> tuple[str, int]:
        return self.user_address, 50_000 + self.number

    @property
    def payload_bytes(self) -> int:
        full = _FULL_FRAME_PAYLOAD_BYTES[self.family]
        room = OPTION_BYTES[self.family] if self.form is Form.OPTIONS else 0
        return PAYLOAD_BYTES.get(self.form, full - room)

    def link(self) -> LimitedLink | None:
        kbit = self.enforced_kbit
        if kbit is None:
            return None
        remote, local = ip_address(self.user_address), ip_address(self.local[0])
        key = Key(remote) if self.form is Form.TCP else Key(remote, self.remote[1], local, self.local[1])
        return LimitedLink(self.number, (key,), kbit, kbit, self.state is State.OBSERVED)


@dataclass(frozen=True)
class Round:
    """Cases that are measured at the same time, in these directions."""

    title: str
    cases: tuple[Case, ...]
    directions: tuple[Direction, ...]
    seconds: float

    @property
    def form(self) -> Form:
        return self.cases[0].form

    @property
    def measured_s(self) -> float:
        """Duration without the warm-up."""
        return self.seconds - WARM_UP_S


SLOW = (
    Case(1, 500, 500),
    Case(2, 1 * MBIT, 1 * MBIT),
    Case(3, 10 * MBIT, 10 * MBIT),
    Case(4, 2 * MBIT, None),
    Case(5, 2 * MBIT, 2 * MBIT * 105 // 100),
)
FORMS = (
    Case(10, 1 * MBIT, 1 * MBIT, Form.PLAIN, 6),
    Case(11, 1 * MBIT, 1 * MBIT, Form.OPTIONS, 4),
    Case(12, 1 * MBIT, 1 * MBIT, Form.OPTIONS, 6),
    Case(13, 1 * MBIT, 1 * MBIT, Form.TAGGED, 4),
    Case(14, 1 * MBIT, 1 * MBIT, Form.TAGGED, 6),
    Case(15, 2 * MBIT, 2 * MBIT, Form.FRAGMENTS, 4),
    Case(16, 2 * MBIT, 2 * MBIT, Form.FRAGMENTS, 6),
    Case(17, 10 * MBIT, 10 * MBIT, Form.LARGEST, 4),
)
BLOCKED, BLOCKED_IPV6 = (Case(18 + n, 0, 0, Form.PLAIN, family, State.BLOCKED) for n, family in enumerate((4, 6)))
OBSERVED = Case(20, 1 * MBIT, 1 * MBIT, state=State.OBSERVED)
BYSTANDER = Case(21, 1 * MBIT, None, state=State.BYSTANDER, overload=1.0, beside=BLOCKED.number)
BYSTANDER_IPV6 = Case(22, 1 * MBIT, None, Form.PLAIN, 6, State.BYSTANDER, overload=1.0, beside=BLOCKED_IPV6.number)
FAST = Case(6, 100 * MBIT, 100 * MBIT, overload=FAST_OVERLOAD)
SUPER_PACKETS = Case(7, 500 * MBIT, 500 * MBIT, Form.TCP)
_BOTH = (Direction.TO_USER, Direction.FROM_USER)

# Fast ones run alone, and TCP one way at a time: two CPUs send, limit and receive.
ROUNDS = (
    Round("0.5, 1 and 10 Mbit/s", SLOW, _BOTH, SLOW_S),
    Round("all forms of packets", (*FORMS, BLOCKED, BLOCKED_IPV6, OBSERVED, BYSTANDER, BYSTANDER_IPV6), _BOTH, SLOW_S),
    Round("100 Mbit/s", (FAST,), _BOTH, FAST_S),
    *(Round(f"500 Mbit/s {way}", (SUPER_PACKETS,), (way,), TCP_S) for way in _BOTH),
)


def all_cases(rounds: Iterable[Round] = ROUNDS) -> list[Case]:
    return list(dict.fromkeys(case for one in rounds for case in one.cases))


def wanted(cases: Iterable[Case]) -> Wanted:
    return Wanted({one.number: link for one in cases if (link := one.link()) is not None})
