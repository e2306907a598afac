"""Notifications of a service of Type=notify (sd_notify(3)); no effect without systemd."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping


class Notifier:
    """Sends states to the socket in the environment."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._address = environment.get("NOTIFY_SOCKET", "")
        self._watchdog_usec = environment.get("WATCHDOG_USEC", "")
        self._watchdog_pid = environment.get("WATCHDOG_PID", str(os.getpid()))

    @property
    def is_listening(self) -> bool:
        return self._address.startswith(("/", "@"))

    @property
    def watchdog_s(self) -> float | None:
        """Watchdog timeout [s]; None without a watchdog."""
        if not self._watchdog_usec.isdecimal() or self._watchdog_pid != str(os.getpid()):
            return None
        return int(self._watchdog_usec) / 1_000_000 or None

    def send(self, *states: str) -> None:
        """E.g. `send("READY=1", "STATUS=3 links enforced")`."""
        if not self.is_listening:
            return
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel:
                channel.connect(address)
                channel.sendall("\n".join(state.replace("\n", " ") for state in states).encode())
        except OSError:  # a restarting manager must not disturb enforcement; the next message may get through
            return


def is_under_systemd(environment: Mapping[str, str]) -> bool:
    """Whether stdout goes to the journal, which reads priorities (systemd.exec(5), JOURNAL_STREAM)."""
    return "JOURNAL_STREAM" in environment
