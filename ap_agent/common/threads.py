"""Starts threads without waiting for them.

`threading.Thread.start` waits for a sign of life. A thread that runs out of memory before it never sends one, and the
caller hangs (seen with CPython 3.11 under RLIMIT_AS: the agent's main thread hung).
"""

from __future__ import annotations

import _thread
import weakref
from collections.abc import Callable

from ap_agent.common.errors import AgentError


class Beside:
    """A thread's work, released when the thread has ended, whether or not it began. No function: CPython 3.11 keeps one
    whose call fails for want of memory."""

    def __init__(self, run: Callable[[], None]) -> None:
        self._run = run

    def __call__(self) -> None:
        self._run()


def start(run: Callable[[], None]) -> weakref.ref[Beside]:
    """Run it in a daemon thread. The reference is dropped when the thread has ended. Raises `AgentError` if no thread
    can be created."""
    beside = Beside(run)
    try:
        _thread.start_new_thread(beside, ())
    except RuntimeError as exc:
        raise AgentError(
            "No more threads can be created; free memory, or raise the limits of the agent's unit.",
            retryable=True,
        ) from exc
    return weakref.ref(beside)
