"""`mpget` with its chooser replaced: equal blocks go to the paths in turn, and no path takes over another one's.

    python -m lab.evaluation.round_robin ARGUMENTS OF MPGET

The negative control of the suite `multipath`: what is left of `mpget` when it does not share out by rate.
"""

from __future__ import annotations

import sys

from multipath.__main__ import main
from multipath.core import Download, Task

BLOCK_BYTES = 64 << 10


def choose_in_turn(self: Download, index: int, now: float) -> Task | None:
    """The first free block of those that are this path's."""
    for start, end, _ in self.free:
        for block in range(start // BLOCK_BYTES, -(-end // BLOCK_BYTES)):
            if block % len(self.paths) == index:
                first, last = block * BLOCK_BYTES, (block + 1) * BLOCK_BYTES
                return Task(index, max(first, start), min(last, end), now)
    return None


if __name__ == "__main__":
    Download.choose = choose_in_turn  # type: ignore[method-assign]
    sys.exit(main())
