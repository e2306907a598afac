"""A limit that is nearly as fast as the machine."""

from __future__ import annotations

import pytest

from measuring.traffic import data, ends, run_traffic
from tests.measured.testbed import Testbed, TestLink, assert_never_exceeded, report


@pytest.mark.parametrize("direction", ["to_user", "from_user"])
@pytest.mark.usefixtures("_namespaces")
def test_a_gigabit_is_never_exceeded(direction: str) -> None:
    """In jumbo frames, one direction at a time: two processors then offer more than the limit. How near the rate comes
    from below depends on them, and is measured by the bench."""
    mtu, payload = 9000, 8972
    link = TestLink(1, kbit=1_000_000, user=1)
    with Testbed(users=1, mtu_bytes=mtu) as bed:
        bed.enforce([link])
        sending, nothing = (data(1_400_000, payload),), ()
        streams = (sending, nothing) if direction == "to_user" else (nothing, sending)
        at_ap, at_user = ends(link.name, link.local, link.remote, streams[0], right_streams=streams[1], mtu_bytes=mtu)
        results = run_traffic(bed.plan([(link, (at_ap, at_user))]), seconds=2.5)
        receiver = bed.user(1) if direction == "to_user" else bed.ap
        wire = results.at(receiver, link.name).wire
        offered_kbit = results.other_end(receiver, link.name).sent() * wire.bytes(payload) * 8 / 2.5 / 1000
        verdict = results.judge_rate(receiver, link.name, link.kbit)
        excess = assert_never_exceeded(results, receiver, link, largest_bytes=wire.bytes(payload))
        report(direction=direction, offered=f"{offered_kbit:.0f}", verdict=verdict, excess=round(excess))
        assert verdict.measured_kbit > 0
        assert not verdict.is_exceeded, str(verdict)
