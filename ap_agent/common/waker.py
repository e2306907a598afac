"""How both daemons wait: for time, a signal, another thread, or a descriptor.

A pipe keeps wake-ups that precede the wait. Python writes each signal to it, too: one that arrives just before the wait
would otherwise be handled only after it.
"""

from __future__ import annotations

import contextlib
import math
import os
import select
import signal
import weakref
from collections.abc import Callable, Iterable


class Waker:
    """An interruptible wait."""

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        for end in (self._reader, self._writer):
            weakref.finalize(self, os.close, end).atexit = False  # a late signal is still written to it

    def on_signals(self, stop: Callable[[], None], reload: Callable[[], None]) -> None:
        """SIGTERM and SIGINT call `stop`, SIGHUP `reload`; each ends the wait. For the main thread."""
        signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda _number, _frame: stop())
        signal.signal(signal.SIGHUP, lambda _number, _frame: reload())

    def wake(self) -> None:
        """End the current wait, or the next one. For other threads."""
        with contextlib.suppress(BlockingIOError):  # full: the next wait ends anyway
            os.write(self._writer, b"!")

    def wait(self, seconds: float, *, listen_to: Iterable[int] = ()) -> None:
        """Wait until the time has passed, for a wake-up or signal, or until one of the descriptors is readable."""
        waiting = select.poll()
        for descriptor in (self._reader, *listen_to):
            waiting.register(descriptor, select.POLLIN)
        waiting.poll(math.ceil(seconds * 1000))
        with contextlib.suppress(BlockingIOError):
            os.read(self._reader, 4096)
