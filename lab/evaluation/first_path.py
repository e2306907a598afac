"""How long does a user AS with an empty control service wait for its first path, at which limit?

    python -m lab.evaluation.first_path [--kbit 32 64 ...] [--runs 5]

A real SCION network (`lab.scion.net`): core AS, attachment point, user AS. For each run the user AS's link is limited
in both directions, its control service and daemon lose all they know, and the clock runs until its daemon has a path to
the core. Limits take turns, so that a slow minute of the machine is nobody's alone. Beside it, for the same limit: how
often BFD changed the state of the link until then, and what was refused.

Prints one table (Markdown) and draws it in lab/evaluation/results/first-path.svg. Needs root and ./dev scion.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from lab.bench import plots
from lab.bench.engines import Engine
from lab.bench.plots import Plot
from lab.evaluation.__main__ import RESULTS
from lab.scion.net import CORE, USER_LINK, ScionNet
from lab.scion.programs import missing, version
from measuring.iproute import LabError, available, cleanup_stale

PREFIX = "slbwpath"
LIMITS_KBIT = (32, 48, 64, 100, 128, 200, 500, 1000)
DEADLINE_S = 120.0


@dataclass(frozen=True)
class Run:
    """`seconds` is None where there was no path in time."""

    kbit: int
    seconds: float | None
    state_changes: int
    refused_packets: int


def measure(net: ScionNet, engine: Engine, kbit: int) -> Run:
    """Raises `LabError`, `RuntimeError`."""
    engine.enforce(net.link_info(kbit))
    changes, refused = net.ap.state_changes(), _refused(engine)
    net.user.forget_paths()
    seconds = net.user.time_until_path(CORE, DEADLINE_S)
    return Run(kbit, seconds, net.ap.state_changes() - changes, _refused(engine) - refused)


def _refused(engine: Engine) -> int:
    return sum(one.refused_packets for (number, _), one in engine.counters().items() if number == USER_LINK)


def runs(limits: Sequence[int], count: int) -> Iterator[Run]:
    with tempfile.TemporaryDirectory(prefix=f"{PREFIX}-") as folder, ScionNet(PREFIX, Path(folder)) as net:
        for number in range(count):
            for kbit in limits:
                with Engine(net.ap.namespace) as engine:
                    found = measure(net, engine, kbit)
                    engine.enforce({})
                said = "none" if found.seconds is None else f"{found.seconds:.1f} s"
                print(f"run {number + 1} of {count}, {kbit} kbit/s: {said}", file=sys.stderr, flush=True)
                yield found
                # A link that was down, or a core that lost beacons, must not be the next limit's.
                if net.user.time_until_path(CORE, 60.0) is None:
                    raise LabError("without a limit there is no path again within 60 s")


def table(found: Sequence[Run]) -> str:
    """One row per limit."""
    lines = [
        "| kbit/s | with a path | shortest [s] | median [s] | longest [s] | BFD changes | refused packets |",
        "| ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for kbit in sorted({one.kbit for one in found}):
        here = [one for one in found if one.kbit == kbit]
        times = sorted(one.seconds for one in here if one.seconds is not None)
        # A run without a path took at least until the deadline, so it belongs to the long ones.
        median = statistics.median(times + [DEADLINE_S] * (len(here) - len(times)))
        shown = [f"{one:.1f}" for one in (times[0], median, times[-1])] if times else ["-", "-", "-"]
        if times and median == DEADLINE_S:
            shown[1] = f"> {DEADLINE_S:g}"
        counts = [str(sum(one.state_changes for one in here)), str(sum(one.refused_packets for one in here))]
        lines.append(f"| {kbit} | {len(times)} of {len(here)} | {' | '.join(shown + counts)} |")
    return "\n".join(lines)


def plot(found: Sequence[Run]) -> Plot:
    """Median over the limit, with the shortest and the longest run; no path is the deadline."""
    times: dict[int, list[float]] = {}
    for one in sorted(found, key=lambda one: one.kbit):
        times.setdefault(one.kbit, []).append(DEADLINE_S if one.seconds is None else one.seconds)
    return Plot(
        "first-path",
        f"First path of a user AS with an empty control service, SCION {version()}",
        f"seconds ({DEADLINE_S:g}: none)",
        "limit in both directions [kbit/s]",
        lines={"first path": [(kbit, statistics.median(of_limit)) for kbit, of_limit in times.items()]},
        spread={"first path": [(min(of_limit), max(of_limit)) for of_limit in times.values()]},
    )


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m lab.evaluation.first_path", description=__doc__.partition("\n")[0])
    parser.add_argument("--kbit", type=int, nargs="+", default=list(LIMITS_KBIT), metavar="N")
    parser.add_argument("--runs", type=int, default=5, metavar="N")
    given = parser.parse_args(arguments)
    reason = missing() or available()
    if reason is not None:
        print(reason, file=sys.stderr)
        return 2
    cleanup_stale(PREFIX)
    found = list(runs(given.kbit, given.runs))
    print(f"SCION {version()}: time until the first path\n\n{table(found)}")
    RESULTS.mkdir(parents=True, exist_ok=True)
    plots.draw([plot(found)], RESULTS)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
