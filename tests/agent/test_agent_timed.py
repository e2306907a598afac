"""Timed limits beside the loop: the limiter follows the clock, and the service is told no more than it needs."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from ap_agent.agent.fetch import NotModified
from ap_agent.common.settings import Settings
from tests.agent_bundles import bundle_bytes, entry
from tests.agent_clock import Clock, FakeClient, World, begun
from tests.agent_limiter import T0


def time_text(seconds: float) -> str:
    return f"{T0 + timedelta(seconds=seconds):%Y-%m-%dT%H:%M:%SZ}"


def timed(begin_s: int, end_s: int, *steps: list[int]) -> dict[str, Any]:
    return {"From": time_text(begin_s), "Until": time_text(end_s), "Steps": list(steps)}


# 500 kbit/s, but 200 and 800 by turns for 5 s each from 10 s on for 20 s.
WAVE = timed(10, 30, [0, 200, 200], [5, 800, 800], [10, 200, 200], [15, 800, 800])
DOCUMENT = {"1": {**entry(500), "Timed": [WAVE]}, "2": entry(700, port=50001)}


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """Nothing but steps wakes this agent within the test."""
    return replace(settings, receipt_interval_s=3600, poll_interval_s=600, usage_interval_s=0)


def started(settings: Settings, clock: Clock, document: dict[str, Any] = DOCUMENT) -> tuple[World, FakeClient]:
    client = FakeClient([NotModified()], clock)
    return begun(settings, client, data=bundle_bytes(document)), client


def run_until(world: World, end: float) -> None:
    """As inotify and the limiter's own timers do it: five times a second."""
    while world.clock.now < end:
        world.run_for(min(0.2, end - world.clock.now))


def test_steps_that_the_kernel_follows_are_told_every_ten_seconds_at_most(settings: Settings, clock: Clock) -> None:
    second = [[n, 100 + n, 100 + n] for n in range(100)]
    world, client = started(settings, clock, document={"1": {**entry(500), "Timed": [timed(5, 105, *second)]}})
    run_until(world, 1120)
    moments = [moment - 1000 for moment, _ in client.receipts]
    assert all(later - earlier >= 9.9 for earlier, later in pairwise(moments[1:]))
    assert 10 <= len(moments) <= 13
    told = client.receipts[-1][1]["links"]["1"]
    assert (told["to_user_kbit"], told["to_user"]["rate_kbit"], told["state"]) == (500, 500, "enforced")
    for _, receipt in client.receipts:
        one = receipt["links"]["1"]
        assert one["to_user"]["rate_kbit"] == one["to_user_kbit"]


def test_step_that_the_kernel_refuses_is_told_at_once(settings: Settings, clock: Clock) -> None:
    world, client = started(settings, clock)
    run_until(world, 1009)
    world.limiter.refused = frozenset({1})
    run_until(world, 1010.5)
    assert client.receipts[-1][0] == pytest.approx(1010, abs=0.3)
    assert client.receipts[-1][1]["links"]["1"]["state"] == "error"
