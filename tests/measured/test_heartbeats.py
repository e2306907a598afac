"""A limited link keeps its heartbeats beside what looks like them.

Twenty times the limit in data is the evaluation's (`./dev evaluate heartbeats`).
"""

from __future__ import annotations

from measuring.scion_packet import NEXT_HEADER_BFD
from measuring.traffic import data, heartbeats, run_traffic
from tests.measured.testbed import Testbed, TestLink, allowed_excess_bytes, check_excess

SECONDS = 3.3  # 17 heartbeats in each direction of each link
HEARTBEATS = 17


def test_heartbeats_arrive_whatever_looks_like_them_on_another_port_of_the_address(bed: Testbed) -> None:
    """Links of 32 and 500 kbit/s, overloaded, beside 20 Mbit/s of such packets that no link has, and beside 5 Mbit/s of
    them on a link of its own."""
    own = [TestLink(1, 32, 1), TestLink(2, 500, 1, 6), TestLink(3, 500, 2), TestLink(4, 32, 2, 6)]
    posing = TestLink(5, 500, 2)
    bed.enforce([*own, posing])
    loads = [(link, link.ends((heartbeats(), data(link.kbit * 4, 500)))) for link in own]
    loads.append((posing, posing.ends((data(5_000, 1_200, next_header=NEXT_HEADER_BFD),))))
    nobodys = [TestLink(90 + family, 0, 1, family) for family in (4, 6)]
    loads += [(one, one.ends((data(10_000, 1_200, next_header=NEXT_HEADER_BFD),))) for one in nobodys]
    results = run_traffic(bed.plan(loads), seconds=SECONDS, linger_s=1.0)
    for link in own:
        for host in (bed.ap, bed.user(link.user)):
            excess = results.excess_bytes(host, link.name, link.kbit)
            allowed = allowed_excess_bytes(link.kbit, with_heartbeats=True)
            check_excess(excess, allowed, f"{link.name} at {host.short}")
            assert results.other_end(host, link.name).sent("heartbeat") == HEARTBEATS
            assert results.lost(host, link.name, "heartbeat") == 0
            assert results.heartbeats(host, link.name).downs == 0
