"""Timed limits in the agent's loop: by the wall clock, wherever it is set, and with nobody to ask."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from ap_agent.agent.cycle import Agent
from ap_agent.agent.fetch import FetchResult, NewBundle, NotModified
from ap_agent.agent.health import describe, read_health
from ap_agent.agent.loop import Loop
from ap_agent.agent.store import Store
from ap_agent.common.errors import FetchError
from ap_agent.common.log import configure, get_logger
from ap_agent.common.settings import Settings
from ap_agent.common.systemd import Notifier
from ap_agent.common.text import timed_lines
from ap_agent.document.bundle import read_bundle
from ap_agent.enforcing import Engine
from ap_agent.limiter.events import Heard
from tests.agent_bundles import HOST_ID, bundle_bytes, entry
from tests.agent_clock import AtOnce, Clock, FakeClient, middle, settings_in
from tests.agent_engine import FakeEngine

T0 = datetime(2026, 11, 21, 23, 0, tzinfo=UTC)  # by the wall clock, when the monotonic one is at 1000


@dataclass
class Wall:
    """A clock that goes like the monotonic one until somebody sets it."""

    clock: Clock
    set_by_s: float = 0.0

    def now(self) -> datetime:
        return T0 + timedelta(seconds=self.clock.now - 1000 + self.set_by_s)


class Quiet:
    """Events of a kernel that nobody touches, so that a step is all there is to do."""

    def drain(self, _interest: object) -> Heard:
        return Heard()

    def own(self, _ports: object) -> None:
        pass

    def fileno(self) -> int:
        raise AssertionError("waits are the test's")


def time_text(seconds: float) -> str:
    return f"{T0 + timedelta(seconds=seconds):%Y-%m-%dT%H:%M:%SZ}"


def timed(begin_s: int, end_s: int, *steps: list[int]) -> dict[str, Any]:
    return {"From": time_text(begin_s), "Until": time_text(end_s), "Steps": list(steps)}


# 500 kbit/s, but 200 and 800 by turns for 5 s each from 10 s on for 20 s.
WAVE = timed(10, 30, [0, 200, 200], [5, 800, 800], [10, 200, 200], [15, 800, 800])
DOCUMENT = {"1": {**entry(500), "Timed": [WAVE]}, "2": entry(700, port=50001)}


@pytest.fixture
def clock() -> Clock:
    configure("debug", under_systemd=True)
    return Clock()


@pytest.fixture
def wall(clock: Clock) -> Wall:
    return Wall(clock)


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine()


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Nothing but steps wakes this agent within the test."""
    paces = {"audit_interval_s": 3600, "receipt_interval_s": 3600, "poll_interval_s": 600}
    return replace(settings_in(tmp_path), **paces)


def started(
    settings: Settings, engine: Engine, wall: Wall, *answers: FetchResult | Exception, document: object = DOCUMENT
) -> tuple[Loop, FakeClient]:
    if document is not None:
        Store(settings.state_dir).save(read_bundle(bundle_bytes(document), host_id=HOST_ID))  # type: ignore[arg-type]
    client = FakeClient(list(answers) or [NotModified()], wall.clock)
    agent = Agent(settings, engine, client, get_logger(), now=wall.now)
    loop = Loop(
        agent,
        get_logger(),
        notifier=Notifier({}),
        uniform=middle,
        errands=AtOnce,
        events=Quiet(),  # type: ignore[arg-type]
        monotonic=wall.clock.monotonic,
        wait=wall.clock.wait,
    )
    loop.start()
    return loop, client


def run_until(loop: Loop, clock: Clock, end: float) -> None:
    """As `Loop.run` does it, until the monotonic clock says so."""
    while clock.now < end:
        loop._sleep_until(min(loop.step(), end))


def test_each_step_and_the_return_are_in_the_kernel_at_their_second_although_the_service_is_away(
    settings: Settings, engine: FakeEngine, clock: Clock, wall: Wall
) -> None:
    loop, client = started(settings, engine, wall, FetchError("away"))
    seen: list[tuple[float, int]] = []
    for tenth in range(0, 400, 5):
        run_until(loop, clock, 1000 + tenth / 10)
        if not seen or seen[-1][1] != engine.kernel[1]:
            seen.append((round(clock.now - 1000, 1), engine.kernel[1]))
        assert engine.kernel[2] == 700
    assert [kbit for _, kbit in seen] == [500, 200, 800, 200, 800, 500]
    assert [moment for moment, _ in seen[1:]] == pytest.approx([10, 15, 20, 25, 30], abs=0.51)
    assert client.receipts == []


def test_agent_that_was_away_for_a_step_begins_with_what_holds_now(
    settings: Settings, engine: FakeEngine, clock: Clock, wall: Wall
) -> None:
    """A reboot in the middle: the state directory is there, the kernel has nothing."""
    started(settings, engine, wall)
    assert engine.kernel == {1: 500, 2: 700}
    clock.now += 17
    engine.kernel = {}
    started(settings, engine, wall, FetchError("away"), document=None)
    assert engine.kernel == {1: 800, 2: 700}
    clock.now += 100
    started(settings, engine, wall, FetchError("away"), document=None)
    assert engine.kernel == {1: 500, 2: 700}


@pytest.mark.parametrize(("jump_s", "kbit"), [(12, 200), (3600, 500), (-3600, 500)])
def test_clock_that_jumps_is_noticed_within_a_second(
    jump_s: float, kbit: int, settings: Settings, engine: FakeEngine, clock: Clock, wall: Wall
) -> None:
    """Time from the network, or a machine that slept: waits are monotonic and feel nothing of it."""
    loop, _ = started(settings, engine, wall)
    run_until(loop, clock, 1016 if jump_s != 12 else 1001)
    assert engine.kernel[1] == (800 if jump_s != 12 else 500)
    moment = loop.step()
    real_wait = clock.wait

    def wait(seconds: float) -> None:
        real_wait(seconds / 2)
        wall.set_by_s = jump_s
        real_wait(seconds / 2)

    loop._given_wait = wait
    before = clock.now
    loop._sleep_until(moment)
    loop.step()
    assert clock.now - before <= 1.001
    assert engine.kernel[1] == kbit


def test_steps_that_the_kernel_follows_are_told_every_ten_seconds_at_most(
    settings: Settings, engine: FakeEngine, clock: Clock, wall: Wall
) -> None:
    second = [[n, 100 + n, 100 + n] for n in range(100)]
    document = {"1": {**entry(500), "Timed": [timed(5, 105, *second)]}}
    loop, client = started(settings, engine, wall, document=document)
    run_until(loop, clock, 1120)
    moments = [moment - 1000 for moment, _ in client.receipts]
    assert all(later - earlier >= 9.9 for earlier, later in pairwise(moments[1:]))
    assert 10 <= len(moments) <= 13
    told = client.receipts[-1][1]["links"]["1"]
    assert (told["to_user_kbit"], told["to_user"]["rate_kbit"], told["state"]) == (500, 500, "enforced")
    for _, receipt in client.receipts:
        one = receipt["links"]["1"]
        assert one["to_user"]["rate_kbit"] == one["to_user_kbit"]


def test_step_that_the_kernel_refuses_is_told_at_once(
    settings: Settings, engine: FakeEngine, clock: Clock, wall: Wall
) -> None:
    loop, client = started(settings, engine, wall)
    run_until(loop, clock, 1009)
    engine.refused = frozenset({1})
    run_until(loop, clock, 1010.5)
    assert client.receipts[-1][0] == pytest.approx(1010, abs=0.1)
    assert client.receipts[-1][1]["links"]["1"]["state"] == "error"


def test_cancelled_timed_limit_ends_with_the_document_that_lacks_it(
    settings: Settings, engine: FakeEngine, clock: Clock, wall: Wall
) -> None:
    without = {"1": entry(500), "2": entry(700, port=50001)}
    new = bundle_bytes(without, version="1.18", limits_version=8)
    loop, _ = started(replace(settings, poll_interval_s=12), engine, wall, NotModified(), NewBundle(new))
    run_until(loop, clock, 1011)
    assert engine.kernel[1] == 200
    run_until(loop, clock, 1013)
    assert engine.kernel[1] == 500


def test_without_timed_limits_nobody_looks_at_the_clock(
    settings: Settings, engine: FakeEngine, clock: Clock, wall: Wall
) -> None:
    loop, _ = started(settings, engine, wall, document={"1": entry(500)})
    loop.step()
    clock.waits.clear()
    loop._sleep_until(clock.now + 300)
    assert clock.waits == [300]


# --- in words ------------------------------------------------------------------------------------------------------


def test_status_has_a_countdown(settings: Settings, engine: FakeEngine, clock: Clock, wall: Wall) -> None:
    loop, _ = started(settings, engine, wall)
    run_until(loop, clock, 1012)
    loop.step()
    health = read_health(settings.run_dir)
    assert health is not None
    assert health["timed_limits"] == {
        "running": 1,
        "upcoming": 0,
        "next_change_at": "2026-11-21T23:00:15.000000Z",
    }
    lines, _, _ = describe(health, running=True, now=wall.now())
    assert "Timed limits   1 running, 0 to come; the next change is in 3 s, at 2026-11-21 23:00:15 UTC" in lines


def test_table_says_until_when_and_what_then() -> None:
    later = timed(86_400, 90_000, [0, 0, 100])
    document = {"1": {**entry(500), "Timed": [WAVE, later]}, "2": entry(700, port=50001)}
    links = read_bundle(bundle_bytes(document), host_id=HOST_ID).links
    nbsp = "\N{NO-BREAK SPACE}"
    assert timed_lines(links, T0 + timedelta(seconds=12)) == [
        f"Link 1: 200{nbsp}kbit/s now; 800{nbsp}kbit/s in 3 s; the timed limit ends at 2026-11-21 23:00:30 UTC "
        f"(in 18 s), then 500{nbsp}kbit/s.",
        "1 timed limit is still to come, the first at 2026-11-22 23:00:00 UTC (in 23 h 59 min).",
    ]
    assert timed_lines(links, T0 + timedelta(days=1)) == [
        f"Link 1: blocked / 100{nbsp}kbit/s now; the timed limit ends at 2026-11-23 00:00:00 UTC (in 1 h), then "
        f"500{nbsp}kbit/s."
    ]
    assert timed_lines(links, T0 + timedelta(days=2)) == []
