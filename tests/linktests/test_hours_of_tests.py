"""Hours in which tests may run: their bounds, over midnight, joined, and in the nights in which clocks are put."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from scionlab.linktests.test_hours import Hours, next_begin

ZURICH = "Europe/Zurich"
MINUTE = timedelta(minutes=1)


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("hours", "begins_at", "seconds", "allowed_at"),
    [
        ([], "2026-11-24 03:00:00", 600, "2026-11-24 03:00:00"),
        ([Hours(8, 18, "UTC")], "2026-11-24 07:59:59", 60, "2026-11-24 08:00:00"),
        ([Hours(8, 18, "UTC")], "2026-11-24 08:00:00", 60, "2026-11-24 08:00:00"),
        ([Hours(8, 18, "UTC")], "2026-11-24 17:59:00", 60, "2026-11-24 17:59:00"),
        ([Hours(8, 18, "UTC")], "2026-11-24 17:59:01", 60, "2026-11-25 08:00:00"),
        # over midnight, and until midnight
        ([Hours(22, 6, "UTC")], "2026-11-24 05:59:00", 60, "2026-11-24 05:59:00"),
        ([Hours(22, 6, "UTC")], "2026-11-24 05:59:01", 60, "2026-11-24 22:00:00"),
        ([Hours(0, 24, "UTC")], "2026-11-24 23:59:30", 60, "2026-11-24 23:59:30"),
        # of several policies; what touches is one
        ([Hours(6, 8, "UTC"), Hours(8, 10, "UTC")], "2026-11-24 07:59:30", 60, "2026-11-24 07:59:30"),
        ([Hours(6, 8, "UTC"), Hours(9, 10, "UTC")], "2026-11-24 07:59:30", 60, "2026-11-24 09:00:00"),
        ([Hours(6, 8, ZURICH), Hours(7, 8, "UTC")], "2026-11-24 06:30:00", 60, "2026-11-24 06:30:00"),
        # longer than the hours
        ([Hours(8, 9, "UTC")], "2026-11-24 08:00:00", 3600, "2026-11-24 08:00:00"),
        ([Hours(8, 9, "UTC")], "2026-11-24 08:00:00", 3601, None),
        # 2026-10-25 03:00 CEST -> 02:00 CET at 01:00 UTC: 02:00 to 03:00 lasts two hours
        ([Hours(2, 3, ZURICH)], "2026-10-24 23:59:59", 60, "2026-10-25 00:00:00"),
        ([Hours(2, 3, ZURICH)], "2026-10-25 01:59:00", 60, "2026-10-25 01:59:00"),
        ([Hours(2, 3, ZURICH)], "2026-10-25 01:59:01", 60, "2026-10-26 01:00:00"),
        ([Hours(22, 2, ZURICH)], "2026-10-25 00:30:00", 60, "2026-10-25 00:30:00"),  # the clock shows 02:00 again
        # 2026-03-29 02:00 CET -> 03:00 CEST at 01:00 UTC: 02:00 to 03:00 is skipped
        ([Hours(2, 3, ZURICH)], "2026-03-29 00:30:00", 60, "2026-03-30 00:00:00"),
        ([Hours(2, 5, ZURICH)], "2026-03-29 00:59:59", 60, "2026-03-29 01:00:00"),
        ([Hours(22, 2, ZURICH)], "2026-03-29 00:59:01", 60, "2026-03-29 20:00:00"),
    ],
)
def test_first_beginning_within_the_hours(
    hours: list[Hours], begins_at: str, seconds: int, allowed_at: str | None
) -> None:
    found = next_begin(hours, utc(begins_at), timedelta(seconds=seconds))
    assert found == (None if allowed_at is None else utc(allowed_at))


def test_what_is_allowed_stays_allowed_and_every_minute_of_a_year_has_a_next_beginning() -> None:
    hours = [Hours(23, 1, ZURICH), Hours(3, 4, "America/New_York")]
    moment = utc("2026-01-01 00:00:30")
    while moment < utc("2027-01-01 00:00:00"):
        found = next_begin(hours, moment, MINUTE)
        assert found is not None
        assert moment <= found <= moment + timedelta(days=2)
        assert next_begin(hours, found, MINUTE) == found
        moment += 613 * MINUTE
