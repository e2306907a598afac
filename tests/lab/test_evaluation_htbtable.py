"""The accuracy table of HTB: what is loaded, the arithmetic of headers, and verdicts that can fail."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from lab.bench.core import Outcome
from lab.evaluation.core import DIRECTIONS
from lab.evaluation.limiters import NO_LIMIT, OURS, WRONG
from lab.evaluation.suites import htbtable
from lab.evaluation.suites.htbtable import FILE_BYTES, INSIDE, OUTSIDE, PUBLISHED, at_most, headers_leave


def test_headers_leave_what_full_frames_carry() -> None:
    assert headers_leave(OURS, 100) == pytest.approx(100 * 1448 / 1514)
    assert headers_leave(OUTSIDE, 100) == pytest.approx(100 * 1398 / 1514)
    assert headers_leave(INSIDE, 100) == pytest.approx(100 * 1398 / 1464)


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


SMALL = 450_000  # bytes: held against the arithmetic, as nothing was published of such a file
NO = {150: 9000.0}


@pytest.mark.parametrize(
    ("values", "size", "holds"),
    [
        ({OURS: {20: 19.16, 500: 475.91}, **CONTROLS}, FILE_BYTES, [True] * 4),  # the published values
        ({OURS: {20: 19.16, 500: 475.0}, **CONTROLS}, FILE_BYTES, [False, True, True, True]),
        ({OURS: {20: 19.1551}, **CONTROLS}, FILE_BYTES, [True] * 4),  # which are rounded
        ({OURS: {20: 19.152}, **CONTROLS}, FILE_BYTES, [False, True, True, True]),  # 8 ms are nothing in 125 s
        ({OURS: {20: 19.2}, **CONTROLS}, FILE_BYTES, [True, False, True, True]),
        ({OURS: {20: 19.3, 500: 476.0}, **CONTROLS}, FILE_BYTES, [True, False, True, True]),
        ({OURS: {20: 19.16}, WRONG: {20: 19.16}, NO_LIMIT: {20: 9000.0}}, FILE_BYTES, [True, True, False, True]),
        ({OURS: {150: 143.47, 250: 239.11}, WRONG: {150: 158.0}, NO_LIMIT: NO}, SMALL, [True] * 4),
        ({OURS: {150: 143.0}, WRONG: {150: 158.0}, NO_LIMIT: NO}, SMALL, [False, True, True, True]),
    ],
)
def test_each_claim_falls_with_what_it_says(
    values: Mapping[str, Mapping[int, float]], size: int, holds: list[bool]
) -> None:
    assert verdicts(values, size) == holds


def test_nothing_measured_proves_nothing() -> None:
    assert not any(one.holds for one in htbtable.claims(Outcome(htbtable.NAME)))
