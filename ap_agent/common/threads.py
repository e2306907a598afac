"""Starting a thread without ever waiting for it.

`threading.Thread.start` waits for the new thread's sign of life. A thread that finds no memory for its first step dies
without one, and whoever started it waits for ever (seen with CPython 3.11 under RLIMIT_AS: the agent's main thread
hung, and nobody looked after the kernel).
"""

from __future__ import annotations

import _thread
import weakref
from collections.abc import Callable

from ap_agent.common.errors import AgentError


class Beside:
    """What a thread does. A thread that has ended lets go of it, whether it began or not."""

    def __init__(self, name: str, run: Callable[[], None]) -> None:
        self.name = name
        self._run = run

    def __call__(self) -> None:
        try:
            self._run()
        finally:
            _alive.discard(self)  # not later: a traceback that somebody keeps would keep this object as well


_alive: weakref.WeakSet[Beside] = weakref.WeakSet()


def start(name: str, run: Callable[[], None]) -> weakref.ref[Beside]:
    """Run it in a thread beside, which does not keep the process alive.

    What is returned leads nowhere once the thread has ended. Raises `AgentError` where the host has no room for one.
    """
    beside = Beside(name, run)
    _alive.add(beside)
    try:
        _thread.start_new_thread(beside, ())
    except RuntimeError as exc:
        _alive.discard(beside)
        raise AgentError(
            "No more threads can be created; free memory, or raise the limits of the agent's unit.",
            retryable=True,
        ) from exc
    return weakref.ref(beside)


def running(name: str) -> int:
    """How many threads of this name there are."""
    return sum(one.name == name for one in list(_alive))
