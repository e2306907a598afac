"""The lab itself: hosts that vanish whatever happens, clocks that agree, and a station that sends what it says."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from lab.witness import links, traces
from measuring.iproute import RUN_NETNS, LabError, cleanup_stale, pids_in
from measuring.judge import delays_ms
from measuring.netns import REPOSITORY, Lab
from measuring.traffic import TrafficRun, data, heartbeats, run_traffic
from tests.measured.testbed import AP_ADDRESS, Testbed, TestLink, report, user_address

pytestmark = pytest.mark.usefixtures("_namespaces")

PREFIX = "sltlab"  # not the other tests' prefix: cleaning up must not be seen by them

OWNER = f"""
import signal, sys, time
from measuring.netns import Lab
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
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


def _is_alive(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"


@pytest.mark.parametrize("how", ["raise", signal.SIGTERM, signal.SIGINT])
def test_a_lab_is_gone_after_an_exception_and_after_signals(how: str | int) -> None:
    owner = Owner("raise" if how == "raise" else "wait")
    if how == "raise":
        status = owner.wait()
    else:
        assert _left_over(owner.pid) == [f"{PREFIX}-{owner.pid}-one", f"{PREFIX}-{owner.pid}-two"]
        status = owner.end(int(how))
    assert status != 0
    assert _left_over(owner.pid) == []
    assert not _is_alive(owner.child)


def test_what_a_killed_lab_left_is_removed_and_a_living_one_is_not_touched() -> None:
    living, killed = Owner("wait"), Owner("wait")
    try:
        killed.end(signal.SIGKILL)
        assert _left_over(killed.pid) != []
        assert _is_alive(killed.child)
        removed = cleanup_stale(PREFIX)
        assert removed == [f"{PREFIX}-{killed.pid}-one", f"{PREFIX}-{killed.pid}-two"]
        assert _left_over(killed.pid) == []
        deadline = time.monotonic() + 5
        while _is_alive(killed.child) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not _is_alive(killed.child)
        assert _left_over(living.pid) == [f"{PREFIX}-{living.pid}-one", f"{PREFIX}-{living.pid}-two"]
        assert pids_in(f"{PREFIX}-{living.pid}-two") == [living.child]
    finally:
        living.end(signal.SIGTERM)


def test_a_pid_that_was_given_to_another_program_protects_no_corpse() -> None:
    with Lab(PREFIX) as lab:
        one = lab.namespace("one")
        assert cleanup_stale(PREFIX) == []  # ours: alive
        one.ip("link", "set", "lo", "alias", f"lab-owner:{os.getpid()}:1")  # as if this pid had started at boot
        assert cleanup_stale(PREFIX) == [one.name]
        del lab.namespaces["one"]


def test_a_command_that_fails_is_an_error_with_its_words() -> None:
    with Lab(PREFIX) as lab:
        host = lab.namespace("one")
        with pytest.raises(LabError, match='Cannot find device "nothere"'):
            host.run("tc", "qdisc", "add", "dev", "nothere", "clsact")
        with pytest.raises(LabError, match="did not end within"):
            host.run("sleep", "5", timeout_s=0.2)
        with pytest.raises(RuntimeError, match="inside"):
            host.call(_raise)


def _raise() -> None:
    raise RuntimeError("inside")


def test_a_fresh_host_has_no_traffic_control_and_wires_make_no_large_frames(bed: Testbed) -> None:
    assert traces(bed.ap) == []
    assert links(bed.ap)["eth0"]["gso_max_segs"] == 1


@pytest.mark.parametrize("family", [4, 6])
def test_without_limits_everything_arrives_as_it_was_sent(bed: Testbed, family: int) -> None:
    link = TestLink(1, kbit=20_000, user=1, family=family)
    streams = (heartbeats(), data(20_000, 1400))
    results = run_traffic(bed.plan([(link, link.ends(streams))]), seconds=2)
    for host in (bed.ap, bed.user(1)):
        end = results.at(host, link.name)
        assert results.lost(host, link.name) == 0
        assert (len(end.heartbeats), results.heartbeats(host, link.name).downs) == (10, 0)
        assert end.unknown == 0
        beats_kbit = 5 * end.wire.bytes(92 if family == 4 else 116) / 125
        verdict = results.judge_rate(host, link.name, 20_000 + round(beats_kbit))
        assert verdict.holds, str(verdict)
        delays = delays_ms(end.data)
        report(family=family, least_ms=f"{min(delays):.3f}", most_ms=f"{max(delays):.3f}")
        # One clock for all namespaces: no packet arrives before it was sent, and none spends long on a wire of memory.
        assert 0 <= min(delays) < 1


def test_a_stream_lasts_from_its_start_to_its_stop(bed: Testbed) -> None:
    link = TestLink(1, kbit=1_000, user=1)
    results = run_traffic(bed.plan([(link, link.ends((data(1_000, 1000, start_s=0.5, stop_s=1.0),)))]), seconds=1.5)
    arrivals = results.at(bed.user(1), link.name).data
    first_s = (arrivals.arrived_ns[0] - results.start_ns) / 1e9
    last_s = (arrivals.arrived_ns[-1] - results.start_ns) / 1e9
    assert len(arrivals) == pytest.approx(0.5 * 1_000_000 / 8 / 1042, abs=1)
    assert 0.5 <= first_s < 0.6
    assert 0.9 < last_s < 1.1


def test_a_station_that_cannot_bind_is_an_error_that_says_why(bed: Testbed) -> None:
    link = TestLink(1, kbit=1_000, user=1, local_address="198.51.100.7")
    with pytest.raises(LabError, match="Cannot assign requested address"):
        TrafficRun(bed.plan([(link, link.ends(()))]), seconds=1)


def test_addresses_of_the_testbed_are_documentation_addresses() -> None:
    assert (AP_ADDRESS[4], user_address(1), user_address(1, 6)) == ("192.0.2.1", "192.0.2.11", "2001:db8::11")
