"""From when on does a changed limit hold? Pure arithmetic over what arrived after the change.

A limit that holds is a line: bytes grow with its rate. From the moment on from which the cumulated bytes never leave
that line by more than one frame, and what the rate carries while a timer is late, the new limit holds.
"""

from __future__ import annotations

from dataclasses import dataclass

from lab.bench.windows import FRAME_BYTES, allowed_bytes
from measuring.arrivals import Arrivals
from measuring.framing import Wire
from measuring.judge import NS, excess_bytes

SETTLED_S = 0.5  # for so long at least a new limit has to be seen holding


@dataclass(frozen=True)
class Change:
    """One of them as it was made for one limiter."""

    number: int
    old_kbit: int
    kbit: int
    offered_ns: int
    until_ns: int  # the next one, or the end

    @property
    def name(self) -> str:
        return f"{self.old_kbit} → {self.kbit}"


def hold_after_s(arrivals: Arrivals, wire: Wire, change: Change, late_s: float) -> float | None:
    """After how long the new limit holds until the next change, as an upper bound; None when it never does.

    The line can be met early by as many bytes as are allowed beside it, over the difference of the rates: so much is
    added. `late_s`: how late a timer may be, with the longest pause of the machine.

    Of a link at 0 it is the last packet before the next change, or no time when none came at all; None where packets
    came until the end.
    """
    seen = arrivals.between(change.offered_ns, change.until_ns)
    if change.kbit == 0:
        last_s = (seen.arrived_ns[-1] - change.offered_ns) / NS if len(seen) else 0.0
        left_s = (change.until_ns - change.offered_ns) / NS - last_s
        return last_s if left_s >= SETTLED_S else None
    allowed = FRAME_BYTES + change.kbit * 125 * late_s
    first = first_on_the_line(seen, wire, change.kbit, allowed)
    if first is None or (change.until_ns - seen.arrived_ns[first]) / NS < SETTLED_S:
        return None
    early_s = allowed / (abs(change.kbit - change.old_kbit) * 125)
    return (seen.arrived_ns[first] - change.offered_ns) / NS + early_s


def first_on_the_line(arrivals: Arrivals, wire: Wire, kbit: int, allowed_bytes_: float) -> int | None:
    """Index of the first arrival from which on the cumulated bytes never leave the line of this rate by more."""
    begin_ns = arrivals.arrived_ns[0] if len(arrivals) else 0
    carried, ahead = 0, []
    for at_ns, size in zip(arrivals.arrived_ns, arrivals.payload_bytes, strict=True):
        carried += wire.bytes(size)
        ahead.append(carried - (at_ns - begin_ns) / NS * kbit * 125)
    first, most, least = None, float("-inf"), float("inf")
    for index in range(len(ahead) - 1, -1, -1):
        most, least = max(most, ahead[index]), min(least, ahead[index])
        if most - ahead[index] <= allowed_bytes_ and ahead[index] - least <= allowed_bytes_:
            first = index
    return first


def too_much_bytes(arrivals: Arrivals, wire: Wire, change: Change, late_s: float) -> float:
    kbit = max(change.old_kbit, change.kbit)
    seen = arrivals.between(change.offered_ns, change.until_ns)
    return max(0.0, excess_bytes(seen, wire, kbit) - allowed_bytes(kbit) - kbit * 125 * late_s)
