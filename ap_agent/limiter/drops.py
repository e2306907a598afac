"""HTB's drops of each direction since its segment began.

HTB counts from 0 with each new class: after a limit of 0, or a repair. A segment and its other counters go on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ap_agent.dataplane.outcome import Readback
from ap_agent.document.state import Counters, Direction, LimiterState

Counted = Mapping[tuple[int, Direction], tuple[int, Counters]]  # link (0: unmatched), direction -> segment, counters
Readbacks = Mapping[int, tuple[Readback | None, Readback | None]]


class _Known(NamedTuple):
    """`read`: HTB's last counter; None: that of another limiter."""

    segment: int
    drops: int
    read: int | None


class Drops:
    def __init__(self) -> None:
        self._known: dict[tuple[int, Direction], _Known] = {}

    def take_up(self, former: LimiterState) -> None:
        """Continue a previous limiter's last state. Drops of a class that is new since then are missing until there
        are more of them than before."""
        sides = {number: (link.to_user, link.from_user) for number, link in former.links.items()}
        for number, (to_user, from_user) in {**sides, 0: former.unmatched or (None, None)}.items():
            if to_user is not None:
                self._known[number, "to_user"] = _Known(to_user.segment, to_user.dropped_packets, None)
            if from_user is not None:
                self._known[number, "from_user"] = _Known(from_user.segment, from_user.dropped_packets, None)

    def since_segment(self, readback: Readbacks, counted: Counted) -> Readbacks:
        """With `dropped_packets` of the segment instead of the class."""
        return {
            number: (
                self._side((number, "to_user"), to_user, counted),
                self._side((number, "from_user"), from_user, counted),
            )
            for number, (to_user, from_user) in readback.items()
        }

    def _side(self, key: tuple[int, Direction], found: Readback | None, counted: Counted) -> Readback | None:
        if found is None or key not in counted:
            return found
        segment, now = counted[key][0], found.dropped_packets
        known = self._known.get(key, _Known(segment, 0, 0))
        before = min(now, known.drops) if known.read is None else known.read
        drops = known.drops
        if known.segment != segment:  # of this limiter with a new class, of another one perhaps with the same
            drops, before = 0, before if known.read is None else 0
        drops += now - before if now >= before else now
        self._known[key] = _Known(segment, drops, now)
        return found if drops == now else found._replace(dropped_packets=drops)
