"""Starts threads without waiting for them.

`threading.Thread.start` waits for a sign of life. A thread that runs out of memory before it never sends one, and the
caller hangs (seen with CPython 3.11 under RLIMIT_AS: the agent's main thread hung).
"""

from __future__ import annotations

import _thread
import weakref
from collections.abc import Callable

from ap_agent.common.errors import AgentError


def start(run: Callable[[], None]) -> weakref.ref[Callable[[], None]]:
    """Run it in a daemon thread. The reference is dropped when the thread has ended. Raises `AgentError` if no thread
    can be created."""

    def beside() -> None:  # held by the thread alone, and released with it, whether or not it began
        run()

    try:
        _thread.start_new_thread(beside, ())
    except RuntimeError as exc:
        raise AgentError(
            "No more threads can be created; free memory, or raise the limits of the agent's unit.",
            retryable=True,
        ) from exc
    return weakref.ref(beside)
