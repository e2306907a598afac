"""The first engine, driven by lines of JSON: runs in a checkout of its commit, never with today's `ap_agent`.

    python -P first_engine_program.py        with PYTHONPATH at the checkout, in the network namespace of the host

Each line of stdin is one order, each answer one line of stdout; see `bench.first_engine`, which sends them. Modules of
the checkout are imported by name, because today's tree has none of them.
"""

from __future__ import annotations

import importlib
import json
import resource
import sys
import time
from typing import Any


def serve() -> None:
    """Until stdin ends."""
    model = importlib.import_module("ap_agent.model")
    check_link_info = importlib.import_module("bandwidth_config").check_link_info
    with importlib.import_module("ap_agent.reconcile").TcEngine() as engine:
        print("{}", flush=True)
        for line in sys.stdin:
            order = json.loads(line)
            settings = model.EngineSettings(whole_datagrams=order["is_whole"])
            links = check_link_info(order["links"])
            print(json.dumps(_cycle(engine, links, settings, is_settled=order["is_settled"])), flush=True)


def _cycle(engine: Any, links: Any, settings: Any, *, is_settled: bool) -> dict[str, Any]:
    cpu_s, began = _cpu_s(), time.perf_counter()
    result = engine.reconcile(links, settings, is_settled=is_settled)
    return {
        "seconds": time.perf_counter() - began,
        "cpu_s": _cpu_s() - cpu_s,
        "writes": result.writes,
        "problems": [f"{one.code}: {one.message}" for one in result.problems],
        "is_ok": result.ok,
    }


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    serve()
