"""What counting usage costs the agent (docs/adr/0014).

    python -m lab.bench.agent_usage [LINKS] [SAMPLES]

The limiter's state of so many links, all of whose counters change, as the agent takes it: read the file, keep a sample
on the disk, close a batch each minute; and for how long that keeps the agent's loop from anything else. Needs no
rights. Prints medians.
"""

from __future__ import annotations

import gc
import random
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from prometheus_client import generate_latest

from ap_agent.agent.background import Background
from ap_agent.agent.metrics import Snapshot, Values
from ap_agent.agent.usage import Usage
from ap_agent.common.log import get_logger
from ap_agent.common.settings import Settings
from ap_agent.document.signed_text import Version
from ap_agent.document.state import Counters, DirectionState, LimiterState, LinkState, parse_state, state_bytes
from ap_agent.usage.sampler import Sampler
from ap_agent.usage.spool import FILE_NAME, Spool
from bandwidth_config import Limits

_BEGAN = datetime(2026, 11, 21, 6, 0, tzinfo=UTC)
_INTERVAL_S = 10.0


@dataclass
class Cost:
    """Of one step, in seconds: passed, and of this process's processor time."""

    wall_s: list[float]
    cpu_s: list[float]

    def __str__(self) -> str:
        wall, cpu = statistics.median(self.wall_s), statistics.median(self.cpu_s)
        return f"{wall * 1000:.1f} ms (at most {max(self.wall_s) * 1000:.1f}), {cpu * 1000:.1f} ms of CPU"


def cost(step: Callable[[], object], found: Cost) -> object:
    began, cpu = time.perf_counter(), time.process_time()
    result = step()
    found.wall_s.append(time.perf_counter() - began)
    found.cpu_s.append(time.process_time() - cpu)
    return result


def state_of(links: int, turn: int) -> LimiterState:
    """The `turn`-th state: each link passed some hundred packets more in each direction."""

    def side(number: int, segment: int) -> DirectionState:
        packets = turn * (300 + number % 700)
        counters = Counters(packets * 1211, packets, turn * number % 5000, turn % 7, turn * 24, turn)
        return DirectionState(2000, segment << 32 | number, counters, turn % 3, number % 20_000)

    found = {
        number: LinkState(number, Limits(2000, 2000), "enforced", None, side(number, 7), side(number, 8))
        for number in range(1, links + 1)
    }
    moment = _BEGAN + timedelta(seconds=_INTERVAL_S * turn)
    return LimiterState("1f" * 16, turn + 1, moment, moment, "host", Version(1, 18, 7), "ab" * 32, True, 0, found)


def longest_pauses(links: int, batches: int) -> list[float]:
    """For how long (s) a thread that wants to do something every millisecond was kept from it as each batch closed."""
    pauses: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(state_dir=Path(folder) / "state")
        woken = threading.Event()
        usage = Usage(
            settings, {}, get_logger(), Background(woken.set), monotonic=time.monotonic, uniform=random.uniform
        )
        for turn in range(6 * batches):
            state = state_of(links, turn)
            woken.clear()
            last = time.perf_counter()
            longest = 0.0
            usage.take(state)
            while not usage.background.is_free:
                now = time.perf_counter()
                longest, last = max(longest, now - last), now
                woken.wait(0.001)
                usage.background.finish()
            if turn % 6 == 5:
                pauses.append(longest)
    return pauses


def measure(links: int, samples: int) -> None:
    gc.collect()
    gc.freeze()
    names = ("read the state file", "keep a sample", "keep one that closes a batch", "a scrape of the metrics")
    costs = {name: Cost([], []) for name in names}
    with tempfile.TemporaryDirectory() as folder:
        spool = Spool(Path(folder) / FILE_NAME)
        sampler, values = Sampler(spool), Values()
        for turn in range(samples):
            data = state_bytes(state_of(links, turn))
            state = cost(lambda data=data: parse_state(data), costs["read the state file"])  # type: ignore[misc]
            assert isinstance(state, LimiterState)  # noqa: S101 - for the type checker
            closes = turn % 6 == 5
            name = "keep one that closes a batch" if closes else "keep a sample"
            cost(lambda state=state: sampler.take(state, _INTERVAL_S), costs[name])  # type: ignore[misc]
            if closes:
                values.snapshot = Snapshot(state=replace(state), is_silent=False)
                cost(lambda: generate_latest(values.registry), costs["a scrape of the metrics"])
        batch = spool.oldest()
        spool.close()
    for name, found in costs.items():
        if found.wall_s:
            print(f"{name}: {found}")
    pauses_ms = [pause * 1000 for pause in longest_pauses(links, max(1, samples // 6))]
    print(f"the loop is kept from its work for {statistics.median(pauses_ms):.1f} ms (at most {max(pauses_ms):.1f})")
    print(f"the state file: {len(data) / 1000:.0f} kB; a batch: {len(batch.data) / 1000 if batch else 0:.0f} kB")


if __name__ == "__main__":
    measure(*[int(one) for one in (sys.argv[1:3] + ["4000", "60"][len(sys.argv[1:3]) :])])
