"""How long does a user AS with an empty control service wait for its first path, at which limit?

    python -m lab.evaluation.first_path [--kbit 32 64 ...] [--room 1 4] [--runs 5] [--deadline 120] [--out FOLDER]
    python -m lab.evaluation.first_path --of FILE ...

A real SCION network (`lab.scion.net`): core AS, attachment point, user AS. For each run the user AS's link is limited
in both directions, its control service and daemon lose all they know, and the clock runs until its daemon has a path to
the core. Limits take turns, so that a slow minute of the machine is nobody's alone. Beside it, for the same limit: how
often BFD changed the state of the link until then, and what was refused. `--room` tries deeper queues: multiples of the
room that the limiter gives to each link.

Prints one table (Markdown) and draws it in FOLDER/first-path.svg; each run is a line of JSON in
FOLDER/first_path.jsonl. Needs root and ./dev scion; with `--of`, runs of before are shown and nothing is measured.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from contract.link_info import check_link_info
from lab.bench import plots
from lab.bench.engines import Engine
from lab.bench.plots import Plot
from lab.scion.net import CORE, USER_LINK, ScionNet
from lab.scion.programs import missing, version
from measuring.iproute import LabError, available, cleanup_stale
from measuring.netns import Namespace

PREFIX = "slbwpath"
LIMITS_KBIT = (32, 48, 64, 100, 128, 200, 500, 1000)


class DeepEngine(Engine):
    """The engine with `room` times the virtual queue that each link has otherwise."""

    def __init__(self, host: Namespace, room: int) -> None:
        """Raises `RuntimeError` where it does not start."""
        code = f"""
import runpy
from ap_agent.dataplane import lanes
shipped = lanes.room_bytes
lanes.room_bytes = lambda kbit: shipped(kbit) * {room}
runpy.run_module("lab.bench.engine_program", run_name="__main__", alter_sys=True)
"""
        super().__init__(host, ("-c", code))


@dataclass(frozen=True)
class Run:
    """`room` is a multiple of the limiter's own; `seconds` is None where there was no path in time."""

    kbit: int
    room: int
    seconds: float | None
    state_changes: int
    refused_packets: int


def measure(net: ScionNet, engine: Engine, kbit: int, room: int, deadline_s: float) -> Run:
    """Raises `LabError`, `RuntimeError`."""
    engine.enforce(check_link_info(net.link_info(kbit)))
    changes, refused = net.ap.state_changes(), _refused(engine)
    net.user.forget_paths()
    seconds = net.user.time_until_path(CORE, deadline_s)
    return Run(kbit, room, seconds, net.ap.state_changes() - changes, _refused(engine) - refused)


def _refused(engine: Engine) -> int:
    return sum(one.refused_packets for (number, _), one in engine.counters().items() if number == USER_LINK)


def runs(limits: Sequence[int], rooms: Sequence[int], count: int, deadline_s: float) -> Iterator[Run]:
    with tempfile.TemporaryDirectory(prefix=f"{PREFIX}-") as folder, ScionNet(PREFIX, Path(folder)) as net:
        for number in range(count):
            for kbit, room in itertools.product(limits, rooms):
                with DeepEngine(net.ap.namespace, room) as engine:
                    found = measure(net, engine, kbit, room, deadline_s)
                    engine.enforce({})
                said = "none" if found.seconds is None else f"{found.seconds:.1f} s"
                print(f"run {number + 1} of {count}, {kbit} kbit/s, room x{room}: {said}", file=sys.stderr, flush=True)
                yield found
                # A link that was down, or a core that lost beacons, must not be the next limit's.
                if net.user.time_until_path(CORE, 60.0) is None:
                    raise LabError("without a limit there is no path again within 60 s")


def table(found: Sequence[Run], deadline_s: float) -> str:
    """One row per limit and room."""
    lines = [
        "| kbit/s | room | with a path | shortest [s] | median [s] | longest [s] | BFD changes | refused packets |",
        "| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for kbit, room in sorted({(one.kbit, one.room) for one in found}):
        here = [one for one in found if (one.kbit, one.room) == (kbit, room)]
        times = sorted(one.seconds for one in here if one.seconds is not None)
        # A run without a path took at least until the deadline, so it belongs to the long ones.
        median = statistics.median(times + [deadline_s] * (len(here) - len(times)))
        shown = [f"{one:.1f}" for one in (times[0], median, times[-1])] if times else ["-", "-", "-"]
        if times and median == deadline_s:
            shown[1] = f"> {deadline_s:g}"
        counts = [str(sum(one.state_changes for one in here)), str(sum(one.refused_packets for one in here))]
        lines.append(f"| {kbit} | x{room} | {len(times)} of {len(here)} | {' | '.join(shown + counts)} |")
    return "\n".join(lines)


def plot(found: Sequence[Run], deadline_s: float) -> Plot:
    """Median over the limit, a line for each room, with the shortest and the longest run; no path is the deadline."""
    lines: dict[str, list[tuple[float, float]]] = {}
    spread: dict[str, list[tuple[float, float]]] = {}
    for kbit, room in sorted({(one.kbit, one.room) for one in found}):
        times = [
            deadline_s if one.seconds is None else one.seconds for one in found if (one.kbit, one.room) == (kbit, room)
        ]
        name = "queue as shipped" if room == 1 else f"queue {room} times as deep"
        lines.setdefault(name, []).append((kbit, statistics.median(times)))
        spread.setdefault(name, []).append((min(times), max(times)))
    return Plot(
        "first-path",
        f"First path of a user AS with an empty control service, SCION {version()}",
        f"seconds ({deadline_s:g}: none)",
        "limit in both directions [kbit/s]",
        lines=lines,
        spread=spread,
        program="",
    )


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m lab.evaluation.first_path", description=__doc__.partition("\n")[0])
    parser.add_argument("--kbit", type=int, nargs="+", default=list(LIMITS_KBIT), metavar="N")
    parser.add_argument("--room", type=int, nargs="+", default=[1], metavar="N", help="multiples of the limiter's own")
    parser.add_argument("--runs", type=int, default=5, metavar="N")
    parser.add_argument("--deadline", type=float, default=120.0, metavar="S", help="for each run [s]")
    parser.add_argument("--out", type=Path, default=Path("lab/evaluation/results"), metavar="FOLDER")
    parser.add_argument("--of", type=Path, nargs="+", metavar="FILE", help="show these runs; measure nothing")
    given = parser.parse_args(arguments)
    if given.of:
        lines = [line for file in given.of for line in file.read_text(encoding="utf-8").splitlines()]
        return show([Run(**json.loads(line)) for line in lines], given.deadline, given.out)
    reason = missing() or available()
    if reason is not None:
        print(reason, file=sys.stderr)
        return 2
    cleanup_stale(PREFIX)
    found = []
    given.out.mkdir(parents=True, exist_ok=True)
    with (given.out / "first_path.jsonl").open("w", encoding="utf-8") as lines:
        for one in runs(given.kbit, given.room, given.runs, given.deadline):
            lines.write(json.dumps(asdict(one)) + "\n")
            found.append(one)
    return show(found, given.deadline, given.out)


def show(found: Sequence[Run], deadline_s: float, folder: Path) -> int:
    print(f"SCION {version()}: time until the first path\n\n{table(found, deadline_s)}")
    folder.mkdir(parents=True, exist_ok=True)
    plots.draw([plot(found, deadline_s)], folder)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
