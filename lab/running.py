"""Programs on hosts of a lab: started and ready, given their input, awaited. What goes wrong is a `LabError`."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable

from measuring.iproute import LabError
from measuring.netns import Namespace


def until(
    condition: Callable[[], object],
    what: str,
    within_s: float,
    *,
    pause_s: float = 0.05,
    check: Callable[[], object] = lambda: None,
) -> float:
    """Look again and again; returns the moment (monotonic) at which it held. `check` raises where it cannot come any
    more. Raises `LabError` with `what` did not happen."""
    deadline = time.monotonic() + within_s
    while not condition():
        check()
        if time.monotonic() > deadline:
            raise LabError(f"{what} within {within_s:g} s")
        time.sleep(pause_s)
    return time.monotonic()


def ready(host: Namespace, module: str, *arguments: str) -> subprocess.Popen[str]:
    """`python -m module arguments...`, which has said `ready`. Raises `LabError`."""
    process = host.python(module, *arguments)
    if process.stdout is None or process.stdout.readline().strip() != "ready":
        host.lab.stop(process)
        said = process.stderr.read().strip() if process.stderr is not None else ""
        raise LabError(f"{module} did not start on {host.name}: {said[-400:]}")
    return process


def given(host: Namespace, text: str, module: str, *arguments: str) -> subprocess.Popen[str]:
    """`python -m module arguments...` with this text as its whole input."""
    process = host.python(module, *arguments, stdin=subprocess.PIPE)
    if process.stdin is not None:
        process.stdin.write(text)
        process.stdin.close()
        process.stdin = None  # `communicate` is not to flush it
    return process


def output_of(process: subprocess.Popen[str], who: str, within_s: float) -> str:
    """What it printed, once it has ended well. Raises `LabError`."""
    try:
        out, err = process.communicate(timeout=within_s)
    except subprocess.TimeoutExpired:
        process.kill()
        raise LabError(f"{who} did not end within {within_s:.0f} s") from None
    if process.returncode != 0:
        raise LabError(f"{who} ended with {process.returncode}: {err.strip()[-400:]}")
    return out
