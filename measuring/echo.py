"""Latency under load: questions that the other end of a link answers, and the percentiles of their round trips.

Questions are a stream like any other (`traffic.echoes`), on the very ports of the link, so that they meet what its
limit makes of them. The answer carries the number and the time of its question; both ends use one clock. An answer
leaves within the answering station's tick of a millisecond, which is part of the time measured.
"""

from __future__ import annotations

import math
from collections.abc import Sequence


def percentile(ascending: Sequence[float], percent: float) -> float:
    """The smallest value that so many per cent do not exceed (nearest rank): always one that was measured.

    Raises `ValueError` for no values or a percentage outside (0, 100].
    """
    if not ascending:
        raise ValueError("no values have no percentile")
    if not 0 < percent <= 100:
        raise ValueError(f"a percentile is above 0 and at most 100, not {percent}")
    return ascending[math.ceil(len(ascending) * percent / 100) - 1]
