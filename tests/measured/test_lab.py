"""The lab itself: clocks that agree, and a station that sends what it says."""

from __future__ import annotations

import pytest

from lab.witness import links, traces
from measuring.iproute import LabError
from measuring.judge import delays_ms
from measuring.traffic import TrafficRun, data, heartbeats, run_traffic
from tests.measured.testbed import Testbed, TestLink, report

pytestmark = pytest.mark.usefixtures("_namespaces")


def test_a_fresh_host_has_no_traffic_control_and_wires_make_no_large_frames(bed: Testbed) -> None:
    assert traces(bed.ap) == []
    assert links(bed.ap)["eth0"]["gso_max_segs"] == 1


def test_without_limits_everything_arrives_as_it_was_sent(bed: Testbed) -> None:
    both = [TestLink(1, kbit=20_000, user=1), TestLink(2, kbit=20_000, user=2, family=6)]
    results = run_traffic(bed.plan((one, one.ends((heartbeats(), data(20_000, 1400)))) for one in both), seconds=2)
    for link, host in ((one, host) for one in both for host in (bed.ap, bed.user(one.user))):
        end = results.at(host, link.name)
        assert results.lost(host, link.name) == 0
        assert (len(end.heartbeats), results.heartbeats(host, link.name).downs) == (10, 0)
        assert end.unknown == 0
        beats_kbit = 5 * end.wire.bytes(92 if link.family == 4 else 116) / 125
        verdict = results.judge_rate(host, link.name, 20_000 + round(beats_kbit))
        assert verdict.holds, str(verdict)
        delays = delays_ms(end.data)
        report(family=link.family, least_ms=f"{min(delays):.3f}", most_ms=f"{max(delays):.3f}")
        # One clock for all namespaces: no packet arrives before it was sent, and none spends long on a wire of memory.
        assert 0 <= min(delays) < 1


def test_a_stream_lasts_from_its_start_to_its_stop(bed: Testbed) -> None:
    link = TestLink(1, kbit=1_000, user=1)
    results = run_traffic(bed.plan([(link, link.ends((data(1_000, 1000, start_s=0.5, stop_s=1.0),)))]), seconds=1.5)
    arrivals = results.at(bed.user(1), link.name).data
    first_s = (arrivals.arrived_ns[0] - results.start_ns) / 1e9
    last_s = (arrivals.arrived_ns[-1] - results.start_ns) / 1e9
    assert len(arrivals) == pytest.approx(0.5 * 1_000_000 / 8 / 1042, abs=1)
    assert 0.5 <= first_s < 0.6
    assert 0.9 < last_s < 1.1


def test_a_station_that_cannot_bind_is_an_error_that_says_why(bed: Testbed) -> None:
    link = TestLink(1, kbit=1_000, user=1, local_address="198.51.100.7")
    with pytest.raises(LabError, match="Cannot assign requested address"):
        TrafficRun(bed.plan([(link, link.ends(()))]), seconds=1)
