"""Windows of traffic against a limit: the most that any window of a length carried, and what it may carry.

A bucket of b bytes that fills at r lets through at most r*T + b and the frame that empties it in any window of T; a
packet that finds the link's virtual queue empty goes straight on beside it.
"""

from __future__ import annotations

from collections.abc import Sequence

from measuring.judge import FRAME_BYTES, NS, ahead_bytes

__all__ = ["BYTES_PER_KBIT", "FRAME_BYTES", "allowed_bytes", "busiest_window_bytes"]

BYTES_PER_KBIT = 125


def allowed_bytes(limit_kbit: int, window_s: float = 0.0) -> float:
    """What a window of this length may carry under this limit; 0 s: what is allowed beyond rate*T."""
    return limit_kbit * BYTES_PER_KBIT * window_s + ahead_bytes(limit_kbit)


def busiest_window_bytes(times_ns: Sequence[int], sizes: Sequence[int], window_s: float) -> int:
    """The most that any window [t, t + window) carried; `times_ns` ascending, one size each. 0 without packets."""
    window_ns = int(window_s * NS)
    carried = most = first = 0
    for at_ns, size in zip(times_ns, sizes, strict=True):
        carried += size
        while times_ns[first] <= at_ns - window_ns:
            carried -= sizes[first]
            first += 1
        most = max(most, carried)
    return most
