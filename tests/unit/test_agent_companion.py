"""Whatever fails beside the loop, the kernel is looked after as before."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ap_agent.agent.companion import REST_S, Companion
from ap_agent.agent.cycle import Agent
from ap_agent.agent.fetch import NotModified
from ap_agent.agent.loop import Loop
from ap_agent.common.log import get_logger
from ap_agent.common.systemd import Notifier
from ap_agent.usage.recorder import UsageRecorder
from tests.agent_clock import AtOnce, Clock, FakeClient, middle, run_for, settings_in, store_v7
from tests.agent_engine import FakeEngine

HOOKS = ["attach", "expect", "enforced", "finish", "step", "moments", "health"]


class Failing(Companion):
    """Raises where it is told to, and counts how often."""

    def __init__(self, *names: str) -> None:
        self.calls = 0
        for name in names:
            setattr(self, name, self._fail)

    def _fail(self, *_given: Any) -> Any:
        self.calls += 1
        raise MemoryError


class World:
    def __init__(self, folder: Path, companion: Companion) -> None:
        self.clock, self.engine = Clock(), FakeEngine()
        settings = settings_in(folder)
        store_v7(settings)
        self.agent = Agent(settings, self.engine, FakeClient([NotModified()], self.clock), get_logger())
        self.loop = Loop(
            self.agent,
            get_logger(),
            notifier=Notifier({}),
            errands=AtOnce,
            monotonic=self.clock.monotonic,
            wait=self.clock.wait,
            uniform=middle,
            companions=(companion,),
        )


@pytest.mark.parametrize("names", [*([one] for one in HOOKS), HOOKS], ids=lambda names: "+".join(names)[:20])
def test_fault_of_a_companion_ends_nothing(tmp_path: Path, names: list[str]) -> None:
    world = World(tmp_path, companion := Failing(*names))
    world.loop.start()
    cycles = world.engine.calls.count("reconcile")
    run_for(world.loop, world.clock, REST_S / 2)
    assert companion.calls >= 1
    assert "internal_error" in {one.code for one in world.agent.problems}

    run_for(world.loop, world.clock, 10 * REST_S)
    assert world.engine.calls.count("reconcile") > cycles >= 1
    assert world.agent.enforced is not None
    assert world.agent.enforced.ok


def test_what_is_due_at_once_and_fails_is_left_alone_for_a_minute(tmp_path: Path) -> None:
    class Urgent(Failing):
        def moments(self, _service: object) -> list[float]:
            return [0.0]

    world = World(tmp_path, companion := Urgent("step"))
    world.loop.start()
    run_for(world.loop, world.clock, 10 * REST_S)

    assert 5 <= companion.calls <= 12


def test_last_look_at_a_device_that_fails_keeps_no_plan_from_being_carried_out(tmp_path: Path) -> None:
    def broken() -> Any:
        raise KeyError("a bug")

    reader: Callable[[], Any] = broken
    world = World(tmp_path, Companion())
    usage = UsageRecorder(world.agent, get_logger(), reader=reader)
    usage._version = "1.18"
    usage.before_loss(["eth0"])

    assert {one.code for one in world.agent.problems} == {"internal_error"}
