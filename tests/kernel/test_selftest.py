"""`scionlab-bw-limiter selftest` for real: it finds its wrong limits, touches nothing, leaves nothing.

A loaded machine makes a row inconclusive, never wrong: no test here depends on speed.
"""

from __future__ import annotations

import json
import re
import signal
import sys
import time
from pathlib import Path

import pytest

from measuring.iproute import RUN_NETNS
from measuring.netns import REPOSITORY as ROOT
from measuring.netns import Namespace
from tests.agent_bundles import entry
from tests.kernel.conftest import is_alive
from tests.kernel.engine_bed import EngineBed
from tests.kernel.limiter_host import LimiterHost, host
from tests.support.waiting import until

__all__ = ["host"]  # the fixture
COMMAND = [sys.executable, "-m", "ap_agent.commands.limiter_cli", "selftest"]
INNER = "ap_agent.selftest.inside"
PATIENCE_S = 60.0


# --- what it leaves alone ---------------------------------------------------------------------------------------------


def network_of(host: Namespace) -> list[str]:
    """Everything of a host's network that a self-test could have changed; no counters."""
    commands = (
        "ip -details link",
        "ip address",
        "ip route show table all",
        "tc qdisc",
        "tc filter show dev eth0 ingress",
        "tc class show dev slbw0",
        r"sysctl -a --pattern ^net\.(core|ipv[46])\.",
    )
    # What the kernel counts of packets before our tree was there: multicast reports leave a new interface at any time.
    return [re.sub(r"direct_packets_stat \d+", "", host.run(*command.split())) for command in commands]


def test_two_at_once_beside_a_running_limiter_touch_nothing_and_find_no_fault(host: LimiterHost) -> None:
    ap = host.bed.ap
    host.hand({"1": entry(500)})
    host.start()
    host.until(lambda state: state.is_ok and 1 in state.links)
    there = network_of(ap)
    events = ap.popen(["ip", "monitor", "link", "address", "route"])
    time.sleep(0.3)  # until it listens

    both = [ap.popen([*COMMAND, "--json"], cwd=ROOT) for _ in range(2)]
    said = [(one.communicate(timeout=120), one.returncode) for one in both]

    ap.lab.stop(events)
    assert events.stdout is not None
    assert events.stdout.read() == ""
    assert network_of(ap) == there
    assert host.process is not None
    assert host.process.poll() is None
    for (out, complaints), exit_code in said:
        document = json.loads(out)
        assert complaints == ""  # no progress where nobody watches
        assert document["result"] in {"pass", "inconclusive"}, out
        assert exit_code == (0 if document["result"] == "pass" else 1)
        assert {one["verdict"] for one in document["links"]} <= {"holds", "inconclusive"}
        caught = [one for one in document["links"] if one["is_control"] and one["verdict"] == "holds"]
        assert len(caught) == 4, out
        blocked = [one["verdict"] for one in document["links"] if one["measured"]["case"]["state"] == "blocked"]
        assert blocked == ["holds"] * 4
        assert {one["state"] for one in document["needs"]} == {"present"}


# --- how it ends ------------------------------------------------------------------------------------------------------


def descendants(pid: int) -> set[int]:
    found, parents = {pid}, {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except (FileNotFoundError, ProcessLookupError):
            continue
    while more := {one for one, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {pid}


def command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def network_namespace(pid: int) -> str:
    """Which one it is in; a process that is gone is nowhere."""
    try:
        return str(Path(f"/proc/{pid}/ns/net").readlink())
    except (FileNotFoundError, ProcessLookupError):
        return ""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_nothing_is_left_however_it_ends(bed: EngineBed, number: signal.Signals) -> None:
    devices = bed.devices()
    process = bed.ap.popen(COMMAND, cwd=ROOT)

    def is_measuring() -> bool:
        assert process.poll() is None, process.communicate()
        return sum("measuring.station" in command_line(one) for one in descendants(process.pid)) >= 2

    until(is_measuring, "the beginning of its measuring", PATIENCE_S)
    started = descendants(process.pid)
    assert any(INNER in command_line(one) for one in started)
    assert network_namespace(process.pid) not in set(map(network_namespace, started))  # the host's is not in reach

    process.send_signal(number)
    out, complaints = process.communicate(timeout=PATIENCE_S)

    until(lambda: not any(map(is_alive, started)), lambda: list(map(command_line, started)), PATIENCE_S)
    expected = {signal.SIGKILL: -9, signal.SIGTERM: 143, signal.SIGINT: 130}
    assert (process.returncode, out) == (expected[number], "")
    assert "Traceback" not in complaints
    assert [one.name for one in RUN_NETNS.iterdir() if one.name.startswith("slbwself")] == []
    assert bed.devices() == devices
