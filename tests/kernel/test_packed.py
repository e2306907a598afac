"""Thousands of operations in a few sends: what tc finds afterwards, and what is said about those that were refused."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from dataclasses import replace

import pytest

from ap_agent.common.errors import ApplyError
from ap_agent.model import (
    AT_ROOT,
    IFB_NAME,
    UNMATCHED_MINOR,
    Device,
    Filter,
    Handle,
    HtbClass,
    InstalledFilter,
    Key,
    Qdisc,
)
from ap_agent.netlink import RtNetlink
from ap_agent.ops import (
    ClassAdd,
    ClassChange,
    ClsactAdd,
    FilterAdd,
    FilterDel,
    IfbAdd,
    LeafAdd,
    Op,
    RootAdd,
    TableAdd,
    TableDel,
)
from ap_agent.reconcile import TcEngine, reconcile
from lab import witness
from tests.kernel.conftest import Host, entry, links

pytestmark = pytest.mark.kernel

NOBODY: frozenset[int] = frozenset()
ROOT = Qdisc("htb", Handle(1), AT_ROOT, default_minor=UNMATCHED_MINOR)
IP = 0x0800


def eth0(host: Host) -> Device:
    return Device(int(witness.links(host.ap)["eth0"]["ifindex"]), "eth0")


def link_class(number: int, rate: int = 62_500) -> HtbClass:
    return HtbClass(Handle(1, number), Handle(1), rate, rate, 3028, 3028)


def apply(host: Host, ops: Sequence[Op], **options: int) -> list[ApplyError | None]:
    def inside() -> list[ApplyError | None]:
        with RtNetlink(**options) as kernel:
            return kernel.apply(ops)

    return host.inside(inside)


def built(host: Host, count: int) -> list[Op]:
    nic = eth0(host)
    adds = [ClassAdd(nic, frozenset({number}), link_class(number)) for number in range(1, count + 1)]
    return [RootAdd(nic, NOBODY, ROOT), *adds]


def test_refusals_in_the_middle_name_their_operation_and_link_and_the_rest_is_done(host: Host) -> None:
    ops = built(host, 300)
    host.tc("qdisc", "add", "dev", "eth0", "root", "handle", "1:", "htb", "default", "0xfffe")
    for number in (7, 150, 300):
        host.tc("class", "add", "dev", "eth0", "parent", "1:", "classid", f"1:{number:x}", "htb", "rate", "9mbit")

    answers = apply(host, ops)

    refused = {number: error for number, error in enumerate(answers) if error is not None}
    assert sorted(refused) == [0, 7, 150, 300]
    assert {error.errno for error in refused.values()} == {errno.EEXIST}
    assert refused[150].op == "eth0: add class 1:96 rate 500 kbit/s (link 150, to the user AS)"
    assert refused[150].message.startswith('Link 150: the kernel refused "eth0: add class 1:96 rate 500 kbit/s')
    assert "EEXIST" in refused[150].message
    assert refused[0].detail  # the kernel has words for this one
    rates = {name: one.rate_bits for name, one in witness.classes(host.ap, "eth0").items()}
    expected = {f"1:{number:x}": 9_000_000 if number in refused else 500_000 for number in range(1, 301)}
    assert rates == expected


def test_a_batch_larger_than_any_buffer_arrives_whole(host: Host) -> None:
    count = 2200
    assert apply(host, built(host, count)) == [None] * (count + 1)
    nic = eth0(host)
    changes = [
        ClassChange(nic, frozenset({number}), link_class(number), link_class(number, 125_000 + 125 * number))
        for number in range(1, count + 1)
    ]
    assert sum(100 for _ in changes) > 212_992  # the default send buffer, in bytes
    assert apply(host, changes) == [None] * count
    rates = [witness.classes(host.ap, "eth0")[f"1:{number:x}"].rate_bits for number in (1, 1000, count)]
    assert rates == [1_001_000, 2_000_000, 3_200_000]
    assert len(witness.classes(host.ap, "eth0")) == count


@pytest.mark.parametrize("piece_bytes", [64, 300, 1500])
def test_any_division_into_pieces_builds_the_same(host: Host, piece_bytes: int) -> None:
    wanted = links(
        l1=entry("192.0.2.11", 500),
        l2=entry("192.0.2.11", 0, 50001),
        l3=entry("2001:db8:2::11", 700),
        l4=entry("198.51.100.11", 9, None),
    )
    assert host.reconcile(wanted).ok
    whole = host.snapshot()
    host.reset()

    def in_pieces() -> bool:
        with RtNetlink(piece_bytes=piece_bytes) as kernel:
            return reconcile(wanted, host.settings, kernel=kernel).ok

    assert host.inside(in_pieces)
    assert host.snapshot() == whole


def test_a_table_is_waited_for_while_the_kernel_calls_it_busy(host: Host) -> None:
    nic, hook = eth0(host), Handle(1)
    assert apply(host, built(host, 1)) == [None, None]
    table = InstalledFilter(hook, 0, 112, IP, "u32", 5 << 20, buckets=256)
    into = Filter(hook, 112, IP, (), table=5)
    staying = Filter(hook, 112, IP, (Key(16, 0xC000020B, 0xFFFFFFFF),), Handle(1, 1))
    node = 0x80000010
    assert apply(host, [TableAdd(nic, NOBODY, table)]) == [None]
    assert apply(host, [FilterAdd(nic, NOBODY, into, node), FilterAdd(nic, NOBODY, staying, node + 1)]) == [None] * 2
    leading = FilterDel(nic, NOBODY, InstalledFilter(hook, 0, 112, IP, "u32", node, into))

    assert apply(host, [TableDel(nic, NOBODY, table)])[0] is not None  # a filter leads there
    (deleted, impatient) = apply(host, [leading, Impatient(nic, NOBODY, table)])
    assert deleted is None
    assert impatient is not None
    assert impatient.errno == errno.EBUSY
    assert apply(host, [TableDel(nic, NOBODY, table)]) == [None]
    assert "fh 5:" not in host.tc("filter", "show", "dev", "eth0", "parent", "1:")


class Impatient(TableDel):
    """As if the kernel's first answer were the last."""

    busy_wait_s = 0.0


def test_a_device_that_is_not_there_is_said_of_each_operation_that_needs_it(host: Host) -> None:
    ifb = Device(0, IFB_NAME, kind="ifb")
    answers = apply(host, [RootAdd(ifb, NOBODY, replace(ROOT, handle=Handle(3))), *built(host, 1)])
    assert answers[0] is not None
    assert answers[0].errno == errno.ENODEV
    assert answers[1:] == [None, None]
    assert apply(host, [IfbAdd(ifb, NOBODY)]) == [None]
    assert apply(host, [RootAdd(ifb, NOBODY, replace(ROOT, handle=Handle(3)))]) == [None]
    assert [one["kind"] for one in witness.qdiscs(host.ap, IFB_NAME)] == ["htb"]


def test_a_clsact_of_somebody_else_is_not_marked_as_ours(host: Host) -> None:
    host.tc("qdisc", "add", "dev", "eth0", "clsact")
    (refused,) = apply(host, [ClsactAdd(eth0(host), NOBODY)])
    assert refused is not None
    assert refused.errno == errno.EEXIST
    assert host.tc("filter", "show", "dev", "eth0", "ingress") == ""


def test_leaves_and_classes_of_many_links_in_one_go(host: Host) -> None:
    """Each rests on the one before it in the same piece."""
    nic = eth0(host)
    ops: list[Op] = [RootAdd(nic, NOBODY, ROOT)]
    for number in range(1, 101):
        served = frozenset({number})
        inner, child = link_class(number), Handle(1, 0x1000 + number)
        leaf = Qdisc("bfifo", Handle(0x1000 + number), child, 6250)
        ops += [ClassAdd(nic, served, inner), ClassAdd(nic, served, replace(inner, handle=child, parent=inner.handle))]
        ops.append(LeafAdd(nic, served, leaf))
    assert apply(host, ops) == [None] * len(ops)
    found = witness.classes(host.ap, "eth0")
    assert {found[f"1:{0x1000 + number:x}"].parent for number in (1, 100)} == {"1:1", "1:64"}
    assert found["1:1064"].leaf == "1064:"


def test_an_engine_that_lives_on_reads_what_others_changed_meanwhile(host: Host) -> None:
    """Its memory saves work, never a look."""
    wanted = links(l1=entry("192.0.2.11", 500), l2=entry("198.51.100.11", 800))
    with TcEngine() as engine:
        first = host.inside(lambda: engine.reconcile(wanted, host.settings))
        assert first.ok, first.problems
        assert engine.own_ports() == first.ports != frozenset()
        assert host.inside(lambda: engine.reconcile(wanted, host.settings)).writes == 0
        host.tc("class", "change", "dev", "eth0", "classid", "1:1", "htb", "rate", "9mbit")
        repaired = host.inside(lambda: engine.reconcile(wanted, host.settings))
        assert [op.kind for op in repaired.plan.ops] == ["class-change"]
        assert witness.classes(host.ap, "eth0")["1:1"].rate_bits == 500_000
        host.tc("qdisc", "del", "dev", "eth1", "root")
        assert host.inside(lambda: engine.reconcile(wanted, host.settings)).ok
        assert witness.classes(host.ap, "eth1")["1:2"].rate_bits == 800_000
        host.ap.ip("link", "del", IFB_NAME)
        assert host.inside(engine.ifb_in_service) is None
        healed = host.inside(lambda: engine.reconcile(wanted, host.settings))
        assert healed.ok
        assert host.inside(engine.ifb_in_service) == healed.ifb
        assert host.inside(lambda: engine.reset(host.settings)).ok
    assert "htb" not in host.tc("qdisc", "show")


def test_counters_go_on_in_an_engine_that_lives_on(host: Host) -> None:
    from tests.kernel.packets import Datagram  # noqa: PLC0415

    wanted = links(l1=entry("192.0.2.11", 5000))
    with TcEngine() as engine:
        host.inside(lambda: engine.reconcile(wanted, host.settings))
        data = Datagram(("192.0.2.1", 50100), ("192.0.2.11", 50000))
        for sent in (4, 7):
            host.ap.call(lambda count=sent: data.send(count))
            (state,) = host.inside(lambda: engine.reconcile(wanted, host.settings)).links
            assert state.to_user is not None
            told = witness.classes(host.ap, "eth0")["1:1"]
            assert (state.to_user.packets, state.to_user.bytes) == (told.sent_packets, told.sent_bytes)
        assert state.to_user.packets == 11
