"""What a link may carry in each direction, and at which moment. Pure.

The engine knows no time: it is given links with the limits of one moment.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from link_info import LinkInfo


def next_change(links: Mapping[int, LinkInfo], after: datetime) -> datetime | None:
    """When the next timed limit of any of them begins, steps or ends."""
    moments = (link.next_change(after) for link in links.values() if link.is_user_as and link.timed)
    return min((one for one in moments if one is not None), default=None)


class Timetable:
    """The links of one document, asked again and again at moments that mostly go forward."""

    def __init__(self, links: Mapping[int, LinkInfo]) -> None:
        self._timed = {number: link for number, link in links.items() if link.is_user_as and link.timed}
        self._now = {number: link.with_limits(link.limits) if link.timed else link for number, link in links.items()}
        self._since: datetime | None = None  # the answer holds from here on,
        self._until: datetime | None = None  # up to here

    @property
    def is_needed(self) -> bool:
        """Whether time plays any part at all."""
        return bool(self._timed)

    def at(self, when: datetime) -> Mapping[int, LinkInfo]:
        """The same object as before, and the same links in it, as long as nothing is another."""
        is_known = self._since is not None and self._since <= when
        if not is_known or (self._until is not None and when >= self._until):
            limits = {number: link.limits_at(when) for number, link in self._timed.items()}
            changed = {n: self._timed[n].with_limits(one) for n, one in limits.items() if one != self._now[n].limits}
            if changed:
                self._now = {**self._now, **changed}
            self._since, self._until = when, next_change(self._timed, when)
        return self._now

    def next_change(self, after: datetime) -> datetime | None:
        """As the function of this name."""
        self.at(after)
        return self._until
