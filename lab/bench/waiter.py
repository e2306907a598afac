"""Another user of rtnetlink, who notes how long the kernel keeps it waiting.

    python -m lab.bench.waiter

Prints `ready`, then sets the queue length of its own loopback once per millisecond, until its standard input closes;
then prints the waiting times as JSON, in microseconds. Every such request takes the kernel's one lock for network
configuration, which traffic control takes too, whatever the namespace.
"""

from __future__ import annotations

import json
import select
import signal
import socket
import struct
import sys
import time

from lab.bench.rtnl import Message, opened_socket, replay_on

RTM_NEWLINK = 16
IFLA_TXQLEN = 13
PERIOD_S = 0.001
LIFE_S = 300


def request(queue_length: int) -> Message:
    """Set the queue length of device 1, which is the loopback in every namespace."""
    body = struct.pack("=BxHiII", socket.AF_UNSPEC, 0, 1, 0, 0) + struct.pack("=HHI", 8, IFLA_TXQLEN, queue_length)
    return Message(RTM_NEWLINK, 0, body)


def main() -> int:
    signal.alarm(LIFE_S)  # SIGALRM ends the process: nobody waits for a harness that is gone
    waited_us: list[int] = []
    print("ready", flush=True)
    with opened_socket() as opened:
        while not select.select([sys.stdin], [], [], PERIOD_S)[0]:
            began = time.perf_counter()
            replay_on(opened, [request(1000 + len(waited_us) % 2)])
            waited_us.append(round((time.perf_counter() - began) * 1e6))
    print(json.dumps(waited_us), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
