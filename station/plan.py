"""The phases of a test: what is sent, by which end, how fast and for how long; and the cost of a plan."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass

ECHO, STREAM, MTU, TCP = "echo", "stream", "mtu", "tcp"
TO_USER, FROM_USER, BOTH = "to_user", "from_user", "both"
KINDS, DIRECTIONS = (ECHO, STREAM, MTU, TCP), (TO_USER, FROM_USER, BOTH)
LOADING = frozenset({STREAM, TCP})  # one direction, at the limit
AP, USER = "ap", "user"
SIDES = (AP, USER)

MAX_PHASES = 32
MAX_TOTAL_S = 60
MIN_PAYLOAD_BYTES, MAX_PAYLOAD_BYTES = 48, 10_000
MAX_KBIT = 1_000_000
MAX_DURATION_MS = 60_000
MAX_COUNT = 1_000
MAX_FLOWS = 2  # TCP connections of one phase
MAX_PACKETS = 1 << 22  # per phase: the receiver remembers each

FULL_PAYLOAD_BYTES = 1_452  # the largest that an MTU of 1500 carries with IPv4 and with IPv6
SMALLEST_MTU, LARGEST_MTU = 576, 1_500
MTU_PROBE_BYTES = 18_000  # IP packets that one end sends at most to find the path MTU
MTU_SEARCH_BYTES = 19_000  # UDP payload, including its answers to the other end

HELLO_S, PAUSE_S, SLACK_S = 3, 0.5, 2  # reserved: for the opening, after each phase, before the end
_QUEUE_KBIT, _MAX_QUEUE_S = 160, 4.0  # of a limit: 20 kB, or 100 ms if that is more (ap_agent.dataplane.lanes)

SEGMENT_BYTES = 1_448  # payload of a full TCP segment over IPv4, with timestamps (RFC 7323)

_ETHERNET, _IPV4, _IPV6, _UDP, _TCP, _V6_FRAGMENT = 14, 20, 40, 8, 32, 8


def frame_bytes(payload_bytes: int, version: int, *, is_vpn: bool = False) -> int:
    """Size of a UDP payload on an Ethernet of MTU 1500 as a limit counts it: with all headers of its fragments. Over
    the VPN limits count the inner packets."""
    ethernet = 0 if is_vpn else _ETHERNET
    header = _IPV4 if version == 4 else _IPV6
    datagram = _UDP + payload_bytes
    if header + datagram <= LARGEST_MTU:
        return ethernet + header + datagram
    header += 0 if version == 4 else _V6_FRAGMENT
    carried = (LARGEST_MTU - header) // 8 * 8  # of a fragment that is not the last (RFC 791, RFC 8200)
    return datagram + math.ceil(datagram / carried) * (header + ethernet)


def segments_bytes(payload_bytes: int, version: int, *, is_vpn: bool = False) -> float:
    """Size of a TCP payload in full segments on an Ethernet of MTU 1500, or over the VPN, as a limit counts it."""
    carried = LARGEST_MTU - _TCP - (_IPV4 if version == 4 else _IPV6)
    return payload_bytes * (LARGEST_MTU + (0 if is_vpn else _ETHERNET)) / carried


@dataclass(frozen=True, slots=True)
class Phase:
    """One part of a test. `kbit`: frames as limits count, the maximum of each end that sends; for TCP the maximum
    payload rate. `count`: questions of an echo, connections of TCP, otherwise 0. A stream and TCP have one direction;
    others have both. Raises `ValueError`."""

    number: int
    kind: str
    direction: str
    kbit: int
    payload_bytes: int
    duration_ms: int
    count: int

    def __post_init__(self) -> None:
        whole("number", self.number, 0, MAX_PHASES - 1)
        one_of("kind", self.kind, KINDS)
        one_of("direction", self.direction, (TO_USER, FROM_USER) if self.kind in LOADING else (BOTH,))
        whole("kbit", self.kbit, 1, MAX_KBIT)
        whole("payload_bytes", self.payload_bytes, MIN_PAYLOAD_BYTES, MAX_PAYLOAD_BYTES)
        whole("duration_ms", self.duration_ms, 1, MAX_DURATION_MS)
        whole("count", self.count, *{ECHO: (1, MAX_COUNT), TCP: (1, MAX_FLOWS)}.get(self.kind, (0, 0)))
        if self.kind == STREAM and self.packets(4) > MAX_PACKETS:
            raise ValueError(
                f"a phase of {self.packets(4)} packets exceeds the {MAX_PACKETS} that are counted; "
                "choose larger packets, a lower rate or a shorter time"
            )

    def sends(self, side: str) -> bool:
        """Whether that end sends test traffic in this phase."""
        return self.direction in {BOTH, TO_USER if side == AP else FROM_USER}

    def packets(self, version: int) -> int:
        """Maximum that one end sends of a stream or an echo in this phase, over that version of IP."""
        if self.kind != STREAM:
            return self.count
        return self.kbit * self.duration_ms // (frame_bytes(self.payload_bytes, version) * 8) + 1

    @property
    def payload_of_an_end(self) -> int:
        """Maximum bytes that one end sends; for TCP with retransmissions."""
        if self.kind == TCP:
            return self.kbit * self.duration_ms // 8
        return MTU_SEARCH_BYTES if self.kind == MTU else self.packets(4) * self.payload_bytes

    def to_json(self) -> dict[str, object]:
        return asdict(self)


def from_json(value: object, where: str = "phase") -> Phase:
    """One phase as `to_json` writes it. Raises `ValueError` with the place and the reason."""
    if not isinstance(value, Mapping) or set(value) != set(Phase.__dataclass_fields__):
        raise ValueError(f"{where} is not an object with exactly {', '.join(Phase.__dataclass_fields__)}")
    try:
        return Phase(**value)
    except ValueError as exc:
        raise ValueError(f"{where}: {exc}") from exc


def read_phases(value: object) -> tuple[Phase, ...]:
    """A list of phases, numbered from 0. Raises `ValueError` with the place and the reason."""
    if not isinstance(value, list) or not 1 <= len(value) <= MAX_PHASES:
        raise ValueError(f"phases is not a list of 1 to {MAX_PHASES} phases")
    phases = tuple(from_json(one, f"phases[{index}]") for index, one in enumerate(value))
    if [one.number for one in phases] != list(range(len(phases))):
        raise ValueError("phases are not numbered from 0")
    return phases


def total_s(phases: Iterable[Phase]) -> int:
    """Seconds to reserve for these phases."""
    return math.ceil(HELLO_S + sum(one.duration_ms / 1000 + _pause_s(one) for one in phases) + SLACK_S)


def _pause_s(phase: Phase) -> float:
    """After a stream the limit's queue has to drain."""
    return PAUSE_S + (min(_MAX_QUEUE_S, 2 * _QUEUE_KBIT / phase.kbit) if phase.kind in LOADING else 0)


def ap_bytes(phases: Iterable[Phase]) -> int:
    """Maximum payload that the attachment point's end sends; at least 1."""
    return max(1, sum(one.payload_of_an_end for one in phases if one.sends(AP)))


def ap_kbit(phases: Iterable[Phase]) -> int:
    """Highest rate at which the attachment point's end sends; at least 1."""
    return max((one.kbit for one in phases if one.sends(AP)), default=1)


def whole(name: str, value: object, low: int, high: int) -> int:
    """The value. Raises `ValueError`."""
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise ValueError(f"{name} is {value!r:.40} and not a whole number from {low} to {high}")
    return value


def one_of(name: str, value: object, allowed: tuple[str, ...]) -> None:
    """Raises `ValueError`."""
    if value not in allowed:
        raise ValueError(f"{name} is {value!r:.40} and not one of {', '.join(allowed)}")
