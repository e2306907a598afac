"""The bounded pool that hashes passwords.

    thread of a page --> Place: at most `places` at the same time, then HashingBusyError (503); half of them for
                           networks with recent failures (`is_suspect`), and for one network all but one
                           --> the next free child; networks with recent failures wait for the others
                           --> Child 0 .. `processes`-1: a niced process each, started on demand
                                 --> slot 0 .. `processes`-1: a lock file that all web processes of the machine share

The slots bound the whole machine and not each web process. Children are started as programs and never forked: this
process has threads, and a fork could inherit a held lock.
"""

from __future__ import annotations

import atexit
import json
import logging
import multiprocessing
import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

from django.conf import settings
from django.views.decorators.debug import sensitive_variables

from scionlab.platform.client_address import from_address, widest_network
from scionlab.platform.passwords import child

logger = logging.getLogger(__name__)

WAIT_S: Final = 10.0  # for a free child: it may be loading, on a busy machine
WAIT_OF_SUSPECTS_S: Final = 2.0
ANSWER_S: Final = 10.0  # of a child, which may have to wait for another web process; then it is considered stuck


# Whether the request is of a network with failed log-ins. Of the thread; `platform.middleware` clears it.
is_suspect: ContextVar[bool] = ContextVar("is_suspect", default=False)


class HashingBusyError(Exception):
    """More passwords are to be hashed than there are slots. Nothing was done; retry later."""


class HashingFailedError(Exception):
    """A request that a child could not handle, by the name of its error."""


class Place:
    def __init__(self, *, processes: int, places: int, folder: Path) -> None:
        self._free, self._of_suspects, self._of_one_network = places, max(1, places // 2), max(1, places - 1)
        self._here: Counter[str | None] = Counter()  # by network; None: of no request
        self._first = 0  # who waits for a child and has not failed
        self._children = [Child(folder / f"hashing-{number}.lock") for number in range(processes)]
        self._idle = list(self._children)  # last in first out: fewer children are started
        self._changed = threading.Condition()  # guards all of these

    @sensitive_variables("request")
    def submit(self, request: Mapping[str, Any]) -> str | bool:
        """Raises `HashingBusyError`, `HashingFailedError`."""
        with self._admitted(widest_network(from_address.get()), is_suspect.get()):
            return self._use_child(json.dumps(request).encode())

    @contextmanager
    def _admitted(self, network: str | None, is_suspect: bool) -> Iterator[None]:
        """The network counts before its first failure is known: a guesser's first passwords come at once."""
        with self._changed:
            is_crowd = network is not None and self._here[network] >= self._of_one_network
            if not self._free or is_crowd or (is_suspect and not self._of_suspects):
                raise HashingBusyError
            self._count(network, is_suspect, 1)
        try:
            yield
        finally:
            with self._changed:
                self._count(network, is_suspect, -1)

    def _count(self, network: str | None, is_suspect: bool, more: int) -> None:
        self._free -= more
        self._of_suspects -= more * is_suspect
        self._here[network] += more
        if not self._here[network]:
            del self._here[network]

    @contextmanager
    def _child(self, is_suspect: bool) -> Iterator[Child]:
        with self._changed:
            self._first += not is_suspect
            try:
                wait_s = WAIT_OF_SUSPECTS_S if is_suspect else WAIT_S
                if not self._changed.wait_for(lambda: self._idle and not (is_suspect and self._first), wait_s):
                    raise HashingBusyError
                one = self._idle.pop()
            finally:
                self._first -= not is_suspect
                self._changed.notify_all()
        try:
            yield one
        finally:
            with self._changed:
                self._idle.append(one)
                self._changed.notify_all()

    @sensitive_variables("message")
    def _use_child(self, message: bytes) -> str | bool:
        with self._child(is_suspect.get()) as one:
            answer = json.loads(one.request(message))
        if "error" in answer:
            raise HashingFailedError(answer["error"])
        result: str | bool = answer["result"]
        return result

    def close(self) -> None:
        for one in self._children:
            one.end()


class Child:
    """One process. Used by one thread at a time."""

    def __init__(self, slot: Path) -> None:
        self._slot = slot
        self._process: subprocess.Popen[bytes] | None = None
        self._line: Connection | None = None

    @sensitive_variables("message")
    def request(self, message: bytes) -> bytes:
        """Return the answer; if the process died, retry once with a new one. Raises `HashingBusyError`."""
        for _ in range(2):
            line = self._line or self._start()
            try:
                line.send_bytes(message)
                if line.poll(ANSWER_S):
                    return line.recv_bytes()
                logger.error("hashing.stuck after_s=%s", ANSWER_S)
                self.end()
                break
            except (EOFError, OSError):
                logger.warning("hashing.died pid=%s", self._process and self._process.pid)
                self.end()
        raise HashingBusyError

    def _start(self) -> Connection:
        self._line, theirs = multiprocessing.Pipe()
        with theirs:
            command = [sys.executable, "-I", child.__file__, str(theirs.fileno()), str(self._slot)]
            self._process = subprocess.Popen(
                command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
            )
        return self._line

    def end(self) -> None:
        if self._line is not None:
            self._line.close()
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._line = self._process = None


@cache
def place() -> Place:
    """The pool of this process. At most half of the threads that serve pages are in it, served or waiting."""
    processors = len(os.sched_getaffinity(0))
    places = max(1, settings.WEB_THREADS // 2)
    made = Place(processes=min(max(1, processors - 1), places), places=places, folder=settings.VAR_DIR)
    atexit.register(made.close)
    return made


# A forked process must not use its parent's pipes: it starts its own children.
os.register_at_fork(after_in_child=place.cache_clear)
