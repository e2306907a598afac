"""Frames behind a limit, seen by a tap in each direction."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

from lab.evaluation.bed import Bed, Wire
from lab.evaluation.core import FROM_USER, TO_USER
from lab.evaluation.limiters import NO_LIMIT, OWN
from lab.measuring import tap
from lab.running import output_of, ready
from measuring.netns import Namespace

IFB_FROM_USER = "slbw1"  # ours, where what users send has passed its limit
Seen = tuple[Sequence[int], Sequence[int]]  # times in ns, bytes on the wire


class Tapping:
    """Two taps on one wire, IPv4: at the user's interface, and where an IFB hands packets back."""

    def __init__(self, bed: Bed, wire: Wire, seconds: float) -> None:
        """They listen when this is made. Raises `LabError`."""
        remote = wire.ends[1][0]
        self._seconds = seconds
        self._taps = {
            TO_USER: start_tap(bed.users, wire.dev, "to", remote, seconds),
            FROM_USER: start_tap(bed.ap, device_behind(bed.limiter, wire), "from", remote, seconds),
        }

    def finish(self) -> dict[str, Seen]:
        """By direction. Raises `LabError`, or `ValueError` when a tap missed packets."""
        found: dict[str, Seen] = {}
        for direction, process in self._taps.items():
            found[direction] = seen_by(process, self._seconds)
        return found


def device_behind(limiter: str, wire: Wire) -> str:
    """Of the attachment point: where packets from the user have passed the limit."""
    if limiter in OWN:
        return IFB_FROM_USER
    return wire.dev if limiter == NO_LIMIT else wire.dev.replace("eth", "ifb")


def start_tap(host: Namespace, dev: str, which: str, address: str, seconds: float) -> subprocess.Popen[str]:
    """Of the packets `to` or `from` this address that pass a device; it listens when this returns. Raises
    `LabError`."""
    return ready(host, "lab.measuring.tap", dev, which, address, str(seconds))


def seen_by(started: subprocess.Popen[str], seconds: float) -> Seen:
    """By a tap of so many seconds. Raises `LabError`, or `ValueError` when it missed packets."""
    return tap.unpack(output_of(started, "a tap", seconds + 30))
