"""TCP results of one phase, from the reports of both ends (`station.report`). Pure.

Arrived bytes are from the receiver; round trips and retransmissions from the sender. Rates are of payload, in kbit/s:
headers leave 95.6 % of a limit over IPv4 and 94.3 % over IPv6 with an MTU of 1500 bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Any, Final, NamedTuple

from station.plan import segments_bytes

_EARLY_MS: Final = 500  # closer to its planned end a phase did not end early


class Moment(NamedTuple):
    """Up to this time in the phase [ms]: the rate since the previous one. Other fields are None if the sender did not
    report; `resent`: segments since the previous one."""

    until_ms: Annotated[int, "Since the phase began."]
    kbit: Annotated[float, "Payload that arrived."]
    rtt_us: Annotated[int | None, "Round trip time, smoothed by the kernel."]
    cwnd: Annotated[int | None, "Congestion window, in segments."]
    resent: Annotated[int | None, "Retransmitted segments."]

    @property
    def rtt_ms(self) -> float | None:
        return None if self.rtt_us is None else self.rtt_us / 1000


@dataclass(frozen=True)
class TcpFound:
    """`connections` that transferred anything, each with its moments. `kbit` is the total after the first second,
    `share_percent` its share of the limit without headers; `rtt_us`: minimum, median, maximum."""

    connections: tuple[tuple[Moment, ...], ...]
    took_ms: int
    is_early: Annotated[bool, "It ended before the planned time, because the rate was certain."]
    kbit: Annotated[float, "Of all connections, after the first second."]
    share_percent: Annotated[float | None, "Of what headers leave of the limit. null: the limit changed meanwhile."]
    rtt_us: Annotated[tuple[int, int, int] | None, "Lowest, median, highest."]
    resent: Annotated[int | None, "Retransmitted segments."]

    @property
    def took_s(self) -> float:
        return self.took_ms / 1000


def took_ms(end: Mapping[str, Any] | None) -> int:
    """Duration of a TCP phase according to that end; 0: no connection."""
    rows = [rows[-1][0] for rows in (end or {}).get("tcp", ()) if rows]
    return int(max(rows, default=0))


def found_by_tcp(
    planned: Mapping[str, Any],
    sender: Mapping[str, Any] | None,
    receiver: Mapping[str, Any] | None,
    *,
    limit_kbit: int | None,
    version: int,
    is_vpn: bool,
) -> TcpFound | None:
    """None: no connection. Without a report of the receiver, acknowledged bytes are used."""
    of_sender, of_receiver = ((end or {}).get("tcp", ()) for end in (sender, receiver))
    told = of_receiver or of_sender
    connections = tuple(
        _moments(rows, of_sender[number] if number < len(of_sender) else ()) for number, rows in enumerate(told) if rows
    )
    if not connections:
        return None
    lasted_ms = max(rows[-1][0] for rows in told if rows)
    kbit = sum(_settled_kbit(rows) for rows in told if rows)
    left_kbit = limit_kbit / segments_bytes(1, version, is_vpn=is_vpn) if limit_kbit else None
    rtts = sorted(row[2] for rows in of_sender for row in rows if row[2])
    return TcpFound(
        connections,
        lasted_ms,
        lasted_ms < planned["duration_ms"] - _EARLY_MS,
        kbit,
        100 * kbit / left_kbit if left_kbit else None,
        (rtts[0], rtts[len(rtts) // 2], rtts[-1]) if rtts else None,
        sum(rows[-1][4] for rows in of_sender if rows) if of_sender else None,
    )


def _settled_kbit(rows: Sequence[Sequence[int]]) -> float:
    """Rate after the first second (slow start); of everything, if it ended before."""
    first = next((row for row in rows if row[0] >= 1000), rows[0])
    if first[0] < rows[-1][0]:
        return (rows[-1][1] - first[1]) * 8 / (rows[-1][0] - first[0])
    return rows[-1][1] * 8 / rows[-1][0] if rows[-1][0] else 0.0


def _moments(rows: Sequence[Sequence[int]], of_sender: Sequence[Sequence[int]]) -> tuple[Moment, ...]:
    """Both ends sample every 250 ms from the start of the phase, so rows match by number."""
    found = []
    for number, (before, row) in enumerate(pairwise([(0, 0), *rows])):
        if row[0] <= before[0]:
            continue
        kbit = (row[1] - before[1]) * 8 / (row[0] - before[0])
        more: tuple[int | None, int | None, int | None] = None, None, None
        if number < len(of_sender):
            said = of_sender[number]
            more = said[2], said[3], said[4] - (of_sender[number - 1][4] if number else 0)
        found.append(Moment(row[0], kbit, *more))
    return tuple(found)
