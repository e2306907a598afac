"""Packets across the steps of a timed limit, made by the running limiter from its document alone."""

from __future__ import annotations

import signal
import subprocess
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from ap_agent.document.handover import write_document
from lab.witness import classes
from measuring.iproute import run_command
from measuring.traffic import TrafficRun, data, heartbeats
from tests.agent_bundles import HOST_ID, PINNED
from tests.limiter_documents import handed
from tests.measured.testbed import Testbed, TestLink, assert_limit, report

NS = 1_000_000_000
LATE_S = 1.5  # a step may be a second late, and what is counted then has been on its way


def _entry(link: TestLink) -> dict[str, Any]:
    """In link_info.json (DOMAIN section 3)."""
    return {
        "AS_ID": 0xB6 + link.interface_id,
        "IsUserAS": True,
        "Bandwidth": link.kbit,
        "IP-Address": link.remote[0],
        "Port": link.remote[1],
        "Local-IP": link.local[0],
        "Local-Port": link.local[1],
        "VPN": False,
    }


def _started(bed: Testbed, folder: Path, links: dict[str, Any]) -> subprocess.Popen[str]:
    """A limiter that was handed these links."""
    (folder / "agent").mkdir()
    (folder / "maps").mkdir()
    run_command(["mount", "-t", "bpf", "bpf", str(folder / "maps")])
    config = folder / "agent.toml"
    config.write_text(
        f'url = "https://192.0.2.250:9"\nhost_id = "{HOST_ID}"\nhost_secret = "secret-of-this-host"\n{PINNED}'
        f'state_dir = "{folder}/agent"\nlimiter_state_dir = "{folder}/limiter"\nlimiter_run_dir = "{folder}/run"\n'
        f'maps_dir = "{folder}/maps"\n'
    )
    config.chmod(0o600)
    write_document(folder / "agent" / "document.json", handed(links))
    return bed.ap.python("tests.run_limiter", str(config))


def test_one_stream_has_200_then_1000_kbit_and_its_neighbour_loses_nothing(bed: Testbed, tmp_path: Path) -> None:
    quiet, stepping = TestLink(1, kbit=40_000, user=1), TestLink(2, kbit=4_000, user=2)
    begins_at = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=3)
    links = {str(one.interface_id): _entry(one) for one in (quiet, stepping)}
    links["2"]["Timed"] = [
        {
            "From": f"{begins_at:%Y-%m-%dT%H:%M:%SZ}",
            "Until": f"{begins_at + timedelta(seconds=5):%Y-%m-%dT%H:%M:%SZ}",
            "Steps": [[0, 200, 200], [3, 1000, 1000]],
        }
    ]
    limiter = _started(bed, tmp_path, links)
    try:
        deadline = time.monotonic() + 30
        while "51b0:2" not in classes(bed.ap, "slbw0"):
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
        results = TrafficRun(plan, seconds=max(left_s, 0) + 7).go().finish()
    finally:
        limiter.send_signal(signal.SIGTERM)
        print(*limiter.communicate(timeout=30))
        run_command(["umount", "--lazy", str(tmp_path / "maps")])
    for host in (bed.ap, bed.user(1)):
        assert results.lost(host, quiet.name) == 0
        assert results.lost(host, quiet.name, "heartbeat") == 0
    for host in (bed.ap, bed.user(2)):
        found = {}
        for kbit, first_s, last_s in ((200, 0, 3), (1000, 3, 5), (4000, 5, 7)):
            window = {
                "start_ns": begins_ns + int((first_s + LATE_S) * NS),
                "stop_ns": begins_ns + last_s * NS,
            }
            found[kbit] = assert_limit(results, host, stepping, kbit=kbit, warm_up_s=0, **window)
        report(at=host.short, **{f"of_{kbit}": f"{rate:.1f}" for kbit, rate in found.items()}, quiet_lost=0)
