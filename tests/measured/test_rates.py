"""Each limit holds in both directions at once, and a wrong one is noticed."""

from __future__ import annotations

import pytest

from lab import iperf, probes
from lab.judge import Wire
from lab.traffic import data, run_traffic
from lab.witness import classes
from tests.measured.testbed import Testbed, TestLink, assert_limit, assert_never_exceeded, document, report


@pytest.mark.parametrize("family", [4, 6])
def test_limits_from_500_kbit_to_50_mbit_hold_in_both_directions(bed: Testbed, family: int) -> None:
    links = [
        TestLink(number, kbit=kbit, user=number, family=family)
        for number, kbit in enumerate((500, 1_000, 10_000, 50_000), start=1)
    ]
    bed.enforce(links)
    results = run_traffic(bed.flood(links, times=2), seconds=4)
    for link in links:
        to_user = assert_limit(results, bed.user(link.user), link)
        from_user = assert_limit(results, bed.ap, link)
        worst = [assert_never_exceeded(results, host, link) for host in (bed.user(link.user), bed.ap)]
        report(
            limit=link.kbit,
            family=family,
            to_user=f"{to_user:.1f}",
            from_user=f"{from_user:.1f}",
            excess=[round(one) for one in worst],
        )


def test_iperf3_says_the_same_in_both_directions(bed: Testbed) -> None:
    missing = iperf.available()
    if missing is not None:
        pytest.skip(f"iperf3: {missing}")
    link = TestLink(1, kbit=5_000, user=1)
    bed.enforce([link])
    for reverse in (False, True):
        measured = iperf.measure_kbit(
            bed.ap, link.local, bed.user(1), link.remote, offered_kbit=10_000, seconds=3, reverse=reverse
        )
        report(reverse=reverse, kbit=f"{measured:.1f}")
        assert measured == pytest.approx(5_000, rel=0.02)


def test_tcp_of_an_entry_with_only_the_four_keys_keeps_to_the_limit(bed: Testbed) -> None:
    link = TestLink(1, kbit=10_000, user=1)
    keys = ("AS_ID", "IsUserAS", "Bandwidth", "IP-Address")
    bed.enforce({"1": {key: value for key, value in link.entry().items() if key in keys}})
    served = probes.ServedHost(bed.user(1), link.remote[0])
    for reverse in (False, True):
        flow = probes.bulk_report(served.start_bulk(bed.ap, 3, reverse=reverse))
        # A full TCP segment with time stamps: 1448 bytes of payload in a frame of 1514 bytes.
        on_the_wire = flow.steady_kbit() * 1514 / 1448
        report(reverse=reverse, tcp_kbit=f"{on_the_wire:.1f}")
        # Above the limit never; below it, a flow that lost packets may idle for a moment, so 10 % are left to TCP.
        assert 9_000 <= on_the_wire <= 10_200


def test_a_wrong_limit_is_noticed_by_the_same_assertion(bed: Testbed) -> None:
    asked = TestLink(1, kbit=1_000, user=1)
    wrong = document([TestLink(1, kbit=1_050, user=1)])
    bed.enforce(wrong)
    results = run_traffic(bed.flood([asked], times=2), seconds=4)
    for host in (bed.ap, bed.user(1)):
        with pytest.raises(AssertionError, match="at a limit of 1000 kbit/s"):
            assert_limit(results, host, asked)
        assert_limit(results, host, asked, kbit=1_050)
        with pytest.raises(AssertionError, match="above rate"):
            assert_never_exceeded(results, host, asked)


def test_a_vpn_link_is_limited_by_its_inner_ip_bytes(bed: Testbed) -> None:
    user = bed.user(1)
    for host, inner, outer, peer in (
        (bed.ap, "10.10.1.1", "192.0.2.1", "10.10.1.2=192.0.2.11:1194"),
        (user, "10.10.1.2", "192.0.2.11", "default=192.0.2.1:1194"),
    ):
        bed.lab.tun(host.nic("tun0", f"{inner}/24"), mtu_bytes=1400)
        tunnel = host.python("lab.tunnel", "--dev", "tun0", "--local", f"{outer}:1194", "--peer", peer)
        assert tunnel.stdout is not None
        assert tunnel.stdout.readline().strip() == "ready"
    link = TestLink(1, kbit=2_000, user=1, local_address="10.10.1.1", remote_address="10.10.1.2")
    bed.enforce({"1": {**link.entry(), "VPN": True}})
    results = run_traffic(bed.plan([(link, link.ends((data(4_000, 1372),)))]), seconds=4)
    inner_ip = Wire(4, link_layer_bytes=0)
    for host in (bed.ap, user):
        measured = assert_limit(results, host, link, wire=inner_ip)
        report(host=host.short, ip_kbit=f"{measured:.1f}")
    assert classes(bed.ap, "tun0")["1:1"].rate_bits == 2_000_000
    assert classes(bed.ap, "eth0") == {}  # the outer flow is never matched
