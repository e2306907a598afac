"""How others see the running agent: systemd, the health file, and the process itself."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from ap_agent.agent.fetch import NewBundle, NotModified
from ap_agent.agent.health import describe, health_path, read_health
from ap_agent.common.errors import FetchError
from ap_agent.common.log import configure
from ap_agent.common.settings import Settings
from ap_agent.common.systemd import Notifier
from tests.agent_bundles import SECRET
from tests.agent_clock import V7, Clock, FakeClient, loop_of, settings_in, store_v7
from tests.agent_engine import FakeEngine


@pytest.fixture(autouse=True)
def _quiet() -> None:
    configure("debug", under_systemd=True)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return settings_in(tmp_path)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine()


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

    assert clock.now == 1000.0 + settings.start_wait_s
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
