"""At which hours of a day tests may run, in a time zone, and the next time that is within them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from datetime import time as clock_time
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo

_DAY: Final = timedelta(days=1)
_DAYS_AHEAD: Final = 3  # the same hours come every day; a change of clocks takes them from one day at most


class Hours(NamedTuple):
    """Each day from `begin` (0 to 23) until `end` (1 to 24), past midnight where `end` is not later than `begin`. In a
    night in which clocks are put they last from the first time that the clock shows `begin` until the last time that
    it shows `end`; of an hour that is skipped nothing is left."""

    begin: int
    end: int
    zone: str

    def __str__(self) -> str:
        return f"{self.begin:02}:00 to {self.end:02}:00 {self.zone}"


def say_hours(hours: Sequence[Hours]) -> str:
    return " or ".join(map(str, hours)) or "at any time"


def next_begin(hours: Sequence[Hours], begins_at: datetime, length: timedelta) -> datetime | None:
    """The first beginning, not before `begins_at`, of a test that is within these hours from its beginning to its end;
    none of them: any time. None: it is longer than all of them."""
    if not hours:
        return begins_at
    for begin, end in _joined(_spans(hours, begins_at)):
        found = max(begin, begins_at)
        if found + length <= end:
            return found
    return None


def _spans(hours: Iterable[Hours], begins_at: datetime) -> list[tuple[datetime, datetime]]:
    """In UTC, from the day before `begins_at` on, in order."""
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
    """Those that overlap or touch as one."""
    found: list[tuple[datetime, datetime]] = []
    for begin, end in spans:
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((begin, end))
    return found
