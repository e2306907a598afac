"""The loop: the disk before the network, one clock for everything, back-off with jitter, signals, systemd, health."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from ap_agent.bundle import read_bundle
from ap_agent.cycle import Agent, Pulled
from ap_agent.errors import AgentError, AuthError, FetchError, SettingsError
from ap_agent.fetch import FetchResult, Have, NewBundle, NoAS, NotModified
from ap_agent.health import describe, health_path, read_health
from ap_agent.log import configure, get_logger
from ap_agent.loop import Backoff, Loop
from ap_agent.settings import Settings
from ap_agent.store import Store
from ap_agent.systemd import Notifier
from tests.agent_bundles import HOST_ID, SECRET, bundle_bytes, entry
from tests.agent_engine import FakeEngine

V7 = bundle_bytes()
V8 = bundle_bytes({"1": entry(900)}, version="1.18", limits_version=8)


@dataclass
class Clock:
    """Time that passes only while somebody waits. `then` happens at its moment, during a wait."""

    now: float = 1000.0
    waits: list[float] = field(default_factory=list)

    def monotonic(self) -> float:
        return self.now

    def wait(self, seconds: float) -> None:
        assert seconds > 0
        self.waits.append(seconds)
        self.now += seconds


@dataclass
class FakeClient:
    """Answers from a list; the last one is repeated. An exception in it is raised."""

    answers: list[FetchResult | Exception]
    clock: Clock
    asked: list[tuple[float, Have | None]] = field(default_factory=list)
    receipts: list[tuple[float, Mapping[str, Any]]] = field(default_factory=list)
    closed: bool = False

    def fetch_config(self, have: Have | None) -> FetchResult:
        self.asked.append((self.clock.now, have))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def send_receipt(self, receipt: Mapping[str, Any]) -> None:
        self.receipts.append((self.clock.now, receipt))

    def confirm_config(self, version: str) -> None:
        raise AssertionError("not asked for")

    def close(self) -> None:
        self.closed = True


@pytest.fixture(autouse=True)
def _quiet() -> None:
    configure("debug", under_systemd=True)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(
        url="https://service.example",
        host_id=HOST_ID,
        host_secret=SECRET,
        state_dir=tmp_path / "state",
        run_dir=tmp_path / "run",
    )


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine()


def middle(low: float, high: float) -> float:
    return (low + high) / 2


def loop_of(settings: Settings, engine: FakeEngine, client: FakeClient | None, clock: Clock, **options: Any) -> Loop:
    agent = Agent(settings, engine, client, get_logger())
    options.setdefault("notifier", Notifier({}))
    options.setdefault("uniform", middle)
    return Loop(agent, get_logger(), monotonic=clock.monotonic, wait=clock.wait, **options)


def run_for(loop: Loop, clock: Clock, seconds: float) -> None:
    """Steps until that much time has passed."""
    end = clock.now + seconds
    while clock.now < end:
        moment = loop.step()
        clock.wait(max(0.001, min(moment, end) - clock.now))


def store_v7(settings: Settings) -> None:
    Store(settings.state_dir).save(read_bundle(V7, host_id=HOST_ID))


# --- order ------------------------------------------------------------------------------------------------------------


def test_disk_is_enforced_before_the_network_is_asked(settings: Settings, engine: FakeEngine, clock: Clock) -> None:
    store_v7(settings)
    client = FakeClient([NotModified()], clock)
    loop = loop_of(settings, engine, client, clock)
    loop.start()

    assert engine.kernel == {1: 500}
    assert client.asked == []
    loop.step()
    assert client.asked == [(1000.0, Have("1.18", 7))]


def test_new_bundle_reaches_the_kernel_and_the_service_hears_in_the_same_cycle(
    settings: Settings, engine: FakeEngine, clock: Clock
) -> None:
    client = FakeClient([NotModified(), NewBundle(V8)], clock)
    store_v7(settings)
    loop = loop_of(settings, engine, client, clock)
    loop.start()
    run_for(loop, clock, 10.5)

    assert engine.kernel == {1: 900}
    assert [moment for moment, _ in client.asked] == [1000.0, 1010.0]
    moment, receipt = client.receipts[-1]
    assert (moment, receipt["limits_version"], receipt["writes"]) == (1010.0, 8, 1)


def test_kernel_is_audited_every_interval_although_nothing_is_new(
    settings: Settings, engine: FakeEngine, clock: Clock
) -> None:
    store_v7(settings)
    loop = loop_of(replace(settings, receipt_interval_s=3600), engine, FakeClient([NotModified()], clock), clock)
    loop.start()
    loop.step()
    engine.calls.clear()
    run_for(loop, clock, 601)

    assert engine.calls == ["reconcile"] * 10


def test_kernel_is_audited_while_the_service_is_away(settings: Settings, engine: FakeEngine, clock: Clock) -> None:
    store_v7(settings)
    client = FakeClient([FetchError("away")], clock)
    loop = loop_of(settings, engine, client, clock, uniform=lambda _low, high: high)
    loop.start()
    run_for(loop, clock, 3000)
    engine.kernel = {}
    run_for(loop, clock, 61)

    assert engine.kernel == {1: 500}
    assert client.receipts == []  # nobody there: not even tried


def test_receipt_is_sent_every_interval_with_fresh_counters(
    settings: Settings, engine: FakeEngine, clock: Clock
) -> None:
    store_v7(settings)
    client = FakeClient([NotModified()], clock)
    loop = loop_of(replace(settings, audit_interval_s=3600), engine, client, clock)
    loop.start()
    engine.calls.clear()
    run_for(loop, clock, 301)

    moments = [moment for moment, _ in client.receipts]
    assert moments == [1000.0, 1060.0, 1120.0, 1180.0, 1240.0, 1300.0]
    assert engine.calls == ["reconcile"] * 6
    observed = [receipt["observed_at"] for _, receipt in client.receipts]
    assert observed == sorted(set(observed))


def test_failed_link_is_tried_again_at_every_poll(settings: Settings, engine: FakeEngine, clock: Clock) -> None:
    store_v7(settings)
    engine.refused = frozenset({1})
    loop = loop_of(settings, engine, FakeClient([NotModified()], clock), clock)
    loop.start()
    loop.step()
    engine.refused = frozenset()
    run_for(loop, clock, 11)

    assert engine.kernel == {1: 500}


def test_no_as_leaves_the_limits_and_polling_goes_on(settings: Settings, engine: FakeEngine, clock: Clock) -> None:
    store_v7(settings)
    client = FakeClient([NoAS()], clock)
    loop = loop_of(settings, engine, client, clock)
    loop.start()
    run_for(loop, clock, 25)

    assert engine.kernel == {1: 500}
    assert len(client.asked) == 3
    assert [one["code"] for one in client.receipts[-1][1]["problems"]] == ["no_as"]


def test_agent_without_a_service_audits_only(settings: Settings, engine: FakeEngine, clock: Clock) -> None:
    store_v7(settings)
    loop = loop_of(replace(settings, url=None), engine, None, clock)
    loop.start()
    engine.calls.clear()
    run_for(loop, clock, 179)

    assert engine.calls == ["reconcile"] * 2


def test_bug_ends_the_cycle_loudly_and_not_the_agent(
    settings: Settings, engine: FakeEngine, clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    store_v7(settings)
    engine.error = ZeroDivisionError("oops")
    client = FakeClient([NotModified()], clock)
    loop = loop_of(settings, engine, client, clock)
    loop.start()
    run_for(loop, clock, 11)
    out = capsys.readouterr().out

    assert "Traceback" in out
    assert "oops" in out
    assert {one.code for one in loop.agent.problems} == {"internal_error"}
    assert client.receipts[-1][1]["links"]["1"]["state"] == "error"
    engine.error = None
    run_for(loop, clock, 61)
    assert engine.kernel == {1: 500}
    assert loop.agent.problems == ()


# --- back-off ---------------------------------------------------------------------------------------------------------


def failed(error: AgentError) -> Pulled:
    return Pulled("failed", error)


def test_poll_interval_has_jitter_of_ten_percent() -> None:
    seen: list[tuple[float, float]] = []

    def uniform(low: float, high: float) -> float:
        seen.append((low, high))
        return high

    assert Backoff(10, 300, uniform).next_delay_s(Pulled("unchanged")) == pytest.approx(11)
    assert seen == [(0.9, 1.1)]


def test_failures_double_the_cap_up_to_the_maximum_with_full_jitter() -> None:
    backoff = Backoff(10, 300, lambda low, high: high - low)

    assert [backoff.next_delay_s(failed(FetchError("x"))) for _ in range(7)] == [20, 40, 80, 160, 300, 300, 300]
    assert backoff.failures == 7
    backoff.next_delay_s(Pulled("unchanged"))
    assert backoff.next_delay_s(failed(FetchError("x"))) == 20


def test_jitter_goes_down_to_half_an_interval_and_never_to_a_busy_loop() -> None:
    backoff = Backoff(10, 300, lambda low, _high: low)

    assert [backoff.next_delay_s(failed(FetchError("x"))) for _ in range(20)] == [5.0] * 20


def test_what_needs_somebody_is_asked_for_rarely_at_once() -> None:
    assert Backoff(10, 300, lambda _low, high: high).next_delay_s(failed(AuthError("x"))) == 300


def test_thousand_failures_do_not_overflow() -> None:
    backoff = Backoff(10, 300, lambda _low, high: high)

    assert {backoff.next_delay_s(failed(FetchError("x"))) for _ in range(2000)} == {20, 40, 80, 160, 300}


def test_retry_after_is_honoured_when_it_is_longer() -> None:
    backoff = Backoff(10, 300, lambda _low, high: high)

    assert backoff.next_delay_s(failed(FetchError("x", retry_after_s=500))) == 500
    assert backoff.next_delay_s(failed(FetchError("x", retry_after_s=1))) == 40


def test_poll_interval_above_the_cap_stays(settings: Settings) -> None:
    backoff = Backoff(600, 300, lambda _low, high: high)

    assert backoff.next_delay_s(failed(FetchError("x"))) == 600


# --- repeats in the log -----------------------------------------------------------------------------------------------


def test_trouble_is_logged_when_it_begins_and_when_it_ends(
    settings: Settings, engine: FakeEngine, clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    store_v7(settings)
    client = FakeClient([*[FetchError("The service answered 503.")] * 8, NotModified()], clock)
    configure("info", under_systemd=True)
    loop = loop_of(settings, engine, client, clock)
    loop.start()
    capsys.readouterr()
    run_for(loop, clock, 2000)
    lines = capsys.readouterr().out.splitlines()

    assert len(lines) == 2
    assert lines[0].startswith("<4>problem.begin code=service_unreachable")
    assert 'message="The service answered 503."' in lines[0]
    assert lines[1].startswith("<6>problem.end code=service_unreachable")
    assert "times=" in lines[1]


# --- signals and settings ---------------------------------------------------------------------------------------------


def test_hup_takes_up_new_settings_and_a_bad_file_keeps_the_old(
    settings: Settings, engine: FakeEngine, clock: Clock
) -> None:
    store_v7(settings)
    old, new = FakeClient([NotModified()], clock), FakeClient([NotModified()], clock)
    outcomes: list[tuple[Settings, FakeClient] | AgentError] = [
        SettingsError("poll_interval_s = x", key="poll_interval_s"),
        (replace(settings, state_dir=Path("/elsewhere")), new),
        (replace(settings, unmatched="default", default_bandwidth_kbit=5000), new),
    ]

    def reload() -> tuple[Settings, FakeClient]:
        outcome = outcomes.pop(0)
        if isinstance(outcome, AgentError):
            raise outcome
        return outcome

    loop = loop_of(settings, engine, old, clock, reload=reload)
    loop.start()
    for _ in range(2):
        loop._on_reload(signal.SIGHUP, None)
        loop.step()
        assert loop.agent.settings == settings
        assert [one.code for one in loop.agent.problems] == ["settings_invalid"]
    loop._on_reload(signal.SIGHUP, None)
    loop.step()

    assert loop.agent.problems == ()
    assert old.closed
    assert (engine.settings[-1].unmatched, engine.settings[-1].default_bandwidth_kbit) == ("default", 5000)
    assert len(new.asked) == 1


def test_stop_during_a_cycle_lets_it_finish_and_leaves_the_limits(
    settings: Settings, engine: FakeEngine, clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    loop_box: list[Loop] = []

    class StoppingClient(FakeClient):
        def fetch_config(self, have: Have | None) -> FetchResult:
            loop_box[0].stop()
            return super().fetch_config(have)

    client = StoppingClient([NewBundle(V7)], clock)
    loop = loop_of(settings, engine, client, clock)
    loop_box.append(loop)
    loop.run()

    assert engine.kernel == {1: 500}
    assert len(client.receipts) == 1
    assert 'agent.stop limits="stay in the kernel"' in capsys.readouterr().out


# --- systemd ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path / "notify"))
        listening.settimeout(1)
        yield listening


def heard(manager: socket.socket) -> list[str]:
    manager.setblocking(False)
    lines: list[str] = []
    while True:
        try:
            lines += manager.recv(4096).decode().splitlines()
        except BlockingIOError:
            return lines


def environment_of(manager: socket.socket, **more: str) -> dict[str, str]:
    return {"NOTIFY_SOCKET": str(manager.getsockname()), **more}


def test_ready_is_said_after_the_first_limits_and_before_the_network(
    settings: Settings, engine: FakeEngine, clock: Clock, manager: socket.socket
) -> None:
    store_v7(settings)
    client = FakeClient([NotModified()], clock)
    loop = loop_of(settings, engine, client, clock, notifier=Notifier(environment_of(manager)))
    loop.start()

    lines = heard(manager)
    assert "READY=1" in lines
    assert "STATUS=configuration 1.18, 1 of 1 links enforced, 0 problems" in lines
    assert engine.kernel == {1: 500}
    assert client.asked == []


def test_border_router_waits_for_a_late_interface_but_not_for_ever(
    settings: Settings, engine: FakeEngine, clock: Clock, manager: socket.socket
) -> None:
    store_v7(settings)
    engine.refused = frozenset({1})
    loop = loop_of(settings, engine, None, clock, notifier=Notifier(environment_of(manager)))
    loop.start()

    assert clock.now == 1000.0 + settings.start_wait_s
    assert "READY=1" in heard(manager)


def test_router_does_not_wait_once_the_interface_is_there(
    settings: Settings, engine: FakeEngine, clock: Clock, manager: socket.socket
) -> None:
    store_v7(settings)
    engine.refused = frozenset({1})
    wait = clock.wait

    def come_up(seconds: float) -> None:
        wait(seconds)
        if clock.now >= 1003:
            engine.refused = frozenset()

    clock.wait = come_up  # type: ignore[method-assign]  # the interface gets its address meanwhile
    loop = loop_of(settings, engine, None, clock, notifier=Notifier(environment_of(manager)))
    loop.start()

    assert clock.now == 1003
    assert engine.kernel == {1: 500}


def test_early_hup_does_not_make_the_start_spin(
    settings: Settings, engine: FakeEngine, clock: Clock, manager: socket.socket
) -> None:
    store_v7(settings)
    engine.refused = frozenset({1})
    loop = loop_of(settings, engine, None, clock, notifier=Notifier(environment_of(manager)))
    loop._on_reload(signal.SIGHUP, None)
    loop.start()

    assert not loop._woken.is_set()  # a set event would end each wait at once
    assert engine.calls.count("reconcile") == settings.start_wait_s + 1


def test_watchdog_is_fed_during_a_long_pause(
    settings: Settings, engine: FakeEngine, clock: Clock, manager: socket.socket
) -> None:
    notifier = Notifier(environment_of(manager, WATCHDOG_USEC="9000000", WATCHDOG_PID=str(os.getpid())))
    loop = loop_of(settings, engine, None, clock, notifier=notifier)
    loop._sleep_until(clock.now + 10)

    assert max(clock.waits) <= 3.0
    assert heard(manager).count("WATCHDOG=1") >= 3


def test_watchdog_of_another_process_is_not_ours() -> None:
    assert Notifier({"WATCHDOG_USEC": "9000000", "WATCHDOG_PID": "1"}).watchdog_s is None
    assert Notifier({"WATCHDOG_USEC": "x"}).watchdog_s is None
    assert Notifier({"WATCHDOG_USEC": "500000"}).watchdog_s == 0.5


def test_manager_that_is_gone_does_not_disturb(tmp_path: Path) -> None:
    Notifier({"NOTIFY_SOCKET": str(tmp_path / "nobody")}).send("READY=1")
    Notifier({"NOTIFY_SOCKET": "@nobody-there"}).send("READY=1")


# --- health file ------------------------------------------------------------------------------------------------------


def health_after(settings: Settings, engine: FakeEngine, client: FakeClient, clock: Clock) -> dict[str, Any]:
    loop = loop_of(settings, engine, client, clock)
    loop.start()
    loop.step()
    found = read_health(settings.run_dir)
    assert found is not None
    return found


def test_health_file_says_what_a_monitor_needs(settings: Settings, engine: FakeEngine, clock: Clock) -> None:
    health = health_after(settings, engine, FakeClient([NewBundle(V7)], clock), clock)

    assert (health["version"], health["limits_version"], health["pid"]) == ("1.18", 7, os.getpid())
    assert health["links"] == {"enforced": 1, "total": 1, "not_enforced": {}}
    assert health["last_cycle"]["ok"] is True
    assert health["problems"] == []
    assert health["service"]["failures_in_a_row"] == 0
    assert abs(datetime.fromisoformat(health["service"]["last_contact_at"]) - datetime.now(UTC)) < timedelta(minutes=1)
    path = health_path(settings.run_dir)
    assert SECRET not in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert [one.name for one in settings.run_dir.iterdir()] == ["health.json"]


def test_unwritable_health_file_is_a_problem_and_no_end(settings: Settings, engine: FakeEngine, clock: Clock) -> None:
    settings.run_dir.parent.mkdir(exist_ok=True)
    settings.run_dir.write_text("a file where the folder should be")
    store_v7(settings)
    loop = loop_of(settings, engine, None, clock)
    loop.start()
    loop.step()

    assert engine.kernel == {1: 500}
    assert [one.code for one in loop.agent.problems] == ["health_unwritable"]


def described(health: dict[str, Any], *, running: bool = True, age_s: float = 1) -> tuple[str, bool, bool]:
    now = datetime.fromisoformat(health["written_at"]) + timedelta(seconds=age_s)
    lines, enforced, delivered = describe(health, running=running, now=now)
    return "\n".join(lines), enforced, delivered


def test_status_in_words_when_all_is_well(settings: Settings, engine: FakeEngine, clock: Clock) -> None:
    health = health_after(settings, engine, FakeClient([NewBundle(V7)], clock), clock)

    text, enforced, delivered = described(health)
    assert (enforced, delivered) == (True, True)
    assert f"running (pid {os.getpid()}); last report 1 s ago" in text
    assert "1.18, limits 7" in text
    assert "1 of 1 links enforced" in text
    assert "https://service.example answered 1 s ago" in text


def test_status_tells_old_dead_and_broken_agents_apart(settings: Settings, engine: FakeEngine, clock: Clock) -> None:
    store_v7(settings)
    health = health_after(settings, engine, FakeClient([FetchError("The service answered 503.")], clock), clock)

    text, enforced, delivered = described(health)
    assert (enforced, delivered) == (True, False)
    assert "service_unreachable" in text
    assert "has not answered yet" in text
    assert described(health, running=False)[1] is False
    text, enforced, _ = described(health, age_s=3600)
    assert enforced is False
    assert "but silent" in text
    assert "1 h 0 min ago" in text


def test_status_names_links_that_are_not_enforced(settings: Settings, engine: FakeEngine, clock: Clock) -> None:
    engine.refused = frozenset({1})
    health = health_after(settings, engine, FakeClient([NewBundle(V7)], clock), clock)

    text, enforced, delivered = described(health)
    assert (enforced, delivered) == (False, True)
    assert "Not enforced   link 1: The kernel has None kbit/s for link 1." in text


# --- the real process -------------------------------------------------------------------------------------------------

PROGRAM = """
import sys
from ap_agent.__main__ import main
from tests.agent_engine import FakeEngine
sys.exit(main(["run", "--config", sys.argv[1]], engine=FakeEngine()))
"""


@pytest.fixture
def running(settings: Settings, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """`run` as a process of its own, with a stored bundle, no service and an engine of memory."""
    if os.geteuid() != 0:
        pytest.skip("the agent's run command asks for CAP_NET_ADMIN")
    store_v7(settings)
    config = tmp_path / "agent.toml"
    config.write_text(f'state_dir = "{settings.state_dir}"\nrun_dir = "{settings.run_dir}"\nlog_level = "info"\n')
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(config)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        deadline = time.monotonic() + 20
        while not health_path(settings.run_dir).exists():
            assert time.monotonic() < deadline
            assert process.poll() is None
            time.sleep(0.05)
        yield process
        if process.poll() is None:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_ends_the_process_with_0_at_once(running: subprocess.Popen[str], number: signal.Signals) -> None:
    started = time.monotonic()
    running.send_signal(number)
    out, _ = running.communicate(timeout=10)

    assert running.returncode == 0
    assert time.monotonic() - started < 5
    assert 'limits="stay in the kernel"' in out


def test_hup_rereads_the_file_and_the_process_goes_on(
    running: subprocess.Popen[str], settings: Settings, tmp_path: Path
) -> None:
    config = tmp_path / "agent.toml"
    config.write_text("nonsense = 1\n")
    running.send_signal(signal.SIGHUP)
    deadline = time.monotonic() + 10
    while "settings_invalid" not in health_path(settings.run_dir).read_text():
        assert time.monotonic() < deadline
        time.sleep(0.05)

    assert running.poll() is None
    problems = json.loads(health_path(settings.run_dir).read_text())["problems"]
    assert 'no key "nonsense"' in problems[0]["message"]
