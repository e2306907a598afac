"""What a link may carry in each direction, and at which moment. Pure.

The engine knows no time: it is given links with the limits of one moment (`links_at`, or a `Timetable` that is asked
again and again).
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from datetime import datetime

from bandwidth_config import Limits, LinkInfo


def strictest_of_each(several: list[Limits]) -> Limits:
    """The lower limit in each direction; 0 counts as the lowest."""
    return Limits(min(one.to_user_kbit for one in several), min(one.from_user_kbit for one in several))


def links_at(links: Mapping[int, LinkInfo], when: datetime) -> Mapping[int, LinkInfo]:
    """Every link with the limits that are to be enforced at a moment (aware)."""
    return Timetable(links).at(when) if any(link.timed for link in links.values()) else links


def next_change(links: Mapping[int, LinkInfo], after: datetime) -> datetime | None:
    """When the next timed limit of any of them begins, steps or ends."""
    moments = (link.next_change(after) for link in links.values() if link.is_user_as and link.timed)
    return min((one for one in moments if one is not None), default=None)


class Timetable:
    """The links of one document, asked at moments that mostly go forward. A step of a few among thousands costs what
    the few cost; after a jump of the clock backwards everything is looked at anew.
    """

    def __init__(self, links: Mapping[int, LinkInfo]) -> None:
        self._timed = {number: link for number, link in links.items() if link.is_user_as and link.timed}
        self._now = {number: link.with_limits(link.limits) if link.timed else link for number, link in links.items()}
        self._when: datetime | None = None
        self._changes: list[tuple[datetime, int]] = []  # a heap

    @property
    def is_needed(self) -> bool:
        """Whether time plays any part at all."""
        return bool(self._timed)

    def at(self, when: datetime) -> Mapping[int, LinkInfo]:
        """The same object as before, and the same links in it, as long as nothing is another."""
        if self._when is None or when < self._when:
            due = list(self._timed)
            self._changes = []
        else:
            due = []
            while self._changes and self._changes[0][0] <= when:
                due.append(heapq.heappop(self._changes)[1])
        self._when = when
        changed: dict[int, LinkInfo] = {}
        for number in due:
            link = self._timed[number]
            following = link.next_change(when)
            if following is not None:
                heapq.heappush(self._changes, (following, number))
            limits = link.limits_at(when)
            if limits != self._now[number].limits:
                changed[number] = link.with_limits(limits)
        if changed:
            self._now = {**self._now, **changed}
        return self._now

    def next_change(self, after: datetime) -> datetime | None:
        """As the function of this name."""
        self.at(after)
        return self._changes[0][0] if self._changes else None
