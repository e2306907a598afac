"""Counters of link tests: one file, replaced atomically, which the agent uploads.

    <limiter_run_dir>/tests.json, mode 0644; schema 1

A series belongs to one test: the counters of its link each second, from the start to the end of the test. Counters are
those of the program's maps: they survive the limiter, so that a missing second loses no packet. Finished series stay
for a day.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from ap_agent.common.files import read_own, readable, write_atomically

SCHEMA = 1
FILE_NAME = "tests.json"
MAX_BYTES = 32 * 1024 * 1024
REMEDY = "Restart scionlab-bw-limiter, to write it again."


class SideSample(NamedTuple):
    """One direction at one moment. `rate_kbit` is the kernel's; a different `segment` means that counters were reset.
    Packets above the limit of an observed link are in both `passed_*` and `dropped_*`. `lost_packets` are part of
    passed: dropped by HTB, e.g. after a limit was lowered."""

    segment: int
    rate_kbit: int
    passed_bytes: int
    passed_packets: int
    dropped_bytes: int
    dropped_packets: int
    lost_packets: int = 0


class SeriesSample(NamedTuple):
    """`at_ms` is the wall clock's, since 1970; `clock_ms` is monotonic, since boot. `in_force` is 1 if the kernel drops
    above the rates, 0 if the link is observed only or not limited as wanted."""

    at_ms: int
    clock_ms: int
    in_force: int
    to_user: SideSample
    from_user: SideSample


@dataclass(frozen=True)
class Series:
    """`is_over`: final."""

    test_id: str
    interface_id: int
    ends_at_ms: int
    is_over: bool
    samples: tuple[SeriesSample, ...] = ()


def write_series(folder: Path, series: Sequence[Series]) -> None:
    """Raises `OSError`. Not durable: a power cut also resets the counters."""
    document = {"schema": SCHEMA, "tests": [vars(one) for one in series]}
    data = json.dumps(document, separators=(",", ":")).encode()
    write_atomically(folder / FILE_NAME, data, mode=0o644, is_durable=False)


def read_series(folder: Path) -> tuple[Series, ...]:
    """The limiter's last file; empty if none. Raises `StoreError`, `NotPermittedError`."""
    return read_own(folder / FILE_NAME, MAX_BYTES, parse_series, REMEDY) or ()


@readable()
def parse_series(data: bytes) -> tuple[Series, ...]:
    """Raises `ValueError` with the reason, for any bytes."""
    return tuple(_series(one) for one in of_schema(SCHEMA, json.loads(data))["tests"])


def of_schema(schema: int, document: Any) -> dict[str, Any]:
    """The document. Raises `ValueError` unless it is of this schema."""
    if not isinstance(document, dict) or document.get("schema") != schema:
        raise ValueError(f"it has another schema than {schema}; install agent and limiter of one version")
    return document


def _series(said: Mapping[str, Any]) -> Series:
    test_id, is_over = said["test_id"], said["is_over"]
    if not isinstance(test_id, str) or not isinstance(is_over, bool):
        raise TypeError("test_id")
    interface_id, ends_at_ms = _whole([said["interface_id"], said["ends_at_ms"]])
    return Series(test_id, interface_id, ends_at_ms, is_over, tuple(sample_of(row) for row in said["samples"]))


def sample_of(row: Sequence[Any]) -> SeriesSample:
    """From its JSON. Raises `ValueError`, `TypeError`, `IndexError`."""
    at_ms, clock_ms, in_force = _whole(row[:3])
    to_user, from_user = (SideSample(*_whole(side)) for side in row[3:5])
    return SeriesSample(at_ms, clock_ms, in_force, to_user, from_user)


def _whole(numbers: Sequence[Any]) -> Sequence[int]:
    if any(type(one) is not int or one < 0 for one in numbers):
        raise ValueError("a number is not an integer, or below 0")
    return numbers
