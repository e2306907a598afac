"""Counters of links with an open page, each second, while the agent requests them (`document.live`).

Only the memory of these links is read, so the cost is independent of others. The agent renews the request every few
seconds; without it nothing is read or written.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Final

from ap_agent.common.errors import AgentError
from ap_agent.common.files import identity_of
from ap_agent.common.log import Logger
from ap_agent.document.live import ASKED_FOR_S, LOOKS_FILE, read_request, write_live
from ap_agent.document.series import SeriesSample, SideSample
from ap_agent.document.state import DirectionState
from ap_agent.limiter.drops import Counted
from ap_agent.limiter.enforcing import Enforcer
from ap_agent.limiter.report import link_states, save

EACH_S = 1.0
_WITHIN_S: Final = 0.01  # reading takes at most: half of what a verdict allows a rate over a second to be wrong by
_TRIES: Final = 5


class LiveCounters:
    """Moments are monotonic seconds."""

    def __init__(self, enforcer: Enforcer, logger: Logger, monotonic: Callable[[], float]) -> None:
        self._enforcer, self._log, self._monotonic = enforcer, logger, monotonic
        self._links: frozenset[int] = frozenset()
        self._until = self._next = -math.inf
        self._known = identity_of(self._path)  # earlier requests have expired

    @property
    def _path(self) -> Path:
        return self._enforcer.settings.state_dir / LOOKS_FILE

    def read_request(self) -> None:
        """Read the agent's request, if it changed. An unreadable one requests nothing."""
        found = identity_of(self._path)
        if found is None or found == self._known:
            return
        self._known, now = found, self._monotonic()
        try:
            links = read_request(self._path.parent)
        except AgentError as exc:
            self._log.debug("looks.refused", message=exc.message)
            return
        if now >= self._until or not links <= self._links:
            self._next = now  # a new request starts immediately
        self._links, self._until = links, now + ASKED_FOR_S

    def next_in_s(self) -> float:
        """Time until the next read [s]; infinite without a request."""
        now = self._monotonic()
        return max(0.0, self._next - now) if self._links and now < self._until else math.inf

    def sample(self) -> None:
        """Read what is due."""
        if self.next_in_s() > 0:
            return
        now = self._monotonic()
        self._next += EACH_S * (1 + (now - self._next) // EACH_S)
        folder = self._enforcer.settings.limiter_run_dir
        if samples := samples_of(self._enforcer, self._links, self._monotonic):
            save(folder, lambda: write_live(folder, samples), self._log, "live.unwritable")


def samples_of(enforcer: Enforcer, numbers: Iterable[int], monotonic: Callable[[], float]) -> dict[int, SeriesSample]:
    """Current counters and rates of these links, if the kernel has both directions; none if their moment is not
    certain."""
    links = {number: enforcer.links[number] for number in numbers if number in enforcer.links}
    readback = enforcer.readback(number for number in links if number in enforcer.wanted.links)
    read = _counted(enforcer, links, monotonic)
    if read is None:
        return {}
    now, moment, counted = read
    states = link_states(links, enforcer.wanted.links, enforcer.errors, readback, counted)
    at_ms, clock_ms = round(now.timestamp() * 1000), round(moment * 1000)
    return {
        number: SeriesSample(
            at_ms, clock_ms, int(found.state == "enforced"), _side(found.to_user), _side(found.from_user)
        )
        for number, found in states.items()
        if found.to_user is not None and found.from_user is not None
    }


def _counted(
    enforcer: Enforcer, links: Mapping[int, object], monotonic: Callable[[], float]
) -> tuple[datetime, float, Counted] | None:
    """Counters with their moment by both clocks. A busy host may stop this process between clock and counters: read
    again then, else a rate is told that no packets had."""
    for _ in range(_TRIES):
        now, moment = enforcer.now(), monotonic()
        counted = enforcer.counted(links)
        if monotonic() - moment <= _WITHIN_S:
            return now, moment, counted
    return None


def _side(found: DirectionState) -> SideSample:
    return SideSample(found.segment, found.rate_kbit, *found.counters[:4], found.dropped_packets)
