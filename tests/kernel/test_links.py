"""Which packets belong to which link: shared addresses, keys of every kind, observed links, and what has no link."""

from __future__ import annotations

import contextlib
import json
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from measuring.netns import Namespace
from measuring.tcp import run_tcp
from measuring.traffic import TrafficRun
from tests.engine_host import EngineHost, key, limited
from tests.kernel.loads import (
    AP,
    AP6,
    FREE,
    KBIT,
    OTHER,
    OTHER6,
    SECONDS,
    USER,
    USER6,
    arrived_bytes,
    assert_free,
    assert_limited,
    flow,
    run,
)
from tests.support.namespaces import a_lab

PREFIX = "slbwl"
MOST_LINKS = 4094
UNICAST_PROBES = 3  # ucast_solicit: the kernel counts the questions for a neighbour from here (arp(7))


@dataclass
class Bed:
    ap: Namespace
    user: Namespace
    engine: EngineHost

    @property
    def both(self) -> tuple[Namespace, Namespace]:
        """Receivers: of what goes to the user, and of what comes from it."""
        return self.user, self.ap


@pytest.fixture(scope="module")
def _shared() -> Iterator[Bed]:
    with a_lab(PREFIX) as lab:
        ap, user = lab.namespace("ap"), lab.namespace("user")
        lab.veth(
            ap.nic("n0", f"{AP}/24", f"{AP6}/64"),
            user.nic("u0", f"{USER}/24", f"{OTHER}/24", f"{USER6}/64", f"{OTHER6}/64"),
        )
        with EngineHost(ap) as engine:
            yield Bed(ap, user, engine)


@pytest.fixture
def bed(_shared: Bed) -> Iterator[Bed]:
    yield _shared
    _shared.engine.must_enforce()


def test_a_link_of_one_port_on_several_addresses_has_one_limit(bed: Bed) -> None:
    bed.engine.must_enforce(limited(1, KBIT, *(key(one, 50_001) for one in (USER, OTHER, USER6, OTHER6))))
    ends_of = {"a": (AP, USER), "b": (AP, OTHER), "c": (AP6, USER6), "d": (AP6, OTHER6)}
    flows = [
        flow(name, (local, 51_000 + number), (remote, 50_001), 1_000)
        for number, (name, (local, remote)) in enumerate(ends_of.items())
    ]
    results = run(bed.ap, *((bed.user, one) for one in flows))
    assert_limited(results, bed.both, *ends_of)


def test_test_traffic_to_a_port_of_the_attachment_point_is_limited_from_any_port(bed: Bed) -> None:
    """The key (remote address, any remote port, local port), UDP and TCP."""
    bed.engine.must_enforce(limited(1, KBIT, key(USER, None, "", 5_201)), limited(2, 1_000, key(USER, 50_002)))
    results = run(
        bed.ap,
        (bed.user, flow("test", (AP, 5_201), (USER, 49_999))),
        (bed.user, flow("link", (AP, 51_002), (USER, 50_002))),
        (bed.user, FREE),
    )
    assert_limited(results, bed.both, "test")
    assert_limited(results, bed.both, "link", kbit=1_000)
    assert_free(results, bed.both, "free")
    for sender, receiver, address in ((bed.user, bed.ap, AP), (bed.ap, bed.user, USER)):
        to_ap = receiver is bed.ap
        result = run_tcp(sender, receiver, address, seconds=1.5, port=5_201)
        assert (result.wire_kbit(warm_up_s=0) < 2 * KBIT) is to_ap  # towards the user that port is a remote one


@pytest.mark.parametrize("kbit", [KBIT, 0])
def test_an_observed_link_is_refused_nothing_and_counted_all(bed: Bed, kbit: int) -> None:
    bed.engine.must_enforce(limited(1, kbit, key(USER, 50_001), observed=True), limited(2, KBIT, key(USER, 50_002)))
    results = run(
        bed.ap,
        (bed.user, flow("observed", (AP, 51_001), (USER, 50_001))),
        (bed.user, flow("limited", (AP, 51_002), (USER, 50_002))),
    )
    assert_free(results, bed.both, "observed")
    assert_limited(results, bed.both, "limited")
    for host, counters in zip(bed.both, bed.engine.counters(1), strict=True):
        arrived = len(results.at(host, "observed").data)
        assert counters.passed_packets == arrived
        assert counters.passed_bytes == arrived_bytes(results, host, "observed")
        assert counters.refused_packets > (arrived // 2 if kbit else arrived - 1)
    # And from now on it is limited.
    bed.engine.must_enforce(limited(1, kbit, key(USER, 50_001)))
    results = run(bed.ap, (bed.user, flow("observed", (AP, 51_001), (USER, 50_001))))
    if kbit:
        assert_limited(results, bed.both, "observed")
    else:
        assert [arrived_bytes(results, host, "observed") for host in bed.both] == [0, 0]


def test_of_4094_links_behind_one_address_each_has_its_own_limit(bed: Bed) -> None:
    links = [limited(one, 0 if one == 2_000 else KBIT, key(USER, 10_000 + one)) for one in range(1, MOST_LINKS + 1)]
    bed.engine.must_enforce(*links)
    chosen = {"first": 1, "middle": 2_047, "last": MOST_LINKS}
    results = run(
        bed.ap,
        *(
            (bed.user, flow(name, (AP, 51_000 + number), (USER, 10_000 + number)))
            for name, number in (*chosen.items(), ("blocked", 2_000))
        ),
        (bed.user, FREE),
    )
    for name in chosen:
        assert_limited(results, bed.both, name)
    assert_free(results, bed.both, "free")
    assert [arrived_bytes(results, host, "blocked") for host in bed.both] == [0, 0]
    assert bed.engine.must_enforce(*links).writes == 0


def test_a_flood_of_one_link_does_not_hold_up_the_socket_that_it_shares_with_others(bed: Bed) -> None:
    """A border router has one socket for all links. The thesis' queue held more than that socket may have waiting, and
    of 600 datagrams at once the first engine's left 503 with EAGAIN."""
    bed.engine.must_enforce(limited(1, 32, key(USER, 50_001)), limited(2, 0, key(USER, 50_002)))

    def bound(address: str, port: int) -> socket.socket:
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        sock.bind((address, port))
        sock.setblocking(False)
        return sock

    with bed.ap.call(lambda: bound(AP, 51_001)) as router, bed.user.call(lambda: bound(USER, 50_099)) as other:
        for _ in range(600):
            for port in (50_001, 50_002):
                assert router.sendto(bytes(1_000), (USER, port)) == 1_000
        assert [router.sendto(bytes(1_000), (USER, 50_099)) for _ in range(20)] == [1_000] * 20
        other.settimeout(1.0)
        assert [len(other.recv(2_000)) for _ in range(20)] == [1_000] * 20


def test_where_the_rest_is_limited_neighbours_and_addresses_are_still_found(bed: Bed) -> None:
    """Under a flood of ten times the limit: ARP, ND and DHCP all arrive; DHCP has no more than the limit."""
    unmatched_kbit = 2_000
    bed.engine.must_enforce(limited(1, KBIT, key(USER, 50_001)), unmatched_kbit=unmatched_kbit)
    flood = flow("flood", (AP, 51_009), (USER, 50_009), 20_000)
    plan = {bed.ap: [flood[0]], bed.user: [flood[1]]}
    for name, local, remote in (("dhcp", (AP, 67), (USER, 68)), ("dhcp6", (AP6, 547), (USER6, 546))):
        for host, end in zip((bed.ap, bed.user), flow(name, local, remote, 20, 300), strict=True):
            plan[host].append(end)
    traffic = TrafficRun(plan, seconds=2.2).go()
    traffic.sleep_until(0.5)
    asked = [_questions_to_find(bed.ap, one) for one in (OTHER, OTHER6)]
    results = traffic.finish()
    assert asked == [1, 1]  # the kernel asks again after 1 s
    assert_free(results, bed.both, "dhcp", "dhcp6")
    assert_limited(results, bed.both, "flood", "dhcp", "dhcp6", kbit=unmatched_kbit, behind_s=2.2 - SECONDS)
    results = run(bed.ap, (bed.user, flow("dhcp", (AP, 67), (USER, 68), 20_000)))
    for host in bed.both:
        carried = arrived_bytes(results, host, "dhcp")
        assert carried <= unmatched_kbit * 125 * (SECONDS + 0.2) + 45_000  # time, their own bucket, room and burst


def _questions_to_find(host: Namespace, address: str) -> int:
    """Make the host forget a neighbour and look for it. Returns how many questions (ARP, ND) the answer took."""
    host.ip("neigh", "flush", "to", address)
    deadline = time.monotonic() + 20
    family = socket.AF_INET6 if ":" in address else socket.AF_INET

    def ask() -> None:
        with socket.socket(family, socket.SOCK_DGRAM) as sock, contextlib.suppress(OSError):
            sock.sendto(b"?", (address, 9))

    host.call(ask)
    while not (found := json.loads(host.ip("-s", "-j", "neigh", "show", "to", address))) or "lladdr" not in found[0]:
        assert time.monotonic() < deadline, f"{host.short} does not find {address}"
    return int(found[0]["probes"]) - UNICAST_PROBES
