"""What every suite shares: samples by label, the order of turns, steps with a progress line, and the machine.

Pure arithmetic and bookkeeping; the traffic and the kernel are in `world` and in the suites.
"""

from __future__ import annotations

import argparse
import os
import platform
import random
import statistics
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO, TypeVar

Label = str | int
T = TypeVar("T")
REPOSITORY = Path(__file__).resolve().parents[2]
RESULTS = REPOSITORY / "lab" / "bench" / "results"


# --- samples ----------------------------------------------------------------------------------------------------


@dataclass
class Series:
    """All samples of one quantity: what was measured of whom, in which unit, in order of time."""

    labels: dict[str, Label]
    unit: str
    samples: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        """The middle sample; the mean of both middle ones of an even number. Raises `ValueError` without samples."""
        return median(self.samples)

    def has(self, labels: Mapping[str, Label]) -> bool:
        return all(self.labels.get(name) == value for name, value in labels.items())


def median(samples: Sequence[float]) -> float:
    """Raises `ValueError` when there is nothing to take a median of."""
    if not samples:
        raise ValueError("no samples")
    return statistics.median(samples)


def percentile(samples: Sequence[float], share: float) -> float:
    """The smallest sample that at least this share (0 to 1) of all do not exceed."""
    ordered = sorted(samples)
    return ordered[max(0, min(len(ordered) - 1, -int(-share * len(ordered) // 1) - 1))]


@dataclass
class Outcome:
    """What a suite found: its series, what could not be measured, and sentences that belong beside the figures."""

    suite: str
    series: list[Series] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def add(self, value: float, unit: str, /, **labels: Label) -> None:
        """One more sample of the series with exactly these labels."""
        found = next((one for one in self.series if one.labels == labels), None)
        if found is None:
            found = Series(labels, unit)
            self.series.append(found)
        found.samples.append(value)

    def note(self, text: str) -> None:
        """Said once, however often it happened."""
        if text not in self.notes:
            self.notes.append(text)

    def find(self, **labels: Label) -> list[Series]:
        return [one for one in self.series if one.has(labels)]

    def median(self, **labels: Label) -> float | None:
        """Of the one series that has these labels; None when it was not measured. Raises `LookupError` for several."""
        found = self.find(**labels)
        if len(found) > 1:
            raise LookupError(f"{self.suite}: {len(found)} series have {labels}")
        return found[0].median if found else None

    def values(self, label: str, **labels: Label) -> list[Label]:
        """The different values of one label, in order of appearance."""
        return list(dict.fromkeys(one.labels[label] for one in self.find(**labels) if label in one.labels))


def interleave(variants: Sequence[T], rounds: int) -> Iterator[T]:
    """Every variant once per round, each round in another order: a disturbance, or a neighbour's warm cache, meets all.

    The order is the same at each call.
    """
    order = random.Random(1)
    for _ in range(rounds):
        turn = list(variants)
        order.shuffle(turn)
        yield from turn


# --- steps ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Scale:
    """How much to measure: everything, or as little as shows that it runs."""

    quick: bool = False

    def pick(self, full: T, quick: T) -> T:
        return quick if self.quick else full


@dataclass(frozen=True)
class Step:
    """A piece of work of one suite that stands alone; `expected_s` is only for the progress line."""

    label: str
    expected_s: float
    run: Callable[[Outcome], None]


class Progress:
    """One line on a terminal: what runs, how many steps are left, and about how long they take.

    The rest is scaled by how wrong the expectations were so far. Not on a terminal: one line per step.
    """

    def __init__(self, steps: Iterable[Step], out: TextIO, program: str) -> None:
        self._program = program
        self._left = [step.expected_s for step in steps]
        self._total = len(self._left)
        self._out = out
        self._spent = self._expected = 0.0
        self._began = time.monotonic()

    def left_s(self) -> float:
        """Expected time until the end, from what was expected and what it took."""
        ratio = self._spent / self._expected if self._expected > 0 else 1.0
        return sum(self._left) * min(3.0, max(1 / 3, ratio))

    def begin(self, suite: str, label: str) -> None:
        number = self._total - len(self._left) + 1
        left = f"{self.left_s() / 60:.0f} min left" if self.left_s() >= 90 else f"{self.left_s():.0f} s left"
        line = f"{self._program}: {number}/{self._total} {suite}: {label} ({left})"
        self._out.write(f"\r\033[K{line[:118]}" if self._out.isatty() else f"{line}\n")
        self._out.flush()
        self._began = time.monotonic()

    def done(self) -> None:
        self._spent += time.monotonic() - self._began
        self._expected += self._left.pop(0)
        if not self._left and self._out.isatty():
            self._out.write("\r\033[K")


def run_steps(todo: Sequence[tuple[str, Step]], suites: Iterable[str], program: str) -> list[Outcome]:
    """An outcome of each suite after all steps, `(suite, step)`; what fails is noted there and stops nothing."""
    progress = Progress([step for _, step in todo], sys.stderr, program)
    outcomes = {suite: Outcome(suite) for suite in suites}
    for suite, step in todo:
        progress.begin(suite, step.label)
        try:
            step.run(outcomes[suite])
        except Exception as exc:
            traceback.print_exc()
            outcomes[suite].failures.append(f"{step.label}: {type(exc).__name__}: {exc}")
        progress.done()
    return list(outcomes.values())


def read_arguments(parser: argparse.ArgumentParser, suites: Sequence[str], argv: Sequence[str]) -> argparse.Namespace:
    """Which `suites`, and `quick`; both programs have these. Ends the program for a suite that is none."""
    parser.add_argument(
        "suites", nargs="*", metavar="SUITE", help=f"some of: {', '.join(suites)}; all if none is named"
    )
    parser.add_argument("--quick", action="store_true", help="short runs, few repetitions; also QUICK=1")
    given = parser.parse_args([word for word in argv if word not in ("QUICK=1", "QUICK=0")])
    given.quick = given.quick or "QUICK=1" in argv
    unknown = [name for name in given.suites if name not in suites]
    if unknown:
        parser.error(f"no such suite: {', '.join(unknown)}; there are {', '.join(suites)}")
    return given


# --- the machine ------------------------------------------------------------------------------------------------


def machine() -> dict[str, str]:
    """What a reader must know to judge a figure, now."""
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "kernel": f"{platform.system()} {platform.release()}",
        "cpu": f"{os.cpu_count()} x {_cpu_model()}",
        "iproute2": _first_line("tc", "-V").removeprefix("tc utility, "),
        "python": platform.python_version(),
        "commit": _commit(),
        "load": f"{os.getloadavg()[0]:.1f}",
    }


def cpu_s_of(pid: int) -> float:
    """Processor time of a process so far, in user and kernel mode."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _first_line(*argv: str) -> str:
    try:
        said = subprocess.run(argv, capture_output=True, text=True, check=False, cwd=REPOSITORY, timeout=10)
    except OSError:
        return "not installed"
    return (said.stdout.splitlines() or [""])[0].strip()


def _commit() -> str:
    head = _first_line("git", "rev-parse", "--short=10", "HEAD") or "unknown"
    changed = _first_line(
        "git",
        "status",
        "--porcelain",
        "--untracked-files=no",
        "--",
        "ap_agent",
        "bandwidth_config.py",
        "contract",
        "station",
    )
    return f"{head} with changes to the agent" if changed else head
