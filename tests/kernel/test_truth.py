"""What the state says while packets pass the limiter: programs in front of it, and objects of ours that are undone."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.agent_bundles import entry
from tests.kernel.engine_bed import BPF_PROG_TYPE_XDP, U1, USER_PORT, EngineBed, link, load_program, wanted
from tests.kernel.limiter_host import LimiterHost, limiter_on, run_limiter

ONE = wanted(link(7, 500, 1000))
BPF_XDP = 37
XDP_PASS = 2
MODES = {"native": 1 << 2, "generic": 1 << 1}  # XDP_FLAGS_DRV_MODE, XDP_FLAGS_SKB_MODE


@pytest.fixture
def host(bed: EngineBed, tmp_path: Path) -> Iterator[LimiterHost]:
    yield from limiter_on(bed, tmp_path, log_level='"debug"', audit_interval_s="3600")


# --- XDP --------------------------------------------------------------------------------------------------------------


def _xdp_program() -> int:
    """It passes every frame on, as it is."""
    return load_program(BPF_PROG_TYPE_XDP, (0xB4, 0, 0, XDP_PASS), (0x95, 0, 0, 0))


def _attach(bed: EngineBed, device: str, flags: int, fd: int) -> None:
    """`fd` -1: nothing is attached any more."""

    def inside() -> int:
        return int(ctypes.CDLL("libbpf.so.1").bpf_xdp_attach(socket.if_nametoindex(device), fd, flags, None))

    assert bed.ap.call(inside) == 0


@pytest.mark.parametrize("mode", MODES)
def test_an_xdp_program_on_a_limited_device_is_named_and_no_link_is_enforced(bed: EngineBed, mode: str) -> None:
    assert bed.enforce(ONE).is_ok
    _attach(bed, "eth0", MODES[mode], _xdp_program())
    outcome = bed.enforce(ONE)
    assert [(one.code, one.subject) for one in outcome.problems] == [("hook_obstructed", "eth0")]
    assert f"On eth0 {mode} XDP program" in outcome.problems[0].message
    assert "of eth0 is in front of the limiter" in outcome.problems[0].message
    assert (outcome.is_ok, outcome.writes, set(outcome.failed)) == (False, 0, {7})
    assert bed.enforce(wanted(link(7, 500), interfaces=("eth1",))).is_ok  # no link uses that card, says the operator
    _attach(bed, "eth0", MODES[mode], -1)
    assert bed.enforce(ONE).is_ok


def test_a_running_limiter_notices_an_xdp_link_of_which_no_event_tells(host: LimiterHost) -> None:
    host.begin()

    def attach() -> int:
        libbpf = ctypes.CDLL("libbpf.so.1", use_errno=True)
        return int(libbpf.bpf_link_create(_xdp_program(), socket.if_nametoindex("eth0"), BPF_XDP, None))

    fd = host.bed.ap.call(attach)
    assert fd >= 0
    state = host.until(lambda one: not one.is_ok, within_s=3)
    assert state.links[7].state == "error"
    assert " XDP program " in str(state.links[7].problem)
    os.close(fd)
    host.until(lambda one: one.is_ok, within_s=3)


# --- what is undone ---------------------------------------------------------------------------------------------------


def _has_hooks(host: LimiterHost) -> bool:
    return "direct-action" in host.bed.tc("filter", "show", "dev", "eth0", "egress", check=False)


@contextmanager
def _churn(host: LimiterHost) -> Iterator[None]:
    """Containers that come and go: devices and addresses that are not ours."""
    ended = threading.Event()

    def run() -> None:
        number = 0
        while not ended.wait(0.3):
            number += 1
            ours, theirs = f"veth{number}", f"peer{number}"
            lines = [f"link add {ours} type veth peer name {theirs}", f"addr add 10.9.{number}.1/24 dev {ours}"]
            lines += [f"link set {one} up" for one in (ours, theirs)]
            host.bed.ap.ip_batch(lines + [f"link del veth{number - 1}"] * (number > 1))

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@pytest.mark.long
@pytest.mark.alone  # it times repairs
def test_beside_containers_that_come_and_go_a_repair_is_as_quick_as_ever(host: LimiterHost) -> None:
    host.begin()
    waits = []
    with _churn(host):
        time.sleep(5)
        for _ in range(8):
            began = time.monotonic()
            host.bed.tc("qdisc", "del", "dev", "eth0", "clsact")
            while not _has_hooks(host):
                assert time.monotonic() < began + 20
            waits.append(time.monotonic() - began)
            time.sleep(0.5)
    assert sorted(waits)[len(waits) // 2] < 0.3, waits
    state = host.until(lambda one: one.is_ok)
    assert {one.subject for one in state.problems} <= {"eth0"}  # that one was undone eight times


@pytest.mark.long
@pytest.mark.alone
def test_a_fight_ten_times_a_second_is_repaired_each_time_and_told_as_it_is(host: LimiterHost) -> None:
    host.begin()
    script = "while :; do tc qdisc del dev eth0 clsact 2>/dev/null; sleep 0.1; done"
    fighter = subprocess.Popen(["ip", "netns", "exec", host.bed.ap.name, "sh", "-c", script], start_new_session=True)
    try:
        longest_s, seen_not_ok, began = 0.0, 0, time.monotonic()
        since: float | None = None
        while (now := time.monotonic()) < began + 6:
            if _has_hooks(host):
                since = None
            else:
                since = since if since is not None else now
                longest_s = max(longest_s, time.monotonic() - since)
            state = host.state
            seen_not_ok += state is not None and not state.is_ok and state.links[7].state == "error"
    finally:
        os.killpg(fighter.pid, signal.SIGKILL)
        fighter.wait()
    log = host.log()
    assert log.count("kernel.drift") >= 25  # about as often as it was needed
    assert longest_s < 0.6  # between two looks of ours is one of `tc`, on a busy machine
    assert seen_not_ok > 0
    host.until(lambda one: one.is_ok and [problem.code for problem in one.problems] == ["repeatedly_changed"])


# --- where there is no BPF file system --------------------------------------------------------------------------------


@pytest.mark.parametrize("may_mount", [True, False])
def test_a_missing_bpf_file_system_is_mounted_or_the_problem_says_how(
    bed: EngineBed, tmp_path: Path, may_mount: bool
) -> None:
    """`ip netns exec` has a /sys of its own, without it."""
    maps_dir, links = Path("/sys/fs/bpf/scionlab-bw-of-a-test"), {"7": entry(500, U1, USER_PORT)}
    rights = () if may_mount else ("setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin")
    done = run_limiter(bed, tmp_path, "once", links, maps_dir=maps_dir, rights=rights)
    assert done.returncode == (0 if may_mount else 1), done.stderr
    if may_mount:
        assert "1 of 1 limited links enforced" in done.stdout
        assert bed.received_kbit(to_user=True) == pytest.approx(500, abs=220)
    else:
        assert "mount -t bpf bpf /sys/fs/bpf" in done.stderr


# --- hundreds of devices ----------------------------------------------------------------------------------------------
