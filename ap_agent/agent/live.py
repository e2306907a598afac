"""Live rates: while a page with links is open, their rates are sent each second from a separate thread.

The service ends a waiting poll and names the links; each response names them again, and none once the page is closed.
Then the thread ends, and the limiter is no longer asked. The loop is not woken for samples, and nothing here delays
configurations or receipts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from ap_agent.agent.agent import Agent
from ap_agent.agent.background import Background
from ap_agent.agent.fetch import Client
from ap_agent.common.errors import AgentError
from ap_agent.common.files import identity_of
from ap_agent.common.log import Logger
from ap_agent.common.settings import Settings
from ap_agent.common.waker import Waker
from ap_agent.common.watch import Watch
from ap_agent.document.live import ASKED_FOR_S, LIVE_FILE, read_live, write_request
from ap_agent.document.series import SeriesSample, SideSample

SCHEMA = 1
ASK_AGAIN_S = ASKED_FOR_S / 3
SILENT_S = 5.0  # how long the limiter may write nothing: the service repeats the request while a page is open


class Live:
    """At most one session at a time."""

    def __init__(self, agent: Agent, logger: Logger, background: Background) -> None:
        self._agent, self._log = agent, logger
        self.background = background

    def begin(self, links: Sequence[int]) -> None:
        """Start a session for these links; ignored while one is running."""
        client = self._agent.client
        if client is None or not links or not self.background.is_free:
            return
        self._log.debug("live.begin", links=len(links))
        self.background.send(partial(session, client, self._agent.settings, links), self._ended)

    def _ended(self, outcome: Exception | None) -> None:
        """Errors here only affect the page, which shows that there is no report."""
        if isinstance(outcome, Exception) and not isinstance(outcome, AgentError):
            self._log.error("live.bug", error=f"{type(outcome).__name__}: {outcome}")
            return
        self._log.debug("live.end", error=outcome.message if outcome is not None else None)


def session(
    client: Client, settings: Settings, links: Sequence[int], *, monotonic: Callable[[], float] = time.monotonic
) -> None:
    """Until no page is open. Raises `AgentError`."""
    path, before = settings.limiter_run_dir / LIVE_FILE, dict[int, SeriesSample]()
    ask_at, told, heard_at = monotonic(), frozenset[int](), monotonic()
    try:
        watch, waker = Watch([path]), Waker()
        known = identity_of(path)
        try:
            while links:
                now = monotonic()
                if now >= ask_at or told != frozenset(links):
                    write_request(settings.state_dir, links)
                    ask_at, told = now + ASK_AGAIN_S, frozenset(links)
                waker.wait(min(ask_at - now, SILENT_S), listen_to=[watch.fileno()])
                watch.drain()
                if (found := identity_of(path)) in {None, known}:
                    if monotonic() >= heard_at + SILENT_S:
                        raise AgentError("The limiter does not report live rates.", retryable=True)
                    continue
                known, heard_at = found, monotonic()
                samples = read_live(settings.limiter_run_dir)
                if samples == before:  # written between the look at the file and its reading: sent already
                    continue
                if before:  # the first samples have no rates yet
                    links = client.send_live(live_document(before, samples, now_ms=round(monotonic() * 1000)))
                before = samples
        finally:
            watch.close()
    except OSError as exc:
        raise AgentError(f"{exc.filename or path}: {exc.strerror}", retryable=True) from exc
    finally:
        client.end_live()


def live_document(
    before: Mapping[int, SeriesSample], now: Mapping[int, SeriesSample], *, now_ms: int
) -> dict[str, Any]:
    """Document for the service (docs/api.md): per link, what passed between two samples. A direction whose counters
    were reset in between is left out."""
    links = {}
    for number, one in now.items():
        former = before.get(number)
        if former is None or one.clock_ms <= former.clock_ms:
            continue
        sides = {
            name: _side(getattr(former, name), getattr(one, name))
            for name in ("to_user", "from_user")
            if getattr(former, name).segment == getattr(one, name).segment
        }
        links[str(number)] = {"over_ms": one.clock_ms - former.clock_ms, "in_force": bool(one.in_force), **sides}
    newest_ms = max((one.clock_ms for one in now.values()), default=now_ms)
    return {"schema": SCHEMA, "age_ms": max(0, now_ms - newest_ms), "links": links}


def _side(before: SideSample, now: SideSample) -> dict[str, int]:
    return {
        "rate_kbit": now.rate_kbit,
        "passed_bytes": max(0, now.passed_bytes - before.passed_bytes),
        "dropped_bytes": max(0, now.dropped_bytes - before.dropped_bytes),
    }
