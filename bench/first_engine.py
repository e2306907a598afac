"""The first engine beside today's: taken out of git, and run from there on a host of the lab.

    with FirstEngine(host, is_whole=True) as engine:
        cycle = engine.enforce({"1": entry(...)})       # seconds, CPU, writes

The first engine is commit b597d0d: HTB at the root of each network card, u32 hash tables, three classes for each link
and direction, and whole datagrams as an option. `git archive` puts its agent and its published evaluation into a cache
folder below SCIONLAB_VAR; nothing of it is in today's tree. A clone without that commit (a shallow one) cannot, and
`missing` says so.
"""

from __future__ import annotations

import io
import json
import os
import select
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from bench.core import REPOSITORY
from measuring.netns import Namespace

COMMIT = "b597d0d"
NAME, NAME_WHOLE = "first engine", "first engine, whole datagrams"
PARTS = ("ap_agent", "bandwidth_config.py", "measuring", "docs/evaluation")
READY_WITHIN_S = 20.0
CYCLE_WITHIN_S = 300.0  # 4000 links took it 26 s on an idle machine
_PROGRAM = Path(__file__).with_name("peers") / "first_engine_program.py"


class FirstEngineMissingError(RuntimeError):
    """The first engine cannot be had here; the message is one sentence with the remedy."""


def missing(repository: Path = REPOSITORY) -> str | None:
    """None where the first engine can be had, else one sentence."""
    if _git(repository, "cat-file", "-e", f"{COMMIT}^{{commit}}").returncode == 0:
        return None
    return (
        f"Not compared with the first engine: this clone has no commit {COMMIT}; fetch it with `git fetch --unshallow`."
    )


def tree(repository: Path = REPOSITORY) -> Path:
    """The folder with the first engine's files, made once. Raises `FirstEngineMissingError`."""
    cache = Path(os.environ.get("SCIONLAB_VAR", repository / "var")).resolve() / "tmp"
    found = cache / f"first-engine-{COMMIT}"
    if found.is_dir():
        return found
    if (why := missing(repository)) is not None:
        raise FirstEngineMissingError(why)
    archive = _git(repository, "archive", "--format=tar", COMMIT, *PARTS)
    if archive.returncode != 0:
        raise FirstEngineMissingError(f"git archive {COMMIT} failed: {archive.stderr.decode(errors='replace').strip()}")
    cache.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="first-engine-", dir=cache))
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as packed:
        packed.extractall(folder, filter="data")
    folder.chmod(0o755)
    try:
        folder.rename(found)
    except OSError:  # another run was quicker, with the same content
        shutil.rmtree(folder)
    return found


def _git(repository: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    """Root may look into the clone of whoever called sudo."""
    command = ["git", "-c", "safe.directory=*", *arguments]
    return subprocess.run(command, cwd=repository, capture_output=True, check=False, timeout=60)


@dataclass(frozen=True)
class Cycle:
    """What one cycle cost: wall time and CPU of the engine's process with its system calls, and operations written."""

    seconds: float
    cpu_s: float
    writes: int


class FirstEngine:
    """The first engine on one host, as its agent ran it: what it learned it keeps from cycle to cycle."""

    def __init__(self, host: Namespace, *, is_whole: bool = False) -> None:
        """Raises `FirstEngineMissingError`; `RuntimeError` where it does not start."""
        self._host, self._is_whole = host, is_whole
        environment = {"PYTHONPATH": str(tree()), "PATH": os.environ.get("PATH", "")}
        self._process = host.popen(
            [sys.executable, "-P", str(_PROGRAM)], env=environment, cwd=tree(), stdin=subprocess.PIPE
        )
        self._answer(READY_WITHIN_S)

    def __enter__(self) -> FirstEngine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def enforce(self, entries: Mapping[str, Mapping[str, object]], *, is_settled: bool = False) -> Cycle:
        """One cycle with this link_info.json. Raises `RuntimeError` when it left anything undone."""
        order = {"links": entries, "is_whole": self._is_whole, "is_settled": is_settled}
        if self._process.stdin is None:
            raise RuntimeError("the first engine was closed")
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        answer = self._answer(CYCLE_WITHIN_S)
        if not answer["is_ok"]:
            raise RuntimeError(f"the first engine reports: {answer['problems'][:3]}")
        return Cycle(answer["seconds"], answer["cpu_s"], answer["writes"])

    def _answer(self, within_s: float) -> dict[str, Any]:
        """The next line of the program. Raises `RuntimeError` with its own words when it ended or takes too long."""
        out = self._process.stdout
        if out is None or not select.select([out], [], [], within_s)[0]:
            raise RuntimeError(f"the first engine on {self._host.short} said nothing for {within_s:g} s")
        line = out.readline()
        if not line:
            said = self._process.stderr.read() if self._process.stderr is not None else ""
            raise RuntimeError(f"the first engine on {self._host.short} ended: {said.strip()[-500:]}")
        found: dict[str, Any] = json.loads(line)
        return found

    def close(self) -> None:
        """Its limits stay in the kernel, as those of an agent that was stopped."""
        self._host.lab.stop(self._process)


def published(suite: str) -> str | None:
    """The samples of one suite that the first engine's evaluation published, as CSV; None where it had no such suite.

    Raises `FirstEngineMissingError`.
    """
    path = tree() / "docs" / "evaluation" / f"{suite}.csv"
    return path.read_text(encoding="utf-8") if path.exists() else None
