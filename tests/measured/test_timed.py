"""Packets across the steps of a timed limit, made by the running agent from its stored document alone."""

from __future__ import annotations

import signal
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from ap_agent.agent.store import Store
from ap_agent.document.bundle import read_bundle
from lab.witness import classes
from measuring.traffic import TrafficRun, data, heartbeats
from tests.agent_bundles import HOST_ID, PINNED, SECRET, bundle_bytes
from tests.measured.testbed import Testbed, TestLink, assert_limit, document, report

NS = 1_000_000_000
LATE_S = 1.0  # a step may be as late as this


def test_one_stream_has_200_then_1000_kbit_and_its_neighbour_loses_nothing(bed: Testbed, tmp_path: Path) -> None:
    quiet, stepping = TestLink(1, kbit=12_000, user=1), TestLink(2, kbit=4_000, user=2)
    begins_at = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=5)
    links = document([quiet, stepping])
    links["2"]["Timed"] = [
        {
            "From": f"{begins_at:%Y-%m-%dT%H:%M:%SZ}",
            "Until": f"{begins_at + timedelta(seconds=7):%Y-%m-%dT%H:%M:%SZ}",
            "Steps": [[0, 200, 200], [4, 1000, 1000]],
        }
    ]
    config = tmp_path / "agent.toml"
    config.write_text(
        f'url = "https://192.0.2.250:9"\nhost_id = "{HOST_ID}"\nhost_secret = "{SECRET}"\n{PINNED}'
        f'state_dir = "{tmp_path}/state"\nrun_dir = "{tmp_path}/run"\n'
    )
    config.chmod(0o600)
    Store(tmp_path / "state").save(read_bundle(bundle_bytes(links), host_id=HOST_ID))
    agent = bed.ap.popen([sys.executable, "-m", "ap_agent", "run", "--config", str(config)])
    try:
        deadline = time.monotonic() + 30
        while "1:2" not in classes(bed.ap, "eth0"):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        plan = bed.plan(
            [
                (quiet, quiet.ends((data(10_000, 958), heartbeats()))),
                (stepping, stepping.ends((data(6_000, 958),))),
            ]
        )
        left_s = (begins_at - datetime.now(UTC)).total_seconds()
        begins_ns = time.monotonic_ns() + int(left_s * NS)
        results = TrafficRun(plan, seconds=max(left_s, 0) + 9).go().finish()
    finally:
        agent.send_signal(signal.SIGTERM)
        print(*agent.communicate(timeout=30))
    for host in (bed.ap, bed.user(1)):
        assert results.lost(host, quiet.name) == 0
        assert results.lost(host, quiet.name, "heartbeat") == 0
    for host in (bed.ap, bed.user(2)):
        found = {}
        for kbit, first_s, last_s in ((200, 0, 4), (1000, 4, 7), (4000, 7, 9)):
            window = {
                "start_ns": begins_ns + int((first_s + LATE_S) * NS),
                "stop_ns": begins_ns + last_s * NS,
            }
            found[kbit] = assert_limit(results, host, stepping, kbit=kbit, warm_up_s=0, **window)
        report(at=host.short, **{f"of_{kbit}": f"{rate:.1f}" for kbit, rate in found.items()}, quiet_lost=0)
