"""The limiter's process on a real kernel: from a handed document to limits, through kills and restarts.

What other hands do to it: tests/faults/agent/test_broken_by_hand.py.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ap_agent.document.state import LimiterState
from tests.agent_bundles import entry
from tests.kernel.engine_bed import U1, U2, USER_PORT
from tests.kernel.limiter_host import LimiterHost, host

__all__ = ["host"]  # the fixture
ONE = {"7": entry(500, U1, USER_PORT)}
TWO = {**ONE, "8": entry(800, U2, USER_PORT)}


def has_links(*numbers: int) -> Callable[[LimiterState], bool]:
    def holds(state: LimiterState) -> bool:
        return sorted(state.links) == sorted(numbers) and all(one.state == "enforced" for one in state.links.values())

    return holds


def passed(state: LimiterState, number: int = 7) -> int:
    to_user = state.links[number].to_user
    assert to_user is not None
    return to_user.counters.passed_bytes


def test_handed_document_limits_packets_and_the_state_file_counts_them(host: LimiterHost) -> None:
    host.start()
    host.until(lambda state: not state.links)
    host.hand(ONE)
    host.until(has_links(7))
    assert host.bed.received_kbit(to_user=True) == pytest.approx(500, abs=220)
    assert host.bed.received_kbit(to_user=False) == pytest.approx(500, abs=220)
    state = host.until(lambda one: passed(one) > 0 and one.links[7].to_user.drops > 0)  # type: ignore[union-attr]

    assert state.devices == ("eth0", "eth1")
    assert state.problems == ()


def test_killed_limiter_goes_on_with_limits_and_counters(host: LimiterHost) -> None:
    host.begin()
    host.bed.received_kbit(to_user=True)
    before = host.until(lambda state: passed(state) > 0)
    host.end(signal.SIGKILL)
    assert host.bed.received_kbit(to_user=True) == pytest.approx(500, abs=220)
    host.start()
    after = host.until(lambda state: state.run != before.run and bool(state.links))

    assert after.writes == 0
    assert passed(after) > passed(before) + 20_000
    assert after.links[7].to_user is not None
    assert before.links[7].to_user is not None
    assert after.links[7].to_user.segment == before.links[7].to_user.segment


def test_in_peace_nothing_is_written_to_the_kernel(host: LimiterHost) -> None:
    host.settings["audit_interval_s"] = "0.5"
    host.hand(TWO)
    host.start()
    before = host.until(has_links(7, 8))
    after = host.until(lambda state: state.number > before.number + 6)

    assert after.writes == before.writes
    assert host.log().count("kernel.drift") == 0


def test_a_blocked_link_without_a_port_to_the_gateway_leaves_the_host_connected(host: LimiterHost) -> None:
    host.bed.ap.ip("route", "add", "default", "via", U1)
    blocked = {key: value for key, value in entry(0, U1).items() if key != "Port"}
    host.hand({"7": blocked, "8": entry(800, U2, USER_PORT)})
    host.start()
    state = host.until(lambda one: set(one.links) == {7, 8} and one.links[8].state == "enforced")
    assert state.links[7].state == "error"
    assert [(one.code, one.subject) for one in state.problems] == [("protected_address", "link 7")]
    assert host.bed.received_kbit(to_user=True) == pytest.approx(4000, rel=0.1)
    assert host.bed.received_kbit(to_user=True, user=U2) == pytest.approx(800, abs=220)


@pytest.mark.long
@pytest.mark.alone  # it times a repair
def test_stuffing_from_the_agents_side_costs_the_limiter_neither_time_nor_memory_nor_repairs(host: LimiterHost) -> None:
    """24 MB that are no document, 30 times a second, beside 4094 links, whose signed document comes first."""
    host.hand({str(n): entry(500 + n, U1, 10_000 + n) for n in range(1, 4095)})
    host.start()
    assert host.process is not None
    host.until(lambda state: state.is_ok and len(state.links) == 4094, within_s=60)
    stuffing = json.dumps([["x"] * 4] * 1_250_000).encode()[: 24 * 1024 * 1024]
    ended = threading.Event()

    def stuff() -> None:
        new, path = host.state_dir / "new", host.state_dir / "document.json"
        while not ended.wait(1 / 30):
            new.write_bytes(stuffing)
            new.replace(path)

    thread = threading.Thread(target=stuff)
    thread.start()
    try:
        time.sleep(1)
        used, began = cpu_s(host.process.pid), time.monotonic()
        host.bed.tc("qdisc", "del", "dev", "eth0", "clsact")
        while "direct-action" not in host.bed.tc("filter", "show", "dev", "eth0", "egress", check=False):
            assert time.monotonic() < began + 20
        time.sleep(4)
        share = (cpu_s(host.process.pid) - used) / (time.monotonic() - began)
    finally:
        ended.set()
        thread.join()
    status = Path(f"/proc/{host.process.pid}/status").read_text()
    peak_kb = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))
    print(f"measured: {share:.2f} of a processor, {peak_kb / 1000:.0f} MB at most")
    assert share < 0.35  # of it a state with 4094 links each second
    assert peak_kb < 200_000


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
