"""Frames of one link, as fast as a processor makes them, until stdin is closed.

    python -m lab.bench.flood DEV SOURCE SOURCE_PORT DESTINATION DESTINATION_PORT

Bound to the first processor, so that whoever measures on the last one is disturbed by what the kernel shares alone.
Prints `ready` when it has begun.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
from collections.abc import Sequence

from lab.bench.packets import BATCH, Load, open_socket, udp_frame

LIFE_S = 300


def main(argv: Sequence[str]) -> int:
    signal.alarm(LIFE_S)  # SIGALRM ends the process: nobody waits for a harness that is gone
    dev, source, source_port, destination, destination_port = argv
    os.sched_setaffinity(0, {min(os.sched_getaffinity(1))})  # whoever starts this may be bound itself
    load = Load([udp_frame(source, destination, int(source_port), int(destination_port))], slots=BATCH)
    with open_socket(dev) as sock:
        print("ready", flush=True)
        while not select.select([sys.stdin], [], [], 0)[0]:
            with contextlib.suppress(OSError):  # ENOBUFS: the limiter refused one, and said so
                load.send(sock, BATCH)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
