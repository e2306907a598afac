"""What `./dev evaluate` does not measure of rates: a tunnel."""

from __future__ import annotations

import contextlib

import pytest

from measuring.framing import Wire
from measuring.traffic import data, run_traffic
from tests.measured.testbed import Testbed, TestLink, assert_limit, report


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
