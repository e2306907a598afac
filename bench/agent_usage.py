"""What counting usage costs the agent (docs/adr/0014).

    python -m bench.agent_usage [LINKS] [SAMPLES]

As root: an attachment point with one interface and the IFB, all links limited, a few packets on each link before every
sample, so that all counters differ. Prints medians.
"""

from __future__ import annotations

import gc
import socket
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ap_agent.agent.metrics import Metrics, Snapshot
from ap_agent.model import EngineSettings, LinkState
from ap_agent.reconcile import TcEngine
from ap_agent.usage.keeper import Keeper, Sample
from ap_agent.usage.reading import Layouts, UsageReader, decode
from bandwidth_config import LinkInfo
from bench.world import IFB, NIC, PREFIX, attachment_point, local_port, make_links, remote_port, with_limit
from measuring.netns import Lab

CHANGES = 40
_EPOCH = 1_795_300_020.0


@dataclass
class Cost:
    """Of one step, in seconds: passed, and of this process's processor time."""

    wall_s: list[float]
    cpu_s: list[float]

    def __str__(self) -> str:
        return f"{statistics.median(self.wall_s) * 1000:.1f} ms, {statistics.median(self.cpu_s) * 1000:.1f} ms of CPU"


def cost(times: int, step: Callable[[], object], before: Callable[[], object] = lambda: None) -> Cost:
    found = Cost([], [])
    for _ in range(times):
        before()
        began, cpu = time.perf_counter(), time.process_time()
        step()
        found.wall_s.append(time.perf_counter() - began)
        found.cpu_s.append(time.process_time() - cpu)
    return found


def touch(links: Mapping[int, LinkInfo], turn: list[int]) -> None:
    """1 to 4 packets on each link, other ones each time."""
    turn[0] += 1
    for number, link in links.items():
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            one.bind(("192.0.2.1", local_port(number)))
            for _ in range((number + turn[0]) % 4 + 1):
                one.sendto(b"x" * (100 + number % 900), (str(link.remote_ip), remote_port(number)))


def measure(count: int, samples: int) -> None:
    links = make_links(count, kbit=2_000)
    with TcEngine() as engine, tempfile.TemporaryDirectory() as folder:
        states = engine.reconcile(links, EngineSettings()).links
        gc.collect()
        _samples(links, states, Path(folder), samples)
        _beside(engine, links, states, Path(folder))


def _samples(links: Mapping[int, LinkInfo], states: tuple[LinkState, ...], folder: Path, samples: int) -> None:
    clock, turn = [_EPOCH], [0]
    reader, layouts = UsageReader(), Layouts()

    def tick() -> None:
        touch(links, turn)
        clock[0] += 10

    print(f"{len(links)} links, {samples} samples (medians)")
    print(f"dump of both devices: {cost(samples, lambda: reader.read([NIC, IFB]))}")
    devices = reader.read([NIC, IFB])
    print(f"  {sum(len(piece) for one in devices for piece in one.pieces)} bytes")
    print(f"decoding: {cost(samples, lambda: [decode(one.pieces, one.major, layouts) for one in devices])}")
    keeper = Keeper(folder / "usage", UsageReader, now=lambda: clock[0], interval_s=lambda: 10.0)
    job = Sample("1.1", states, lambda: True)
    whole = cost(samples, lambda: keeper.work([job]), tick)
    print(f"a sample, from the dump to the disk: {whole}")
    print(f"  the slowest (it closes a batch): {max(whole.wall_s) * 1000:.0f} ms; mean CPU "
          f"{statistics.mean(whole.cpu_s) * 10:.2f} % of a core at one in 10 s")  # fmt: skip
    closed = keeper.spool.closed()
    sizes = [path.stat().st_size for path in closed]
    print(f"  batches on the disk: {len(sizes)}, {statistics.median(sizes):.0f} bytes")
    kept = keeper.work([job])
    metrics = Metrics()
    metrics.publish(Snapshot("1.1", 1, links, enforced=len(links), newest=kept.newest))
    print(f"metrics: {cost(5, metrics.text)}, {len(metrics.text())} bytes")


def _beside(engine: TcEngine, links: Mapping[int, LinkInfo], states: tuple[LinkState, ...], folder: Path) -> None:
    """One limit changed at a time, alone and while another thread samples without a pause."""
    is_over = threading.Event()
    keeper = Keeper(folder / "beside", UsageReader, interval_s=lambda: 10.0)

    def sample() -> None:
        while not is_over.is_set():
            keeper.work([Sample("1.1", states, lambda: True)])

    def change(turn: list[int] = [0]) -> None:  # noqa: B006  # counts
        turn[0] += 1
        engine.reconcile(with_limit(links, 7, 2_000 + turn[0]), EngineSettings(), is_settled=True)

    alone = cost(CHANGES, change)
    thread = threading.Thread(target=sample)
    thread.start()
    beside = cost(CHANGES, change)
    is_over.set()
    thread.join()
    for name, found in (("alone", alone), ("while sampling all the time", beside)):
        ordered = sorted(found.wall_s)
        print(f"one limit changed, {name}: {ordered[len(ordered) // 2] * 1000:.1f} ms, "
              f"95 % within {ordered[int(len(ordered) * 0.95)] * 1000:.1f} ms")  # fmt: skip


def main(count: int = 4000, samples: int = 18) -> int:
    with Lab(PREFIX) as lab:
        host = attachment_point(lab)
        host.call(lambda: measure(count, samples))
    return 0


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
