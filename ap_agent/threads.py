"""Starting a thread without ever waiting for it.

`threading.Thread.start` waits for the new thread's sign of life. A thread that finds no memory for its first step dies
without one, and whoever started it waits for ever (seen with CPython 3.11 under RLIMIT_AS: the agent's main thread
hung, and nobody looked after the kernel).
"""

from __future__ import annotations

import _thread
import weakref
from collections.abc import Callable

from ap_agent.errors import AgentError


class _Beside:
    """What a thread does. It is let go of by a thread that has ended, whether it began or not."""

    def __init__(self, name: str, run: Callable[[], None], lost: Callable[[], None]) -> None:
        self.name = name
        self._run = run
        self._unbegun = weakref.finalize(self, lost)
        self._unbegun.atexit = False
        _alive.add(self)

    def __call__(self) -> None:
        try:
            self._run()
        finally:
            _alive.discard(self)  # not later: a traceback that somebody keeps would keep this object as well
            lost = self._unbegun.detach()
            if lost is not None:
                lost[1]()


_alive: weakref.WeakSet[_Beside] = weakref.WeakSet()


def start(name: str, run: Callable[[], None], lost: Callable[[], None] = lambda: None) -> None:
    """Run it in a thread beside, which does not keep the process alive.

    `lost` is called when it has ended, in whatever way, also without having begun. Raises `AgentError` where the host
    has no room for a thread.
    """
    beside = _Beside(name, run, lost)
    try:
        _thread.start_new_thread(beside, ())
    except RuntimeError as exc:
        _alive.discard(beside)
        raise AgentError(
            "This host has no room for another thread; free memory, or raise the limits of the agent's unit.",
            retryable=True,
        ) from exc


def running(name: str) -> int:
    """How many threads of this name there are."""
    return sum(one.name == name for one in list(_alive))
