"""The accuracy table of HTB: what is loaded, the arithmetic of headers, and verdicts that can fail."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping

import pytest

from lab.bench.core import Outcome
from lab.evaluation.core import DIRECTIONS, EvaluationScale
from lab.evaluation.download import PATH, CubicServer, fetch, handler
from lab.evaluation.limiters import NO_LIMIT, OURS, WRONG
from lab.evaluation.suites import htbtable
from lab.evaluation.suites.htbtable import FILE_BYTES, INSIDE, OUTSIDE, PUBLISHED, at_most, headers_leave, slots

COLUMNS = tuple(PUBLISHED)


def test_every_column_is_loaded_as_often_as_there_are_repetitions_in_both_directions() -> None:
    wanted = slots(COLUMNS, 5)
    for direction in DIRECTIONS:
        for column in COLUMNS:
            assert sum(one.times for one in wanted if (one.column_kb, one.direction) == (column, direction)) == 5


def test_no_link_loads_longer_than_the_slowest_column_once() -> None:
    assert max(one.times / one.column_kb for one in slots(COLUMNS, 5)) == 1 / 20


def test_links_are_numbered_without_a_gap() -> None:
    assert [one.number for one in slots(COLUMNS, 5)] == list(range(1, 27))


def test_headers_leave_what_full_frames_carry() -> None:
    assert headers_leave(OURS, 100) == pytest.approx(100 * 1448 / 1514)
    assert headers_leave(OUTSIDE, 100) == pytest.approx(100 * 1398 / 1514)
    assert headers_leave(INSIDE, 100) == pytest.approx(100 * 1398 / 1464)


def test_what_passes_at_once_counts_more_in_a_small_file() -> None:
    assert headers_leave(OURS, 20) < at_most(OURS, 20, FILE_BYTES) < at_most(OURS, 20, FILE_BYTES // 10)
    assert at_most(OURS, 20, FILE_BYTES) == pytest.approx(19.182, abs=0.001)


def test_published_values_lie_between_what_headers_leave_and_what_may_pass_where_a_bucket_shows() -> None:
    for column in (20, 50, 100):
        assert headers_leave(OURS, column) <= PUBLISHED[column] <= at_most(OURS, column, FILE_BYTES)


def outcome_of(values: Mapping[str, Mapping[int, float]], size: int = FILE_BYTES) -> Outcome:
    found = Outcome(htbtable.NAME)
    for limiter, columns in values.items():
        for direction in DIRECTIONS:
            for column, value in columns.items():
                found.add(
                    value, "kB/s", experiment="htbtable", limiter=limiter, direction=direction, bytes=size,
                    **{"kB/s": column},
                )  # fmt: skip
    return found


def verdicts(values: Mapping[str, Mapping[int, float]], size: int = FILE_BYTES) -> list[bool]:
    """At least the published values; ours not above; the wrong one caught; none caught."""
    return [one.holds for one in htbtable.claims(outcome_of(values, size))]


CONTROLS = {WRONG: {20: 21.0, 500: 525.0}, NO_LIMIT: {20: 9000.0, 500: 9000.0}}


def test_the_published_values_themselves_satisfy_the_claims() -> None:
    assert verdicts({OURS: {20: 19.16, 500: 475.91}, **CONTROLS}) == [True] * 4


def test_one_column_below_the_published_value_fails() -> None:
    assert verdicts({OURS: {20: 19.16, 500: 475.0}, **CONTROLS}) == [False, True, True, True]


def test_the_rounding_of_the_published_value_is_allowed() -> None:
    assert verdicts({OURS: {20: 19.1551}, **CONTROLS})[0]
    assert not verdicts({OURS: {20: 19.152}, **CONTROLS})[0]  # 8 ms are nothing in 125 s


def test_more_than_the_limit_fails() -> None:
    assert verdicts({OURS: {20: 19.2}, **CONTROLS}) == [True, False, True, True]
    assert verdicts({OURS: {20: 19.3, 500: 476.0}, **CONTROLS}) == [True, False, True, True]


def test_a_control_that_passes_for_right_fails() -> None:
    assert verdicts({OURS: {20: 19.16}, WRONG: {20: 19.16}, NO_LIMIT: {20: 9000.0}}) == [True, True, False, True]


def test_a_smaller_file_is_held_against_the_arithmetic() -> None:
    small = 450_000
    good = {150: 143.47, 250: 239.11}
    assert verdicts({OURS: good, WRONG: {150: 158.0}, NO_LIMIT: {150: 9000.0}}, small) == [True] * 4
    assert verdicts({OURS: {150: 143.0}, WRONG: {150: 158.0}, NO_LIMIT: {150: 9000.0}}, small)[0] is False


def test_quick_loads_less() -> None:
    full, quick = (htbtable.steps(EvaluationScale(quick=one))[0].expected_s for one in (False, True))
    assert quick < 20 < full < 150


@pytest.fixture
def url() -> Iterator[str]:
    with CubicServer(("127.0.0.1", 0), handler(100_000)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}{PATH}"
        server.shutdown()


def test_downloads_of_a_url_follow_each_other_and_count_the_body(url: str) -> None:
    found = fetch([(url, 3)])[url]
    assert [size for size, _ in found] == [100_000] * 3
    assert all(seconds > 0 for _, seconds in found)


def test_a_download_that_breaks_off_is_an_error_not_a_short_file() -> None:
    with CubicServer(("127.0.0.1", 0), handler(100_000)) as server:
        url = f"http://127.0.0.1:{server.server_port}{PATH}"
    with pytest.raises(OSError, match="refused"):
        fetch([(url, 1)])


def test_nothing_measured_proves_nothing() -> None:
    assert not any(one.holds for one in htbtable.claims(Outcome(htbtable.NAME)))
