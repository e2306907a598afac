"""How evenly both ends of a test send, and that what they measure behind a limit is what its headers leave."""

from __future__ import annotations

import pytest

from measuring.framing import goodput_bound
from measuring.iproute import cleanup_stale
from station.plan import FULL_PAYLOAD_BYTES, frame_bytes
from station.report import COMPLETED, PhaseReport
from station.tools import TOOLS
from tests.engine_host import EngineHost, key, limited
from tests.kernel.station_bed import PORT, PREFIX, USER, report, station_bed, stream
from tests.measured import testbed

SECONDS = 4
EVEN_KBIT = 15_000  # beyond, a pause of the machine costs the sender more than 1 %; what the limit leaves stays exact


@pytest.mark.parametrize("limit_kbit", [100, 10_000, 100_000])
def test_half_as_much_again_is_sent_as_the_limit_and_what_it_leaves_is_measured(limit_kbit: int) -> None:
    """Both within 1 %, or a packet. The first second has the burst of an empty queue; what is lost was refused."""
    cleanup_stale(PREFIX)
    kbit = limit_kbit * 3 // 2
    plan = tuple(
        stream(direction, SECONDS * 1000, kbit, FULL_PAYLOAD_BYTES, number)
        for number, direction in enumerate(("to_user", "from_user"))
    )
    with station_bed() as bed, EngineHost(bed.ap) as engine:
        engine.must_enforce(limited(1, limit_kbit, key(USER)))
        child = bed.start_ap(plan)
        user, ap = bed.run_user(plan), report(child)
        refused = engine.refused(1)
    ways = ((ap.phases[0], user.phases[0], refused[0]), (user.phases[1], ap.phases[1], refused[1]))
    for sent, received, refused_packets in ways:
        if kbit <= EVEN_KBIT:
            check_offered(sent, kbit)
        check_measured(received, limit_kbit)
        assert received.lost_packets == sent.sent_packets - received.received_packets
        assert 0 <= refused_packets - received.lost_packets <= 1  # a message that was asked again


def check_offered(sent: PhaseReport, kbit: int) -> None:
    packets = kbit * 1000 * SECONDS / (frame_bytes(FULL_PAYLOAD_BYTES, 4) * 8)
    testbed.report(direction=sent.direction, kbit=kbit, offered=f"{sent.sent_packets / packets:.4f}")
    assert abs(sent.sent_packets - packets) <= max(1, packets * 0.01)


def check_measured(received: PhaseReport, limit_kbit: int) -> None:
    middle_bytes = sum(row[3] for row in received.seconds[1:SECONDS])
    bound_bytes = goodput_bound(limit_kbit, FULL_PAYLOAD_BYTES) * 125 * (SECONDS - 1)
    testbed.report(direction=received.direction, kbit=limit_kbit, measured=f"{middle_bytes / bound_bytes:.4f}")
    assert abs(middle_bytes - bound_bytes) <= max(FULL_PAYLOAD_BYTES, bound_bytes * 0.01)


def test_one_connection_through_an_even_limit_ends_early_and_the_attachment_point_agrees() -> None:
    tcp = TOOLS["tcp"]
    cleanup_stale(PREFIX)
    with station_bed() as bed, EngineHost(bed.ap) as engine:
        engine.must_enforce(limited(1, 50_000, key(USER, local_port=PORT)))
        ap, user = bed.both(tcp.phases(tcp.read({"seconds": 20}), 50_000, 50_000))
    assert (ap.outcome, user.outcome) == (COMPLETED, COMPLETED)
    for end in (ap, user):
        assert [5000 <= (phase.tcp or ())[0][-1][0] < 15_000 for phase in end.phases] == [True, True]
