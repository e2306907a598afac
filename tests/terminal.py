"""A pseudo-terminal of some columns and lines, and what a person sees on it."""

from __future__ import annotations

import fcntl
import os
import re
import select
import struct
import subprocess
import termios
import time
from collections.abc import Sequence
from pathlib import Path

_PART = re.compile(r"\x1b\[(\d*)([A-Za-z])|(.)", re.DOTALL)


class Screen:
    """What escape sequences of this project do: up, and erase to the end. Other ones fail the test."""

    def __init__(self, columns: int = 80, lines: int = 24) -> None:
        self.columns, self.lines = columns, lines
        self.rows: list[str] = [""]  # all that was ever shown; the last `lines` are on the screen
        self._row = self._column = 0
        self.wrapped = 0  # how often a line was longer than the screen

    def feed(self, text: str) -> None:
        for count, command, char in _PART.findall(text):
            if command == "A":
                self._row = max(len(self.rows) - self.lines, 0, self._row - int(count or 1))
            elif command == "J":
                self.rows[self._row] = self.rows[self._row][: self._column]
                del self.rows[self._row + 1 :]
            elif command:
                raise AssertionError(f"unknown escape sequence {count}{command}")
            elif char == "\r":
                self._column = 0
            elif char == "\n":
                self._down()
            else:
                if self._column == self.columns:
                    self.wrapped += 1
                    self._column = 0
                    self._down()
                row = self.rows[self._row].ljust(self._column)
                self.rows[self._row] = row[: self._column] + char + row[self._column + 1 :]
                self._column += 1

    def _down(self) -> None:
        self._row += 1
        if self._row == len(self.rows):
            self.rows.append("")


def open_terminal(columns: int = 80, lines: int = 24) -> tuple[int, int]:
    """The two ends of a pseudo-terminal."""
    master, slave = os.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    return master, slave


def read_until(controller: int, words: bytes | None, within_s: float = 60.0) -> bytes:
    """What a program shows up to these words, or to its end."""
    shown, deadline = b"", time.monotonic() + within_s
    while words is None or words not in shown:
        assert select.select([controller], [], [], max(0.0, deadline - time.monotonic()))[0], shown
        try:
            shown += os.read(controller, 65_536)
        except OSError:
            if words is not None:
                raise
            break
    return shown


def run_in_terminal(
    command: Sequence[str], *, columns: int = 80, lines: int = 24, env: dict[str, str] | None = None, cwd: Path
) -> tuple[int, Screen]:
    """The exit code, and the screen at the end."""
    master, slave = open_terminal(columns, lines)
    process = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, env=env, cwd=cwd)
    os.close(slave)
    try:
        shown = read_until(master, None, within_s=280.0)  # pytest ends what hangs
    finally:
        os.close(master)
    screen = Screen(columns, lines)
    screen.feed(shown.decode())
    return process.wait(timeout=30), screen
