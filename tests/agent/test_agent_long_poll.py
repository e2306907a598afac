"""The loop around a service that holds questions open: nothing waits for them, nothing spins or is left behind."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta

import pytest

from ap_agent.agent import loop as loop_module
from ap_agent.agent.background import Background
from ap_agent.agent.fetch import FetchResult, Have, NewBundle, NotModified
from ap_agent.common.errors import FetchError
from ap_agent.common.log import configure
from ap_agent.common.settings import Settings
from tests import agent_limiter
from tests.agent_bundles import bundle_bytes, entry
from tests.agent_clock import READ_PAUSE_S, Clock, FakeClient, store_v7
from tests.agent_clock import World as LoopWorld
from tests.agent_clock import world_of as loop_world


@pytest.fixture(autouse=True)
def _quiet() -> None:
    configure("error", under_systemd=True)


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return replace(settings, long_poll_s=50)


# --- simulated time ---------------------------------------------------------------------------------------------------


@dataclass
class Timetable(Clock):
    """Time that passes while somebody waits, and in which things happen at their moments."""

    planned: list[tuple[float, Callable[[], None]]] = field(default_factory=list)

    def at(self, moment: float, call: Callable[[], None]) -> None:
        self.planned.append((moment, call))

    def wait(self, seconds: float) -> None:
        until = min([self.now + seconds, *(moment for moment, _ in self.planned)])
        if until > self.now:
            super().wait(until - self.now)
        due = [one for one in self.planned if one[0] <= self.now]
        self.planned = [one for one in self.planned if one[0] > self.now]
        for _, call in due:
            call()


class HoldingService(FakeClient):
    """Holds a question open until there is news. It has news at `saves`, and is away during `away`."""

    saves: list[float]
    away: tuple[float, float] = (0.0, 0.0)

    def __init__(self, clock: Timetable, saves: list[float] | None = None) -> None:
        super().__init__([], clock)
        self.saves = saves or []

    @property
    def limits_version(self) -> int:
        return 7 + sum(moment <= self.clock.now for moment in self.saves)

    def answered_at(self, wait_s: int) -> float:
        now = self.clock.now
        news = [one for one in self.saves if now < one <= now + wait_s]
        ends = min([now + wait_s, *news])
        begins_away, ends_away = self.away
        return max(now, begins_away) if begins_away < ends and now < ends_away else ends

    def fetch_config(self, have: Have | None, *, wait_s: int = 0) -> FetchResult:
        self.asked.append((self.clock.now, have))
        self.waits.append(wait_s)
        if self.away[0] <= self.clock.now < self.away[1]:
            raise FetchError("away")
        if have is not None and have.limits_version == self.limits_version:
            return NotModified()
        kbit = 500 + self.limits_version
        return NewBundle(bundle_bytes({"1": entry(kbit)}, version="1.18", limits_version=self.limits_version))


class Counted(Background):
    """A request whose outcome comes when the service answers; how many are under way at once."""

    def __init__(self, wake: Callable[[], None], clock: Timetable, takes_until: Callable[[], float]) -> None:
        super().__init__(wake)
        self._clock, self._takes_until = clock, takes_until
        self.under_way = self.most = self.sent = 0

    def _begin(self, run: Callable[[], None]) -> None:
        self.sent += 1
        self.under_way += 1
        self.most = max(self.most, self.under_way)

        def end() -> None:
            self.under_way -= 1
            run()

        self._clock.at(self._takes_until(), end)


@dataclass
class World:
    """A loop whose questions are held open, in simulated time."""

    clock: Timetable
    service: HoldingService
    inner: LoopWorld
    polls: Counted
    reports: Counted
    steps: int = 0

    @property
    def limits(self) -> dict[int, int]:
        return self.inner.limiter.limits

    def run_until(self, moment: float) -> None:
        loop = self.inner.loop
        while self.clock.now < moment:
            due = loop.step()
            self.steps += 1
            loop._sleep_until(min(due, moment, self.clock.now + READ_PAUSE_S if self.inner.limiter.work() else moment))


def world_of(settings: Settings, saves: list[float] | None = None) -> World:
    store_v7(settings)
    clock = Timetable()
    service = HoldingService(clock, saves)
    made: list[Counted] = []
    chance = random.Random(1)  # noqa: S311  # no secret

    def background(wake: Callable[[], None]) -> Counted:
        if not made:
            made.append(Counted(wake, clock, lambda: service.answered_at(inner.loop.polls.backoff._asked_s)))
        else:
            made.append(Counted(wake, clock, lambda: clock.now + 0.01))
        return made[-1]

    inner = loop_world(settings, service, clock, background=background, uniform=chance.uniform)
    inner.loop.start()
    inner.limiter.work()
    polls, reports, _usage, _live = made
    return World(clock, service, inner, polls, reports)


def test_saved_limit_is_in_the_kernel_and_told_of_at_once_although_questions_wait(settings: Settings) -> None:
    saves = [1100.0, 1100.5, 1300.0, 1301.0, 1302.0]
    world = world_of(settings, saves)
    for number, moment in enumerate(saves):
        world.run_until(moment + 0.45)
        assert world.limits == {1: 508 + number}
        assert world.service.receipts[-1][1]["limits_version"] == 8 + number
    assert set(world.service.waits[2:]) <= set(range(45, 51))


def test_hours_of_waiting_take_one_request_of_each_kind_and_no_spinning(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop_module, "write_health", lambda *_arguments, **_options: None)  # hours of fsync
    chance = random.Random(2)  # noqa: S311  # no secret
    monkeypatch.setattr(agent_limiter, "INTERVAL", timedelta(seconds=45))
    seconds, away, saves = 14_400, (5_000.0, 6_800.0), 10
    world = world_of(
        replace(settings, poll_interval_s=30, usage_interval_s=0),
        [1000 + chance.uniform(0, seconds) for _ in range(saves)],
    )
    world.service.away = away
    world.run_until(1000 + seconds)

    assert (world.polls.most, world.reports.most) == (1, 1)
    assert world.limits == {1: 507 + saves}
    assert world.inner.agent.problems == ()
    answered_s = seconds - (away[1] - away[0])
    assert answered_s / 50 <= world.polls.sent <= answered_s / 45 + 5 * saves
    assert world.reports.sent <= seconds / 54 + 2 * saves + 10
    assert world.steps <= seconds / 30 + 2 * (world.polls.sent + world.reports.sent) + 2 * seconds / 45


def test_end_of_an_outage_is_seen_and_told_of_at_the_first_answer(settings: Settings) -> None:
    world = world_of(settings)
    world.service.away = (1100.0, 1400.0)
    world.run_until(1390.0)
    assert [one.code for one in world.inner.agent.problems] == ["service_unreachable"]
    receipts = len(world.service.receipts)
    world.run_until(1400.0 + 300.0 + 0.1)
    back = next(index for index, (moment, _) in enumerate(world.service.asked) if moment >= 1400)
    assert world.service.waits[back : back + 2] == [0, pytest.approx(47.5, abs=3)]
    assert world.inner.agent.problems == ()
    moment, receipt = world.service.receipts[receipts]
    assert moment - world.service.asked[back][0] < 0.1
    assert receipt["problems"] == []


# --- real threads and sockets -----------------------------------------------------------------------------------------
