"""What the agent reads of the kernel's counters, beside what `tc` says of them; and the marks that classes keep."""

from __future__ import annotations

import time

import pytest

from ap_agent.limiter.events import Interest, Listener
from ap_agent.reconcile import TcEngine
from ap_agent.tcmsg import INNER_QUANTUM_BYTES
from ap_agent.usage.reading import Counted, Layouts, UsageReader, decode, farewell
from lab import witness
from tests.kernel.conftest import Host, entry, links
from tests.kernel.packets import SCION_DATA, Datagram
from tests.usage_flood import make_anew_by_hand

pytestmark = pytest.mark.kernel

TWO = links(l1=entry("192.0.2.11", 900, 50_001), l2=entry("192.0.2.12", 50, 50_002))
SMALLEST_MARK = 1 << 30


def read(host: Host, dev: str = "eth0") -> dict[int, Counted]:
    """As the sampler does."""

    def inside() -> dict[int, Counted]:
        reader = UsageReader()
        (device,) = reader.read([dev])
        reader.close()
        return decode(device.pieces, device.major, Layouts())

    return host.inside(inside)


def send(host: Host, link: int, count: int) -> None:
    datagram = Datagram(("192.0.2.1", 51_000 + link), (f"192.0.2.{10 + link}", 50_000 + link), SCION_DATA * 15)
    host.inside(lambda: datagram.send(count))


def settle(host: Host) -> None:
    """Until nothing waits in a queue."""
    deadline = time.monotonic() + 20
    while any(one.backlog_bytes for one in witness.classes(host.ap, "eth0").values()):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_counters_are_those_that_tc_shows(host: Host) -> None:
    host.u1.ip("addr", "add", "192.0.2.12/24", "dev", "eth0")
    assert host.reconcile(TWO).ok
    send(host, 1, 12)
    send(host, 2, 40)
    settle(host)

    found = read(host)
    shown = witness.classes(host.ap, "eth0")
    for number in TWO:
        inner, leaf = shown[f"1:{number:x}"], shown[f"1:{0x1000 + number:x}"]
        one = found[number]
        assert (one.bytes, one.packets) == (inner.sent_bytes, inner.sent_packets)
        assert (one.data_drops, one.heartbeat_drops, one.backlog_bytes) == (leaf.drops, 0, 0)
        assert one.rate_bytes_s * 8 == inner.rate_bits
    assert found[1].bytes > 0
    assert found[2].data_drops


def test_birthmark_stays_whatever_is_changed_and_is_another_one_after_a_reset(host: Host) -> None:
    assert host.reconcile(TWO).ok
    marks = {number: one.mark for number, one in read(host).items()}
    marks_of_ifb = {number: one.mark for number, one in read(host, "slbw0").items()}
    everything = [*marks.values(), *marks_of_ifb.values()]
    assert len(set(everything)) == 4
    assert min(everything) >= SMALLEST_MARK

    for kbit in (0, 2_000, 50):
        changed = links(l1=entry("192.0.2.11", kbit, 50_001), l2=entry("192.0.2.12", 60, 50_002))
        assert host.reconcile(changed).ok
        assert {number: one.mark for number, one in read(host).items()} == marks
    assert host.reconcile(TWO).ok
    make_anew_by_hand(host.ap, 2)
    anew = {number: one.mark for number, one in read(host).items()}
    assert anew[1] == marks[1]
    assert anew[2] != marks[2]
    assert host.reset().ok
    assert host.reconcile(TWO).ok
    assert not {one.mark for one in read(host).values()} & {*marks.values(), *anew.values()}


def test_deleted_class_says_farewell_with_its_last_counters_whoever_deletes_it(host: Host) -> None:
    assert host.reconcile(TWO).ok
    with host.inside(Listener) as listener:
        send(host, 1, 12)
        settle(host)
        counted = read(host)[1]
        by_agent = host.reconcile({2: TWO[2]})
        assert by_agent.ok
        listener.own(by_agent.ports)
        words = [farewell(body, Layouts()) for body in listener.drain(Interest()).farewells]

    inner = [one for one in words if one is not None and one.part == "inner" and one.key == (1, "to_user")]
    assert [(one.mark, one.bytes, one.packets) for one in inner] == [(counted.mark, counted.bytes, counted.packets)]
    assert counted.bytes > 0


def test_engine_says_which_devices_lose_all_their_classes_before_they_do(host: Host) -> None:
    seen: dict[str, set[int]] = {}

    def before_loss(names: list[str]) -> None:
        reader = UsageReader()
        for device in reader.read(names):
            seen[device.name] = set(decode(device.pieces, device.major, Layouts()))
        reader.close()

    def inside() -> None:
        with TcEngine() as engine:
            engine.before_loss = before_loss  # type: ignore[assignment]  # lists are what it gets
            assert engine.reconcile(TWO, host.settings).ok
            assert seen == {}
            assert engine.reset(host.settings).ok

    host.inside(inside)
    assert seen == {"eth0": {1, 2}, "slbw0": {1, 2}}


def test_device_that_is_not_there_is_left_out(host: Host) -> None:
    def inside() -> list[str]:
        reader = UsageReader()
        found = [one.name for one in reader.read(["eth0", "none0", "lo"])]
        reader.close()
        return found

    assert host.inside(inside) == ["eth0", "lo"]


def test_tree_without_marks_is_taken_over_without_a_write(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """As an agent before the marks left it: an upgrade must not touch what limits."""
    monkeypatch.setattr("ap_agent.messages._birthmark", lambda: INNER_QUANTUM_BYTES)
    assert host.reconcile(TWO).ok
    monkeypatch.undo()

    assert {one.mark for one in read(host).values()} == {INNER_QUANTUM_BYTES}
    result = host.reconcile(TWO)
    assert (result.ok, result.writes) == (True, 0)


def test_leaves_that_somebody_deleted_come_back_in_a_class_that_lives_on(host: Host) -> None:
    """Without children the kernel shows the mark where a leaf class has its quantum: no reason to touch the class."""
    assert host.reconcile(TWO).ok
    marks = {number: one.mark for number, one in read(host).items()}
    host.ap.run("tc", "filter", "del", "dev", "eth0", "parent", "1:")
    for minor in ("1001", "2001"):
        host.ap.run("tc", "class", "del", "dev", "eth0", "classid", f"1:{minor}")

    assert host.reconcile(TWO).ok
    assert {number: one.mark for number, one in read(host).items()} == marks
    assert host.reconcile(TWO).writes == 0
