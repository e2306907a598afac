"""Packets across the steps of a timed limit, made by the running limiter from its document alone."""

from __future__ import annotations

import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from measuring.traffic import TrafficRun, data, ends, heartbeats
from tests.agent_bundles import entry
from tests.kernel.engine_bed import AP1, AP2, AP_PORT, U1, U2, USER_PORT, engine_bed
from tests.kernel.limiter_host import LimiterHost

NS = 1_000_000_000
LATE_S = 1.5  # a step may be a second late, and what is counted then has been on its way


@pytest.mark.usefixtures("_namespaces")
def test_one_stream_has_200_then_1000_kbit_and_its_neighbour_loses_nothing() -> None:
    begins_at = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=3)
    timed = {
        "From": f"{begins_at:%Y-%m-%dT%H:%M:%SZ}",
        "Until": f"{begins_at + timedelta(seconds=5):%Y-%m-%dT%H:%M:%SZ}",
        "Steps": [[0, 200, 200], [3, 1000, 1000]],
    }
    with engine_bed() as bed, tempfile.TemporaryDirectory() as folder:
        limiter = LimiterHost(bed, Path(folder))
        limiter.hand({"1": entry(40_000, U1, USER_PORT), "2": {**entry(4_000, U2, USER_PORT), "Timed": [timed]}})
        limiter.start()
        try:
            limiter.until(lambda state: state.is_ok and set(state.links) == {1, 2})
            quiet = ends("quiet", (AP1, AP_PORT), (U1, USER_PORT), (data(10_000, 958), heartbeats()))
            stepping = ends("stepping", (AP2, AP_PORT), (U2, USER_PORT), (data(6_000, 958),))
            plan = {bed.ap: [quiet[0], stepping[0]], bed.u1: [quiet[1]], bed.u2: [stepping[1]]}
            left_s = (begins_at - datetime.now(UTC)).total_seconds()
            begins_ns = time.monotonic_ns() + int(left_s * NS)
            results = TrafficRun(plan, seconds=max(left_s, 0) + 7).go().finish()
        finally:
            limiter.end()
    for host in (bed.ap, bed.u1):
        assert results.lost(host, "quiet") == 0
        assert results.lost(host, "quiet", "heartbeat") == 0
    for host in (bed.ap, bed.u2):
        for kbit, first_s, last_s in ((200, 0, 3), (1000, 3, 5), (4000, 5, 7)):
            from_ns, until_ns = begins_ns + int((first_s + LATE_S) * NS), begins_ns + last_s * NS
            verdict = results.judge_rate(host, "stepping", kbit, warm_up_s=0, start_ns=from_ns, stop_ns=until_ns)
            assert verdict.holds, f"{host.short}: {verdict}"
