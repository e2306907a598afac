"""Waiting of the loop: for time, a signal, a file change, or the end of a request.

Requests to the service may take long. Each runs in a thread that does not touch the agent; its outcome is processed in
the loop's thread. Signal handlers and requests wake the loop through a pipe, which also keeps wake-ups that precede the
wait.
"""

from __future__ import annotations

import contextlib
import math
import os
import select
import weakref
from collections.abc import Callable
from typing import TypeVar

from ap_agent.common import threads
from ap_agent.common.errors import AgentError

T = TypeVar("T")


class Waker:
    """An interruptible wait."""

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)

    def wake(self) -> None:
        """End the current wait, or the next one. For signal handlers and other threads."""
        with contextlib.suppress(BlockingIOError):  # full: the next wait ends anyway
            os.write(self._writer, b"!")

    def wait(self, seconds: float, *, listen_to: int | None = None) -> None:
        """Wait until the time has passed, `wake` is called, or the descriptor is readable."""
        waiting = select.poll()
        waiting.register(self._reader, select.POLLIN)
        if listen_to is not None:
            waiting.register(listen_to, select.POLLIN)
        waiting.poll(math.ceil(seconds * 1000))
        with contextlib.suppress(BlockingIOError):
            os.read(self._reader, 4096)

    def __del__(self) -> None:
        os.close(self._reader)
        os.close(self._writer)


class Background:
    """One request at a time in a daemon thread."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._hand_over: Callable[[], None] | None = None  # of the running request
        self._has_ended: Callable[[], bool] = lambda: False

    @property
    def is_free(self) -> bool:
        return self._hand_over is None

    @property
    def has_outcome(self) -> bool:
        return self._hand_over is not None and self._has_ended()

    def send(self, call: Callable[[], T], then: Callable[[T | Exception], None]) -> None:
        """Start `call`; `then` gets its result or exception, in the thread that calls `finish`."""
        outcome: list[T | Exception] = []
        thread: weakref.ref[threads.Beside] | None = None

        def run() -> None:
            try:
                outcome.append(call())
            except Exception as exc:  # passed on: `then` handles it
                outcome.append(exc)
            self._wake()

        lost = AgentError("A request ended without a result: out of memory.", retryable=True)
        try:
            thread = self._begin(run)
        except AgentError as exc:  # no thread available: reported like a failed request
            outcome.append(exc)
        self._has_ended = lambda: bool(outcome) or (thread is not None and thread() is None)
        self._hand_over = lambda: then(outcome[0] if outcome else lost)
        self.finish()

    def _begin(self, run: Callable[[], None]) -> weakref.ref[threads.Beside] | None:
        return threads.start("request", run)

    def finish(self) -> None:
        hand_over = self._hand_over
        if hand_over is not None and self._has_ended():
            self._hand_over = None
            hand_over()

    def abandon(self) -> None:
        self._hand_over = None
