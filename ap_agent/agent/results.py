"""Uploads test results from the limiter's file, and reports of tests that send (`kept_reports`).

The limiter keeps every series for a day, so nothing is stored here: after a restart all are sent again, and the service
ignores duplicates. While a test runs its newest samples are sent every two seconds. A test that sends is final when its
report is there, too, and for an early report as soon as no packet of the test can be queued any more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ap_agent import __version__
from ap_agent.agent.agent import Agent
from ap_agent.agent.fetch import Client, UploadRefusedError
from ap_agent.common.errors import AgentError
from ap_agent.common.files import identity_of
from ap_agent.common.log import Logger
from ap_agent.common.problem import Problem
from ap_agent.common.settings import Settings
from ap_agent.document.series import FILE_NAME, Series, SideSample, read_series
from ap_agent.usage.batch import segment_text

SCHEMA = 1
PAUSE_S = 2.0
_NO_SERIES_S = 2.0  # after its end, a report is sent even if the limiter counted nothing
# When both ends finish, everything has passed the same queues. An interrupted test may leave packets in them.
_AFTER_GOODBYE_MS, _DRAIN_MS = 250, 2000
_KEY = "test results"
_COLUMNS = SideSample._fields[1:]


def results_path(settings: Settings) -> Path:
    return settings.limiter_run_dir / FILE_NAME


@dataclass(frozen=True)
class Sent:
    """State of one series: number of samples that the service has, and whether it is final."""

    test_id: str
    samples: int = 0
    is_final: bool = False
    refusal: str | None = None


class Results:
    """Current errors are in `problems`."""

    def __init__(self, agent: Agent, logger: Logger, *, monotonic: Callable[[], float]) -> None:
        self._problems, self._kept, self._log = agent.extra, agent.kept, logger
        self._now, self._monotonic = agent.now, monotonic
        self._folder = agent.settings.limiter_run_dir  # it cannot change while the agent runs
        self._series: tuple[Series, ...] = ()
        self._sent: dict[str, Sent] = {}
        self._identity: tuple[int, ...] | None = None
        self._not_before = monotonic()

    def refresh(self) -> None:
        """Read the limiter's file, if it changed."""
        path = self._folder / FILE_NAME
        found = identity_of(path)
        if found in {None, self._identity}:
            return
        self._identity = found
        try:
            self._series = read_series(self._folder)
        except AgentError as exc:
            self._problems[_KEY] = Problem("state_unusable", str(path), exc.message)
            return
        self._problems.pop(_KEY, None)
        living = {one.test_id for one in self._series} | {one.test for one in self._kept.without(frozenset())}
        self._sent = {test_id: sent for test_id, sent in self._sent.items() if test_id in living}

    def _of(self, one: Series) -> Sent:
        return self._sent.get(one.test_id, Sent(one.test_id))

    def _all(self) -> list[Series]:
        """If the limiter counted nothing there is only a report."""
        since_ms = self._now().timestamp() * 1000 - _NO_SERIES_S * 1000
        alone = self._kept.without(frozenset(one.test_id for one in self._series))
        empty = [Series(one.test, 0, one.ends_at_ms, is_over=True) for one in alone if one.ends_at_ms < since_ms]
        return [*self._series, *empty]

    def _is_final(self, one: Series) -> bool:
        if one.is_over:
            return not self._kept.is_running(one.test_id)
        kept, last_ms = self._kept.of(one.test_id), one.samples[-1].at_ms if one.samples else 0
        if kept is None or kept.report is None:
            return False
        is_empty = kept.report["outcome"] == "completed"
        return last_ms >= kept.came_at_ms + (_AFTER_GOODBYE_MS if is_empty else _DRAIN_MS)

    def _waiting(self) -> Series | None:
        """Finished tests first: their verdicts are awaited."""
        waiting = [
            one
            for one in self._all()
            if not self._of(one).is_final and (self._is_final(one) or len(one.samples) > self._of(one).samples)
        ]
        return min(waiting, key=lambda one: (not self._is_final(one), one.ends_at_ms), default=None)

    def due(self) -> float | None:
        """At once if a test is over, otherwise every `PAUSE_S`."""
        one = self._waiting()
        if one is None:
            return None
        return self._monotonic() if self._is_final(one) else self._not_before

    def next_call(self, client: Client) -> Callable[[], Sent] | None:
        """New samples of one series."""
        one = self._waiting()
        if one is None:
            return None
        self._not_before = self._monotonic() + PAUSE_S
        kept = self._kept.of(one.test_id)
        document = result_document(one, since=self._of(one).samples, is_final=self._is_final(one))
        if document["is_final"] and kept is not None and not kept.is_taken:
            document["report"] = kept.report
        return partial(_send, client, document, len(one.samples))

    def took(self, outcome: Sent | AgentError) -> AgentError | None:
        """Failures are retried; rejections are not."""
        if isinstance(outcome, AgentError):
            return outcome
        if outcome.refusal is not None:
            self._log.error("tests.refused", test=outcome.test_id, message=outcome.refusal)
        self._sent[outcome.test_id] = outcome
        if outcome.is_final:
            self._kept.took(outcome.test_id)
        return None


def _send(client: Client, document: dict[str, Any], samples: int) -> Sent:
    """`samples`: number that the service then has. If it rejects the report, the samples are sent without it."""
    is_final, refusal = document["is_final"], None
    try:
        client.send_test_result(document)
    except UploadRefusedError as exc:
        refusal = exc.message
        try:
            if "report" not in document:
                raise
            client.send_test_result({key: value for key, value in document.items() if key != "report"})
        except UploadRefusedError as again:
            is_final, refusal = True, again.message
    return Sent(document["test"], samples, is_final, refusal)


def result_document(series: Series, *, since: int = 0, is_final: bool) -> dict[str, Any]:
    """Document of a series from sample `since` on (docs/api.md)."""
    samples = series.samples[since:]
    return {
        "schema": SCHEMA,
        "agent_version": __version__,
        "test": series.test_id,
        "is_final": is_final,
        "times_ms": [one.at_ms for one in samples],
        "clock_ms": [one.clock_ms for one in samples],
        "in_force": [bool(one.in_force) for one in samples],
        "to_user": _columns([one.to_user for one in samples]),
        "from_user": _columns([one.from_user for one in samples]),
    }


def _columns(sides: Sequence[SideSample]) -> dict[str, list[int] | list[str]]:
    columns: dict[str, list[int] | list[str]] = {"segment": [segment_text(one.segment) for one in sides]}
    return columns | {name: [getattr(one, name) for one in sides] for name in _COLUMNS}
