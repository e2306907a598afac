"""Rules of tests of links, and the reader of key `Tests` at its bounds."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from bandwidth_config import RuleError
from contract.link_tests import TCP, UDP, LinkTest, check_watch, read_tests, run_key
from tests.rule_samples import outcome

T0 = datetime(2026, 11, 21, 6, tzinfo=UTC)


def refusal(rule: Callable[[], object]) -> str | None:
    found = outcome(rule)
    return found.code if isinstance(found, RuleError) else None


def one(number: int = 1, duration_s: int = 60, **changes: Any) -> dict[str, Any]:
    return LinkTest(T0, T0 + timedelta(seconds=duration_s), f"{number:032x}").statement() | changes


def sending(number: int = 1, duration_s: int = 60, **changes: Any) -> dict[str, Any]:
    ends_at = T0 + timedelta(seconds=duration_s)
    return LinkTest(T0, ends_at, f"{number:032x}", UDP, 30_300, 1_000_000, 2_000_000_000).statement() | changes


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
        ({}, "wrong_type"),
        ([7], "wrong_type"),
        ([{}], "wrong_type"),
        ([one(Id="0F" * 16)], "wrong_type"),
        ([one(From=None)], "wrong_type"),
        ([one(Until="2026-02-31T06:00:00Z")], "wrong_type"),
        ([sending(), one(2)], None),
        ([sending(), one()], "test_twice"),
        ([sending(Port=30_303, Kbit=1, Bytes=1)], None),
        ([sending(1, 1)], None),
        ([sending(1, 0)], "test_order"),
        ([sending(1, 61)], "test_long"),
        ([sending(Port=30_299)], "test_range"),
        ([sending(Port=30_304)], "test_range"),
        ([sending(Kbit=0)], "test_range"),
        ([sending(Kbit=1_000_001)], "test_range"),
        ([sending(Bytes=0)], "test_range"),
        ([sending(Bytes=2_000_000_001)], "test_range"),
        ([sending(Bytes=True)], "wrong_type"),
        ([{key: value for key, value in sending().items() if key != "Port"}], "wrong_type"),
    ],
)
def test_reader_takes_tests_up_to_their_bounds(value: Any, code: str | None) -> None:
    assert refusal(lambda: read_tests(value)) == code


def test_kinds_of_newer_services_are_ignored_and_the_others_are_in_the_order_of_their_time() -> None:
    late, early = one(2, From="2026-11-21T07:00:00Z", Until="2026-11-21T07:01:00Z"), one(1)
    found = read_tests([late, one(3, Kind="sctp", Port="x"), early | {"Port": 30100}])
    assert [test.test_id[-1] for test in found] == ["1", "2"]


@pytest.mark.parametrize("kind", [UDP, TCP])
def test_what_is_written_is_what_is_read(kind: str) -> None:
    watch = LinkTest(T0, T0 + timedelta(seconds=5), "0" * 32)
    sends = LinkTest(T0, T0 + timedelta(seconds=7), "1" * 32, kind, 30_301, 1500, 40_000)
    assert read_tests([sends.statement(), watch.statement()]) == (watch, sends)
    assert sends.statement() == {
        "Id": "1" * 32,
        "Kind": kind,
        "From": "2026-11-21T06:00:00Z",
        "Until": "2026-11-21T06:00:07Z",
        "Port": 30_301,
        "Kbit": 1500,
        "Bytes": 40_000,
    }


def test_run_key_is_the_one_that_openssl_makes() -> None:
    """printf 'link-test/1\\n00000000000000000000000000000001' | openssl dgst -sha256 -hmac secret"""
    assert run_key("secret", f"{1:032x}").hex() == "403af7822fd3d87ad0fc1ae78a344a769b1f57e14d85b88b60874bb9a8ab3971"
