"""Look for inputs that break a promise, or try inputs that were found; see the package's head."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from lab.fuzz import runs
from lab.fuzz.targets import TARGETS, Target


def parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m lab.fuzz", description="Fuzz what the agent reads.")
    parser.add_argument("target", choices=TARGETS)
    parser.add_argument("files", nargs="*", type=Path, help="inputs to try; none: look for some")
    parser.add_argument("--runs", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--crashes", type=Path, default=Path("crashes"), help="folder for what is found")
    return parser.parse_args(argv)


def main(argv: Sequence[str]) -> int:
    """0: nothing was found; 1: something was; 2: there is no fuzzer here."""
    given = parse(argv)
    if given.files:
        return _try(given.target, given.files)
    problem = runs.missing()
    if problem is not None:
        print(f"fuzz: {problem}", file=sys.stderr)
        return 2
    found = runs.fuzz(given.target, runs=given.runs, seed=given.seed, processes=given.processes, crashes=given.crashes)
    print(
        f"{found.inputs} inputs in {found.seconds:.0f} s, {found.branches} branches reached, ends: {dict(found.ends)}"
    )
    if found.crashes:
        print(f"{found.said[-4000:]}\n{command_of(given.target, found.crashes)}")
    return 1 if found.crashes else 0


def command_of(target: str, files: Sequence[Path]) -> str:
    """What repeats a finding."""
    return f"python -m lab.fuzz {target} {' '.join(map(str, files))}"


def _try(target: str, files: Sequence[Path]) -> int:
    """Each file once. What must not be comes out with Python's own traceback."""
    folder = Path(tempfile.mkdtemp(prefix="slbw-fuzz-"))
    try:
        tried = Target(target, folder / "host")
        for file in files:
            before = tried.seen.ends.copy()
            tried.try_input(file.read_bytes())
            print(f"{file}: {next(iter(tried.seen.ends - before))}")
    finally:
        shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
