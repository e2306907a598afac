"""Requests beside the loop.

Requests to the service may take long. Each runs in a thread that does not touch the agent, and wakes the loop at its
end; its outcome is processed in the loop's thread.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TypeVar

from ap_agent.common import threads
from ap_agent.common.errors import AgentError

T = TypeVar("T")


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
        return threads.start(run)

    def finish(self) -> None:
        hand_over = self._hand_over
        if hand_over is not None and self._has_ended():
            self._hand_over = None
            hand_over()

    def abandon(self) -> None:
        self._hand_over = None
