"""The bounded pool that hashes passwords.

    thread of a page --> Place: at most `places` at the same time, then HashingBusyError (503); half of them for
                           networks with recent failures (`is_suspect`), and for one network all but one
                           --> a process pool: `processes` niced processes, started on demand; networks with recent
                               failures wait for the others

Processes are spawned and never forked: this process has threads, and a fork could inherit a held lock.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any, Final

from django.conf import settings
from django.views.decorators.debug import sensitive_variables

from scionlab.platform.client_address import from_address, widest_network
from scionlab.platform.passwords import child

logger = logging.getLogger(__name__)

WAIT_S: Final = 10.0  # for a free process
STUCK_AFTER_S: Final = 30.0  # without a result; a busy machine takes more than 10 s to start a process
WAIT_OF_SUSPECTS_S: Final = 2.0


# Whether the request is of a network with failed log-ins. Of the thread; `platform.middleware` clears it.
is_suspect: ContextVar[bool] = ContextVar("is_suspect", default=False)


class HashingBusyError(Exception):
    """More passwords are to be hashed than there are places. Nothing was done; retry later."""


class HashingFailedError(Exception):
    """A request that a process could not handle, by the name of its error."""


class Place:
    def __init__(self, *, processes: int, places: int) -> None:
        self._processes = processes
        self._free, self._of_suspects, self._of_one_network = places, max(1, places // 2), max(1, places - 1)
        self._here: Counter[str | None] = Counter()  # by network; None: of no request
        self._first = 0  # who waits for a process and has not failed
        self._idle = processes
        self._changed = threading.Condition()  # guards all of these
        self._pool = self._new_pool()

    def _new_pool(self) -> ProcessPoolExecutor:
        spawn = multiprocessing.get_context("spawn")
        return ProcessPoolExecutor(self._processes, spawn, initializer=child.begin)

    @sensitive_variables("arguments")
    def submit(
        self, algorithm: str, parameters: Mapping[str, int], method: str, arguments: tuple[Any, ...]
    ) -> str | bool:
        """Call `method` of Django's hasher with `parameters`. If the process dies, once more in a new one. Raises
        `HashingBusyError`, `HashingFailedError`."""
        with self._admitted(widest_network(from_address.get()), is_suspect.get()), self._process(is_suspect.get()):
            for _ in range(2):
                pool = self._pool
                try:
                    running = pool.submit(child.carry_out, algorithm, parameters, method, arguments)
                    error, result = running.result(STUCK_AFTER_S)
                except BrokenProcessPool:
                    logger.warning("hashing.died")
                    self._replace(pool)
                except TimeoutError:
                    logger.error("hashing.stuck after_s=%s", STUCK_AFTER_S)
                    for one in multiprocessing.active_children():
                        one.kill()
                    raise HashingBusyError from None
                else:
                    if error:
                        raise HashingFailedError(error)
                    return result
        raise HashingBusyError

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
    def _process(self, is_suspect: bool) -> Iterator[None]:
        """Wait for a process that nobody else needs first. Raises `HashingBusyError`."""
        with self._changed:
            self._first += not is_suspect
            try:
                wait_s = WAIT_OF_SUSPECTS_S if is_suspect else WAIT_S
                if not self._changed.wait_for(lambda: self._idle and not (is_suspect and self._first), wait_s):
                    raise HashingBusyError
                self._idle -= 1
            finally:
                self._first -= not is_suspect
                self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._idle += 1
                self._changed.notify_all()

    def _replace(self, broken: ProcessPoolExecutor) -> None:
        """Threads that meet here at once replace it once."""
        with _REPLACING:
            if self._pool is broken:
                self._pool = self._new_pool()

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)


_REPLACING: Final = threading.Lock()


@cache
def place() -> Place:
    """The pool of this process. At most half of the threads that serve pages are in it, served or waiting. The pools of
    a machine have its processors less one, at least one each."""
    processors = (len(os.sched_getaffinity(0)) - 1) // settings.WEB_WORKERS
    places = max(1, settings.WEB_THREADS // 2)
    return Place(processes=min(max(1, processors), places), places=places)


# A forked process must not use its parent's pipes: it starts its own processes.
os.register_at_fork(after_in_child=place.cache_clear)
