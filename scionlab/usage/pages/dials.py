"""Current rates, each second: the dials of a Link, and one line per AS (`usage.live`).

Reading them requests live rates from the attachment points.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from scionlab.enforcement.directions import DIRECTIONS, NAMES
from scionlab.platform.clock import database_now
from scionlab.testbed import selectors
from scionlab.testbed.models import Link, UserAS
from scionlab.usage import live

FRESH_S: Final = 2.0
SHOWN_S: Final = 10.0  # how long an outdated dial stays, marked as such
ANSWERED_WITHIN_S: Final = 5.0  # an agent that waits in its poll answers within two seconds
# An agent reports each second; the next second is available this long after its end.
_EACH_MS, _ON_ITS_WAY_MS, _SOONEST_MS = 1000, 150, 300


@dataclass(frozen=True)
class Dial:
    """Current rate of one direction in kbit/s. `limit_kbit` is None without a limit."""

    name: str
    kbit: int
    limit_kbit: int | None
    dropped_kbit: int

    @property
    def percent(self) -> int:
        """Share of the limit, at most 100; 0 without a limit."""
        return min(100, round(100 * self.kbit / self.limit_kbit)) if self.limit_kbit else 0

    @property
    def shown_kbit(self) -> int:
        """Capped at the limit."""
        return min(self.kbit, self.limit_kbit or 0)


@dataclass(frozen=True)
class Now:
    """One or several Links. No dials: no recent rates. `told_at`: end of the reported second, None if there was none.
    Not `is_fresh`: older than 2 s; then either `is_expected`, because pages have only begun to ask, or they have asked
    for `waited_s` without an answer. `reporting` of `count` Links are in the sums, over at most `over_s`. Refresh in
    `due_ms`."""

    told_at: datetime | None
    is_fresh: bool
    is_expected: bool
    waited_s: int
    dials: Sequence[Dial]
    due_ms: int
    reporting: int
    count: int
    over_s: float


def now_of(link: Link) -> Now:
    return _now([live.request_rates([_end(link)]).get(_end(link))])


def sums_of(ases: Sequence[UserAS]) -> dict[int, Now]:
    """Sums over the active Links of each AS, by its primary key; none for an AS without any."""
    links = {user_as.pk: [one for one in selectors.links_of(user_as) if one.active] for user_as in ases}
    found = live.request_rates(_end(link) for several in links.values() for link in several)
    return {pk: _now([found.get(_end(link)) for link in several]) for pk, several in links.items() if several}


def lines_of(ases: Sequence[UserAS]) -> dict[str, Any]:
    """For user_as/now.html: `lines` by the primary key of the AS, and the time of the next refresh."""
    lines = sums_of(ases)
    return {"lines": lines, "due_ms": min((one.due_ms for one in lines.values()), default=_EACH_MS)}


def _end(link: Link) -> live.End:
    """No SQL statement for a Link of `selectors.links_of`."""
    return link.interface_a.host.uid, link.interface_a.interface_id


def _now(answers: Sequence[live.Answer | None]) -> Now:
    now = database_now().timestamp()
    rates = [one.rates for one in answers if one is not None and one.rates is not None]
    known = [one for one in rates if now - one.at <= SHOWN_S]
    fresh = [one for one in known if now - one.at <= FRESH_S]
    told = max((one.at for one in rates), default=None)
    # Without an answer since pages began to ask, or since the last answer.
    waited_s = min(
        (min(one.asked_s, now - one.rates.at if one.rates else math.inf) for one in answers if one), default=None
    )
    due_ms = min([1000 * (one.at - now) + _EACH_MS + _ON_ITS_WAY_MS for one in fresh], default=_EACH_MS)
    chosen = fresh or known
    dials = [_dial(*both, chosen) for both in zip(NAMES.values(), DIRECTIONS, strict=True)]
    return Now(
        datetime.fromtimestamp(told, UTC) if told is not None else None,
        bool(fresh),
        waited_s is not None and waited_s < ANSWERED_WITHIN_S,
        round(waited_s or 0),
        [one for one in dials if one is not None],
        round(min(_EACH_MS + _ON_ITS_WAY_MS, max(_SOONEST_MS, due_ms))),
        len(fresh),
        len(answers),
        round(max((one.over_ms for one in chosen), default=0) / 1000, 1),
    )


def _dial(name: str, direction: str, rates: Sequence[live.Rates]) -> Dial | None:
    """Sum of the Links with figures of this direction; None without any."""
    sides = [(one, side) for one in rates if (side := getattr(one, direction)) is not None]
    if not sides:
        return None
    is_limited = all(one.in_force for one, _ in sides)
    return Dial(
        name,
        round(sum(one.kbit(side.passed_bytes) for one, side in sides)),
        sum(side.limit_kbit for _, side in sides) if is_limited else None,
        round(sum(one.kbit(side.dropped_bytes) for one, side in sides if one.in_force)),
    )
