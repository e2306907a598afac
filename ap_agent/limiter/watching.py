"""Counters of links, read each second for tests: a watch, or an armed test that sends.

A sample is due at the start of a test, at each whole second and at its end, by the wall clock. Missing samples (the
limiter was down, the clock was set) are not interpolated. Nothing here sends anything.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from ap_agent.common.errors import AgentError
from ap_agent.common.log import Logger
from ap_agent.document.series import Series, read_series, write_series
from ap_agent.limiter.enforcing import Enforcer
from ap_agent.limiter.live_counters import samples_of
from ap_agent.limiter.report import save
from contract.link_tests import MAX_WATCHES_AT_ONCE, TEST_LANES, WATCH, LinkTest

WRITE_S = 2.0  # between two files while watches run
KEPT_FOR = timedelta(days=1)
MOST_KEPT = 64
_LATE_S = 1.0  # how long after its end a watch gets its last sample


class Watching:
    """`moments` are monotonic seconds."""

    def __init__(self, enforcer: Enforcer, folder: Path, logger: Logger, monotonic: Callable[[], float]) -> None:
        self._enforcer, self._folder, self._log, self._monotonic = enforcer, folder, logger, monotonic
        self._series: dict[str, Series] = {}
        self._written: dict[str, Series] = {}
        self._next_write = -math.inf

    def take_up(self) -> None:
        """Load the previous limiter's series."""
        try:
            self._series = {one.test_id: one for one in read_series(self._folder)}
        except AgentError as exc:
            self._log.warning("tests.unread", message=exc.message)
        self._written = dict(self._series)

    def armed(self) -> tuple[str, ...]:
        """Watches that are or will be counted: their links are in the kernel. Of the tests that send, those whose
        packets the kernel recognises."""
        now, counted = self._enforcer.now(), self._enforcer.counted()
        return tuple(
            one.test_id
            for number, one in self._tests()
            if now < one.ends_at and (number, "to_user") in counted and (number, "from_user") in counted
        )

    @property
    def is_needed(self) -> bool:
        """Whether something is to be counted or written, now or later."""
        return self._series != self._written or any(self._is_open(one) for _, one in self._tests())

    def next_in_s(self) -> float:
        """Time until the next sample, by the current wall clock [s]."""
        now = self._enforcer.now()
        waits = [_wait_s((now - one.begins_at).total_seconds()) for _, one in self._tests() if self._is_open(one)]
        if self._series != self._written:
            waits.append(max(0.0, self._next_write - self._monotonic()))
        return min(waits, default=math.inf)

    def sample(self) -> None:
        tests = {one.test_id: (number, one) for number, one in self._tests()}
        due = [both for both in tests.values() if self._is_due(both[1])]
        if due:
            self._sample(due)
        has_ended = self._end(tests)
        now = self._monotonic()
        if self._series != self._written and (has_ended or now >= self._next_write):
            self._next_write = now + WRITE_S
            self._write()

    # --- which are due ----------------------------------------------------------------------------------------------

    def _tests(self) -> Iterator[tuple[int, LinkTest]]:
        """Tests to be counted, now or later. One that sends is counted while it is armed and a last time at its end."""
        enforcer = self._enforcer
        configuration = enforcer.configuration
        for number, link in configuration.links.items() if configuration is not None else ():
            for one in link.tests if link.is_user_as else ():
                has_ended = one.test_id in self._series and enforcer.now() >= one.ends_at
                if one.kind == WATCH or has_ended or enforcer.is_armed(number, one):
                    yield number, one

    def _is_open(self, test: LinkTest) -> bool:
        series = self._series.get(test.test_id)
        return not (series is not None and series.is_over) and self._past_s(test) <= test.duration_s + _LATE_S

    def _past_s(self, test: LinkTest) -> float:
        return (self._enforcer.now() - test.begins_at).total_seconds()

    def _is_due(self, test: LinkTest) -> bool:
        past_s = self._past_s(test)
        if past_s < 0 or not self._is_open(test):
            return False
        series = self._series.get(test.test_id)
        if series is None or not series.samples:
            return past_s < test.duration_s
        return math.floor(past_s) > _second_of(series.samples[-1].at_ms, test)

    # --- samples ----------------------------------------------------------------------------------------------------

    def _sample(self, due: list[tuple[int, LinkTest]]) -> None:
        samples = samples_of(self._enforcer, [number for number, _ in due], self._monotonic)
        running = sum(not one.is_over for one in self._series.values())
        for number, test in due:
            series = self._series.get(test.test_id)
            if series is None:
                if running >= MAX_WATCHES_AT_ONCE + (0 if test.kind == WATCH else TEST_LANES):
                    continue
                running += 1
                series = Series(test.test_id, number, round(test.ends_at.timestamp() * 1000), is_over=False)
                self._log.info("series.begin", test=test.test_id, link=number)
            if number in samples:
                series = replace(series, samples=(*series.samples, samples[number]))
            self._series[test.test_id] = series

    def _end(self, tests: dict[str, tuple[int, LinkTest]]) -> bool:
        """Close series whose test ended, was cancelled or was stopped, and drop the oldest; return whether one was
        closed."""
        now_ms = round(self._enforcer.now().timestamp() * 1000)
        ended = [
            one
            for one in self._series.values()
            if not one.is_over and (one.test_id not in tests or self._has_all(one, tests[one.test_id][1]))
        ]
        for one in ended:
            self._series[one.test_id] = replace(one, is_over=True)
            self._log.info("series.end", test=one.test_id, link=one.interface_id, samples=len(one.samples))
        since_ms = now_ms - KEPT_FOR // timedelta(milliseconds=1)
        kept = sorted(self._series.values(), key=lambda one: one.ends_at_ms)[-MOST_KEPT:]
        self._series = {one.test_id: one for one in kept if not one.is_over or one.ends_at_ms > since_ms}
        return bool(ended)

    def _has_all(self, series: Series, test: LinkTest) -> bool:
        is_last_there = bool(series.samples) and _second_of(series.samples[-1].at_ms, test) >= test.duration_s
        return is_last_there or not self._is_open(test)

    def _write(self) -> None:
        series = list(self._series.values())
        save(self._folder, lambda: write_series(self._folder, series), self._log, "tests.unwritable")
        self._written = dict(self._series)


def _wait_s(past_s: float) -> float:
    """Until the start, then until the next whole second."""
    return -past_s if past_s < 0 else 1 - past_s % 1


def _second_of(at_ms: int, test: LinkTest) -> int:
    return math.floor(at_ms / 1000 - test.begins_at.timestamp())
