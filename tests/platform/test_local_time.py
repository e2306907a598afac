"""Times in people's own zones: exact, and never guessed where the clocks are put forward or back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from zoneinfo import ZoneInfo

import pytest
from django.utils import timezone
from hypothesis import given
from hypothesis import strategies as st

from bandwidth_config import RuleError
from scionlab.platform.notation.local_time import parse_local_time, readings, write_local_time, zone_of
from scionlab.web.pages.forms import TimeInput
from tests.cases import table

ZURICH = ZoneInfo("Europe/Zurich")
ZONES = ["UTC", "Europe/Zurich", "America/New_York", "Asia/Kathmandu", "Australia/Lord_Howe", "America/Sao_Paulo"]


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-11-22 18:30", "2026-11-22 17:30"),  # winter, one hour ahead of UTC
        (" 2026-11-22 18:30:07 ", "2026-11-22 17:30:07"),
        ("2026-11-22 18:30Z", "2026-11-22 18:30"),
        ("2026-10-25 02:30+02:00", "2026-10-25 00:30"),  # the first of two
        ("2026-10-25 02:30+01:00", "2026-10-25 01:30"),
        ("2026-03-29 03:00", "2026-03-29 01:00"),
    ],
)
def test_a_time_is_read_in_the_persons_zone(text: str, expected: str) -> None:
    assert parse_local_time(text, ZURICH) == utc(expected)


@pytest.mark.parametrize(
    ("text", "code", "sentence"),
    [
        ("", "time_required", "A time is missing. Enter one like 2026-11-22 18:30."),
        ("tomorrow", "time_invalid", '"tomorrow" is not a date and time.'),
        ("0001-01-01 00:00", "time_invalid", "is not a date and time"),
        ("1969-12-31 23:59", "time_invalid", "is not a date and time"),
        (
            "2026-10-25 02:30",
            "time_ambiguous",
            "Enter 2026-10-25 02:30+02:00 (the first, 00:30 UTC) or 2026-10-25 02:30+01:00 (the second, 01:30 UTC).",
        ),
        (
            "2026-03-29 02:30",
            "time_nonexistent",
            "does not exist in Europe/Zurich, because clocks are set forward. Enter 2026-03-29 01:30 or "
            "2026-03-29 03:30.",
        ),
    ],
)
def test_what_is_no_time_or_none_there_or_twice_is_refused(text: str, code: str, sentence: str) -> None:
    with pytest.raises(RuleError) as refused:
        parse_local_time(text, ZURICH)
    assert refused.value.code == code
    assert sentence in refused.value.message


@given(st.datetimes(datetime(2020, 1, 1), datetime(2037, 1, 1)), st.sampled_from(ZONES))
def test_every_moment_is_written_so_that_it_is_read_back(moment: datetime, name: str) -> None:
    zone = ZoneInfo(name)
    at = moment.replace(tzinfo=UTC, microsecond=0)
    assert parse_local_time(write_local_time(at, zone), zone) == at


@given(st.datetimes(datetime(2020, 1, 1), datetime(2037, 1, 1)), st.sampled_from(ZONES))
def test_readings_are_exactly_the_moments_at_which_the_clocks_show_it(naive: datetime, name: str) -> None:
    zone, naive = ZoneInfo(name), naive.replace(microsecond=0)
    near = [naive.replace(tzinfo=UTC) - timedelta(minutes=15 * quarter) for quarter in range(-56, 57)]
    shown = [at for at in near if at.astimezone(zone).replace(tzinfo=None, fold=0) == naive]
    assert [one.astimezone(UTC) for one in readings(naive, zone)] == sorted(shown)


@pytest.mark.parametrize("name", ["No/Where", "../etc/passwd", None])
def test_who_has_no_zone_that_is_known_has_utc(name: str | None) -> None:
    assert zone_of(SimpleNamespace(time_zone=name)) == ZoneInfo("UTC")
    assert zone_of(object()) == ZoneInfo("UTC")


@table(
    ("text", "kind", "value"),
    [
        ("", "datetime-local", None),
        ("2026-10-26 02:30", "datetime-local", "2026-10-26T02:30"),
        ("2026-10-25 02:30", "text", "2026-10-25 02:30"),  # twice: an offset is to be added
        ("2026-10-26 02:30+01:00", "text", "2026-10-26 02:30+01:00"),
    ],
)
def test_browsers_control_has_what_it_can_hold_and_all_else_stays_text(text: str, kind: str, value: str | None) -> None:
    with timezone.override(ZoneInfo("Europe/Zurich")):
        shown = TimeInput().render("at", text)
    assert f'type="{kind}"' in shown
    assert (f'value="{value}"' in shown) == (value is not None)
