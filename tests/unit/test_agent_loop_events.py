"""The loop between the kernel's events and a slow service: one cycle at a time, nobody waits for anybody else."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from ap_agent.agent.fetch import FetchResult, Have, NewBundle, NotModified, ReceiptAnswer
from ap_agent.agent.health import read_health
from ap_agent.agent.loop import Loop
from ap_agent.agent.waiting import Errands
from ap_agent.common.errors import FetchError, LockHeldError
from ap_agent.common.log import configure
from ap_agent.common.settings import Settings
from ap_agent.common.systemd import Notifier
from ap_agent.limiter.events import Change, Heard, Interest
from ap_agent.model import EngineSettings
from ap_agent.reconcile import CycleResult
from bandwidth_config import LinkInfo
from tests.agent_clock import V8, Clock, FakeClient, loop_of, settings_in, store_v7
from tests.agent_engine import FakeEngine

CLASS = Change("eth0", "class")
OURS = 4001


@pytest.fixture(autouse=True)
def _quiet() -> None:
    configure("debug", under_systemd=True)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Polls and receipts far apart, so that what happens, happens because of events."""
    return replace(settings_in(tmp_path), poll_interval_s=1000, receipt_interval_s=3600, audit_interval_s=3600)


@dataclass
class EventClock(Clock):
    """Time that passes while somebody waits, and stops at the next moment of which something is told."""

    moments: list[float] = field(default_factory=list)

    def wait(self, seconds: float) -> None:
        until = min([self.now + seconds, *(one for one in self.moments if one > self.now)])
        super().wait(until - self.now)


@dataclass
class FakeEvents:
    """What the kernel says at which moment."""

    clock: EventClock
    told: list[tuple[float, Heard]] = field(default_factory=list)
    owned: list[frozenset[int]] = field(default_factory=list)
    interests: list[Interest] = field(default_factory=list)

    def at(self, moment: float, heard: Heard | Change) -> None:
        self.told.append((moment, heard if isinstance(heard, Heard) else Heard(frozenset({heard}), messages=1)))
        self.clock.moments.append(moment)

    def fileno(self) -> int:
        raise AssertionError("a fake clock waits for no descriptor")

    def own(self, ports: Iterable[int]) -> None:
        self.owned.append(frozenset(ports))

    def drain(self, interest: Interest) -> Heard:
        self.interests.append(interest)
        now = [heard for moment, heard in self.told if moment <= self.clock.now]
        self.told = [one for one in self.told if one[0] > self.clock.now]
        changes = frozenset().union(*(one.changes for one in now))
        return Heard(changes, any(one.is_lost for one in now), sum(one.messages for one in now))


class Kernel(FakeEngine):
    """Its cycles write through a port, look after eth0, and let something happen meanwhile."""

    meanwhile: Callable[[], None] | None = None

    def reconcile(
        self, links: Mapping[int, LinkInfo], settings: EngineSettings, *, is_settled: bool = False
    ) -> CycleResult:
        found = super().reconcile(links, settings, is_settled=is_settled)
        if self.meanwhile is not None:
            happens, self.meanwhile = self.meanwhile, None
            happens()
        return replace(found, ports=frozenset({OURS}), devices=frozenset({2}))


class HeldErrands(Errands):
    """An errand has its outcome when the test says so."""

    def __init__(self, wake: Callable[[], None]) -> None:
        super().__init__(wake)
        self.under_way: list[Callable[[], None]] = []

    def _begin(self, run: Callable[[], None]) -> None:
        self.under_way.append(run)

    def end(self) -> None:
        self.under_way.pop(0)()


@dataclass
class World:
    """An agent with one link that is enforced, whose first poll is done."""

    clock: EventClock
    events: FakeEvents
    engine: Kernel
    loop: Loop

    def run_until(self, moment: float) -> list[str]:
        """What the engine was asked for meanwhile."""
        before = len(self.engine.calls)
        while self.clock.now < moment:
            due = self.loop.step()
            self.loop._sleep_until(min(due, moment))
        return self.engine.calls[before:]


def world_of(settings: Settings, client: FakeClient | None = None, **options: Any) -> World:
    clock = client.clock if client is not None and isinstance(client.clock, EventClock) else EventClock()
    store_v7(settings)
    events, engine = FakeEvents(clock), Kernel()
    loop = loop_of(settings, engine, client, clock, events=events, **options)
    loop.start()
    loop.step()
    return World(clock, events, engine, loop)


# --- when somebody changes the kernel ---------------------------------------------------------------------------------


def test_a_change_is_put_right_within_milliseconds(settings: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    world = world_of(settings)
    world.events.at(1100.0, CLASS)
    world.run_until(1100.0)
    world.engine.kernel = {1: 9000}
    assert world.run_until(1100.03) == ["reconcile"]
    assert world.engine.kernel == {1: 500}
    assert "kernel.drift device=eth0 what=class" in capsys.readouterr().out


def test_what_another_agent_made_who_took_our_place_is_not_undone(settings: Settings) -> None:
    lost: list[LockHeldError] = []

    def keep_lock() -> None:
        for error in lost:
            raise error

    world = world_of(settings, keep_lock=keep_lock)
    world.events.at(1100.0, CLASS)
    world.run_until(1100.0)
    world.engine.kernel = {1: 9000}
    lost.append(LockHeldError("another one has it"))
    with pytest.raises(LockHeldError):
        world.run_until(1100.03)
    assert world.engine.kernel == {1: 9000}


def test_what_was_lost_is_an_occasion_for_one_cycle(settings: Settings) -> None:
    world = world_of(settings)
    world.events.at(1100.0, Heard(is_lost=True))
    assert world.run_until(1200.0) == ["reconcile"]


def test_what_does_not_concern_us_makes_no_cycle(settings: Settings) -> None:
    world = world_of(settings)
    for number in range(1000):
        world.events.at(1100.0 + number / 1000, Heard(messages=100))
    assert world.run_until(1200.0) == []


def test_a_cycle_says_which_ports_were_its_own_and_what_concerns_us(settings: Settings) -> None:
    world = world_of(replace(settings, interfaces=("eth0",)))
    world.events.owned.clear()
    world.events.at(1100.0, CLASS)
    world.run_until(1101.0)
    assert world.events.owned == [frozenset({OURS})]
    interest = world.events.interests[-1]
    assert interest.devices == frozenset({2})
    assert interest.names == {"eth0", "slbw0"}
    assert interest.ifb == world.engine.ifb
    assert interest.addresses.covers(32, 24, bytes([192, 0, 2, 0]))
    assert not interest.addresses.covers(32, 24, bytes([192, 0, 3, 0]))


def test_after_a_cycle_that_failed_everything_concerns_us_and_it_is_not_repeated_at_once(settings: Settings) -> None:
    world = world_of(settings)
    world.engine.error = ZeroDivisionError("oops")
    for number in range(100):
        world.events.at(1100.0 + number / 10, CLASS)
    assert world.run_until(1110.0) == ["reconcile"] * 2
    assert world.events.interests[-1].devices is None


def test_a_change_during_a_cycle_leads_to_another_look(settings: Settings) -> None:
    world = world_of(settings)
    world.events.at(1100.0, CLASS)
    world.engine.meanwhile = lambda: world.events.at(world.clock.now, CLASS)
    assert world.run_until(1100.5) == ["reconcile"] * 2
    assert world.run_until(1200.0) == []


def test_a_storm_neither_keeps_the_agent_busy_nor_from_its_polls(settings: Settings) -> None:
    """A neighbour that changes filters of its own on our interface, 50 times a second, for a minute."""
    clock = EventClock()
    client = FakeClient([NotModified()], clock)
    world = world_of(replace(settings, poll_interval_s=10, audit_interval_s=60), client)
    for number in range(3000):
        world.events.at(1000.5 + number / 50, CLASS)
    cycles = world.run_until(1060.5)

    assert 300 <= len(cycles) <= 605
    assert [moment for moment, _ in client.asked] == pytest.approx([1000 + 10 * one for one in range(7)], abs=0.1)


def test_a_fight_is_reported_slows_down_and_ends(settings: Settings) -> None:
    world = world_of(replace(settings, poll_interval_s=10))
    world.engine.kernel = {}
    world.events.at(1100.0, CLASS)

    def undo() -> None:
        world.engine.kernel = {}
        world.engine.meanwhile = undo
        if world.clock.now < 1200:
            world.events.at(world.clock.now, CLASS)

    world.engine.meanwhile = undo
    cycles = world.run_until(1200.0)
    assert len(cycles) < 25
    (problem,) = world.loop.agent.problems
    assert (problem.code, problem.subject) == ("repeatedly_changed", "eth0")
    world.engine.meanwhile = None
    world.run_until(1290.0)
    assert world.loop.agent.problems == ()


def test_an_interface_that_comes_up_late_is_seen_at_once_while_the_router_waits(settings: Settings) -> None:
    clock = EventClock()
    store_v7(settings)
    events, engine = FakeEvents(clock), Kernel()
    engine.refused = frozenset({1})
    events.at(1003.3, Change("", "address"))
    wait = clock.wait

    def come_up(seconds: float) -> None:
        wait(seconds)
        if clock.now >= 1003.3:
            engine.refused = frozenset()

    clock.wait = come_up  # type: ignore[method-assign]  # the interface gets its address meanwhile
    loop = loop_of(settings, engine, None, clock, events=events, notifier=Notifier({"NOTIFY_SOCKET": "/nobody"}))
    loop.start()

    assert engine.kernel == {1: 500}
    assert clock.now == pytest.approx(1003.32)
    assert engine.calls == ["reconcile"] * 5


def test_nothing_concerns_an_agent_without_a_bundle(tmp_path: Path) -> None:
    clock = EventClock()
    events = FakeEvents(clock)
    engine = Kernel()
    loop = loop_of(settings_in(tmp_path), engine, FakeClient([FetchError("away")], clock), clock, events=events)
    loop.start()
    loop.step()
    assert events.interests[-1].devices == frozenset()
    assert engine.calls == []


# --- while the service takes its time ---------------------------------------------------------------------------------


class Held(NamedTuple):
    """A world in which a question and a receipt are under way until the test says otherwise."""

    world: World
    polls: HeldErrands
    letters: HeldErrands
    client: FakeClient


def held_of(settings: Settings, answers: list[FetchResult | Exception]) -> Held:
    client = FakeClient(answers, EventClock())
    world = world_of(settings, client, errands=HeldErrands)
    polls, letters = world.loop._service.polls, world.loop._service.letters
    assert isinstance(polls, HeldErrands)
    assert isinstance(letters, HeldErrands)
    assert (len(polls.under_way), len(letters.under_way)) == (1, 1)
    return Held(world, polls, letters, client)


@pytest.fixture
def held(settings: Settings) -> Held:
    return held_of(replace(settings, poll_interval_s=10), [NewBundle(V8)])


def test_a_change_is_put_right_while_a_poll_is_under_way(held: Held) -> None:
    held.world.events.at(1005.0, CLASS)
    assert held.world.run_until(1005.1) == ["reconcile"]
    assert (held.client.asked, len(held.polls.under_way)) == ([], 1)


def test_the_answer_is_taken_up_as_soon_as_it_is_there_and_told_of_then(held: Held) -> None:
    world, polls, letters, client = held
    letters.end()
    world.run_until(1005.0)
    polls.end()
    world.run_until(1005.1)
    assert world.engine.kernel == {1: 900}
    assert len(client.receipts) == 1  # the other one is on its way
    letters.end()
    world.run_until(1005.2)
    assert client.receipts[1][1]["limits_version"] == 8
    assert world.run_until(1014.0) == []
    assert polls.under_way == []  # the next poll comes after its interval, counted from the answer
    world.run_until(1016.0)
    assert len(polls.under_way) == 1


def test_a_receipt_leaves_while_a_poll_waits(held: Held) -> None:
    held.letters.end()
    held.world.events.at(1030.0, CLASS)
    held.world.run_until(1030.0)
    held.world.engine.kernel = {1: 9000}
    held.world.run_until(1030.1)
    assert len(held.letters.under_way) == 1
    held.letters.end()
    held.world.run_until(1030.2)
    assert held.client.receipts[-1][1]["writes"] == 1
    assert (held.client.asked, len(held.polls.under_way)) == ([], 1)


def test_what_happens_while_a_receipt_is_under_way_is_told_after_it(held: Held) -> None:
    held.world.run_until(1005.0)
    held.polls.end()
    held.world.run_until(1005.1)
    assert held.world.engine.kernel == {1: 900}
    assert len(held.letters.under_way) == 1
    held.letters.end()  # the one of the beginning
    held.world.run_until(1005.2)
    assert len(held.letters.under_way) == 1
    held.letters.end()
    held.world.run_until(1010.0)
    assert [receipt["limits_version"] for _, receipt in held.client.receipts] == [7, 8]
    assert held.letters.under_way == []


def test_the_loop_does_not_spin_while_a_poll_is_under_way_and_its_health_stays_fresh(held: Held) -> None:
    held.world.clock.waits.clear()
    held.world.run_until(1060.0)
    assert len(held.world.clock.waits) <= 12
    health = read_health(held.world.loop.agent.settings.run_dir)
    assert health is not None
    assert 0 < health["next_cycle_in_s"] <= 11


def test_a_reload_drops_the_answer_that_the_former_client_waits_for(held: Held) -> None:
    world, polls, letters, client = held
    other = FakeClient([NotModified()], world.clock)
    world.loop._reload = lambda: (world.loop.agent.settings, other)
    world.loop._on_reload(signal.SIGHUP, None)
    world.run_until(1000.1)
    assert client.closed
    polls.end()  # the former one's
    letters.end()
    world.run_until(1000.2)
    assert world.engine.kernel == {1: 500}
    polls.end()
    world.run_until(1000.3)
    assert len(other.asked) == 1


def test_stop_does_not_wait_for_the_service(held: Held) -> None:
    held.world.loop.stop()
    held.world.loop.run()  # starts, and ends at once
    assert held.client.asked == []
    assert held.client.closed  # so that no thread waits on


def test_a_receipt_that_failed_is_not_sent_again_and_again(settings: Settings) -> None:
    class Deaf(FakeClient):
        tries = 0

        def send_receipt(self, receipt: Mapping[str, Any]) -> ReceiptAnswer:
            self.tries += 1
            raise FetchError("The service answered 500.")

        def fetch_config(self, have: Have | None, *, wait_s: int = 0) -> FetchResult:
            return NotModified()

    client = Deaf([], EventClock())
    world = world_of(replace(settings, poll_interval_s=10, receipt_interval_s=60), client)
    world.run_until(1059.0)
    assert client.tries <= 7  # with each poll


# --- a new limit, with and without news from the kernel -------------------------------------------------------------


def world_with_news_at_1100(settings: Settings, **options: Any) -> World:
    """The service has a new limit at moment 1100; nothing else is due near it."""
    client = FakeClient([NotModified(), NewBundle(V8), NotModified()], EventClock())
    world = world_of(replace(settings, poll_interval_s=100, **options), client)
    world.run_until(1099.0)
    world.engine.settled.clear()
    return world


def test_a_new_limit_alone_is_set_without_reading_everything(settings: Settings) -> None:
    world = world_with_news_at_1100(settings)
    world.run_until(1101.0)
    assert world.engine.settled == [True]


def test_a_new_limit_after_an_event_is_set_with_a_whole_look(settings: Settings) -> None:
    world = world_with_news_at_1100(settings)
    world.events.at(1099.99, CLASS)
    world.run_until(1101.0)
    assert world.engine.settled == [False]


def test_new_limits_do_not_put_the_comparison_off(settings: Settings) -> None:
    world = world_with_news_at_1100(settings, audit_interval_s=150)
    world.run_until(1160.0)
    assert world.engine.settled == [True, False]
