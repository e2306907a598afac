"""The short way on a real kernel: single objects are asked for, changed in place and read back; tc is the witness."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ap_agent.model import TcState
from ap_agent.netlink import RtNetlink
from ap_agent.reconcile import CycleResult, TcEngine
from bandwidth_config import LinkInfo
from lab import witness
from tests.kernel.conftest import Host, entry, links
from tests.kernel.packets import Datagram

pytestmark = pytest.mark.kernel

U1, U2 = "192.0.2.11", "198.51.100.11"


class Short:
    """An engine that has seen everything in place, and then must not read everything again."""

    def __init__(self, host: Host, monkeypatch: pytest.MonkeyPatch, wanted: dict[int, LinkInfo]) -> None:
        self.host, self.engine, self.wanted = host, TcEngine(), wanted
        assert self.change({}).ok

        def refuse(_kernel: RtNetlink) -> TcState:
            raise AssertionError("everything was read")

        monkeypatch.setattr(RtNetlink, "observe", refuse)

    def change(self, changed: dict[int, LinkInfo]) -> CycleResult:
        self.wanted = {**self.wanted, **changed}
        return self.host.inside(lambda: self.engine.reconcile(self.wanted, self.host.settings, is_settled=True))


@pytest.fixture
def short(host: Host, monkeypatch: pytest.MonkeyPatch) -> Iterator[Short]:
    with monkeypatch.context() as patched:
        one = Short(host, patched, links(l1=entry(U1, 500), l2=entry(U2, 800), l3=entry("2001:db8:1::11", 900)))
        yield one
        one.engine.close()


@pytest.mark.parametrize("kbit", [800, 300, 1, 100_000_000])
def test_a_new_limit_is_in_the_kernel_in_both_directions(short: Short, kbit: int) -> None:
    result = short.change(links(l1=entry(U1, kbit)))

    assert result.ok, result.problems
    assert result.writes == len(result.plan.ops) > 0
    assert witness.classes(short.host.ap, "eth0")["1:1"].rate_bits == kbit * 1000
    assert witness.classes(short.host.ap, "slbw0")["3:1"].rate_bits == kbit * 1000
    assert witness.classes(short.host.ap, "eth1")["1:2"].rate_bits == 800_000
    told = {
        one.interface_id: (one.limits.lowest_kbit, one.state, one.to_user and one.to_user.rate_kbit)
        for one in result.links
    }
    assert told == {1: (kbit, "enforced", kbit), 2: (800, "enforced", 800), 3: (900, "enforced", 900)}


def test_the_kernel_is_as_after_a_whole_cycle(host: Host) -> None:
    first, last = entry(U1, 700), entry(U1, 0xFFFF)
    others = links(l2=entry(U2, 800), l3=entry(U1, 900, 50001))
    host.reconcile({**others, **links(l1=last)})
    whole = host.snapshot()
    host.reset()
    with TcEngine() as engine:
        host.inside(lambda: engine.reconcile({**others, **links(l1=first)}, host.settings))
        for each in (entry(U1, 0), entry(U1, 40), entry(U1, 0), last):
            wanted = {**others, **links(l1=each)}
            assert host.inside(lambda now=wanted: engine.reconcile(now, host.settings, is_settled=True)).ok
    assert host.snapshot() == whole


def test_the_counters_of_the_changed_link_are_read_and_go_on(short: Short) -> None:
    data = Datagram(("192.0.2.1", 50100), (U1, 50000))
    short.host.ap.call(lambda: data.send(5))
    state = short.change(links(l1=entry(U1, 600))).links[0]
    assert state.to_user is not None
    told = witness.classes(short.host.ap, "eth0")["1:1"]
    assert (state.to_user.packets, state.to_user.bytes) == (told.sent_packets, told.sent_bytes)
    assert told.sent_packets == 5


def test_blocking_and_unblocking(short: Short) -> None:
    data = Datagram(("192.0.2.1", 50100), (U1, 50000))
    assert short.change(links(l1=entry(U1, 0))).ok
    short.host.ap.call(lambda: data.send(5))
    assert witness.classes(short.host.ap, "eth0")["1:1"].sent_packets == 0
    assert short.change(links(l1=entry(U1, 600))).ok
    short.host.ap.call(lambda: data.send(5))
    assert witness.classes(short.host.ap, "eth0")["1:1"].sent_packets == 5


def test_a_class_that_somebody_deleted_is_noticed_and_built_again(host: Host) -> None:
    """No event told of it, but what is read is unlike what was expected."""
    wanted = links(l1=entry(U1, 500), l2=entry(U2, 800))
    with TcEngine() as engine:
        assert host.inside(lambda: engine.reconcile(wanted, host.settings)).ok
        host.tc("qdisc", "del", "dev", "eth0", "root")
        changed = {**wanted, **links(l1=entry(U1, 700))}
        result = host.inside(lambda: engine.reconcile(changed, host.settings, is_settled=True))
        assert result.ok, result.problems
        assert witness.classes(host.ap, "eth0")["1:1"].rate_bits == 700_000
        assert host.inside(lambda: engine.reconcile(changed, host.settings)).writes == 0
