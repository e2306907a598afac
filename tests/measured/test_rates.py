"""What `./dev evaluate` does not measure of rates: TCP of an address without ports, a tunnel, and wrong limits."""

from __future__ import annotations

import contextlib
from dataclasses import replace

import pytest

from measuring.framing import Wire
from measuring.judge import FRAME_BYTES, rate_tolerance
from measuring.tcp import run_tcp
from measuring.traffic import data, run_traffic
from tests.engine_host import key, limited
from tests.measured.testbed import (
    Testbed,
    TestLink,
    WindowExceededError,
    allowed_excess_bytes,
    assert_limit,
    assert_never_exceeded,
    report,
)

RETRANSMISSION_TIMEOUT_S = 0.2  # the least of Linux (TCP_RTO_MIN)
QUEUE_S = 0.1  # what a limit's queue holds (ADR 0028)


def test_tcp_of_an_entry_with_only_the_four_keys_keeps_to_the_limit(bed: Testbed) -> None:
    kbit, seconds, flows = 10_000, 3.0, 8
    link = TestLink(1, kbit=kbit, user=1)
    bed.engine.must_enforce(limited(1, kbit, key(link.remote[0])))
    for direction in ("to_user", "from_user"):
        sender, receiver, address = (bed.ap, bed.user(1), link.remote[0])
        if direction == "from_user":
            sender, receiver, address = (bed.user(1), bed.ap, link.local[0])
        result = run_tcp(sender, receiver, address, flows=flows, seconds=seconds)
        carried = result.wire_kbit(warm_up_s=0)
        report(direction=direction, flows=flows, tcp_kbit=f"{carried:.1f}", again=result.retransmitted)
        # Above: what any window may carry, counted from the start, so that nothing was held back before.
        above = allowed_excess_bytes(kbit) / (kbit * 125 * seconds)
        # Below: once a retransmission timer may run while the limit is idle; at the end receivers may hold back what
        # came behind a missing segment, at most the queue; segments that were sent twice were carried and do not count.
        below = (RETRANSMISSION_TIMEOUT_S + QUEUE_S) / seconds + rate_tolerance(kbit, seconds)
        again_kbit = result.retransmitted * FRAME_BYTES * 8 / 1000 / seconds
        assert kbit * (1 - below) - again_kbit <= carried <= kbit * (1 + above)


def test_a_wrong_limit_and_none_are_noticed_by_the_same_assertions(bed: Testbed) -> None:
    """Negative controls: a limit of 1000 kbit/s is asked for, and something else is set."""
    high, low, none = (TestLink(number, kbit=1_000, user=number) for number in (1, 2, 3))
    bed.enforce([replace(high, kbit=1_015), replace(low, kbit=950)])
    results = run_traffic(bed.flood([high, low, none], times=2), seconds=4)
    for wrong, is_exceeded in ((high, True), (low, False), (none, True)):
        for host in (bed.ap, bed.user(wrong.user)):
            with pytest.raises(AssertionError, match="at a limit of 1000 kbit/s"):
                assert_limit(results, host, wrong)
            assert results.judge_rate(host, wrong.name, 1_000).is_exceeded is is_exceeded
            if is_exceeded:
                with pytest.raises(WindowExceededError, match=r"above rate\*T"):
                    assert_never_exceeded(results, host, wrong)
    for host in (bed.ap, bed.user(1)):
        assert_limit(results, host, high, kbit=1_015)
    for host in (bed.ap, bed.user(2)):
        assert_limit(results, host, low, kbit=950)


@pytest.mark.parametrize("hooks", [("tun0",), ()], ids=["hook at the tunnel", "hook at every lowest device"])
def test_a_vpn_link_is_limited_by_its_inner_ip_bytes(bed: Testbed, hooks: tuple[str, ...]) -> None:
    """Its outer packets are nobody's, although they pass the same program on eth0."""
    user = bed.user(1)
    with contextlib.ExitStack() as stack:
        for host, inner, outer, peer in (
            (bed.ap, "10.10.1.1", "192.0.2.1", "10.10.1.2=192.0.2.11:1194"),
            (user, "10.10.1.2", "192.0.2.11", "default=192.0.2.1:1194"),
        ):
            bed.lab.tun(host.nic("tun0", f"{inner}/24"), mtu_bytes=1400)
            stack.callback(host.ip, "link", "del", "tun0")
            tunnel = host.python("lab.tunnel", "--dev", "tun0", "--local", f"{outer}:1194", "--peer", peer)
            stack.callback(bed.lab.stop, tunnel)
            assert tunnel.stdout is not None
            assert tunnel.stdout.readline().strip() == "ready"
        link = TestLink(1, kbit=2_000, user=1, local_address="10.10.1.1", remote_address="10.10.1.2")
        outcome = bed.engine.must_enforce(link.limited(), interfaces=hooks)
        assert set(outcome.devices) == (set(hooks) or {"eth0", "tun0"})
        results = run_traffic(bed.plan([(link, link.ends((data(4_000, 1372),)))]), seconds=3)
        inner_ip = Wire(4, link_layer_bytes=0)
        for host in (bed.ap, user):
            measured = assert_limit(results, host, link, wire=inner_ip)
            report(host=host.short, ip_kbit=f"{measured:.1f}")
