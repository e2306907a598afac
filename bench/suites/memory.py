"""What a link costs in memory: the kernel's, from its own accounts before and after, and the agent's.

The agent is a process of its own here. What the kernel holds is the growth of `Slab` and `Percpu` in /proc/meminfo;
`MemAvailable` moves with everything else on the machine and is only a second opinion.
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

from bench.core import Outcome, Scale, Step
from bench.plots import Plot
from bench.report import NOTHING, Table, figure
from bench.world import IFB, NIC, PREFIX, attachment_point, tear_down
from measuring.netns import Lab, LabError

NAME = "memory"
TITLE = "Memory"
KERNEL_FIELDS = ("Slab", "Percpu", "MemAvailable")
AGENT_FIELDS = ("before", "after", "peak")


def steps(scale: Scale) -> list[Step]:
    full = [(1000, 1, 3.0), (4000, 1, 20.0)]
    return [
        Step(f"{size} links", seconds, partial(_measure, size, times))
        for size, times, seconds in scale.pick(full, [(200, 1, 3.0)])
    ]


def _measure(size: int, repetitions: int, outcome: Outcome) -> None:
    for _ in range(repetitions):
        with Lab(PREFIX) as lab:
            host = attachment_point(lab)
            before = kernel_bytes()
            agent = host.python("bench.agent_memory", str(size))
            said, complaints = agent.communicate(timeout=180)
            if agent.returncode != 0:
                raise LabError(f"the agent ended with {agent.returncode}: {complaints.strip()[-500:]}")
            after = kernel_bytes()
            for name in KERNEL_FIELDS:
                grown = before[name] - after[name] if name == "MemAvailable" else after[name] - before[name]
                outcome.add(grown, "bytes", who="kernel", what=name, size=size)
            for name, value in json.loads(said).items():
                outcome.add(value, "bytes", who="agent", what=name, size=size)
            tear_down(host, NIC, IFB)


def kernel_bytes() -> dict[str, int]:
    """These accounts of the whole machine, in bytes."""
    found = {}
    for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
        name, _, rest = line.partition(":")
        if name in KERNEL_FIELDS:
            found[name] = int(rest.split()[0]) * 1024
    return found


def tables(outcome: Outcome) -> list[Table]:
    sizes = sorted(int(one) for one in outcome.values("size", who="kernel", what="Slab"))
    return [
        Table(
            "Kernel memory per link (both directions), kB",
            ["links", *KERNEL_FIELDS],
            [[str(size), *(_per_link(outcome, name, size) for name in KERNEL_FIELDS)] for size in sizes],
        ),
        Table(
            "Resident memory of the agent's process, MB",
            ["links", "before the cycle", "after it", "largest"],
            [[str(size), *(_megabytes(outcome, name, size) for name in AGENT_FIELDS)] for size in sizes],
        ),
    ]


def _per_link(outcome: Outcome, name: str, size: int) -> str:
    value = outcome.median(who="kernel", what=name, size=size)
    return NOTHING if value is None else figure(value / size / 1000)


def _megabytes(outcome: Outcome, name: str, size: int) -> str:
    value = outcome.median(who="agent", what=name, size=size)
    return NOTHING if value is None else figure(value / 1e6)


def plots(outcome: Outcome) -> list[Plot]:
    """Two numbers need no plot."""
    del outcome
    return []
