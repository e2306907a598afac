"""Hash tables in a real kernel, as tc prints them and as packets meet them: crowds, rebuilds, taken numbers."""

from __future__ import annotations

import re
import socket
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pytest

from ap_agent.applying import Failures, apply_plan
from ap_agent.netlink import RtNetlink
from ap_agent.ops import ClassAdd, HeadSwitch, LeafAdd, Stage
from ap_agent.plan import Plan
from ap_agent.reconcile import plan_cycle
from bandwidth_config import LinkInfo
from measuring.netns import Namespace
from tests.kernel.conftest import Host, entry, links
from tests.kernel.packets import SCION_DATA, Datagram, classified, counts
from tests.property.crowds import MANY, ipv6_subnets, random_addresses, remote_ports, two_families

pytestmark = pytest.mark.kernel

IP_FREEBIND, IPV6_FREEBIND = 15, 78  # <linux/in.h>, <linux/in6.h>: send from an address that is routed nowhere
AP4, U4 = "192.0.2.1", "192.0.2.11"
AP6, U6 = "2001:db8:1::1", "2001:db8:1::11"


@dataclass(frozen=True)
class Shown:
    """One filter or table as `tc filter show` prints it."""

    protocol: str
    pref: int
    handle: str  # table:bucket:node
    text: str

    @property
    def table(self) -> str:
        return self.handle.partition(":")[0]

    @property
    def bucket(self) -> str:
        return self.handle.rpartition(":")[0]

    @property
    def buckets(self) -> int | None:
        found = re.search(r"ht divisor (\d+)", self.text)
        return int(found[1]) if found else None

    @property
    def leads_to(self) -> str | None:
        found = re.search(r" link (\w+):", self.text)
        return found[1] if found else None


def shown(host: Host, dev: str, *hook: str) -> list[Shown]:
    """`hook` as tc wants it; the root qdisc's filters without one."""
    text = re.sub(r"\n[ \t]+", " ", host.tc("filter", "show", "dev", dev, *hook))
    lines = re.finditer(r"^filter (?:parent \S+ )?protocol (\S+) pref (\d+) u32 chain 0 fh (\S+) (.*)$", text, re.M)
    return [Shown(one[1], int(one[2]), one[3], one[4]) for one in lines]


def by_id(found: Sequence[LinkInfo]) -> dict[int, LinkInfo]:
    return {one.interface_id: one for one in found}


def fast(found: Sequence[LinkInfo]) -> list[LinkInfo]:
    """Fast enough for a burst of test packets."""
    return [replace(one, bandwidth_kbit=100_000 + one.interface_id) for one in found]


def send_each(found: Sequence[LinkInfo], local: str, *, to_user: bool, payload: bytes = SCION_DATA) -> None:
    """One datagram of each link, from the namespace of the calling thread."""
    for one in found:
        ends = [(local, one.local_port or 50100), (str(one.remote_ip), one.remote_port or 50000)]
        source, destination = ends if to_user else reversed(ends)
        is_v6 = one.remote_ip.version == 6
        with socket.socket(socket.AF_INET6 if is_v6 else socket.AF_INET, socket.SOCK_DGRAM) as sock:
            level, option = (socket.IPPROTO_IPV6, IPV6_FREEBIND) if is_v6 else (socket.IPPROTO_IP, IP_FREEBIND)
            sock.setsockopt(level, option, 1)
            sock.bind(source)
            sock.sendto(payload, destination)


def assert_each_has_its_own_class(host: Host, found: Sequence[LinkInfo], local: str) -> None:
    for offset, payload in ((0x1000, SCION_DATA), (0x2000, bytes([0, 0, 0, 0, 203]) + bytes(19))):
        for dev, major, sender, to_user in (("eth0", 1, host.ap, True), ("slbw0", 3, host.u1, False)):

            def send(to_user: bool = to_user, payload: bytes = payload) -> None:
                send_each(found, local, to_user=to_user, payload=payload)

            seen = classified(host.ap, dev, sender, send)
            assert seen == {f"{major}:{offset + one.interface_id:x}": 1 for one in found}


# --- how they are built ------------------------------------------------------------------------------------------


def test_two_levels_of_tables_lead_to_the_rules(host: Host) -> None:
    assert host.reconcile(links(l1=entry(U4, 500), l2=entry("192.0.2.12", 600))).ok
    rules = [one for one in shown(host, "eth0") if one.pref == 112]
    tables = {one.table: one.buckets for one in rules if one.buckets}
    assert sorted(tables.values()) == [1, 256, 256]
    (root,) = [one for one in rules if tables[one.table] == 1 and one.leads_to]
    assert "hash mask 0000ff00 at 16" in root.text  # byte 18: the third of the destination
    (second,) = [one for one in rules if one.table == root.leads_to and one.leads_to]
    assert (second.handle, "hash mask 000000ff at 16" in second.text) == (f"{root.leads_to}:2:1", True)
    at = {one.bucket for one in rules if one.table == second.leads_to and not one.buckets}
    assert at == {f"{second.leads_to}:b", f"{second.leads_to}:c"}


def test_sources_share_the_redirects(host: Host) -> None:
    many = fast(random_addresses(20))
    host.ap.ip("route", "add", "default", "via", U4)
    assert host.reconcile(by_id(many)).ok
    rules = shown(host, "eth0", "ingress")
    assert sum("mirred" in one.text for one in rules) == 1
    assert sum("match" in one.text and one.leads_to is not None for one in rules) == 20


@pytest.mark.parametrize("count", [15, 300])
def test_links_behind_one_address_are_reached_by_their_ports(host: Host, count: int) -> None:
    crowd = fast(remote_ports(count))
    result = host.reconcile(by_id(crowd))
    assert result.ok, result.problems
    assert_each_has_its_own_class(host, crowd, AP4)
    buckets = Counter((one.pref, one.bucket) for one in shown(host, "eth0") if not one.buckets)
    assert max(buckets.values()) <= 17  # 16 rules, and the link to the next table
    other = Datagram((AP4, 50100), (U4, 40000))
    assert classified(host.ap, "eth0", host.ap, other.send) == {}
    assert host.reconcile(by_id(crowd)).writes == 0


def test_ipv6_addresses_that_end_alike_do_not_pile_up(host: Host) -> None:
    crowd = fast(ipv6_subnets(300))
    host.ap.ip("-6", "route", "add", "2001:db8:100::/40", "via", U6)
    result = host.reconcile(by_id(crowd))
    assert result.ok, result.problems
    assert_each_has_its_own_class(host, crowd, AP6)
    buckets = Counter((one.pref, one.bucket) for one in shown(host, "eth0") if not one.buckets)
    assert max(buckets.values()) == 7  # as many rules as one address has
    assert host.reconcile(by_id(crowd)).writes == 0


# --- a rebuild under traffic -------------------------------------------------------------------------------------


class Stream(threading.Thread):
    """Datagrams of one link, one each millisecond, until told to stop (at most `LONGEST`)."""

    LONGEST = 20_000

    def __init__(self, sender: Namespace, one: Datagram) -> None:
        super().__init__(daemon=True)
        self._sender, self._datagram, self._end = sender, one, threading.Event()
        self.sent = 0

    def run(self) -> None:
        self._sender.call(self._send)

    def _send(self) -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.bind(self._datagram.source)
            while not self._end.wait(0.001) and self.sent < self.LONGEST:
                sock.sendto(self._datagram.payload, self._datagram.destination)
                self.sent += 1

    def stop(self) -> int:
        self._end.set()
        self.join(timeout=10)
        assert not self.is_alive()
        return self.sent


class Receiver:
    """Counts what reaches a port; the buffer is large enough for a test."""

    def __init__(self, at: Namespace, address: tuple[str, int]) -> None:
        def bound() -> socket.socket:
            sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            sock.setsockopt(socket.SOL_SOCKET, 33, 1 << 25)  # SO_RCVBUFFORCE
            sock.bind(address)
            return sock

        self._socket: socket.socket = at.call(bound)

    def count(self) -> int:
        """What arrived, until a fifth of a second of silence."""
        self._socket.settimeout(0.2)
        found = 0
        with self._socket:
            while True:
                try:
                    self._socket.recv(2048)
                except TimeoutError:
                    return found
                found += 1


def test_a_rebuild_loses_no_packet_and_gives_none_to_another_class(host: Host) -> None:
    few, crowd = fast(remote_ports(2)), fast(remote_ports(60))
    assert host.reconcile(by_id(few)).ok
    there = Datagram((AP4, 50100), (U4, 50001))
    back = Datagram((U4, 50002), (AP4, 50101))
    receivers = [Receiver(host.u1, there.destination), Receiver(host.ap, back.destination)]
    before = {dev: counts(host.ap, dev) for dev in ("eth0", "slbw0")}
    streams = [Stream(host.ap, there), Stream(host.u1, back)]
    for stream in streams:
        stream.start()
    switches, writes = 0, 0
    for wanted in (crowd, few, crowd, few):
        result = host.reconcile(by_id(wanted))
        assert result.ok, result.problems
        switches += sum(isinstance(op, HeadSwitch) for op in result.plan.ops)
        writes += result.writes
    sent = [stream.stop() for stream in streams]
    assert [receiver.count() for receiver in receivers] == sent
    assert min(sent) > 20
    # Both indexes of both devices were built anew for the first crowd; what is good for many is good for few.
    assert switches == 4
    after = {dev: counts(host.ap, dev) for dev in ("eth0", "slbw0")}
    for dev, own, number in (("eth0", "1:1001", sent[0]), ("slbw0", "3:1002", sent[1])):
        changed = {name: after[dev][name] - before[dev].get(name, 0) for name in after[dev]}
        assert {name: more for name, more in changed.items() if more} == {own: number}
    assert host.reconcile(by_id(few)).writes == 0


def test_nothing_is_left_of_tables_that_were_replaced_and_their_numbers_are_free(host: Host) -> None:
    few, crowd = fast(remote_ports(2)), fast(remote_ports(60))
    host.reconcile(by_id(few))
    old = {one.table for one in shown(host, "eth0") if one.pref == 112 and one.buckets == 256}
    assert len(old) == 2
    result = host.reconcile(by_id(crowd))
    assert result.ok, result.problems
    stages = [op.stage for op in result.plan.ops if op.device.name == "eth0"]
    assert max(at for at, one in enumerate(stages) if one is Stage.SWITCH) < stages.index(Stage.REMOVE)
    left = {(one.pref, one.buckets) for one in shown(host, "eth0")}
    assert {pref for pref, _ in left} == {111, 113}
    for number in old:
        host.tc(*f"filter add dev eth0 parent 1: pref 500 protocol ip handle {number}: u32 divisor 256".split())


# --- numbers and preferences that are taken ------------------------------------------------------------------------


def test_table_numbers_that_somebody_else_has_are_not_taken(host: Host) -> None:
    host.tc("qdisc", "add", "dev", "eth0", "root", "handle", "1:", "htb", "default", "0xfffe")
    theirs = (1, 2, 4)
    for number in theirs:
        host.tc(*f"filter add dev eth0 parent 1: pref 500 protocol ip handle {number}: u32 divisor 4".split())
    foreign = [one for one in shown(host, "eth0") if one.pref == 500]
    result = host.reconcile(links(l1=entry(U4, 500)))
    assert result.ok, result.problems
    ours = {int(one.table, 16) for one in shown(host, "eth0") if one.buckets == 256}
    assert len(ours) == 4
    assert not ours & set(theirs)
    assert [one for one in shown(host, "eth0") if one.pref == 500] == foreign
    assert classified(host.ap, "eth0", host.ap, Datagram((AP4, 50100), (U4, 50000)).send) == {"1:1001": 1}
    assert host.reconcile(links(l1=entry(U4, 500))).writes == 0
    host.reset()
    assert [one for one in shown(host, "eth0") if one.pref == 500] == foreign


def test_a_link_can_go_although_somebody_deleted_the_preference_of_its_rules(host: Host) -> None:
    """The tables of such a preference live on unseen, with rules in them that lead to classes."""
    both = links(l1=entry(U4, 500), l2=entry("192.0.2.12", 600))
    assert host.reconcile(both).ok
    host.tc("filter", "del", "dev", "eth0", "parent", "1:", "pref", "112")
    result = host.reconcile(links(l2=entry("192.0.2.12", 600)))
    assert result.ok, result.problems
    assert host.reconcile(links(l2=entry("192.0.2.12", 600))).writes == 0
    assert host.reset().ok


# --- as many as there can be ---------------------------------------------------------------------------------------


def every_bucket(host: Host) -> Iterator[tuple[tuple[str, int, str], int]]:
    for dev in ("eth0", "slbw0"):
        found = Counter((dev, one.pref, one.bucket) for one in shown(host, dev) if not one.buckets)
        yield from found.items()


def assert_reached(host: Host, one: LinkInfo) -> None:
    local = AP4 if one.remote_ip.version == 4 else AP6
    seen = classified(host.ap, "eth0", host.ap, lambda: send_each([one], local, to_user=True))
    assert seen == {f"1:{0x1000 + one.interface_id:x}": 1}


def test_the_rules_of_as_many_links_as_there_can_be_fit_into_tables(host: Host) -> None:
    """All rules and tables of 4094 links behind one address, but classes for the first and the last one alone: a kernel
    needs a quarter of a minute for 24 000 classes, and takes rules that lead to none."""
    many = by_id(remote_ports(MANY))
    first, last = many[1], many[MANY]
    with_class = {first.interface_id, last.interface_id}

    def build() -> int:
        with RtNetlink() as kernel:
            ops = plan_cycle(many, host.settings, kernel=kernel).plan.ops
            fit = [op for op in ops if not isinstance(op, ClassAdd | LeafAdd) or not op.links or op.links & with_class]
            failures = Failures()
            written = apply_plan(kernel, Plan(tuple(fit)), failures)
            assert failures.errors == []
            return written

    assert host.inside(build) > 4 * MANY
    rules = Counter(one.bucket for one in shown(host, "eth0") if not one.buckets and one.leads_to is None)
    assert rules.total() > 2 * MANY
    place, most = max(every_bucket(host), key=lambda one: one[1])
    assert most <= 17, place
    for one in (first, last):
        assert_reached(host, one)
    assert host.reset().ok


@pytest.mark.measured
def test_a_thousand_links_with_the_highest_numbers(host: Host) -> None:
    before = host.snapshot()
    host.ap.ip("route", "add", "default", "via", U4)
    host.ap.ip("-6", "route", "add", "default", "via", U6)
    count = 1000
    numbers = range(MANY - count + 1, MANY + 1)
    many = by_id([replace(one, interface_id=number) for one, number in zip(two_families(count), numbers, strict=True)])
    result = host.reconcile(many)
    assert result.ok, result.problems
    assert Counter(one.state for one in result.links) == {"enforced": count}
    place, most = max(every_bucket(host), key=lambda one: one[1])
    assert most <= 17, place
    for number in (numbers[0], numbers[-1]):
        assert_reached(host, many[number])
    assert host.reconcile(many).writes == 0
    assert host.reset().ok
    host.ap.ip("route", "del", "default")
    host.ap.ip("-6", "route", "del", "default")
    assert host.snapshot() == before
