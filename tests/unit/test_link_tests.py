"""Rules of tests of links, and the reader of key `Tests` at its bounds."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from bandwidth_config import RuleError
from link_tests import LinkTest, check_watch, read_tests
from tests.rule_samples import outcome

T0 = datetime(2026, 11, 21, 6, tzinfo=UTC)


def refusal(rule: Callable[[], object]) -> str | None:
    found = outcome(rule)
    return found.code if isinstance(found, RuleError) else None


def one(number: int = 1, duration_s: int = 60, **changes: Any) -> dict[str, Any]:
    return LinkTest(T0, T0 + timedelta(seconds=duration_s), f"{number:032x}").statement() | changes


@pytest.mark.parametrize(
    ("duration_s", "maximum_s", "code"),
    [
        (4, 600, "test_short"),
        (5, 600, None),
        (60, 60, None),
        (61, 60, "test_long"),
        (600, 9999, None),
        (601, 9999, "test_long"),
    ],
)
def test_watch_lasts_from_5_s_to_10_min_whatever_a_policy_says(
    duration_s: int, maximum_s: int, code: str | None
) -> None:
    assert refusal(lambda: check_watch(duration_s, maximum_s)) == code


@pytest.mark.parametrize(
    ("value", "code"),
    [
        ([one(n) for n in range(8)], None),
        ([one(n) for n in range(9)], "tests_many"),
        ([one(), one()], "test_twice"),
        ([one(1, 600)], None),
        ([one(1, 601)], "test_long"),
        ([one(1, 4)], "test_short"),
        ([one(1, 0)], "test_order"),
        ({}, "wrong_type"),
        ([7], "wrong_type"),
        ([{}], "wrong_type"),
        ([one(Id="0F" * 16)], "wrong_type"),
        ([one(Id="0f" * 15)], "wrong_type"),
        ([one(From=None)], "wrong_type"),
        ([one(Until="2026-02-31T06:00:00Z")], "wrong_type"),
    ],
)
def test_reader_takes_tests_up_to_their_bounds(value: Any, code: str | None) -> None:
    assert refusal(lambda: read_tests(value)) == code


def test_kinds_of_newer_services_are_ignored_and_the_others_are_in_the_order_of_their_time() -> None:
    late, early = one(2, From="2026-11-21T07:00:00Z", Until="2026-11-21T07:01:00Z"), one(1)
    found = read_tests([late, one(3, Kind="udp", Port="x"), early | {"Port": 30100}])
    assert [test.test_id[-1] for test in found] == ["1", "2"]
