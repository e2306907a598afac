"""Saying how far a long change of the kernel is. A first build of 4000 links has 80 000 steps and takes half a minute,
in which somebody waits before a terminal, or systemd's watchdog for a sign of life.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping

from ap_agent.common.log import get_logger
from ap_agent.common.systemd import Notifier

Progress = Callable[[int, int], None]  # steps that are done, of how many; called often

SILENCE_S = 2.0  # most changes take milliseconds and need no words


class Paced:
    """Passes progress on, but not more often than every `SILENCE_S`, and nothing of what takes less."""

    def __init__(self, say: Progress, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._say, self._monotonic = say, monotonic
        self._quiet_until = 0.0
        self._done = 0

    def __call__(self, done: int, total: int) -> None:
        now = self._monotonic()
        if done <= self._done or not self._done:  # another change begins
            self._quiet_until = now + SILENCE_S
        elif now >= self._quiet_until:
            self._say(done, total)
            self._quiet_until = now + SILENCE_S
        self._done = done if done < total else 0


def for_service(environment: Mapping[str, str]) -> Progress:
    """For a running agent: a line in the log, and a sign of life for systemd."""
    notifier = Notifier(environment)

    def say(done: int, total: int) -> None:
        get_logger().info("kernel.progress", done=done, of=total)
        notifier.send("WATCHDOG=1", f"STATUS=step {done} of {total} in the kernel")

    return Paced(say)


def for_person() -> Progress:
    """For a command by hand: a line on stderr."""

    def say(done: int, total: int) -> None:
        sys.stderr.write(f"{done:,} of {total:,} steps in the kernel are done ({done / total:.0%})\n")

    return Paced(say)
