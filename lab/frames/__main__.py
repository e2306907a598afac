"""python -m lab.frames [--frames N] [--seed S] [--object FILE] [--keep-going]

Ends with 1 when a sequence breaks a property, and prints the smallest one that does.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ap_agent.dataplane.program import OBJECT
from lab.frames import runs


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m lab.frames", description=__doc__)
    parser.add_argument("--frames", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--object", type=Path, default=OBJECT, help="of the limiter's program")
    parser.add_argument("--keep-going", action="store_true", help="find one of each property")
    given = parser.parse_args(arguments)
    found = runs.fuzz(given.frames, given.seed, given.object, keep_going=given.keep_going)
    for one in found.broken:
        print(one)
    print(
        f"{found.frames:,} frames, {found.sequences:,} sequences, {found.seconds:.1f} s: {found.per_hour:,.0f} an hour"
    )
    return 1 if found.broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
