"""What the state file says of each link: by what was wanted, what the kernel has and what was counted there. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Literal

from ap_agent.dataplane.outcome import Readback
from ap_agent.dataplane.wanted import LimitedLink
from ap_agent.document.state import ClosedSegment, Counters, Direction, DirectionState, LinkState
from bandwidth_config import LinkInfo

Counted = Mapping[
    tuple[int, Direction], tuple[int, Counters]
]  # link (0: what none has) and direction -> segment, counters
Readbacks = Mapping[int, tuple[Readback | None, Readback | None]]

MOST_CLOSED = 8192
CLOSED_FOR = timedelta(days=1)
_NOT_THERE = "The kernel does not have the limits of this link."


def link_states(
    links: Mapping[int, LinkInfo],
    limited: Mapping[int, LimitedLink],
    errors: Mapping[int, str],
    readback: Readbacks,
    counted: Counted,
) -> dict[int, LinkState]:
    """Of each link that is to be limited. `links` have the limits of the moment of the readback."""
    found: dict[int, LinkState] = {}
    for number, link in links.items():
        if not link.is_user_as:
            continue
        to_user, from_user = directions(number, readback, counted)
        said: Literal["enforced", "observed", "error"] = "enforced"
        problem = errors.get(number)
        if problem is None and (to_user is None or from_user is None):
            problem = _NOT_THERE
        if problem is not None:
            said = "error"
        elif number in limited and limited[number].is_observed:
            said = "observed"
        found[number] = LinkState(number, link.limits, said, problem, to_user, from_user)
    return found


def directions(
    number: int, readback: Readbacks, counted: Counted
) -> tuple[DirectionState | None, DirectionState | None]:
    """To the user and from the user, as far as the kernel has them."""
    to_user, from_user = readback.get(number, (None, None))
    return (
        _direction(to_user, counted.get((number, "to_user"))),
        _direction(from_user, counted.get((number, "from_user"))),
    )


def _direction(found: Readback | None, counted: tuple[int, Counters] | None) -> DirectionState | None:
    if found is None or counted is None:
        return None
    return DirectionState(found.rate_kbit, *counted, found.dropped_packets, found.backlog_bytes)


def kept_segments(closed: Iterable[ClosedSegment], now: datetime) -> tuple[ClosedSegment, ...]:
    """The newest word on each segment that ended, for a day; of too many the newest."""
    since_ms = (now - CLOSED_FOR).timestamp() * 1000
    by_segment = {(one.interface_id, one.direction, one.segment): one for one in closed if one.closed_at_ms > since_ms}
    return tuple(sorted(by_segment.values(), key=lambda one: one.closed_at_ms)[-MOST_CLOSED:])
