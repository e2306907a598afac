"""The first engine beside today's: taken out of git, and run from there on a host of the lab.

    with FirstEngine(host, is_whole=True) as engine:
        cycle = engine.enforce(links)        # seconds, CPU, writes

The first engine is commit b597d0d: HTB at the root of each network card, u32 hash tables, three classes for each link
and direction, and whole datagrams as an option. `git archive` puts its agent and its published evaluation into a cache
folder below SCIONLAB_VAR; nothing of it is in today's tree. A clone without that commit (a shallow one) cannot, and
`missing` says so.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from bench.core import REPOSITORY
from bench.engines import Cycle, EngineProcess, cycle_of, entries_of
from link_info import LinkInfo
from measuring.netns import Namespace

COMMIT = "b597d0d"
NAME, NAME_WHOLE = "first engine", "first engine, whole datagrams"
PARTS = ("ap_agent", "bandwidth_config.py", "measuring", "docs/evaluation")
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
    subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)
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


class FirstEngine(EngineProcess):
    """The first engine on one host, as its agent ran it: what it learned it keeps from cycle to cycle."""

    def __init__(self, host: Namespace, *, is_whole: bool = False) -> None:
        """Raises `FirstEngineMissingError`; `RuntimeError` where it does not start."""
        self._is_whole = is_whole
        environment = {"PYTHONPATH": str(tree()), "PATH": os.environ.get("PATH", "")}
        super().__init__(host, [sys.executable, "-P", str(_PROGRAM)], env=environment, cwd=tree())

    def enforce(self, links: Mapping[int, LinkInfo], *, is_settled: bool = False) -> Cycle:
        """One cycle. Raises `RuntimeError` when it left anything undone."""
        entries = entries_of(links)
        return cycle_of(self.order("enforce", links=entries, is_whole=self._is_whole, is_settled=is_settled))


def published(suite: str) -> str | None:
    """The samples of one suite that the first engine's evaluation published, as CSV; None where it had no such suite.

    Raises `FirstEngineMissingError`.
    """
    path = tree() / "docs" / "evaluation" / f"{suite}.csv"
    return path.read_text(encoding="utf-8") if path.exists() else None
