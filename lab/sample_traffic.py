"""The traffic of sample links: what somebody wants to send at which time."""

from __future__ import annotations

import math

TEN_MINUTES_MS = 600_000
PACKET_BYTES = 1100
HEARTBEATS_BYTES = 5 * 10 * 80  # of 10 s: five a second


def share(interface_id: int, direction: str, number: int) -> float:
    """Of the limit, in the ten minutes of this number. Work for an hour or two, and a copy in between that wants more
    than the limit; on each link at another time."""
    phase = interface_id + (0.5 if direction == "from_user" else 0)
    work = max(0.0, math.sin(number / 5 + phase)) * (0.6 if direction == "to_user" else 0.2)
    return work + (1.5 if (number + interface_id) % 9 == 0 else 0.0)
