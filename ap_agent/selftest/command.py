"""The command `selftest`: checks prerequisites, starts `inside`, shows progress, returns the output.

`inside` runs in its own network, mount and PID namespaces. The kernel kills every process in them with the first one,
that one with its parent (PR_SET_PDEATHSIG), and removes the networks with the last process. So nothing remains after
SIGKILL, two self-tests cannot collide, and the host's network is out of reach.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, TextIO

from ap_agent.common.errors import AgentError
from ap_agent.common.files import parse_json
from ap_agent.common.outcome import Outcome
from ap_agent.selftest.needs import namespaces_refused, of_this_process, untried
from ap_agent.selftest.report import Report, shown

PATIENCE_S = 110.0  # nearly twice as long as the other half allows itself
_PACKAGE_FOLDER = Path(__file__).resolve().parents[2]
_APART = ("unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--")


class SelfTestError(AgentError):
    """The self-test itself failed; it has no result."""


def selftest(*, as_json: bool, progress: TextIO | None = None) -> Outcome:
    """Run it, with a line of progress on a terminal. Raises `SelfTestError`."""
    found = of_this_process()
    if any(one.is_in_the_way for one in found):
        return _outcome(shown(Report((*found, *untried()))), as_json=as_json)
    with _terminable():
        said, complaints = _run(progress if progress is not None else sys.stderr)
    if "report" in said:
        return _outcome(said, as_json=as_json)
    if not said and complaints.startswith(("unshare:", "setpriv:")):
        refused = namespaces_refused(complaints)
        others = [one for one in untried() if one.name != refused.name]
        return _outcome(shown(Report((*found, refused, *others))), as_json=as_json)
    step = f"at the step {said['step']!r}" if said else "before its first step"
    raise SelfTestError(
        f"The self-test failed or was aborted {step}; it has no result. Run it again; if it fails again, report "
        f"this: {complaints or 'no output'}"
    )


def _outcome(said: dict[str, Any], *, as_json: bool) -> Outcome:
    return Outcome(said["exit_code"], json.dumps(said["report"], indent=2) if as_json else said["text"])


def start() -> subprocess.Popen[str]:
    """Start the other half; it ends with the calling thread at the latest. In its own session: Ctrl-C reaches only the
    caller, which kills it."""
    return subprocess.Popen(
        ["setpriv", "--pdeathsig", "KILL", *_APART, sys.executable, "-m", "ap_agent.selftest.inside"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=_PACKAGE_FOLDER,
        start_new_session=True,
    )


def _run(terminal: TextIO) -> tuple[dict[str, Any], str]:
    """The last line of the other half (empty: it never began), and its stderr."""
    process = start()
    watchdog = threading.Timer(PATIENCE_S, process.kill)
    watchdog.daemon = True
    watchdog.start()
    try:
        said = _listen(process, terminal)
        complaints = process.stderr.read() if process.stderr is not None else ""
        process.wait()
    finally:
        _overwrite(terminal, "")
        watchdog.cancel()
        process.kill()  # and everything that it started
        process.wait()
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()
    if process.returncode == -signal.SIGKILL:
        complaints = f"it did not end within {PATIENCE_S:.0f} s, or was killed"
    return said, " ".join(complaints.split()[-80:])


def _listen(process: subprocess.Popen[str], terminal: TextIO) -> dict[str, Any]:
    said: dict[str, Any] = {}
    for row in process.stdout or ():
        if not row.endswith("\n"):  # interrupted in the middle of a line
            break
        said = parse_json(row, allows_fractions=True)
        if "step" in said:
            _overwrite(terminal, f"self-test: {said['step']} (about {said['left_s']:.0f} s left)")
    return said


def _overwrite(terminal: TextIO, words: str) -> None:
    """One line that is overwritten; nothing without a terminal."""
    if terminal.isatty():
        terminal.write(f"\r\033[K{words}")
        terminal.flush()


@contextmanager
def _terminable() -> Iterator[None]:
    def end(number: int, _frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
