"""The option whole_datagrams: its filters come, stay, follow and go, and no limit ever rests on them. Witness: `tc`.

What the program does with packets is tested in test_whole_program.py and measured/test_whole.py.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ap_agent.model import EngineSettings
from ap_agent.reconcile import CycleResult, TcEngine
from ap_agent.whole.admission import Admission
from ap_agent.whole.bpf import BpfUnavailableError
from ap_agent.whole.hooks import CODE
from ap_agent.whole.programs import Programs
from bandwidth_config import LinkInfo
from lab import witness
from tests.kernel.conftest import Host, entry, links
from tests.kernel.packets import Datagram
from tests.kernel.test_agent_cli import Operator

pytestmark = pytest.mark.kernel

OFF, ON = EngineSettings(), EngineSettings(whole_datagrams=True)
WANTED = links(l1=entry("192.0.2.11", 500), l2=entry("2001:db8:1::11", 800), l3=entry("198.51.100.11", 300, None))
HOOKS = (("eth0", "ingress"), ("eth0", "egress"), ("eth1", "ingress"), ("eth1", "egress"))
ROOM, DATAGRAM = 6250, 46 * 1514  # of 500 kbit/s: 100 ms; the largest datagram in IPv6 fragments
SHALLOW, DEEP = ROOM, 2 * ROOM + DATAGRAM


@pytest.fixture
def engine(host: Host) -> Iterator[TcEngine]:
    with TcEngine() as made:
        yield made


def cycle(
    host: Host, engine: TcEngine, wanted: dict[int, LinkInfo], settings: EngineSettings = ON, **more: bool
) -> CycleResult:
    return host.inside(lambda: engine.reconcile(wanted, settings, **more))


def attached(host: Host, device: str, hook: str) -> int | None:
    """The number of the program of ours at a hook, as tc tells."""
    if not host.has_hook(device, hook):
        return None
    found = [
        re.search(r"bpf chain 0 handle 0x1 slbw-whole direct-action .* id (\d+) ", line)
        for line in host.tc("filter", "show", "dev", device, hook).splitlines()
        if line.startswith("filter protocol all pref 105 ")
    ]
    numbers = [int(one[1]) for one in found if one is not None]
    return numbers[0] if len(numbers) == 1 else None


def everywhere(host: Host) -> list[int | None]:
    return [attached(host, *where) for where in HOOKS]


def leaf_bytes(host: Host, device: str, handle: str) -> int:
    qdiscs = json.loads(host.tc("-j", "qdisc", "show", "dev", device))
    return next(int(one["options"]["limit"]) for one in qdiscs if one["handle"] == handle)


def test_a_program_comes_to_every_hook_and_goes_without_a_trace(host: Host, engine: TcEngine) -> None:
    before = host.snapshot()
    assert cycle(host, engine, WANTED, OFF).ok
    without = host.snapshot()

    first = cycle(host, engine, WANTED)

    assert (first.ok, first.problems) == (True, ())
    from_user, to_eth0, again, to_eth1 = everywhere(host)
    assert from_user is not None
    assert (from_user == again, len({from_user, to_eth0, to_eth1})) == (True, 3)  # one program for each tree
    assert [leaf_bytes(host, device, "1001:") for device in ("eth0", "slbw0")] == [DEEP, DEEP]
    assert [one.state for one in first.links] == ["enforced"] * 3
    second = cycle(host, engine, WANTED)
    assert (second.writes, second.plan.ops) == (0, ())
    assert everywhere(host) == [from_user, to_eth0, from_user, to_eth1]

    assert cycle(host, engine, WANTED, OFF).ok
    assert host.snapshot() == without
    assert cycle(host, engine, WANTED).ok
    assert host.inside(lambda: engine.reset(ON)).ok
    assert host.snapshot() == before


def test_one_changed_limit_touches_one_entry_in_each_direction(host: Host) -> None:
    class Counting(Programs):
        changes = 0

        def change(self, *given: Any) -> int:
            self.changes += (changed := super().change(*given))
            return changed

    programs = Counting()
    with TcEngine(programs=programs) as engine:
        assert cycle(host, engine, WANTED).ok
        ids = everywhere(host)
        faster = {**WANTED, 1: WANTED[1].with_limits(WANTED[1].limits._replace(to_user_kbit=900, from_user_kbit=700))}

        changed = cycle(host, engine, faster, is_settled=True)

        assert (changed.ok, programs.changes, changed.writes) == (True, 2, 2 + len(changed.plan.ops))
        assert leaf_bytes(host, "eth0", "1001:") == 2 * 11_250 + DATAGRAM
        assert (cycle(host, engine, faster).writes, everywhere(host)) == (0, ids)
        blocked = {**faster, 1: faster[1].with_limits(faster[1].limits._replace(to_user_kbit=0))}
        assert cycle(host, engine, blocked, is_settled=True).ok
        assert (programs.changes, leaf_bytes(host, "eth0", "1001:")) == (3, 0)
        assert cycle(host, engine, blocked).writes == 0


def test_another_process_takes_over_without_losing_a_packet(host: Host, engine: TcEngine) -> None:
    assert cycle(host, engine, WANTED).ok
    numbers = {attached(host, "eth0", "egress")}
    sent, stop = [0], threading.Event()
    stream = Datagram(("192.0.2.1", 40000), ("192.0.2.11", 50000), b"d" * 60)

    def send() -> None:
        while not stop.is_set():
            stream.send()
            sent[0] += 1
            time.sleep(0.004)  # 200 kbit/s: well below the limit

    sender = threading.Thread(target=lambda: host.inside(send))
    sender.start()
    for _ in range(10):
        with TcEngine() as another:
            assert cycle(host, another, WANTED).plan.render_text().count("load anew") == 4
        numbers.add(attached(host, "eth0", "egress"))
    stop.set()
    sender.join()
    queue = emptied(host, "1:1001")

    assert (len(numbers), None in numbers) == (11, False)
    assert (queue.sent_packets, queue.drops) == (sent[0], 0)


BREAKS = {
    "deleted": "filter del dev eth0 egress pref 105 protocol all handle 1 bpf",
    "all deleted": "filter del dev eth0 ingress pref 105",
    "the clsact is gone": "qdisc del dev eth0 clsact",
}


@pytest.mark.parametrize("command", BREAKS.values(), ids=BREAKS.keys())
def test_what_somebody_took_away_comes_back(host: Host, engine: TcEngine, command: str) -> None:
    assert cycle(host, engine, WANTED).ok
    whole, numbers = host.snapshot(), everywhere(host)
    host.tc(*command.split())
    assert everywhere(host) != numbers

    assert cycle(host, engine, WANTED).ok

    assert (host.snapshot(), everywhere(host)) == (whole, numbers)


def test_somebody_elses_program_under_our_name_is_replaced(host: Host, engine: TcEngine) -> None:
    assert cycle(host, engine, WANTED).ok
    number = attached(host, "eth0", "egress")
    with TcEngine() as another:
        cycle(host, another, WANTED)
    assert attached(host, "eth0", "egress") != number

    assert cycle(host, engine, WANTED).ok

    assert attached(host, "eth0", "egress") == number


def test_with_a_foreign_ingress_qdisc_only_what_comes_from_users_is_admitted_whole(
    host: Host, engine: TcEngine
) -> None:
    host.tc("qdisc", "add", "dev", "eth0", "ingress")

    result = cycle(host, engine, WANTED)

    assert [(one.code, one.subject) for one in result.problems] == [(CODE, "eth0")]
    assert 'let its owner use "clsact" instead' in result.problems[0].message
    assert (result.ok, [one.state for one in result.links]) == (True, ["enforced"] * 3)
    assert attached(host, "eth0", "ingress") == attached(host, "eth1", "ingress") is not None
    assert [leaf_bytes(host, device, "1001:") for device in ("eth0", "slbw0")] == [SHALLOW, DEEP]
    assert cycle(host, engine, WANTED).writes == 0
    host.inside(lambda: engine.reset(ON))
    assert host.tc("filter", "show", "dev", "eth0", "ingress") == ""


def test_somebodys_filter_at_our_place_stays_and_is_named(host: Host, engine: TcEngine) -> None:
    host.tc("qdisc", "add", "dev", "eth0", "clsact")
    foreign = "filter add dev eth0 egress pref 105 protocol ip u32 match ip dst 203.0.113.7/32 flowid 9:9"
    host.tc(*foreign.split())
    before = host.tc("filter", "show", "dev", "eth0", "egress")

    result = cycle(host, engine, WANTED)

    assert [(one.code, one.subject) for one in result.problems] == [(CODE, "eth0")]
    assert "preference 105" in result.problems[0].message
    assert (result.ok, host.tc("filter", "show", "dev", "eth0", "egress")) == (True, before)
    assert leaf_bytes(host, "eth0", "1001:") == SHALLOW
    assert host.inside(lambda: engine.reset(ON)).ok
    assert host.tc("filter", "show", "dev", "eth0", "egress") == before


def test_refused_packets_are_drops_of_their_link(host: Host, engine: TcEngine) -> None:
    assert cycle(host, engine, WANTED).ok
    big = Datagram(("192.0.2.1", 40000), ("192.0.2.11", 50000), b"d" * 5000)  # four frames
    host.inside(lambda: big.send(40))
    queue = emptied(host, "1:1001")

    to_user = cycle(host, engine, WANTED).links[0].to_user

    # The kernel gives up a datagram of its own whose first fragment is refused, so each counts once.
    assert to_user is not None
    assert (queue.sent_packets, queue.drops) == (4 * (40 - to_user.drops), 0)
    assert 2 <= to_user.drops <= 38
    with TcEngine() as another:  # as `show` does beside the agent
        seen = host.inside(lambda: another.read_links(ON, WANTED))[0].to_user
    assert seen is not None
    assert seen.drops == to_user.drops
    for settings in (OFF, ON):  # also what programs refused that are gone
        later = cycle(host, engine, WANTED, settings).links[0].to_user
        assert later is not None
        assert later.drops == to_user.drops


def emptied(host: Host, classid: str) -> witness.HtbClass:
    """A class of eth0 once nothing waits in its leaf."""
    until = time.monotonic() + 20
    while (found := witness.classes(host.ap, "eth0")[classid]).backlog_bytes:
        assert time.monotonic() < until, found
        time.sleep(0.02)
    return found


def test_without_cap_bpf_everything_else_is_enforced(host: Host, tmp_path: Path) -> None:
    operator = Operator(host, tmp_path)
    operator.configure("whole_datagrams = true\n")
    path = operator.link_info({"1": entry("192.0.2.11", 500)})
    rights = "-all,+net_admin,+dac_override"
    confined = ["setpriv", f"--inh-caps={rights}", f"--bounding-set={rights}"]

    def run(command: str) -> subprocess.CompletedProcess[str]:
        argv = [*confined, sys.executable, "-m", "ap_agent", command, "--link-info", str(path)]
        return operator._run([*argv, "--config", str(operator.config)])

    done = run("once")

    assert (done.returncode, "1 of 1 limited links enforced" in done.stdout) == (0, True)
    assert f"{CODE} (kernel): Datagrams are not admitted whole. " in done.stderr
    assert "CAP_BPF" in done.stderr
    assert [leaf_bytes(host, device, "1001:") for device in ("eth0", "slbw0")] == [SHALLOW, SHALLOW]
    assert everywhere(host)[:2] == [None, None]
    assert "enforced" in run("show").stdout


def test_kernel_that_refuses_the_filter_is_asked_for_shallow_queues_again(host: Host) -> None:
    """As one without cls_bpf does; here the program is of a kind that no filter takes."""

    class OfAnotherKind:
        program_id = 0

        def __init__(self, _direction: str) -> None:
            self.program_fd = sys.stderr.fileno()  # no program at all: EINVAL

        def set(self, entries: object) -> int:  # as the real one
            return 0

        def put(self, _address: object, _entry: object) -> bool:
            return False

        def refused(self) -> dict[object, object]:
            return {}

        def close(self) -> None:
            self.program_fd = -1

    with TcEngine(programs=Programs(OfAnotherKind)) as engine:  # type: ignore[arg-type]  # addresses do not matter
        result = cycle(host, engine, WANTED)

        assert [one.code for one in result.problems] == [CODE]
        assert (result.ok, [one.state for one in result.links]) == (True, ["enforced"] * 3)
        assert [leaf_bytes(host, device, "1001:") for device in ("eth0", "slbw0")] == [SHALLOW, SHALLOW]
        assert cycle(host, engine, WANTED).writes == 0


@pytest.mark.parametrize("command", ["tc qdisc del dev eth0 clsact", "ip link del eth1"])
def test_what_goes_while_a_program_is_attached_costs_nobody_else_the_programs(host: Host, command: str) -> None:
    """Tunnels come and go at any moment; what the kernel refuses then says nothing about programs."""
    left: list[list[str]] = []

    def between_two_groups_of_steps(_done: int, _total: int) -> None:
        while left:
            host.ap.run(*left.pop())

    with TcEngine(progress=between_two_groups_of_steps) as engine:
        assert cycle(host, engine, WANTED, OFF).ok
        left.append(command.split())

        result = cycle(host, engine, WANTED)

        assert CODE not in [one.code for one in result.problems]
        assert None not in [attached(host, *where) for where in HOOKS[:2]]


def test_where_one_program_cannot_be_had_no_leaf_is_deeper_for_it(host: Host) -> None:
    def load(direction: Any) -> Admission:
        if direction == "to_user":
            raise BpfUnavailableError("There is no room for a BPF map", "it is tried again")
        return Admission(direction)

    with TcEngine(programs=Programs(load)) as engine:
        result = cycle(host, engine, WANTED)

        assert [(one.code, one.subject) for one in result.problems] == [(CODE, "kernel")]
        assert (result.ok, [one.state for one in result.links]) == (True, ["enforced"] * 3)
        assert [leaf_bytes(host, device, "1001:") for device in ("eth0", "slbw0")] == [SHALLOW, SHALLOW]
        assert everywhere(host) == [None] * 4
        assert cycle(host, engine, WANTED).writes == 0


def test_a_reset_loads_no_program_and_has_no_word_about_them(host: Host, engine: TcEngine) -> None:
    assert cycle(host, engine, WANTED).ok

    def load(_direction: object) -> Admission:
        raise AssertionError("loaded")

    with TcEngine(programs=Programs(load)) as another:
        assert host.inside(lambda: another.plan_reset(ON)).problems == ()
        assert host.inside(lambda: another.reset(ON)).problems == ()
    assert everywhere(host) == [None] * 4
