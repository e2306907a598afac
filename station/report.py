"""The report of an end of a test: written by both ends, validated by the service, which trusts neither."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from itertools import pairwise
from typing import Any

from station.plan import ECHO, MAX_FLOWS, MAX_PHASES, SIDES, TCP, Phase, one_of, whole

SCHEMA = 1
MAX_REPORT_BYTES = 256 * 1024
COMPLETED, NOBODY, CUT, REFUSED, ERROR = OUTCOMES = ("completed", "nobody", "cut", "refused", "error")
MAX_WHY, MAX_PEER, MAX_SECONDS, MAX_MOMENTS = 500, 80, 70, 300
_OF_RECEIVER, _OF_SENDER = 2, 6  # numbers of a `Moment`
_CLOCK_WITHIN_MS = 3652 * 86_400_000
_MAX_NUMBER = (1 << 53) - 1  # range that every JSON parser preserves exactly

Row = tuple[int, int, int, int]
Moment = tuple[int, ...]
_COUNTS = ("sent_packets", "sent_bytes", "received_packets", "received_bytes", "lost_packets", "reordered_packets")


@dataclass(frozen=True, slots=True)
class PhaseReport:
    """One phase as seen by one end. Bytes are UDP payload of test traffic; `sent_*`: by this end, the others: received.
    `begins_at_ms`: Unix time. `seconds`: packets and bytes sent, packets and bytes received in each begun second of the
    phase. `mtu`: path MTU to the user and from the user, 0: not even the smallest packet passed.

    `tcp`: for a phase of TCP, per connection each 250 ms, and at the end: ms since the phase began and bytes arrived;
    at the sender, bytes acknowledged, round trip time [us], congestion window and retransmissions [segments], and
    delivery rate [kbit/s]. TCP has no packets; `sent_bytes` includes retransmissions.
    """

    number: int
    kind: str
    direction: str
    kbit: int
    payload_bytes: int
    begins_at_ms: int
    sent_packets: int
    sent_bytes: int
    received_packets: int
    received_bytes: int
    lost_packets: int
    reordered_packets: int
    seconds: tuple[Row, ...]
    rtt_us: tuple[int, int, int] | None
    mtu: tuple[int, int] | None
    tcp: tuple[tuple[Moment, ...], ...] | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """Of one end. `why`: a sentence, or empty; `peer`: address and port of the other end."""

    side: str
    outcome: str
    why: str
    peer: str | None
    phases: tuple[PhaseReport, ...]

    def to_json(self) -> dict[str, Any]:
        """A phase without TCP has no `tcp`, which older readers reject."""
        found = {"schema": SCHEMA, **asdict(self)}
        for one in found["phases"]:
            if one["tcp"] is None:
                del one["tcp"]
        return found


def read_report(value: object) -> Report:
    """A report as `to_json` writes it. Raises `ValueError` with the place and the reason."""
    report = _object(value, "report", {"schema", *(one.name for one in fields(Report))})
    if report["schema"] != SCHEMA:
        raise ValueError(f"schema is {report['schema']!r:.40} and not {SCHEMA}")
    one_of("side", report["side"], SIDES)
    one_of("outcome", report["outcome"], OUTCOMES)
    _text(report["why"], "why", MAX_WHY)
    if report["peer"] is not None:
        _text(report["peer"], "peer", MAX_PEER)
    found = _list(report["phases"], "phases", MAX_PHASES)
    phases = tuple(_phase(one, f"phases[{index}]") for index, one in enumerate(found))
    if [one.number for one in phases] != list(range(len(phases))):
        raise ValueError("phases are not numbered from 0")
    return Report(report["side"], report["outcome"], report["why"], report["peer"], phases)


def _phase(value: object, where: str) -> PhaseReport:
    names = {one.name for one in fields(PhaseReport)}
    has_tcp = isinstance(value, Mapping) and value.get("kind") == TCP
    found = _object(value, where, names if has_tcp else names - {"tcp"})
    try:
        Phase(
            found["number"], found["kind"], found["direction"], found["kbit"], found["payload_bytes"], 1, _count(found)
        )
    except ValueError as exc:
        raise ValueError(f"{where}: {exc}") from exc
    for name in ("begins_at_ms", *_COUNTS):
        whole(f"{where}.{name}", found[name], 0, _MAX_NUMBER)
    _time(found["begins_at_ms"], f"{where}.begins_at_ms")
    rows = _list(found["seconds"], f"{where}.seconds", MAX_SECONDS)
    seconds = tuple(_numbers(one, f"{where}.seconds[{index}]", 4) for index, one in enumerate(rows))
    rtt_us, mtu = (
        None if found[name] is None else _numbers(found[name], f"{where}.{name}", size)
        for name, size in (("rtt_us", 3), ("mtu", 2))
    )
    tcp = _connections(found["tcp"], f"{where}.tcp") if has_tcp else None
    return PhaseReport(**{**found, "seconds": seconds, "rtt_us": rtt_us, "mtu": mtu, "tcp": tcp})


def _count(found: Mapping[str, Any]) -> int:
    return 1 if found["kind"] in (ECHO, TCP) else 0  # unvalidated


def _connections(value: object, where: str) -> tuple[tuple[Moment, ...], ...]:
    """Times increase; arrived bytes never decrease."""
    several = []
    for index, one in enumerate(_list(value, where, MAX_FLOWS)):
        rows = _list(one, f"{where}[{index}]", MAX_MOMENTS)
        is_receiver = bool(rows) and isinstance(rows[0], (list, tuple)) and len(rows[0]) == _OF_RECEIVER
        size = _OF_RECEIVER if is_receiver else _OF_SENDER
        moments = tuple(_numbers(row, f"{where}[{index}][{at}]", size) for at, row in enumerate(rows))
        for before, after in pairwise(moments):
            if after[0] < before[0] or after[1] < before[1]:
                raise ValueError(f"{where}[{index}] goes back from {before[:2]} to {after[:2]}")
        several.append(moments)
    return tuple(several)


def _object(value: object, where: str, keys: set[str]) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError(f"{where} is not an object")
    if set(value) != keys:
        wrong = sorted(map(str, set(value) ^ keys))
        raise ValueError(f"{where}: {wrong[0]:.40} is {'unknown' if wrong[0] in value else 'missing'}")
    return value


def _list(value: object, where: str, most: int) -> Sequence[Any]:
    if not isinstance(value, (list, tuple)) or len(value) > most:
        raise ValueError(f"{where} is not a list of at most {most}")
    return value


def _text(value: object, where: str, most: int) -> None:
    if not isinstance(value, str) or len(value) > most or not value.isprintable():
        raise ValueError(f"{where} is not a printable text of at most {most} characters")


def _time(value: int, where: str) -> None:
    """Ten years around the reader's clock, as of all times that hosts send."""
    now_ms = time.time_ns() // 1_000_000
    least, most = now_ms - _CLOCK_WITHIN_MS, now_ms + _CLOCK_WITHIN_MS
    if not least <= value <= most:
        raise ValueError(f"{where} is {value} and not a Unix time in ms from {least} to {most}")


def _numbers(value: object, where: str, size: int) -> Any:
    found = _list(value, where, size)
    if len(found) != size:
        raise ValueError(f"{where} has {len(found)} numbers and not {size}")
    for index, one in enumerate(found):
        whole(f"{where}[{index}]", one, 0, _MAX_NUMBER)
    return tuple(found)
