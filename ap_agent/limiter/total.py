"""The cap of all limited links together: one factor per direction by which the program multiplies every charge. Pure.

With factor f each link passes at most its limit / f. Links that want more share the cap in proportion to their limits,
including what the others leave: f solves  sum of min(demand, limit / f) = cap  (water-filling). A link wants more if
packets were dropped recently, or if it uses all of its share; the others' demand is what they send. Observed links take
no part.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping

from ap_agent.document.state import Counters, Direction
from bandwidth_config import Limits

TICK_S = 0.15
TICKS_PER_WORK = 10  # thousands of links are counted less often: at most a tenth of one CPU
_WINDOW_S = 1.0  # over which a link's rate is measured: a slow link has a packet now and then
_REFUSED_FOR_S = 2.0  # how long a drop indicates more demand, while packets arrive
_ALL_OF_SHARE = 0.97
_PART_OF_SHARE = 0.5
_FALL_PER_TICK = 0.8  # a rising factor applies immediately; it falls in steps, or a short pause would open the cap


def factor_for(total_kbit: float, demands: Iterable[tuple[float, float]]) -> float:
    """At least 1. `demands`: limit and demand of each link, kbit/s; a demand counts up to the limit."""
    wanted = sorted((min(demand / limit, 1.0), limit) for limit, demand in demands if limit > 0)
    weight = sum(limit for _, limit in wanted)
    left = total_kbit
    for ratio, limit in wanted:  # those that want the smallest part of their limit get all of it
        if left <= ratio * weight:
            return max(1.0, weight / left)
        left -= ratio * limit
        weight -= limit
    return 1.0


class _Lane:
    def __init__(self, segment: int) -> None:
        self.segment = segment
        self._samples: deque[tuple[float, int]] = deque()  # moment, bytes passed
        self._refused_bytes = -1
        self._refused_at = -math.inf

    def note(self, now: float, counters: Counters) -> None:
        self._samples.append((now, counters.passed_bytes))
        while len(self._samples) > 2 and self._samples[1][0] <= now - _WINDOW_S:
            self._samples.popleft()
        if -1 < self._refused_bytes < counters.refused_bytes:
            self._refused_at = now
        self._refused_bytes = counters.refused_bytes

    def demand_kbit(self, limit_kbit: float, share_kbit: float) -> float:
        """For a link that gets `share_kbit` now."""
        now, last = self._samples[-1]
        rates = [
            self._rate_kbit(one, now, last) for one in (self._samples[0], self._samples[max(0, len(self._samples) - 2)])
        ]
        is_refused = now - self._refused_at < _REFUSED_FOR_S and max(rates) >= _PART_OF_SHARE * share_kbit
        return limit_kbit if is_refused or max(rates) >= _ALL_OF_SHARE * share_kbit else rates[0]

    @staticmethod
    def _rate_kbit(since: tuple[float, int], now: float, passed_bytes: int) -> float:
        return (passed_bytes - since[1]) / 125 / (now - since[0]) if now > since[0] else 0.0


class Cap:
    """Both directions, updated every `TICK_S`."""

    def __init__(self) -> None:
        self._lanes: dict[tuple[int, Direction], _Lane] = {}
        self._factors: dict[Direction, float] = {"to_user": 1.0, "from_user": 1.0}

    def factors(
        self,
        now: float,
        total_kbit: int,
        limits: Mapping[int, Limits],
        counted: Mapping[tuple[int, Direction], tuple[int, Counters]],
    ) -> tuple[float, float]:
        """To the users, from the users. `limits` are those of links that drop."""
        demands: dict[Direction, list[tuple[float, float]]] = {"to_user": [], "from_user": []}
        lanes: dict[tuple[int, Direction], _Lane] = {}
        for key, (segment, counters) in counted.items():
            number, direction = key
            if number not in limits:
                continue
            lane = self._lanes.get(key)
            if lane is None or lane.segment != segment:
                lane = _Lane(segment)
            lanes[key] = lane
            lane.note(now, counters)
            limit = limits[number].to_user_kbit if direction == "to_user" else limits[number].from_user_kbit
            demands[direction].append((limit, lane.demand_kbit(limit, limit / self._factors[direction])))
        self._lanes = lanes
        for direction, several in demands.items():
            found = factor_for(total_kbit, several)
            self._factors[direction] = max(found, self._factors[direction] * _FALL_PER_TICK, 1.0)
        return self._factors["to_user"], self._factors["from_user"]
