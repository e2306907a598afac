"""Today's engine in a process of its own, driven by lines of JSON on stdin; `lab.bench.engines.Engine` sends them.

    python -m lab.bench.engine_program MAPS_DIR

Orders: enforce (links as link_info.json has them, is_settled, is_recorded), counters, memory.
"""

from __future__ import annotations

import base64
import json
import resource
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ap_agent.dataplane.engine import Engine
from ap_agent.dataplane.outcome import Outcome
from ap_agent.dataplane.program import Key
from ap_agent.dataplane.wanted import LimitedLink, Wanted
from contract.link_info import LinkInfo, check_link_info
from lab.bench.rtnl import Recorder


def wanted_of(links: Mapping[int, LinkInfo]) -> Wanted:
    """Links as the engine wants them: by address and ports where they are known, else by address alone. Their tests
    that send hold, whatever the clock says."""
    return Wanted({number: limited(link) for number, link in links.items() if link.is_user_as})


def limited(link: LinkInfo) -> LimitedLink:
    key = Key(link.remote_ip, link.remote_port, link.local_ip, link.local_port)
    tests = [Key(link.remote_ip, local_port=one.port) for one in link.tests if one.port is not None]
    return LimitedLink(link.interface_id, (key, *tests), link.limits.to_user_kbit, link.limits.from_user_kbit)


class Program:
    """One engine, and what it is told."""

    def __init__(self, maps_dir: Path, recorder: Recorder) -> None:
        self._recorder = recorder
        self._engine = Engine(maps_dir)

    def answer(self, order: Mapping[str, Any]) -> dict[str, Any]:
        what = order["what"]
        if what == "enforce":
            wanted = wanted_of(check_link_info(order["links"]))
            return self._cycle(
                lambda: self._engine.enforce(wanted, is_settled=order["is_settled"]), is_recorded=order["is_recorded"]
            )
        if what == "memory":
            return {"resident": status_bytes("VmRSS")}
        counters = self._engine.counters()
        return {"found": [(number, way, list(found)[:4]) for (number, way), (_, found) in counters.items()]}

    def _cycle(self, cycle: Callable[[], Outcome], *, is_recorded: bool) -> dict[str, Any]:
        recording = self._recorder.start()
        cpu_s, began = cpu_time_s(), time.perf_counter()
        outcome = cycle()
        seconds = time.perf_counter() - began
        return {
            "seconds": seconds,
            "cpu_s": cpu_time_s() - cpu_s,
            "writes": outcome.writes,
            "is_ok": outcome.is_ok,
            "problems": [f"{one.code}: {one.message}" for one in outcome.problems],
            "sends": [base64.b64encode(one).decode() for one in recording.sends] if is_recorded else [],
        }


def cpu_time_s() -> float:
    """Of this process, in the kernel and outside."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def status_bytes(field: str) -> int:
    """A field of /proc/self/status that is in kB."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise LookupError(f"/proc/self/status has no {field}")


def main(maps_dir: Path) -> int:
    with Recorder() as recorder:
        program = Program(maps_dir, recorder)
        print("{}", flush=True)
        for line in sys.stdin:
            print(json.dumps(program.answer(json.loads(line))), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
