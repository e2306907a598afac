"""Live rates of links with an open page. Stored in the cache `live` only, never in the database.

    a page ──▶ `request_rates`: registered for `LOOKED_FOR_S`; a silent agent is called: its waiting poll ends
    agent  ──▶ `store`: rates of the last second ──▶ the response lists open links (`looked_at`)
    a page ◀── `request_rates`: the newest rates, and for how long pages have been asking

Without open pages agents report nothing, and nothing is written. An unavailable cache counts as no answer. Of two
concurrent registrations one may be lost: each page registers again within seconds.
"""

from __future__ import annotations

import logging
import pickle
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from django.core.cache import caches
from redis.exceptions import RedisError

from scionlab.delivery.polls.calls import CALL_EACH_S, call
from scionlab.platform.clock import database_now

logger = logging.getLogger(__name__)

LOOKED_FOR_S: Final = 10.0
HEARD_S: Final = 3  # an agent that reported within this continues by itself
KEPT_S: Final = 3600  # the last rates of a link
MOST_LINKS: Final = 64  # of a host; `ap_agent.document.live.MOST_LINKS`
# Redis, or the folder of files in its place; a damaged file.
_AWAY: Final = (RedisError, OSError, EOFError, zlib.error, pickle.PickleError)

End = tuple[str, int]  # of a Link at its attachment point: the host's uid, the interface id
_Look = tuple[float, float]  # of a Link: since when pages have been asking, until when the last one counts


class Side(NamedTuple):
    """One direction: the limit in the kernel, passed and dropped."""

    limit_kbit: int
    passed_bytes: int
    dropped_bytes: int


@dataclass(frozen=True)
class Rates:
    """Over `over_ms` that ended `at` (seconds since 1970, the service's clock). A direction is None if its counters
    were reset meanwhile. Not `in_force`: the link is only observed, or not limited as wanted."""

    at: float
    over_ms: int
    in_force: bool
    to_user: Side | None
    from_user: Side | None

    def kbit(self, counted_bytes: int) -> float:
        """Convert bytes of this time to a rate."""
        return counted_bytes * 8 / self.over_ms


class Answer(NamedTuple):
    """The newest rates, None if there are none, and the seconds for which pages have been asking for them."""

    rates: Rates | None
    asked_s: float


def request_rates(ends: Iterable[End]) -> dict[End, Answer]:
    """Register an open page with these links for `LOOKED_FOR_S`. Return what is known; nothing without the cache."""
    wanted = set(ends)
    try:
        return _read_rates(wanted) if wanted else {}
    except _AWAY as exc:
        logger.warning("live.away error=%r", exc)
        return {}


def _read_rates(ends: set[End]) -> dict[End, Answer]:
    cache, now = caches["live"], database_now().timestamp()
    hosts = sorted({uid for uid, _ in ends})
    found: dict[str, Any] = cache.get_many([key for uid in hosts for key in (f"looks:{uid}", f"heard:{uid}")])
    looks = {uid: _living(found.get(f"looks:{uid}", {}), now) for uid in hosts}
    for uid, number in ends:
        since, _ = looks[uid].get(number, (now, now))
        looks[uid][number] = since, now + LOOKED_FOR_S
    cache.set_many({f"looks:{uid}": one for uid, one in looks.items()}, timeout=round(LOOKED_FOR_S))
    for uid in hosts:
        is_heard = now - found.get(f"heard:{uid}", 0.0) < HEARD_S
        if not is_heard and cache.add(f"called:{uid}", 1, timeout=CALL_EACH_S):
            call(uid, _newest(looks[uid]))
    stored: dict[str, Rates] = cache.get_many([f"live:{uid}:{number}" for uid, number in ends])
    return {
        (uid, number): Answer(stored.get(f"live:{uid}:{number}"), now - looks[uid][number][0]) for uid, number in ends
    }


def _living(looks: Mapping[int, _Look], now: float) -> dict[int, _Look]:
    return {number: (since, until) for number, (since, until) in looks.items() if until > now}


def _newest(looks: Mapping[int, _Look]) -> list[int]:
    return sorted(looks, key=lambda number: -looks[number][1])[:MOST_LINKS]


# --- the agent ------------------------------------------------------------------------------------------------------


def store(uid: str, rates: Mapping[int, Rates]) -> list[int]:
    """Store what the agent of this host reports; return the links with an open page."""
    cache, now = caches["live"], database_now().timestamp()
    rows = {f"live:{uid}:{number}": one for number, one in rates.items()}
    try:
        cache.set_many({**rows, f"heard:{uid}": now}, timeout=KEPT_S)
        return _newest(_living(cache.get(f"looks:{uid}", {}), now))
    except _AWAY as exc:
        logger.warning("live.away error=%r", exc)
        return []
