"""What people type into the client: the same bandwidths as on the pages, durations, and times across summer time."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from scionlab_bw.credentials import checked_url
from scionlab_bw.errors import UsageError
from scionlab_bw.units import format_bytes, format_seconds, parse_bandwidth, parse_duration, parse_moment
from terminal import clean, table
from tests.platform.test_bandwidth_text import REFUSED, UNDERSTOOD

ZURICH = ZoneInfo("Europe/Zurich")
NOW = datetime(2026, 3, 28, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize("text", [text for text, kbit in UNDERSTOOD.items() if kbit >= 0])
def test_what_the_pages_understand_is_understood(text: str) -> None:
    assert parse_bandwidth(text) == UNDERSTOOD[text]


@pytest.mark.parametrize("text", [*REFUSED, *(text for text, kbit in UNDERSTOOD.items() if kbit < 0)])
def test_what_the_pages_refuse_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_bandwidth(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("30s", 30), ("15min", 900), ("1d", 86400), ("1h30m", 5400)],
)
def test_durations(text: str, seconds: int) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "0s", "2 hours", "1.5h", "1m1h", "9" * 9])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(UsageError):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("18:30", "2026-03-28T17:30"),
        ("08:00", "2026-03-29T06:00"),  # over today; tomorrow clocks are put forward
        ("2026-03-29 01:59", "2026-03-29T00:59"),
        ("2026-03-29 03:00", "2026-03-29T01:00"),
        ("2026-10-25T02:30+02:00", "2026-10-25T00:30"),
        ("2026-11-22T18:30Z", "2026-11-22T18:30"),
    ],
)
def test_times_are_those_of_the_zone(text: str, moment: str) -> None:
    assert f"{parse_moment(text, now=NOW, zone=ZURICH):%Y-%m-%dT%H:%M}" == moment


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("2026-03-29 02:30", "does not exist"),
        (
            "2026-10-25 02:30",
            "occurs twice: clocks are set back. Write 2026-10-25T02:30+02:00 or 2026-10-25T02:30+01:00",
        ),
        ("25:00", "is not a time"),
        ("tomorrow", "is not a time"),
    ],
)
def test_times_that_are_none_or_two_are_refused(text: str, words: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_moment(text, now=NOW, zone=ZURICH)
    assert words in str(refused.value)


@pytest.mark.parametrize("url", ["http://scionlab.example.org", "ftp://x", "https://you:secret@x", "https://x?y", ""])
def test_token_goes_to_no_such_address(url: str) -> None:
    with pytest.raises(UsageError):
        checked_url(url)


def test_addresses_are_written_alike() -> None:
    assert (
        checked_url("scionlab.example.org/")
        == checked_url("https://scionlab.example.org")
        == "https://scionlab.example.org"
    )
    assert checked_url("http://[::1]:8000/x/") == "http://[::1]:8000/x"


def test_text_of_others_does_not_steer_the_terminal() -> None:
    assert clean("a\x1b[2Jb\nc\u202e") == "a [2Jb c "
    assert table(["A", "N"], [["x", 5], ["longer", 1000]], right=("N",)) == "A          N\nx          5\nlonger  1000"


def test_figures_are_short() -> None:
    assert [format_bytes(one) for one in (0, 999, 1234567, 10**15)] == ["0 B", "999 B", "1.23 MB", "1 PB"]
    assert [format_bytes(one) for one in (999_499, 999_500, 999_999_999)] == ["999 kB", "1 MB", "1 GB"]
    assert [format_seconds(one) for one in (0, 59.6, 5400, 90061)] == ["0 s", "1 min", "1 h 30 min", "1 d 1 h"]
