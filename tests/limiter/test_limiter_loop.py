"""The limiter's loop without a kernel: when it enforces what, what the state file says, what no fault ends."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest

from ap_agent.common.errors import AgentError, LockHeldError, NotPermittedError, SettingsError
from ap_agent.common.log import configure, get_logger
from ap_agent.common.problem import Problem
from ap_agent.common.settings import Settings
from ap_agent.common.systemd import Notifier
from ap_agent.document.handover import write_document
from ap_agent.document.signed_text import Version
from ap_agent.document.state import ClosedSegment, Counters, LimiterState, Total, read_state, write_state
from ap_agent.limiter import report as report_module
from ap_agent.limiter.documents import Documents
from ap_agent.limiter.enforcing import Enforcer
from ap_agent.limiter.events import Change, Notifications
from ap_agent.limiter.live_counters import samples_of
from ap_agent.limiter.loop import Loop
from ap_agent.limiter.report import Report
from bandwidth_config import Limits
from tests.agent_bundles import HOST_ID, entry
from tests.agent_clock import settings_in
from tests.limiter_documents import handed
from tests.limiter_engine import FakeEngine

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)


@dataclass
class Events:
    """What the kernel is going to say."""

    waiting: list[Notifications] = field(default_factory=list)
    settled: list[frozenset[int]] = field(default_factory=list)

    def drain(self, _own_ports: frozenset[int]) -> Notifications:
        return self.waiting.pop(0) if self.waiting else Notifications()

    def drain_own(self, own_ports: frozenset[int]) -> Notifications:
        self.settled.append(own_ports)
        return Notifications()


@dataclass
class Files:
    is_touched: bool = False

    def drain(self) -> bool:
        was, self.is_touched = self.is_touched, False
        return was


@dataclass
class Service(Notifier):
    """systemd, which listens."""

    said: list[str] = field(default_factory=list)
    is_there: bool = True
    watchdog: float | None = None

    @property
    def is_listening(self) -> bool:
        return self.is_there

    @property
    def watchdog_s(self) -> float | None:
        return self.watchdog

    def send(self, *states: str) -> None:
        self.said += states


class World:
    """One limiter whose time passes only while it waits."""

    def __init__(self, settings: Settings) -> None:
        self.settings = self.reloaded = settings
        self.engine, self.events, self.files, self.service = FakeEngine(), Events(), Files(), Service()
        self.monotonic, self.jumped = 1000.0, timedelta(0)
        self.lock_error: AgentError | None = None
        self.may_send = True
        self.waits: list[float] = []
        self.start()

    def start(self) -> None:
        """Another process, on the same kernel and disk."""
        report = Report(self.settings.limiter_run_dir, get_logger(), self.now)
        self.enforcer = Enforcer(
            self.settings,
            self.engine,  # type: ignore[arg-type]  # a fake
            get_logger(),
            report.keep,
            now=self.now,
            may_send=lambda _: self.may_send,
        )
        self.loop = Loop(
            self.enforcer,
            report,
            Documents(self.settings, self.now),
            get_logger(),
            events=self.events,  # type: ignore[arg-type]  # a fake
            watch=lambda: self.files,  # type: ignore[arg-type,return-value]  # a fake
            notifier=self.service,
            reload=self._reload,
            keep_lock=self._keep_lock,
            monotonic=lambda: self.monotonic,
            wait=self._wait,
        )

    def now(self) -> datetime:
        return NOW + timedelta(seconds=self.monotonic - 1000) + self.jumped

    def _wait(self, seconds: float) -> None:
        assert seconds > 0
        self.waits.append(seconds)
        self.monotonic += seconds

    def _reload(self) -> Settings:
        if isinstance(self.reloaded, AgentError):
            raise self.reloaded
        return self.reloaded

    def _keep_lock(self) -> None:
        if self.lock_error is not None:
            raise self.lock_error

    def hand(self, data: bytes | None = None, **options: Any) -> None:
        write_document(self.settings.state_dir / "document.json", data or handed(**options))
        self.files.is_touched = True

    def run_for(self, seconds: float) -> None:
        end = self.monotonic + seconds
        while self.monotonic < end:
            self.loop.step()
            moment = min(*self.loop._moments(), end)
            self._wait(max(0.001, moment - self.monotonic))

    @property
    def state(self) -> LimiterState:
        found = read_state(self.settings.limiter_run_dir)
        assert found is not None
        return found

    @property
    def kbit(self) -> dict[int, int]:
        """What the kernel has of each link."""
        return {number: one.to_user_kbit for number, one in self.engine.has.links.items()}

    def codes(self) -> list[str]:
        return [one.code for one in self.state.problems]


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    found = settings_in(tmp_path)
    found.state_dir.mkdir()
    return found


@pytest.fixture
def fresh(settings: Settings) -> World:
    return World(settings)


@pytest.fixture
def world(fresh: World) -> World:
    """Started, with two links."""
    fresh.hand(links=two())
    fresh.loop.start()
    return fresh


def two(first: int = 500, second: int = 800, **fields: Any) -> dict[str, Any]:
    return {"7": {**entry(first), **fields}, "8": entry(second, ip="192.0.2.12")}


# --- from the files to the kernel -------------------------------------------------------------------------------------


def test_what_is_handed_over_is_in_the_kernel_and_in_the_state_file_and_named_in_the_log(
    fresh: World, capsys: pytest.CaptureFixture[str]
) -> None:
    configure("info", under_systemd=True)
    fresh.loop.start()
    fresh.hand(links=two(), version="1.19", limits=4)
    fresh.loop.step()

    state = fresh.state
    assert fresh.kbit == {7: 500, 8: 800}
    assert (state.host_id, state.order, state.is_ok) == (HOST_ID, Version(1, 19, 4), True)
    link = state.links[7]
    assert (link.limits, link.state, link.problem) == (Limits(500, 500), "enforced", None)
    assert link.to_user is not None
    assert (link.to_user.rate_kbit, link.to_user.segment) == (500, 7000)
    assert state.devices == ("eth0",)
    (done,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("<6>enforce.done")]
    assert f" trace={HOST_ID[:8]}.19.4 " in done


def test_one_changed_limit_is_a_settled_pass_that_looks_at_nothing_else(world: World) -> None:
    reads = world.engine.host_reads
    before = world.engine.has
    world.hand(links=two(second=900), limits=8)
    world.loop.step()

    assert [is_settled for _, is_settled in world.engine.passes] == [False, True]
    assert world.engine.host_reads == reads
    assert world.engine.has.links[7] is before.links[7]
    assert world.state.links[7].state == world.state.links[8].state == "enforced"
    assert world.state.links[8].to_user is not None
    assert world.state.links[8].to_user.rate_kbit == 900


# --- what the kernel says ---------------------------------------------------------------------------------------------


def test_what_somebody_changed_is_compared_within_a_moment_and_our_own_ports_are_named(world: World) -> None:
    world.loop.step()
    assert world.events.settled[-1] == frozenset({4001})
    world.events.waiting = [Notifications(frozenset({Change("eth0", "filter")}))]
    passes = len(world.engine.passes)
    at = world.monotonic
    world.run_for(0.15)

    assert [is_settled for _, is_settled in world.engine.passes[passes:]] == [False]
    assert world.state.observed_at - NOW < timedelta(seconds=at - 1000 + 0.13)


def test_after_something_was_heard_no_pass_counts_as_settled(world: World) -> None:
    world.loop.step()
    world.monotonic += 1
    world.events.waiting = [Notifications(frozenset({Change("eth0", "filter")}))]
    world.hand(links=two(first=900), limits=8)
    world.loop.step()

    assert world.engine.passes[-1][1] is False


def test_between_a_drift_and_its_repair_no_link_is_enforced_and_the_state_says_so(world: World) -> None:
    world.run_for(1)
    world.events.waiting = [Notifications(frozenset({Change("slbw0", "class", is_undoing=True)}))]
    passes = len(world.engine.passes)
    world.loop.step()

    assert len(world.engine.passes) == passes
    assert not world.state.is_ok
    assert {one.state for one in world.state.links.values()} == {"error"}
    assert world.state.links[7].problem == (
        "Another program changed objects of the limiter on slbw0 (class); they are being repaired."
    )
    world.run_for(0.2)
    assert len(world.engine.passes) == passes + 1
    assert {one.state for one in world.state.links.values()} == {"enforced"}


def test_a_change_of_others_is_no_drift(world: World) -> None:
    world.run_for(1)
    for change in (Change("eth7", "qdisc", is_undoing=True), Change("", "address"), Change("slbw7", "device")):
        world.events.waiting = [Notifications(frozenset({change}))]
        world.loop.step()
        assert world.state.is_ok


def test_audit_compares_everything_although_nothing_was_heard(world: World) -> None:
    passes = len(world.engine.passes)
    world.run_for(181)

    assert [is_settled for _, is_settled in world.engine.passes[passes:]] == [False] * 3


def test_failure_is_told_with_the_links_and_tried_again(world: World) -> None:
    world.engine.failed = {7: "The kernel refused it."}
    world.run_for(61)
    assert (world.state.is_ok, world.state.links[7].state, world.state.links[7].problem) == (
        False,
        "error",
        "The kernel refused it.",
    )
    assert world.state.links[8].state == "enforced"
    world.engine.failed = {}
    world.run_for(6)

    assert (world.state.is_ok, world.state.links[7].state) == (True, "enforced")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (AgentError("It does not say."), "kernel_unreadable"),
        (NotPermittedError("No right.", code="no_bpf_right"), "no_bpf_right"),
    ],
)
def test_kernel_that_says_nothing_sensible_ends_nothing(world: World, error: AgentError, code: str) -> None:
    world.engine.error = error
    world.run_for(61)

    assert world.codes() == [code]
    assert {one.state for one in world.state.links.values()} == {"error"}
    assert world.state.links[7].to_user is not None  # the counters are memory, and go on
    world.engine.error = None
    world.run_for(6)
    assert world.state.is_ok


@pytest.mark.parametrize("how", ["refused", "unreadable", "drift"])
def test_state_says_that_the_limit_of_unmatched_traffic_is_not_in_force(fresh: World, how: str) -> None:
    fresh.settings = replace(fresh.settings, unmatched="default", default_bandwidth_kbit=1000)
    fresh.start()
    fresh.hand(links=two())
    fresh.loop.start()
    fresh.run_for(1)
    assert (fresh.state.unmatched_problem, fresh.state.is_ok) == (None, True)
    if how == "drift":
        fresh.events.waiting = [Notifications(frozenset({Change("slbw0", "class", is_undoing=True)}))]
        fresh.loop.step()
    else:
        fresh.engine.failed = {0: "The kernel refused it."}
        fresh.engine.error = AgentError("It does not say.") if how == "unreadable" else None
        fresh.run_for(61)

    assert fresh.state.unmatched_problem in {
        "The kernel refused it.",
        "It does not say.",
        "Another program changed objects of the limiter on slbw0 (class); they are being repaired.",
    }
    assert not fresh.state.is_ok


def test_state_names_the_devices_on_which_packets_are_classified(world: World) -> None:
    world.engine.obstructed = ("eth0",)
    world.run_for(61)

    assert world.state.devices == ()


def test_boot_waits_for_the_kernel_but_not_for_ever(fresh: World) -> None:
    fresh.hand(links=two())
    fresh.engine.failed = {7: "There is no interface eth0."}
    fresh.loop.start()

    assert sum(fresh.waits) == pytest.approx(10)
    assert "READY=1" in fresh.service.said
    assert fresh.state.links[7].state == "error"


def test_links_whose_packets_cannot_be_told_are_problems_beside_those_of_the_kernel(fresh: World) -> None:
    fresh.engine.problems = (Problem("filter_behind", "eth0", "A filter."),)
    fresh.hand(links={"7": entry(500), "8": entry(400), "9": entry(300, ip="198.51.100.1")})
    fresh.service.is_there = False
    fresh.loop.start()

    assert fresh.codes() == ["filter_behind", "own_address", "ambiguous_match"]
    assert {number: one.state for number, one in fresh.state.links.items()} == {7: "error", 8: "error", 9: "error"}


# --- observe only -----------------------------------------------------------------------------------------------------


def test_observed_links_are_told_as_observed(fresh: World) -> None:
    fresh.hand(links=two(Observe=True))
    fresh.loop.start()
    assert {number: one.state for number, one in fresh.state.links.items()} == {7: "observed", 8: "enforced"}
    said = "STATUS=configuration 1.18 with limits 7, 1 of 2 limited links enforced, 1 observed, 0 problems"
    assert said in fresh.service.said
    fresh.hand(links=two(), limits=8, is_observe_only=True)
    fresh.run_for(1)

    assert {one.state for one in fresh.state.links.values()} == {"observed"}
    assert fresh.state.is_observe_only


# --- timed limits -----------------------------------------------------------------------------------------------------


def timed(begin: datetime, seconds: int, kbit: int) -> dict[str, Any]:
    text = "%Y-%m-%dT%H:%M:%SZ"
    until = begin + timedelta(seconds=seconds)
    return {"Timed": [{"From": begin.strftime(text), "Until": until.strftime(text), "Steps": [[0, kbit, kbit]]}]}


def test_timed_limit_steps_at_its_second_by_the_clock_alone(fresh: World) -> None:
    fresh.hand(links=two(**timed(NOW + timedelta(seconds=100), 50, 100)))
    fresh.loop.start()
    assert fresh.state.next_step_at == NOW + timedelta(seconds=100)
    fresh.run_for(99.5)
    assert fresh.kbit == {7: 500, 8: 800}
    fresh.run_for(1)

    assert fresh.kbit == {7: 100, 8: 800}
    assert (fresh.engine.passes[-1][1], fresh.state.is_step) == (True, True)
    assert fresh.state.links[7].limits == Limits(100, 100)
    fresh.run_for(51)
    assert fresh.kbit == {7: 500, 8: 800}


def test_clock_that_jumps_is_noticed_within_a_second(fresh: World) -> None:
    fresh.hand(links=two(**timed(NOW + timedelta(hours=5), 3600, 100)))
    fresh.loop.start()
    fresh.jumped = timedelta(hours=5, minutes=1)
    fresh.run_for(1.1)
    assert fresh.kbit == {7: 100, 8: 800}
    fresh.jumped = timedelta(0)
    fresh.run_for(1.1)

    assert fresh.kbit == {7: 500, 8: 800}


# --- counters, segments, samples --------------------------------------------------------------------------------------


def test_segment_that_ended_is_written_at_once_and_kept_for_a_day_over_restarts(world: World) -> None:
    world.engine.count[8, "to_user"] = Counters(9000, 9, 0, 0, 0, 0)
    world.hand(links={"7": entry(500)}, limits=8)
    world.run_for(1)
    ended = [one for one in world.state.closed if one.direction == "to_user"]
    assert ended == [ClosedSegment(8, "to_user", 8000, 500, 1_795_305_600_000, Counters(9000, 9, 0, 0, 0, 0))]
    world.start()
    world.loop.start()
    assert len(world.state.closed) == 2
    world.jumped = timedelta(days=1, hours=1)
    world.run_for(11)

    assert world.state.closed == ()


@pytest.mark.parametrize("restarts", [False, True])
def test_what_is_written_within_a_pass_says_what_held_before_it(fresh: World, *, restarts: bool) -> None:
    """An agent that waits for the new version would tell the service of limits that the kernel does not have yet."""
    fresh.hand(links=two(), limits=4)
    fresh.loop.start()
    before = fresh.state
    if restarts:
        fresh.start()
    fresh.engine.dies_then = KeyboardInterrupt()
    fresh.hand(links={"7": entry(900), "9": entry(900, ip="192.0.2.13")}, limits=8)
    with pytest.raises(KeyboardInterrupt):
        fresh.loop.start() if restarts else fresh.loop.step()

    state = fresh.state
    assert (state.order, state.links) == (before.order, before.links)
    assert (state.run, state.number) != (before.run, before.number)
    assert [one.interface_id for one in state.closed] == [8, 8]


def test_drops_of_htb_go_on_within_a_segment_although_each_class_counts_from_0(world: World) -> None:
    """A counter that falls looks like a restart to Prometheus: all that was refused would count a second time."""

    def dropped(read: int) -> tuple[int, int]:
        """In the state, and in a live sample."""
        world.engine.lost[7, "to_user"] = read
        world.loop.reload()
        world.loop.step()
        side = world.state.links[7].to_user
        (sample,) = samples_of(world.enforcer, [7], lambda: 0.0).values()
        assert side is not None
        return side.dropped_packets, sample.to_user.lost_packets

    world.engine.count[7, "to_user"] = Counters(0, 0, 0, 100, 0, 0)
    assert [dropped(read) for read in (5, 0, 3, 4)] == [(5, 5), (5, 5), (8, 8), (9, 9)]
    world.start()
    world.loop.start()
    assert [dropped(read) for read in (4, 6)] == [(9, 9), (11, 11)]
    world.engine.segments[7, "to_user"] += 5  # a link that was away
    assert dropped(2) == (2, 2)
    world.engine.segments[7, "to_user"] += 5  # other maps, as after an upgrade; the classes stay
    world.start()
    world.loop.start()
    assert [dropped(read) for read in (2, 3)] == [(0, 0), (1, 1)]


# --- the cap ----------------------------------------------------------------------------------------------------------


def test_cap_is_in_force_once_factors_are_set_and_gone_with_the_document_that_had_it(fresh: World) -> None:
    fresh.hand(links=two(), total_kbit=1000)
    fresh.loop.start()
    fresh.run_for(1)
    assert fresh.state.total == Total(1000, 1000, 1000)
    fresh.engine.count[7, "to_user"] = Counters(0, 0, 0, 0, 0, 0)
    passed = refused = 0
    for _ in range(30):
        passed, refused = passed + 9375, refused + 9375
        for number in (7, 8):
            fresh.engine.count[number, "to_user"] = Counters(passed, 1, refused, 1, 0, 0)
        fresh.run_for(0.15)
    assert list(fresh.engine.factors[-1]) == pytest.approx([1.3, 1.0])
    fresh.hand(links=two(), limits=8)
    fresh.run_for(1)

    assert fresh.state.total is None
    assert list(fresh.engine.factors[-1]) == [1.0, 1.0]


@pytest.mark.parametrize("is_observe_only", [False, True])
def test_cap_is_not_in_force_when_nobody_follows_it_and_when_links_are_only_observed(
    fresh: World, *, is_observe_only: bool
) -> None:
    fresh.hand(links=two(), total_kbit=1000, is_observe_only=is_observe_only)
    fresh.loop.start()
    fresh.run_for(11)
    if not is_observe_only:
        fresh.loop.stop()
        fresh.loop.run()

    assert fresh.state.total == Total(1000, None, None)


def test_cap_is_not_in_force_while_a_link_that_it_counts_is_not_enforced(fresh: World) -> None:
    fresh.hand(links=two(), total_kbit=1000)
    fresh.loop.start()
    fresh.run_for(1)
    fresh.events.waiting = [Notifications(frozenset({Change("slbw0", "class", is_undoing=True)}))]
    fresh.loop.step()
    assert {one.state for one in fresh.state.links.values()} == {"error"}
    assert fresh.state.total == Total(1000, None, None)
    for failed in ({}, {7: "The kernel refused it."}, {}, {7: "No device.", 8: "No device."}):
        fresh.engine.failed = failed
        fresh.run_for(61)
        assert fresh.state.total == (Total(1000, None, None) if failed else Total(1000, 1000, 1000))


def test_each_state_has_the_cap_of_its_own_document(fresh: World, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[tuple[int | None, Total | None]] = []

    def note(folder: Path, state: LimiterState) -> None:
        said.append((state.order.limits_version if state.order is not None else None, state.total))
        write_state(folder, state)

    monkeypatch.setattr(report_module, "write_state", note)
    fresh.hand(links=two(), limits=7, total_kbit=1000)
    fresh.loop.start()
    fresh.run_for(1)
    fresh.loop.step()  # the factors have just been set
    fresh.hand(links=two(), limits=8, total_kbit=2000)
    fresh.monotonic += 0.1
    fresh.loop.step()

    assert set(said) == {(7, Total(1000, 1000, 1000)), (8, Total(2000, 2000, 2000))}


# --- settings, lock, end ----------------------------------------------------------------------------------------------


def test_other_settings_count_after_sighup_and_bad_ones_are_named(world: World) -> None:
    world.reloaded = replace(world.settings, observe_only=True)
    world.loop.reload()
    world.loop.step()
    assert {one.state for one in world.state.links.values()} == {"observed"}
    world.reloaded = SettingsError("It is wrong.", key="x")  # type: ignore[assignment]  # raised by the fake
    world.loop.reload()
    world.run_for(11)
    assert world.codes() == ["settings_invalid"]
    world.reloaded = replace(world.settings, limiter_state_dir=Path("/elsewhere"))
    world.loop.reload()
    world.run_for(11)

    assert "limiter_state_dir cannot change while the program runs" in world.state.problems[0].message
    assert world.engine.has.links[7].is_observed


def test_limiter_that_lost_its_place_to_another_ends_and_touches_nothing(world: World) -> None:
    passes = len(world.engine.passes)
    world.lock_error = LockHeldError("Another limiter is at work.")
    world.hand(links=two(first=900), limits=8)
    with pytest.raises(LockHeldError):
        world.loop.step()

    assert len(world.engine.passes) == passes


def test_watchdog_is_fed_three_times_in_its_time(fresh: World) -> None:
    fresh.service.watchdog = 30.0
    fresh.hand(links=two())
    fresh.loop.start()
    fresh.run_for(300)

    assert fresh.service.said.count("WATCHDOG=1") == 30


# --- what is protected, logged, and said of failures ------------------------------------------------------------------


def test_a_link_without_a_port_at_a_protected_address_is_a_problem_and_the_rest_goes_on(
    fresh: World, settings: Settings
) -> None:
    fresh.settings = replace(settings, protect=(ip_network("192.0.2.11/32"),))
    fresh.start()
    fresh.hand(links={"7": entry(500, port=None), "8": entry(800, ip="192.0.2.12"), "9": entry(300)})
    fresh.loop.start()

    assert (fresh.kbit, fresh.codes()) == ({8: 800, 9: 300}, ["protected_address"])
    assert {number: one.state for number, one in fresh.state.links.items()} == {
        7: "error",
        8: "enforced",
        9: "enforced",
    }
    fresh.hand(links={"7": entry(500), "8": entry(800, ip="192.0.2.12")}, version="1.19")
    fresh.loop.step()
    assert (fresh.kbit, fresh.codes(), fresh.state.is_ok) == ({7: 500, 8: 800}, [], True)
