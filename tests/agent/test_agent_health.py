"""How others see the running agent: systemd, and the health file."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from ap_agent.agent.fetch import NewBundle, NotModified
from ap_agent.agent.health import health_path, read_health
from ap_agent.common.settings import Settings
from ap_agent.common.systemd import Notifier
from tests.agent_bundles import SECRET
from tests.agent_clock import V7, Clock, FakeClient, store_v7, world_of
from tests.agent_limiter import T0

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


def test_ready_is_said_when_the_stored_configuration_is_handed_over_and_before_the_network(
    settings: Settings, clock: Clock, manager: socket.socket
) -> None:
    store_v7(settings)
    client = FakeClient([NotModified()], clock)
    world = world_of(settings, client, clock, notifier=Notifier(environment_of(manager)))
    world.loop.start()

    assert "READY=1" in heard(manager)
    assert (settings.state_dir / "document.json").exists()
    assert client.asked == []
    world.run_for(1)
    assert "STATUS=configuration 1.18, 1 of 1 links enforced, 0 problems" in heard(manager)


def test_watchdog_is_fed_during_a_long_pause(settings: Settings, clock: Clock, manager: socket.socket) -> None:
    notifier = Notifier(environment_of(manager, WATCHDOG_USEC="9000000", WATCHDOG_PID=str(os.getpid())))
    world = world_of(settings, None, clock, notifier=notifier)
    world.loop._sleep_until(clock.now + 10)

    assert max(clock.waits) <= 3.0
    assert heard(manager).count("WATCHDOG=1") >= 3


def test_watchdog_of_another_process_is_not_ours() -> None:
    assert Notifier({"WATCHDOG_USEC": "9000000", "WATCHDOG_PID": "1"}).watchdog_s is None
    assert Notifier({"WATCHDOG_USEC": "x"}).watchdog_s is None
    assert Notifier({"WATCHDOG_USEC": "500000"}).watchdog_s == 0.5


# --- health file ------------------------------------------------------------------------------------------------------


def health_after(settings: Settings, client: FakeClient, clock: Clock, **changes: Any) -> dict[str, Any]:
    """`changes` are attributes of the limiter."""
    world = world_of(settings, client, clock)
    for name, value in changes.items():
        setattr(world.limiter, name, value)
    world.loop.start()
    world.run_for(1)
    found = read_health(settings.run_dir)
    assert found is not None
    return found


def test_health_file_says_what_a_monitor_needs(settings: Settings, clock: Clock) -> None:
    health = health_after(settings, FakeClient([NewBundle(V7)], clock), clock)

    assert (health["version"], health["limits_version"], health["pid"]) == ("1.18", 7, os.getpid())
    assert health["in_force"] == "1.18 with limits 7"
    assert health["links"] == {"enforced": 1, "observed": 0, "total": 1, "not_enforced": {}}
    assert health["last_cycle"] == {"observed_at": f"{T0:%Y-%m-%dT%H:%M:%S}.000000Z", "ok": True, "writes": 1}
    assert health["problems"] == []
    assert health["service"]["failures_in_a_row"] == 0
    assert abs(datetime.fromisoformat(health["service"]["last_contact_at"]) - datetime.now(UTC)) < timedelta(minutes=1)
    path = health_path(settings.run_dir)
    assert SECRET not in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert [one.name for one in settings.run_dir.iterdir()] == ["health.json"]


def test_unwritable_health_file_is_a_problem_and_no_end(settings: Settings, clock: Clock) -> None:
    settings.run_dir.parent.mkdir(exist_ok=True)
    settings.run_dir.write_text("a file where the folder should be")
    store_v7(settings)
    world = world_of(settings, None, clock)
    world.loop.start()
    world.run_for(1)

    assert world.limiter.limits == {1: 500}
    assert world.codes == ["health_unwritable"]
