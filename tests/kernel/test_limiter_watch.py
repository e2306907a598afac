"""A watch with real packets: its samples add up to what was sent, also where the limiter was killed meanwhile."""

from __future__ import annotations

import signal
import threading
import time
from datetime import UTC, datetime, timedelta

import pytest

from ap_agent.dataplane.outcome import Readback
from ap_agent.document.series import Series, read_series
from contract.link_tests import LinkTest
from measuring.judge import all_pauses_s
from measuring.traffic import Results, data, ends, heartbeats, run_traffic
from scionlab.linktests.verdict import intervals_of
from tests.agent_bundles import entry
from tests.kernel.engine_bed import AP1, U1, USER_PORT, EngineBed, engine_bed, link, wanted
from tests.kernel.limiter_host import LimiterHost, host

__all__ = ["host"]  # the fixture
TEST_ID = "0f" * 16
WATCHED_S, SENDING_S = 9, 6.0


def finished(host: LimiterHost) -> Series:
    deadline = time.monotonic() + WATCHED_S + 20
    while time.monotonic() < deadline:
        found = read_series(host.run_dir)
        if found and found[0].is_over:
            return found[0]
        time.sleep(0.1)
    raise AssertionError(host.log())


@pytest.mark.parametrize(
    "is_killed",
    [pytest.param(False, id="undisturbed"), pytest.param(True, id="limiter killed", marks=pytest.mark.long)],
)
def test_counters_of_a_watch_are_what_was_sent(host: LimiterHost, is_killed: bool) -> None:
    limited = entry(500, U1, USER_PORT)
    host.hand({"7": limited})
    host.start()  # which may take seconds beside other tests
    host.until(lambda state: state.is_ok and bool(state.links))
    begins_at = (datetime.now(UTC) + timedelta(seconds=4)).replace(microsecond=0)
    watch = LinkTest(begins_at, begins_at + timedelta(seconds=WATCHED_S), TEST_ID)
    host.hand({"7": {**limited, "Tests": [watch.statement()]}}, limits=8)
    host.until(lambda state: state.tests == (TEST_ID,))
    time.sleep(max(0.0, (begins_at - datetime.now(UTC)).total_seconds() + 1.5))

    def kill() -> None:
        host.end(signal.SIGKILL)
        time.sleep(1)
        host.start()

    thread = threading.Timer(SENDING_S / 2, kill if is_killed else lambda: None)
    thread.start()
    left, right = ends("watched", (AP1, 51_000), (U1, USER_PORT), (data(1500, 1000),))
    sent = run_traffic({host.bed.ap: [left], host.bed.u1: [right]}, seconds=SENDING_S)
    thread.join()

    series = finished(host)
    rows = [list(sample) for sample in series.samples]
    for direction, sender in (("to_user", host.bed.ap), ("from_user", host.bed.u1)):
        found = intervals_of(rows, direction)  # type: ignore[arg-type]  # a name of a direction
        passed, dropped = sum(one.passed_packets for one in found), sum(one.dropped_packets for one in found)
        assert passed + dropped == pytest.approx(sent.at(sender, "watched").sent(), abs=1), direction
        assert dropped > 0
        assert {one.limit_kbit for one in found} == {500}
        full = [one.kbit for one in found if one.is_full]
        assert sum(full) / len(full) == pytest.approx(500, rel=0.35), direction  # a queue's room in the first second
    gaps = [one.took_ms for one in intervals_of(rows, "to_user") if not one.is_second]
    assert bool(gaps) == is_killed
    assert [round(sample.at_ms / 1000 - begins_at.timestamp()) for sample in series.samples][-1] == WATCHED_S
    host.until(lambda state: state.tests == ())


def test_what_waits_when_a_limit_is_lowered_arrives_and_heartbeats_pass_it_by() -> None:
    """250 kB wait at 20 Mbit/s: 4 s at 500 kbit/s, and more than a queue of 500 kbit/s may hold."""
    for _ in range(4):
        with engine_bed() as bed:
            results, htbs = _lowered_under_load(bed)
            counted = bed.engine.counters()
        if max(map(all_pauses_s, results.pauses_of.values())) < 0.02:
            break  # else HTB was late, and is behind what the program knows
    for direction, receiver, htb in (("to_user", bed.u1, htbs[0]), ("from_user", bed.ap, htbs[1])):
        assert htb is not None
        assert htb.dropped_packets == 0, direction
        passed = counted[7, direction][1].passed_packets  # type: ignore[index]  # a name of a direction
        assert passed == len(results.all_arrivals(receiver, "w")), direction
        assert results.heartbeats(receiver, "w").downs == 0, direction


def _lowered_under_load(bed: EngineBed) -> tuple[Results, tuple[Readback | None, Readback | None]]:
    bed.enforce(wanted(link(7, 20_000)))
    thread = threading.Timer(1.5, lambda: bed.enforce(wanted(link(7, 500)), is_settled=True))
    thread.start()
    left, right = ends("w", (AP1, 51_000), (U1, USER_PORT), (data(30_000, 1000), heartbeats()))
    results = run_traffic({bed.ap: [left], bed.u1: [right]}, seconds=5.0, linger_s=4.0)
    thread.join()
    return results, bed.ap.call(lambda: bed.engine.readback([7]))[7]
