"""By whichever way the packets of a link come and go, its limit holds: once, and for both directions.

The limit sits at the hooks of every lowest device, so no route, bridge or second card leads past it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from measuring.judge import FRAME_BYTES, bucket_bytes, room_bytes
from measuring.netns import Lab, Namespace
from measuring.traffic import data, ends, run_traffic
from tests.engine_host import EngineHost, key, limited
from tests.kernel.loads import (
    AP,
    AP6,
    FREE,
    KBIT,
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

PREFIX = "slbwp"
LOOSE = {"net.ipv4.conf.all.rp_filter": 2, "net.ipv4.conf.default.rp_filter": 2}


@pytest.fixture
def lab() -> Iterator[Lab]:
    with a_lab(PREFIX) as made:
        yield made


@pytest.mark.parametrize("rp_filter", [0, 2])
def test_packets_that_come_by_another_card_than_replies_leave_by_are_limited(lab: Lab, rp_filter: int) -> None:
    """All 8 of 8 Mbit/s passed the first engine."""
    ap, user = lab.namespace("ap"), lab.namespace("user")
    for host in (ap, user):
        host.sysctl(dict.fromkeys(LOOSE, rp_filter))
    lab.veth(ap.nic("out0", f"{AP}/24", f"{AP6}/64"), user.nic("u0", f"{USER}/24", f"{USER6}/64"))
    lab.veth(ap.nic("in0", "198.51.100.1/24"), user.nic("u1", "198.51.100.11/24"))
    user.ip("route", "add", AP, "via", "198.51.100.1")
    with EngineHost(ap) as engine:
        engine.must_enforce(limited(7, KBIT, key(USER, 50_001)))
        results = run(
            ap,
            (user, flow("link", (AP, 51_001), (USER, 50_001))),
            (user, FREE),
        )
        assert_limited(results, (user, ap), "link")
        assert_free(results, (user, ap), "free")
        assert (
            int(user.ip("-s", "-j", "link", "show", "u1").split('"tx":')[1].split('"bytes":')[1].split(",")[0])
            > 1_000 * 125 * SECONDS
        )


def test_equal_cost_routes_and_marked_packets_have_one_limit(lab: Lab) -> None:
    """The first engine's class sat on one card: half of the links were unlimited to the user."""
    ap, user = lab.namespace("ap"), lab.namespace("user")
    for host in (ap, user):
        host.sysctl(LOOSE | {"net.ipv4.fib_multipath_hash_policy": 1})
    for number in (0, 1, 2):
        lab.veth(ap.nic(f"n{number}", f"10.0.{number}.1/24"), user.nic(f"u{number}", f"10.0.{number}.2/24"))
    ap.ip("addr", "add", f"{AP}/32", "dev", "lo")
    user.ip("addr", "add", f"{USER}/32", "dev", "lo")
    for host, target, end in ((ap, USER, 2), (user, AP, 1)):
        hops = [word for number in (0, 1) for word in ("nexthop", "via", f"10.0.{number}.{end}")]
        host.ip("route", "add", target, *hops)
    # What is for port 51005 leaves by the third card.
    ap.ip("rule", "add", "ipproto", "udp", "sport", "51005", "table", "77")
    ap.ip("route", "add", USER, "via", "10.0.2.2", "table", "77")
    with EngineHost(ap) as engine:
        outcome = engine.must_enforce(limited(7, KBIT, key(USER)))
        assert set(outcome.devices) == {"n0", "n1", "n2"}
        # The kernel's hash has another seed in each namespace: that all but one of 15 flows leave by one card of two is
        # as likely as 1 in 16,384.
        names = [f"flow{number}" for number in range(16)]
        flows = [flow(name, (AP, 51_000 + number), (USER, 50_000 + number), 375) for number, name in enumerate(names)]
        results = run(ap, *((user, one) for one in flows))
        assert_limited(results, (user, ap), *names)
    for card in ("n0", "n1", "n2"):
        sent = ap.run("cat", f"/sys/class/net/{card}/statistics/tx_packets")
        assert int(sent) > 5, card  # each of them was used


def test_traffic_that_one_user_sends_to_another_meets_both_limits_and_is_charged_once_at_each(lab: Lab) -> None:
    ap, first, second = lab.namespace("ap", forwards=True), lab.namespace("first"), lab.namespace("second")
    lab.veth(ap.nic("n0", f"{AP}/24", f"{AP6}/64"), first.nic("u0", f"{USER}/24", f"{USER6}/64"))
    lab.veth(
        ap.nic("n1", "198.51.100.1/24", "2001:db8:2::1/64"), second.nic("u0", "198.51.100.11/24", "2001:db8:2::11/64")
    )
    for host, via in ((first, (AP, AP6)), (second, ("198.51.100.1", "2001:db8:2::1"))):
        for gateway in via:
            host.ip("route", "add", "default", "via", gateway)
    with EngineHost(ap) as engine:
        # From the first one 2 Mbit/s may come, and 1 Mbit/s may go to the second.
        engine.must_enforce(
            limited(7, 3_000, key(USER, 50_001), key(USER6, 50_001), from_user_kbit=2_000),
            limited(8, 1_000, key("198.51.100.11", 50_002), key("2001:db8:2::11", 50_002), from_user_kbit=5_000),
        )
        there = ends("v4", (USER, 50_001), ("198.51.100.11", 50_002), (data(4_000, 1400),), right_streams=())
        results = run_traffic({first: [there[0]], second: [there[1]]}, seconds=SECONDS)
        # It still comes from the first queue when nothing is sent any more.
        assert_limited(results, (second,), "v4", kbit=1_000, behind_s=0.15)
        came, went = engine.counters(7)[1], engine.counters(8)[0]
        assert came.refused_packets > 0
        assert went.refused_packets > 0
        # What the first limit let through was charged to the second, and to nobody else.
        assert went.passed_bytes + went.refused_bytes == pytest.approx(came.passed_bytes, abs=2 * 1442 + 50_000)
        assert came.passed_bytes <= 2_000 * 125 * SECONDS + room_bytes(2_000) + bucket_bytes(2_000) + 2 * FRAME_BYTES
        there = ends("v6", (USER6, 50_001), ("2001:db8:2::11", 50_002), (data(4_000, 1400),), right_streams=())
        results = run_traffic({first: [there[0]], second: [there[1]]}, seconds=SECONDS)
        assert_limited(results, (second,), "v6", kbit=1_000, behind_s=0.15)


def _bridge(ap: Namespace) -> str:
    ap.ip("link", "add", "br0", "type", "bridge", "forward_delay", "0", "mcast_snooping", "0")
    ap.ip("link", "set", "n0", "master", "br0")
    return "br0"


def _macvlan(ap: Namespace) -> str:
    ap.ip("link", "add", "link", "n0", "name", "mv0", "type", "macvlan", "mode", "bridge")
    return "mv0"


@pytest.mark.parametrize("above", [_bridge, _macvlan], ids=lambda one: one.__name__.strip("_"))
def test_packets_are_limited_once_whatever_stands_on_a_card(lab: Lab, above: Callable[[Namespace], str]) -> None:
    """Hooks on a bridge and on its port left 48 of 500 kbit/s."""
    ap, user = lab.namespace("ap"), lab.namespace("user")
    lab.veth(ap.nic("n0"), user.nic("u0"))
    dev = above(ap)
    for host, name, addresses in ((ap, dev, (f"{AP}/24", f"{AP6}/64")), (user, "u0", (f"{USER}/24", f"{USER6}/64"))):
        host.ip_batch([f"link set {name} up", *(f"addr add {one} dev {name} nodad" for one in addresses)])
    ap.ip("link", "set", "n0", "up")
    with EngineHost(ap) as engine:
        links = (
            limited(7, KBIT, key(USER, 50_001)),
            limited(8, KBIT, key(USER6, 50_001)),
            limited(9, 0, key(USER, 50_002)),
        )
        assert dev not in engine.must_enforce(*links).devices
        assert engine.must_enforce(*links, interfaces=(dev,)).devices == ("n0",)
        results = run(
            ap,
            (user, flow("v4", (AP, 51_001), (USER, 50_001))),
            (user, flow("v6", (AP6, 51_001), (USER6, 50_001))),
            (user, flow("blocked", (AP, 51_002), (USER, 50_002))),
            (user, FREE),
        )
        for name in ("v4", "v6"):
            assert_limited(results, (user, ap), name)
        assert_free(results, (user, ap), "free")
        assert [arrived_bytes(results, host, "blocked") for host in (user, ap)] == [0, 0]
