"""Several fuzzing processes side by side: started, watched, and read when they have ended."""

from __future__ import annotations

import json
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from measuring.netns import REPOSITORY

_FOUND = 77  # libFuzzer's exit code when the target raised
_FAST = Path("/dev/shm")  # noqa: S108  # folders of our own are made in it: every stored bundle is synced


def missing() -> str | None:
    """None where there is a fuzzer, else one sentence."""
    if find_spec("atheris") is None:
        return (
            f"The fuzzer atheris is to be had for Linux on x86_64 only; this is {sys.platform}, {platform.machine()}."
        )
    return None


@dataclass
class Result:
    """What the processes of one target found together."""

    target: str
    inputs: int = 0
    seconds: float = 0.0
    branches: int = 0  # of the readers, that the best process reached
    corpus: int = 0  # inputs that reached something new
    ends: Counter[str] = field(default_factory=Counter)
    slowest_ms: float = 0.0
    peak_bytes: int = 0
    crashes: list[Path] = field(default_factory=list)
    said: str = ""  # by a process that found something


def fuzz(
    target: str,
    *,
    runs: int,
    crashes: Path,
    seed: int = 1,
    processes: int = 1,
    plant: str | None = None,
    seconds: float = 3600.0,
    progress: Callable[[int], None] = lambda _inputs: None,
) -> Result:
    """Try `runs` inputs in all, or as many as are done in `seconds`. What breaks a promise is left in `crashes`.

    `progress` hears now and then how many inputs were tried. Raises `RuntimeError` where a process dies of something
    else than an input.
    """
    crashes.mkdir(parents=True, exist_ok=True)
    before = set(crashes.iterdir())
    folder = Path(tempfile.mkdtemp(prefix="slbw-fuzz-", dir=_FAST if _FAST.is_dir() else None))
    began = time.monotonic()
    workers: list[subprocess.Popen[bytes]] = []
    try:
        for number in range(processes):
            place = folder / str(number)
            place.mkdir()
            share = runs // processes + (number < runs % processes)
            argv = [sys.executable, "-m", "lab.fuzz.worker", target, f"--runs={share}", f"--seed={seed + number}"]
            argv += [f"--crashes={crashes}", f"--folder={place}", *([f"--plant={plant}"] if plant else [])]
            with (place / "log").open("wb") as log:
                workers.append(subprocess.Popen(argv, stdout=log, stderr=log, cwd=REPOSITORY))
        while any(one.poll() is None for one in workers) and time.monotonic() - began < seconds:
            if any(one.poll() not in (None, 0) for one in workers):
                break  # one of them found something: that is enough
            progress(sum(_stats(folder / str(number))["inputs"] for number in range(processes)))
            time.sleep(0.2)
    finally:
        for one in workers:
            one.kill()
            one.wait()
        result = Result(target, seconds=time.monotonic() - began)
        codes = [one.returncode for one in workers]
        for number, code in enumerate(codes):
            _add(result, folder / str(number), code)
        result.crashes = sorted(set(crashes.iterdir()) - before)
        shutil.rmtree(folder)
    if any(code not in (0, _FOUND, -9) for code in codes):
        raise RuntimeError(f"a fuzzing process of {target} ended with {codes}: {result.said[-2000:]}")
    return result


def _stats(place: Path) -> dict[str, int]:
    try:
        found: dict[str, int] = json.loads((place / "stats.json").read_bytes())
    except (FileNotFoundError, ValueError):  # not yet, or being written
        return {"inputs": 0}
    return found


def _add(result: Result, place: Path, code: int) -> None:
    try:
        stats = json.loads((place / "stats.json").read_bytes())
        result.inputs += stats["inputs"]
        result.ends.update(stats["ends"])
        result.slowest_ms = max(result.slowest_ms, stats["slowest_ms"])
        result.peak_bytes = max(result.peak_bytes, stats["peak_bytes"])
    except (FileNotFoundError, ValueError):
        pass
    said = (place / "log").read_text(errors="replace")
    reached = re.findall(r"cov: (\d+) ft: \d+ corp: (\d+)/", said)
    if reached:
        result.branches = max(result.branches, int(reached[-1][0]))
        result.corpus += int(reached[-1][1])
    if code != 0:
        result.said += said
