"""Timed limits in a real kernel, with nobody there but the agent and its folder: steps, the return, a reboot."""

from __future__ import annotations

import json
import signal
import sys
import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from ap_agent.agent.store import Store
from ap_agent.common.errors import FetchError
from ap_agent.common.settings import Settings
from ap_agent.document.bundle import read_bundle
from ap_agent.reconcile import TcEngine
from lab import witness
from tests.agent_bundles import HOST_ID, PINNED, SECRET, bundle_bytes
from tests.agent_clock import Clock
from tests.kernel.conftest import Host, entry
from tests.kernel.test_agent_cli import Operator
from tests.unit.test_agent_timed import WAVE, Wall, run_until, started

pytestmark = pytest.mark.kernel

U1, U2 = "192.0.2.11", "198.51.100.11"
# Link 1: 500 kbit/s to the user AS, nothing from it; but 200 and 800 by turns from second 10 to 30 in both directions.
DOCUMENT = {
    "1": {**entry(U1, 0), "Bandwidth-To-User": 500, "Bandwidth-From-User": 0, "Timed": [WAVE]},
    "2": entry(U2, 700),
}


@pytest.fixture
def operator(host: Host, tmp_path: Path) -> Operator:
    return Operator(host, tmp_path)


@dataclass
class Kernel:
    """What `tc` says of the links, in kbit/s: to the user AS, and from it. Who drops everything has 0."""

    host: Host

    def limits(self) -> dict[int, tuple[int, int]]:
        to_user = self._rates("eth0", 1) | self._rates("eth1", 1)
        from_user = self._rates("slbw0", 3)
        return {number: (rate, from_user[number]) for number, rate in sorted(to_user.items())}

    def _rates(self, dev: str, major: int) -> dict[int, int]:
        queues = (one for one in witness.qdiscs(self.host.ap, dev) if one["kind"] == "bfifo")
        leaves = {one["parent"]: one["options"]["limit"] for one in queues}
        rates: dict[int, int] = {}
        for name, one in witness.classes(self.host.ap, dev).items():
            number = int(name.partition(":")[2], 16)
            if one.parent is None:
                is_blocked = leaves[f"{major}:{0x1000 + number:x}"] == leaves[f"{major}:{0x2000 + number:x}"] == 0
                rates[number] = 0 if is_blocked else one.rate_bits // 1000
        return rates


def test_wave_is_in_the_kernel_while_the_service_is_not_there_and_goes_on_after_a_reboot(
    host: Host, tmp_path: Path
) -> None:
    kernel, clock = Kernel(host), Clock()
    wall = Wall(clock)
    paces: dict[str, Any] = {"audit_interval_s": 3600, "receipt_interval_s": 3600, "poll_interval_s": 600}
    settings = replace(Settings(host_id=HOST_ID, state_dir=tmp_path / "state", run_dir=tmp_path / "run"), **paces)

    def whole_life() -> None:
        with TcEngine() as engine:
            loop, _ = started(settings, engine, wall, FetchError("away"), document=DOCUMENT)
            assert kernel.limits() == {1: (500, 0), 2: (700, 700)}
            structure = host.snapshot()
            seen = []
            for second in (10, 15, 20, 25, 30):
                run_until(loop, clock, 1000 + second - 0.2)
                seen.append(kernel.limits()[1])
                run_until(loop, clock, 1000 + second + 0.1)
                result = loop.agent.enforced
                assert result is not None
                assert result.result is not None
                assert {op.kind for op in result.result.plan.ops} <= {"class-change", "leaf-change", "leaf-replace"}
                assert {number for op in result.result.plan.ops for number in op.links} == {1}
            assert seen == [(500, 0), (200, 200), (800, 800), (200, 200), (800, 800)]
            assert kernel.limits() == {1: (500, 0), 2: (700, 700)}
            assert host.snapshot() == structure, "the return is a return: nothing is left of it"

    def after_a_reboot() -> None:
        wall.set_by_s -= 13  # second 17 of the document
        with TcEngine() as engine:
            started(settings, engine, wall, FetchError("away"), document=None)
            assert kernel.limits() == {1: (800, 800), 2: (700, 700)}

    host.inside(whole_life)
    host.reset()
    assert witness.classes(host.ap, "eth0") == {}
    host.inside(after_a_reboot)


def timed_now(begin_s: int, end_s: int, *steps: list[int]) -> dict[str, Any]:
    """From so many seconds after this one."""
    now = datetime.now(UTC).replace(microsecond=0)
    both = (now + timedelta(seconds=one) for one in (begin_s, end_s))
    return dict(zip(("From", "Until"), (f"{one:%Y-%m-%dT%H:%M:%SZ}" for one in both), strict=True)) | {
        "Steps": list(steps)
    }


def test_running_agent_returns_to_the_standing_limit_by_itself(operator: Operator) -> None:
    """The process as systemd starts it, with a stored configuration and a service that nobody can reach."""
    operator.configure(f'url = "https://192.0.2.99:9"\nhost_id = "{HOST_ID}"\nhost_secret = "{SECRET}"\n{PINNED}')
    document = {"1": entry(U1, 500, Timed=[timed_now(-30, 4, [0, 200, 200])])}
    Store(operator.folder / "state").save(read_bundle(bundle_bytes(document), host_id=HOST_ID))
    process = operator.host.ap.popen([sys.executable, "-m", "ap_agent", "run", "--config", str(operator.config)])
    try:
        deadline = time.monotonic() + 40
        while operator.rate_bits("slbw0", "3:1") != 500_000:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        assert operator.rate_bits("eth0", "1:1") == 500_000
    finally:
        process.send_signal(signal.SIGTERM)
        print(*process.communicate(timeout=30))


def test_command_lines_enforce_what_holds_now_and_say_until_when(operator: Operator) -> None:
    document = {"1": entry(U1, 500, Timed=[timed_now(-30, 7200, [0, 200, 0])]), "2": entry(U2, 700)}
    path = operator.link_info(document)
    until = document["1"]["Timed"][0]["Until"].replace("T", " ").replace("Z", " UTC")
    said = f"the timed limit ends at {until} (in 1 h 59 min), then 500\N{NO-BREAK SPACE}kbit/s."

    done = operator.limiter("-l", "-p", path)
    assert done.returncode == 0, done.stderr
    assert f"Link 1: 200\N{NO-BREAK SPACE}kbit/s / blocked now; {said}" in done.stdout
    assert Kernel(operator.host).limits() == {1: (200, 0), 2: (700, 700)}
    as_json = json.loads(operator.agent("show", "--json", "--link-info", path).stdout)
    assert {name: as_json["links"]["1"][name] for name in ("kbit", "to_user_kbit", "from_user_kbit")} == {
        "kbit": 0,
        "to_user_kbit": 200,
        "from_user_kbit": 0,
    }
    path.write_text(
        json.dumps({"1": {**document["1"], "Timed": [timed_now(-30, -1, [0, 200, 0])]}, "2": document["2"]})
    )
    assert operator.limiter("-l").returncode == 0
    assert Kernel(operator.host).limits() == {1: (500, 500), 2: (700, 700)}
