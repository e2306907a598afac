"""The mutation score of the modules in which a fault says something false or limits a Link wrongly.

    ./dev mutants [MODULE ...] [--publish COLUMN]

mutmut changes one expression at a time and runs the tests that reach it. `mutants.toml` names the modules, their tests
and how many mutants are drawn, always the same ones while the module does not change. The score is the share of killed
mutants. What survived is written to lab/bench/results. Ends with 1 when a run or a negative control fails.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from lab.bench.core import REPOSITORY, RESULTS, machine
from lab.bench.report import Table, replace_between

CONFIGURATION = REPOSITORY / "lab" / "bench" / "mutants.toml"
FIGURES = REPOSITORY / "lab" / "bench" / "mutants.json"
PAGE = REPOSITORY / "docs" / "tests.md"
# Exit statuses of pytest and of mutmut. Only a failed test is a kill: a broken collection or a crash is "other".
OUTCOMES = {0: "survived", 1: "killed", 5: "no test", 33: "no test", 36: "time-out", -24: "time-out"}
SHOWN = ("killed", "survived", "no test", "time-out", "other")
TIMEOUT_FACTOR = (
    15.0  # times what the tests took before, and TIMEOUT_S more: load is not to look like a mutant that hangs
)
TIMEOUT_S = 60.0

_SPINNER = tuple("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏")
_NAMES = """
import pathlib, sys
from mutmut.mutation.file_mutation import mutate_file_contents
from mutmut.utils.format_utils import get_mutant_name
path = pathlib.Path(sys.argv[1])
for name in mutate_file_contents(str(path), path.read_text()).mutant_names:
    print(get_mutant_name(path, name))
"""
_CONTROL = {
    "control.py": """
def checked(value, limit):
    return value > limit
def unchecked(value):
    return value + 1
def unasked(value):
    return value + 1
def waiting(turns):
    while turns:
        turns -= 1
    return True
""",
    "tests/test_control.py": """
from control import checked, unchecked, waiting
def test_all_but_one():
    assert checked(2, 1) and not checked(1, 1) and waiting(2)
    unchecked(1)
""",
    "tests/test_nothing.py": "import control\ndef test_nothing(): pass\n",
    "pyproject.toml": "",
}


class MutantsError(Exception):
    """A run of mutmut failed, or its result is not to be believed."""


@dataclass(frozen=True)
class Module:
    path: str
    tests: Sequence[str]
    mutants: int
    only: str = ""  # regular expression: what the names of its mutants contain
    survivors: str = ""  # which of the newest run are left, and why

    def files(self, root: Path = REPOSITORY) -> list[str]:
        """Raises `MutantsError` for a pattern without a file."""
        found = {pattern: sorted(root.glob(pattern)) for pattern in self.tests}
        if missing := [pattern for pattern, files in found.items() if not files]:
            raise MutantsError(f"{self.path}: no test file {', '.join(missing)}; correct {CONFIGURATION.name}.")
        return [str(one.relative_to(root)) for files in found.values() for one in files]


def modules() -> dict[str, Module]:
    listed = tomllib.loads(CONFIGURATION.read_text(encoding="utf-8"))["modules"]
    return {path: Module(path, **of_it) for path, of_it in listed.items()}


def measure(module: Module, work: Path, environment: Mapping[str, str], timeout_s: float = TIMEOUT_S) -> dict[str, str]:
    """Mutant -> outcome, in a copy of the sources that mutmut may change."""
    listed = tomllib.loads(CONFIGURATION.read_text(encoding="utf-8"))
    # pytest-timeout would make a hanging mutant a failed test; examples of one mutant are not for the next.
    pytest = ["--timeout=0", "--reuse-db", "--hypothesis-profile=ci", "-pno:cacheprovider"]
    pytest += [f"--deselect={one}" for one in listed["deselect"]]
    options = {
        "source_paths": [module.path],
        "also_copy": sorted(one.name for one in work.iterdir() if one.name not in (module.path, "tests", "mutants")),
        "pytest_add_cli_args": pytest,
        "pytest_add_cli_args_test_selection": module.files(work),
        "timeout_multiplier": TIMEOUT_FACTOR,
        "timeout_constant": timeout_s / TIMEOUT_FACTOR,
        "process_isolation": "forkserver",  # no mutant inherits a connection to the database
    }
    with (work / "pyproject.toml").open("a", encoding="utf-8") as file:
        file.write("\n[tool.mutmut]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in options.items()))
    names = [one for one in _run(work, environment, "-c", _NAMES, module.path).split() if re.search(module.only, one)]
    chosen = sorted(random.Random(f"{listed['seed']} {module.path}").sample(names, min(module.mutants, len(names))))
    try:
        _run(work, environment, "-m", "mutmut", "run", "--max-children", "1", *chosen)
    except MutantsError as exc:
        if "could not find any test case" not in str(exc):
            raise
        return dict.fromkeys(chosen, "no test")
    status = json.loads((work / "mutants" / f"{module.path}.meta").read_text(encoding="utf-8"))["exit_code_by_key"]
    outcomes = {name: OUTCOMES.get(status[name], "other") for name in chosen}
    if "time-out" in outcomes.values():  # its rows stayed in the database: did they kill later mutants?
        _run(work / "mutants", environment, "-m", "pytest", "-x", *pytest, *module.files(work))
    return outcomes


def _run(work: Path, environment: Mapping[str, str], *argv: str) -> str:
    command = [sys.executable, *argv]
    done = subprocess.run(command, cwd=work, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        said = [line for line in (done.stdout + done.stderr).splitlines() if not line.startswith(_SPINNER)]
        raise MutantsError("\n".join([f"{' '.join(argv[:3])} ended with {done.returncode}:", *said[-60:]]))
    return done.stdout


def control(folder: Path) -> None:
    """Raises `MutantsError` unless what is checked is killed, and nothing else."""
    for name, text in _CONTROL.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    shutil.copytree(folder, folder.with_name("nothing"))
    found: dict[str, set[str]] = {}
    for name, outcome in measure(Module("control.py", ["tests/test_control.py"], 99), folder, os.environ, 10).items():
        found.setdefault(name.split("x_")[1].split("__")[0], set()).add(outcome)
    hanging = found.pop("waiting")
    if found != {"checked": {"killed"}, "unchecked": {"survived"}, "unasked": {"no test"}} or "time-out" not in hanging:
        raise MutantsError(f"The negative control passed: {found}, waiting {hanging}.")
    of_nothing = measure(Module("control.py", ["tests/test_nothing.py"], 9), folder.with_name("nothing"), os.environ)
    if {*of_nothing.values()} != {"no test"}:
        raise MutantsError(f"Tests that reach nothing have a result: {of_nothing}.")


def score(module: Module, number: int, folder: Path) -> Counter[str]:
    """In a database and a Redis of its own."""
    work = folder / module.path.replace("/", ".")
    shutil.copytree(REPOSITORY, work, ignore=shutil.ignore_patterns(".*", "__pycache__", "var", "results"))
    environment = os.environ | {"SCIONLAB_VAR": str(work / "var"), "PY_COLORS": "0"}
    if database := os.environ.get("DATABASE_URL"):
        environment["DATABASE_URL"] = urlsplit(database)._replace(path=f"/mutants{number}").geturl()
        environment["REDIS_URL"] = f"{os.environ['REDIS_URL']}?db={number % 16}"
    outcomes = measure(module, work, environment)
    RESULTS.mkdir(parents=True, exist_ok=True)
    left = [name for name, outcome in outcomes.items() if outcome != "killed"]
    shown = [f"{outcomes[one]}: {_run(work, environment, '-m', 'mutmut', 'show', one)}" for one in left]
    (RESULTS / f"mutants-{work.name}.txt").write_text("\n".join(shown), encoding="utf-8")
    shutil.rmtree(work)
    counts = Counter(outcomes.values())
    print(f"mutants: {module.path}: {cell(counts)}", file=sys.stderr, flush=True)
    return counts


def cell(counts: Mapping[str, int]) -> str:
    """`85 % of 60 (51 killed, 8 survived, 1 no test)`"""
    drawn, killed = sum(counts.values()), counts.get("killed", 0)
    parts = ", ".join(f"{counts[one]} {one}" for one in SHOWN if counts.get(one))
    return f"{100 * killed / drawn:.0f} % of {drawn} ({parts})"


def table(figures: Mapping[str, Mapping[str, Mapping[str, int]]]) -> Table:
    """One column per run, and why what is left survives; the sum is of the modules that all columns have."""
    known = modules()
    paths = dict.fromkeys(path for column in figures.values() for path in column)
    rows = [
        [
            f"`{path}`",
            *(cell(one[path]) if path in one else "-" for one in figures.values()),
            known[path].survivors if path in known else "",
        ]
        for path in paths
    ]
    shared = [path for path in paths if all(path in column for column in figures.values())]
    if shared:
        total = [sum((Counter(column[path]) for path in shared), Counter()) for column in figures.values()]
        rows.append(["those in all columns", *map(cell, total), ""])
    return Table("Mutation score", ["module", *figures, "survivors"], rows)


def publish(column: str, path: str, counts: Mapping[str, int]) -> None:
    figures = json.loads(FIGURES.read_text(encoding="utf-8")) if FIGURES.exists() else {}
    figures.setdefault(column, {})[path] = dict(counts)
    FIGURES.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    page = replace_between(PAGE.read_text(encoding="utf-8"), "mutants", table(figures).markdown())
    PAGE.write_text(page, encoding="utf-8")


def main(argv: Sequence[str]) -> int:
    known = modules()
    parser = argparse.ArgumentParser(prog="./dev mutants", description="Measure how many mutants the tests kill.")
    parser.add_argument("modules", nargs="*", metavar="MODULE", help=f"some of: {', '.join(known)}; default: all")
    parser.add_argument("--publish", metavar="COLUMN", help="write the scores into this column of docs/tests.md")
    given = parser.parse_args(argv)
    if unknown := sorted({*given.modules} - {*known}):
        parser.error(f"no such module: {', '.join(unknown)}; there are {', '.join(known)}")
    chosen = [known[path] for path in given.modules or known]
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        try:
            control(Path(folder) / "control")
            found = {}
            for number, module in enumerate(chosen):
                found[module.path] = dict(score(module, number, Path(folder)))
                if given.publish:
                    publish(given.publish, module.path, found[module.path])
        except MutantsError as exc:
            print(f"mutants: {exc}", file=sys.stderr)
            return 1
    print(table({machine()["commit"]: found}).markdown())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
