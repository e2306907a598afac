"""The processes of a measurement: one per host and task, ready before the start, all starting at one moment.

A worker module reads one line of JSON from its standard input (`read_spec`), prepares, says `ready`, waits for a line
with the common start (`wait_for_start`, CLOCK_MONOTONIC in ns, which all namespaces share), works, and prints one JSON
document (`say`). It ends by itself when its parent dies, or when its time is up (`begin`, `allow`).
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from types import FrameType
from typing import Any

from measuring.iproute import LabError
from measuring.netns import Namespace

NS = 1_000_000_000
WAIT_FOR_START_S = 30
START_DELAY_S = 0.1
_READY_WITHIN_S = 20.0
_PR_SET_PDEATHSIG = 1  # <linux/prctl.h>


# --- in the worker --------------------------------------------------------------------------------------------------


def begin() -> None:
    """First call of a worker: bounded life, and the end of the parent is ours."""
    allow(WAIT_FOR_START_S)
    end_with_parent()


def end_with_parent() -> None:
    """From now on the end of the process that started us ends us too, however it ends."""
    parent = os.getppid()

    def end_without_parent(_number: int, _frame: FrameType | None) -> None:
        if os.getppid() != parent:  # the signal also comes when only the thread that started us is over
            os._exit(1)

    signal.signal(signal.SIGUSR1, end_without_parent)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGUSR1)


def allow(seconds: float) -> None:
    """SIGALRM ends this process after so long, counted from now: nobody waits for one that hangs."""
    signal.alarm(int(seconds) + 1)


def read_spec() -> dict[str, Any]:
    """The first line. Raises `ValueError` when it is not JSON."""
    spec: dict[str, Any] = json.loads(sys.stdin.readline())
    return spec


def wait_for_start(seconds: float) -> int:
    """Say that we are ready, wait for the start and return it [ns]; from then on we may live for `seconds` more.

    Exits with 1 when the parent has closed the pipe.
    """
    print("ready", flush=True)
    line = sys.stdin.readline()
    if not line:
        raise SystemExit(1)
    allow(seconds + WAIT_FOR_START_S)
    return int(line)


def sleep_until_ns(moment_ns: int) -> None:
    """Until this moment of CLOCK_MONOTONIC."""
    time.sleep(max(0.0, (moment_ns - time.monotonic_ns()) / NS))


def go_ahead_of_others() -> None:
    """Real-time scheduling for this process; without the privilege things stay as they are."""
    with contextlib.suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))


def go_before_equals() -> None:
    """The highest ordinary priority: ahead of other programs, but not of the kernel's own threads, which carry the
    packets of a process that needs a whole processor."""
    with contextlib.suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, -20)  # also of a program that was started with nice


def say(document: dict[str, Any]) -> None:
    """The result, one line."""
    print(json.dumps(document), flush=True)


# --- in the parent --------------------------------------------------------------------------------------------------


class Worker:
    """One of them, from the parent's side. Every failure is a `LabError` with what the process said."""

    def __init__(self, host: Namespace, module: str, *arguments: str, spec: dict[str, Any]) -> None:
        self.host = host
        self._module = module
        self._process = host.python(module, *arguments, stdin=subprocess.PIPE)
        self.tell(json.dumps(spec))

    def __str__(self) -> str:
        return f"{self._module} on {self.host.name}"

    def tell(self, line: str) -> None:
        """One line to its standard input."""
        assert self._process.stdin is not None  # noqa: S101 - `Popen` was asked for a pipe
        try:
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()
        except BrokenPipeError as exc:
            raise LabError(f"{self} did not start: {self._last_words()}") from exc

    def expect(self, word: str, within_s: float = _READY_WITHIN_S) -> None:
        """Wait until it says so."""
        assert self._process.stdout is not None  # noqa: S101
        readable, _, _ = select.select([self._process.stdout], [], [], within_s)
        if not readable or self._process.stdout.readline().strip() != word:
            raise LabError(f"{self} did not start: {self._last_words()}")

    def collect(self, deadline_s: float) -> dict[str, Any]:
        """Its document; it has until `deadline_s` (CLOCK_MONOTONIC, s) and is ended then."""
        try:
            out, err = self._process.communicate(timeout=max(1.0, deadline_s - time.monotonic()))
        except subprocess.TimeoutExpired as exc:
            self.stop()
            raise LabError(f"{self} did not end in time") from exc
        if self._process.returncode != 0:
            raise LabError(f"{self} ended with {self._process.returncode}: {_last_line(err)}")
        document: dict[str, Any] = json.loads(out)
        return document

    def stop(self) -> None:
        """End it now."""
        self.host.lab.stop(self._process)

    def _last_words(self) -> str:
        self.stop()
        return _last_line(self._process.stderr.read() if self._process.stderr is not None else "")


def _last_line(said: str) -> str:
    """Of a traceback: the error itself."""
    return said.strip().rpartition("\n")[2] or "it said nothing"


def start_all(workers: Iterable[Worker], start_ns: int | None = None) -> int:
    """Tell all the common start, a tenth of a second from now unless given; returns it [ns]."""
    start_ns = start_ns or time.monotonic_ns() + int(START_DELAY_S * NS)
    for worker in workers:
        worker.tell(str(start_ns))
    return start_ns
