"""What one receiver saw, packet by packet: columns rather than objects, because there are many."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass
class Arrivals:
    """What one receiver saw of one kind of packet on one endpoint, in order of arrival."""

    arrived_ns: array[int] = field(default_factory=lambda: array("q"))
    payload_bytes: array[int] = field(default_factory=lambda: array("I"))
    sequence: array[int] = field(default_factory=lambda: array("I"))
    sent_ns: array[int] = field(default_factory=lambda: array("q"))

    def __len__(self) -> int:
        return len(self.arrived_ns)

    def between(self, start_ns: int, stop_ns: int) -> Arrivals:
        """The arrivals in [start, stop]."""
        chosen = [i for i, at in enumerate(self.arrived_ns) if start_ns <= at <= stop_ns]
        return Arrivals(
            array("q", (self.arrived_ns[i] for i in chosen)),
            array("I", (self.payload_bytes[i] for i in chosen)),
            array("I", (self.sequence[i] for i in chosen)),
            array("q", (self.sent_ns[i] for i in chosen)),
        )

    def merged(self, other: Arrivals) -> Arrivals:
        """Both in one, in order of arrival."""
        return merged((self, other))


def merged(all_of_them: Iterable[Arrivals]) -> Arrivals:
    """Several kinds in one, in order of arrival: a limit holds for their sum."""
    filled = [one for one in all_of_them if len(one)]
    if len(filled) == 1:
        return filled[0]
    rows = sorted(
        row for one in filled for row in zip(one.arrived_ns, one.payload_bytes, one.sequence, one.sent_ns, strict=True)
    )
    return Arrivals(
        array("q", (row[0] for row in rows)),
        array("I", (row[1] for row in rows)),
        array("I", (row[2] for row in rows)),
        array("q", (row[3] for row in rows)),
    )
