"""Hours of a day in which tests may run, in a time zone, and the next time within them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from datetime import time as clock_time
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo

_DAY: Final = timedelta(days=1)
_DAYS_AHEAD: Final = 3  # hours repeat daily; a change of clocks removes them from one day at most


class Hours(NamedTuple):
    """Each day from `begin` (0 to 23) until `end` (1 to 24), past midnight if `end` is not later than `begin`. When
    clocks change, from the first time that shows `begin` until the last that shows `end`; a skipped hour is empty."""

    begin: int
    end: int
    zone: str

    def __str__(self) -> str:
        return f"{self.begin:02}:00 to {self.end:02}:00 {self.zone}"


def say_hours(hours: Sequence[Hours]) -> str:
    return " or ".join(map(str, hours)) or "at any time"


def next_begin(hours: Sequence[Hours], begins_at: datetime, length: timedelta) -> datetime | None:
    """First start, from `begins_at` on, of a test that is completely within the hours; no hours: any time. None: the
    test is longer than all of them."""
    if not hours:
        return begins_at
    for begin, end in _joined(_spans(hours, begins_at)):
        found = max(begin, begins_at)
        if found + length <= end:
            return found
    return None


def _spans(hours: Iterable[Hours], begins_at: datetime) -> list[tuple[datetime, datetime]]:
    """In UTC, from the day before `begins_at`, in order."""
    found = []
    for one in hours:
        zone = ZoneInfo(one.zone)
        today = begins_at.astimezone(zone).date()
        for day in range(-1, _DAYS_AHEAD):
            midnight = datetime.combine(today + day * _DAY, clock_time())
            last = midnight + timedelta(hours=one.end) + (_DAY if one.end <= one.begin else timedelta(0))
            first = midnight + timedelta(hours=one.begin)
            begin = first.replace(tzinfo=zone).astimezone(UTC)
            end = max(last.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1))
            if begin < end:
                found.append((begin, end))
    return sorted(found)


def _joined(spans: Iterable[tuple[datetime, datetime]]) -> list[tuple[datetime, datetime]]:
    found: list[tuple[datetime, datetime]] = []
    for begin, end in spans:
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((begin, end))
    return found
