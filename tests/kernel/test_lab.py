"""Labs and their stations, which vanish whatever happens."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator

import pytest

from measuring.iproute import RUN_NETNS, cleanup_stale, pids_in
from measuring.netns import REPOSITORY, Lab, Namespace
from tests.kernel.conftest import MISSING, is_alive

pytestmark = [pytest.mark.kernel, pytest.mark.skipif(MISSING is not None, reason=f"namespaces: {MISSING}")]

PREFIX = f"slt{os.getpid()}"  # nobody else's, not even of another run: what is cleaned up here are its own corpses

OWNER = f"""
import sys, time
from measuring.netns import Lab
with Lab("{PREFIX}") as lab:
    one, two = lab.namespace("one"), lab.namespace("two")
    lab.veth(one.nic("eth0", "192.0.2.1/24"), two.nic("eth0", "192.0.2.2/24"))
    child = two.popen(["sleep", "300"])
    print(child.pid, flush=True)
    if sys.argv[1] == "raise":
        raise RuntimeError("on purpose")
    time.sleep(60)
"""


class Owner:
    """Another process that owns a lab; `child` is the program that it runs in a namespace."""

    def __init__(self, how: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(OWNER), how],
            cwd=REPOSITORY,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.pid = self._process.pid
        assert self._process.stdout is not None
        with self._process.stdout as said:
            self.child = int(said.readline())

    def end(self, number: int) -> int:
        self._process.send_signal(number)
        return self.wait()

    def wait(self) -> int:
        return self._process.wait(10)


def _left_over(owner: int) -> list[str]:
    return sorted(path.name for path in RUN_NETNS.glob(f"{PREFIX}-{owner}-*"))


def test_what_a_killed_lab_left_is_removed_and_a_living_one_is_not_touched() -> None:
    living, killed = Owner("wait"), Owner("wait")
    try:
        killed.end(signal.SIGKILL)
        assert _left_over(killed.pid) != []
        assert is_alive(killed.child)
        removed = cleanup_stale(PREFIX)
        assert removed == [f"{PREFIX}-{killed.pid}-one", f"{PREFIX}-{killed.pid}-two"]
        assert _left_over(killed.pid) == []
        deadline = time.monotonic() + 5
        while is_alive(killed.child) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not is_alive(killed.child)
        assert _left_over(living.pid) == [f"{PREFIX}-{living.pid}-one", f"{PREFIX}-{living.pid}-two"]
        assert pids_in(f"{PREFIX}-{living.pid}-two") == [living.child]
    finally:
        living.end(signal.SIGTERM)


# --- stations ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def host() -> Iterator[Namespace]:
    with Lab(PREFIX) as lab:
        yield lab.namespace("one")


STATION_OWNER = f"""
import sys, time
from measuring.iproute import pids_in
from measuring.netns import Lab
from measuring.traffic import Endpoint, TrafficRun, data
with Lab("{PREFIX}") as lab:
    host = lab.namespace("own")
    one = Endpoint("one", ("127.0.0.1", 50000), ("127.0.0.1", 50001), (data(100),))
    run = TrafficRun({{host: [one]}}, seconds=60)
    if sys.argv[1] == "started":
        run.go()
    print(*pids_in(host.name), flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize("when", ["ready", "started"])
def test_a_station_ends_by_itself_when_its_parent_is_killed(when: str) -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(STATION_OWNER), when], cwd=REPOSITORY, stdout=subprocess.PIPE, text=True
    )
    assert owner.stdout is not None
    try:
        with owner.stdout as said:
            stations = [int(pid) for pid in said.readline().split()]
        assert len(stations) == 1
        assert is_alive(stations[0])
    finally:
        owner.send_signal(signal.SIGKILL)
        owner.wait()
    deadline = time.monotonic() + 10
    while is_alive(stations[0]) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not is_alive(stations[0])
    cleanup_stale(PREFIX)
    assert not (RUN_NETNS / f"{PREFIX}-{owner.pid}-own").exists()
