"""Series of watches: which second is sampled, and what a stop of the limiter or another document does to them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from itertools import pairwise
from random import Random
from typing import Any

import pytest

from ap_agent.document.series import Series, parse_series, read_series
from ap_agent.document.state import Counters
from ap_agent.limiter import watching
from contract.link_tests import UDP, LinkTest
from tests.limiter.test_limiter_loop import NOW, World, fresh, settings, two

__all__ = ["fresh", "settings"]  # fixtures


def watch(begins_s: int, ends_s: int, number: int = 1) -> dict[str, str | int]:
    return LinkTest(NOW + timedelta(seconds=begins_s), NOW + timedelta(seconds=ends_s), f"{number:032x}").statement()


def udp(begins_s: int, ends_s: int, number: int = 1, port: int = 30_300) -> dict[str, str | int]:
    begins_at, ends_at = (NOW + timedelta(seconds=one) for one in (begins_s, ends_s))
    return LinkTest(begins_at, ends_at, f"{number:032x}", UDP, port, 750, 1_000_000).statement()


def ports(world: World, number: int = 7) -> list[int | None]:
    """Of the tests whose packets are those of the link."""
    return [key.local_port for key in world.enforcer.wanted.links[number].keys if key.remote_port is None]


def hand(world: World, *tests: dict[str, str | int], version: str = "1.18", **fields: Any) -> None:
    world.hand(version=version, links={"7": {**two()["7"], "Tests": list(tests), **fields}, "8": two()["8"]})


def begin(world: World, *tests: dict[str, str | int], **fields: Any) -> World:
    hand(world, *tests, **fields)
    world.loop.start()
    return world


def series_of(world: World) -> dict[int, Series]:
    return {int(one.test_id, 16): one for one in read_series(world.settings.limiter_run_dir)}


def seconds(one: Series) -> list[int]:
    """Of its samples, since `NOW`."""
    return [sample.at_ms // 1000 - round(NOW.timestamp()) for sample in one.samples]


def test_watch_is_armed_sampled_at_each_second_with_both_ends_and_then_over(fresh: World) -> None:
    world = begin(fresh, watch(5, 15))
    assert world.state.tests == (f"{1:032x}",)
    assert not (world.settings.limiter_run_dir / "tests.json").exists()
    world.run_for(30)

    found = series_of(world)[1]
    assert (found.interface_id, found.is_over, seconds(found)) == (7, True, list(range(5, 16)))
    assert {sample.in_force for sample in found.samples} == {1}
    assert {side.rate_kbit for sample in found.samples for side in (sample.to_user, sample.from_user)} == {500}
    assert [later.clock_ms - earlier.clock_ms for earlier, later in pairwise(found.samples)] == [1000] * 10
    assert world.state.tests == ()


def test_killed_limiter_goes_on_and_what_it_missed_is_a_gap(fresh: World) -> None:
    world = begin(fresh, watch(0, 20))
    world.run_for(5.5)
    world.monotonic += 4.2  # nobody was there
    world.engine.count[7, "to_user"] = Counters(5000, 5, 3000, 3, 0, 0)
    world.start()
    world.loop.start()
    world.run_for(20)

    found = series_of(world)[1]
    gap = [later - earlier for earlier, later in pairwise(seconds(found)) if later - earlier > 1]
    assert (len(gap), found.is_over, seconds(found)[-1]) == (1, True, 20)
    assert found.samples[-1].to_user[2:6] == (5000, 5, 3000, 3), "the counters did not stop"


def test_watch_that_was_cancelled_ends_at_once_and_one_that_is_past_never_begins(fresh: World) -> None:
    world = begin(fresh, watch(0, 60), watch(-90, -30, 2))
    assert world.state.tests == (f"{1:032x}",)
    world.run_for(10.5)
    hand(world, version="1.19")
    world.run_for(5)
    found = series_of(world)
    assert list(found) == [1]
    assert (found[1].is_over, world.state.tests) == (True, ())
    assert seconds(found[1])[-1] <= 11


def test_observed_link_and_one_that_is_not_in_the_kernel(fresh: World) -> None:
    world = begin(fresh, watch(0, 10), Observe=True)
    world.run_for(12)
    assert {sample.in_force for sample in series_of(world)[1].samples} == {0}


def test_no_more_than_sixteen_run_at_once(fresh: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "MAX_WATCHES_AT_ONCE", 1)
    fresh.hand(links={key: {**one, "Tests": [watch(0, 10, int(key))]} for key, one in two().items()})
    fresh.loop.start()
    fresh.run_for(12)
    assert list(series_of(fresh)) == [7]


def test_series_that_are_over_are_kept_for_a_day(fresh: World) -> None:
    world = begin(fresh, watch(0, 5))
    world.run_for(8)
    world.monotonic += 86_400 - 10
    world.run_for(1)
    assert list(series_of(world)) == [1]
    world.monotonic += 60
    hand(world, watch(86_460, 86_470, 2), version="1.19")
    world.run_for(30)
    assert list(series_of(world)) == [2]


def test_an_unwritable_or_broken_file_ends_nothing(fresh: World) -> None:
    fresh.settings.limiter_run_dir.mkdir(exist_ok=True)
    (fresh.settings.limiter_run_dir / "tests.json").write_text('{"schema": 1, "tests": [{}]}')
    hand(fresh, watch(0, 5))
    fresh.loop.start()
    fresh.run_for(8)
    assert list(series_of(fresh)) == [1]


# --- tests that send ------------------------------------------------------------------------------------------------


def test_sending_test_is_armed_30_s_before_and_sampled_like_a_watch(fresh: World) -> None:
    world = begin(fresh, udp(40, 50))
    assert (world.state.tests, ports(world)) == ((), [])
    world.run_for(9.9)
    assert (world.state.tests, ports(world)) == ((), [])
    world.run_for(0.2)
    assert (world.state.tests, ports(world)) == ((f"{1:032x}",), [30_300])
    assert (world.state.next_step_at, world.state.is_step) == (None, True)
    world.run_for(39.8)
    assert ports(world) == [30_300]
    world.run_for(0.2)
    assert (world.state.tests, ports(world)) == ((), [])
    world.run_for(1)

    found = series_of(world)[1]
    assert (found.interface_id, found.is_over, seconds(found)) == (7, True, list(range(40, 51)))


@pytest.mark.parametrize("fields", [{"Observe": True}, {"Bandwidth": 0}])
def test_no_test_sends_at_a_link_that_is_observed_or_blocked(fresh: World, fields: dict[str, Any]) -> None:
    world = begin(fresh, udp(5, 10), **fields)
    world.run_for(15)
    assert (
        world.state.tests,
        series_of(world) if (world.settings.limiter_run_dir / "tests.json").exists() else {},
    ) == ((), {})


def test_operator_who_does_not_allow_it_or_stops_it_ends_it_within_a_second(fresh: World) -> None:
    fresh.may_send = False
    hand(fresh, udp(5, 60))
    fresh.loop.start()
    fresh.run_for(6)
    assert (fresh.state.tests, ports(fresh)) == ((), [])
    fresh.may_send = True
    fresh.run_for(1.1)
    assert (fresh.state.tests, ports(fresh)) == ((f"{1:032x}",), [30_300])
    fresh.run_for(3)
    fresh.may_send = False
    fresh.run_for(1.1)
    assert (fresh.state.tests, ports(fresh)) == ((), [])
    assert series_of(fresh)[1].is_over


def test_limiter_that_restarts_arms_what_holds_then_and_removes_what_is_over(fresh: World) -> None:
    world = begin(fresh, udp(5, 20), udp(5, 60, 2, 30_301))
    world.run_for(10)
    world.monotonic += 15  # nobody was there
    world.start()
    world.loop.start()
    assert (world.state.tests, ports(world)) == ((f"{2:032x}",), [30_301])
    world.jumped = timedelta(seconds=-10)  # somebody sets the clock
    world.run_for(1.1)
    assert ports(world) == [30_300, 30_301]


@pytest.mark.parametrize("data", [b"[]", b'{"schema":2}', b'{"schema":1,"tests":[1]}'])
def test_file_that_is_none_is_a_value_error(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"schema|missing"):
        parse_series(data)


@pytest.mark.parametrize(("share", "told"), [(0.3, 10), (1.0, 0)])
def test_a_busy_host_makes_no_false_rate(fresh: World, share: float, told: int) -> None:
    """500 kbit/s pass, and the limiter stands still for 80 ms before counters are read: at times, or always."""
    world = begin(fresh, watch(0, 10))
    engine, chance = world.engine, Random(1)  # noqa: S311  reproducible
    readback, counters = engine.readback, engine.counters

    def slow_readback(links: Iterable[int]) -> dict[int, Any]:
        world.monotonic += 0.03
        return readback(links)

    def stalled_counters(links: Iterable[int] | None = None) -> Any:
        world.monotonic += 0.08 if chance.random() < share else 0.0
        engine.count[7, "to_user"] = Counters(round((world.monotonic - 1000) * 62_500), 1, 0, 0, 0, 0)
        return counters(links)

    engine.readback, engine.counters = slow_readback, stalled_counters  # type: ignore[method-assign]
    world.run_for(15)
    pairs = list(pairwise(series_of(world)[1].samples))
    assert len(pairs) == told
    for earlier, later in pairs:
        passed, took_ms = later.to_user.passed_bytes - earlier.to_user.passed_bytes, later.clock_ms - earlier.clock_ms
        assert passed * 8 / took_ms == pytest.approx(500, rel=0.01)
