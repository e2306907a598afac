"""What the limiter counted for tests of links: one file, written whole, which the agent sends on.

    <limiter_run_dir>/tests.json, mode 0644; schema 1

A series is of one test: the counters of its link each second, from the beginning of the test until its end. Counters
are those of the program's maps: they survive the limiter, so that a second that is missing costs no packet. Series that
are over stay for a day.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from ap_agent.common.errors import StoreError
from ap_agent.common.files import read_own, write_atomically

SCHEMA = 1
FILE_NAME = "tests.json"
MAX_BYTES = 32 * 1024 * 1024


class SideSample(NamedTuple):
    """One direction at one moment. `rate_kbit` is what the kernel has; another `segment` means that counters began
    anew. What an observed link would have been refused is in both `passed_*` and `dropped_*`. `lost_packets` are of
    those passed: HTB dropped them behind, as where a limit was lowered and the queue is as long as before."""

    segment: int
    rate_kbit: int
    passed_bytes: int
    passed_packets: int
    dropped_bytes: int
    dropped_packets: int
    lost_packets: int = 0


class SeriesSample(NamedTuple):
    """`at_ms` is the wall clock's, since 1970; `clock_ms` is the clock that nobody sets, since the boot. `in_force` is
    1 where the kernel refuses what is above the rates, 0 where the link is observed only or not limited as wanted."""

    at_ms: int
    clock_ms: int
    in_force: int
    to_user: SideSample
    from_user: SideSample


@dataclass(frozen=True)
class Series:
    """`is_over`: there will be no other sample."""

    test_id: str
    interface_id: int
    ends_at_ms: int
    is_over: bool
    samples: tuple[SeriesSample, ...] = ()


def write_series(folder: Path, series: Sequence[Series]) -> None:
    """Raises `OSError`. Not durable: after a power cut the counters are gone too."""
    document = {"schema": SCHEMA, "tests": [vars(one) for one in series]}
    data = json.dumps(document, separators=(",", ":")).encode()
    write_atomically(folder / FILE_NAME, data, mode=0o644, is_durable=False)


def read_series(folder: Path) -> tuple[Series, ...]:
    """What the limiter wrote last; nothing where it never did. Raises `StoreError`, `NotPermittedError`."""
    path = folder / FILE_NAME
    data = read_own(path, MAX_BYTES)
    try:
        return () if data is None else parse_series(data)
    except ValueError as exc:
        raise StoreError(f"{path} cannot be used: {exc}. Restart scionlab-bw-limiter, to write it again.") from exc


def parse_series(data: bytes) -> tuple[Series, ...]:
    """Raises `ValueError` with the reason, whatever the bytes."""
    try:
        document = json.loads(data)
        if not isinstance(document, dict) or document.get("schema") != SCHEMA:
            raise ValueError(f"it has another schema than {SCHEMA}; install agent and limiter of one version")
        return tuple(_series(one) for one in document["tests"])
    except json.JSONDecodeError as exc:
        raise ValueError(f"invalid JSON at character {exc.pos}") from None
    except (RecursionError, KeyError, TypeError, IndexError, AttributeError) as exc:
        raise ValueError(f"something is missing or of a wrong type ({type(exc).__name__}: {exc})") from None


def _series(said: Mapping[str, Any]) -> Series:
    test_id, is_over = said["test_id"], said["is_over"]
    if not isinstance(test_id, str) or not isinstance(is_over, bool):
        raise TypeError("test_id")
    interface_id, ends_at_ms = _whole([said["interface_id"], said["ends_at_ms"]])
    return Series(test_id, interface_id, ends_at_ms, is_over, tuple(sample_of(row) for row in said["samples"]))


def sample_of(row: Sequence[Any]) -> SeriesSample:
    """Of the JSON of one. Raises `ValueError`, `TypeError`, `IndexError`."""
    at_ms, clock_ms, in_force = _whole(row[:3])
    to_user, from_user = (SideSample(*_whole(side)) for side in row[3:5])
    return SeriesSample(at_ms, clock_ms, in_force, to_user, from_user)


def _whole(numbers: Sequence[Any]) -> Sequence[int]:
    if any(type(one) is not int or one < 0 for one in numbers):
        raise ValueError("a number is not an integer, or below 0")
    return numbers
