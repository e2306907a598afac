"""Limits and sending tests of each link at a moment. Pure.

The engine is independent of time: it gets links with the limits and tests of one moment.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from bandwidth_config import Limits
from contract.link_info import LinkInfo
from contract.link_tests import ARMED_AHEAD_S, SENDING_KINDS, LinkTest

_ARMED_AHEAD = timedelta(seconds=ARMED_AHEAD_S)


def next_change(links: Mapping[int, LinkInfo], after: datetime) -> datetime | None:
    """When the next timed limit of any of them begins, steps or ends."""
    return _earliest(link.next_change(after) for link in links.values() if link.is_user_as and link.timed)


def tests_that_send(link: LinkInfo) -> tuple[LinkTest, ...]:
    """Its tests that send, at any time."""
    return tuple(one for one in link.tests if one.kind in SENDING_KINDS) if link.is_user_as else ()


def tests_by_id(links: Mapping[int, LinkInfo]) -> dict[str, tuple[LinkInfo, LinkTest]]:
    return {test.test_id: (link, test) for link in links.values() if link.tests for test in tests_that_send(link)}


class Timetable:
    """The links of one document, queried at mostly increasing moments."""

    def __init__(self, links: Mapping[int, LinkInfo]) -> None:
        self._tests = {number: found for number, link in links.items() if (found := tests_that_send(link))}
        self._timed = {n: link for n, link in links.items() if n in self._tests or (link.is_user_as and link.timed)}
        self._now = {n: _at(link, link.limits) if link.timed or link.tests else link for n, link in links.items()}
        self._may_send = False
        self._since: datetime | None = None  # the result is valid from here on,
        self._until: datetime | None = None  # up to here
        self._next_limits: datetime | None = None

    @property
    def is_needed(self) -> bool:
        return bool(self._timed)

    def at(self, when: datetime, *, may_send: bool = False) -> Mapping[int, LinkInfo]:
        """Links with the limits of the moment and, with `may_send`, the tests that send then or within `ARMED_AHEAD_S`.
        Unchanged results and links are the same objects."""
        is_known = self._since is not None and self._since <= when and may_send == self._may_send
        if not is_known or (self._until is not None and when >= self._until):
            changed = {}
            for number, link in self._timed.items():
                limits, tests, now = link.limits_at(when), self._held(number, when, may_send), self._now[number]
                if limits != now.limits or tests != now.tests:
                    changed[number] = _at(link, limits, tests)
            if changed:
                self._now = {**self._now, **changed}
            self._since, self._may_send = when, may_send
            self._next_limits = next_change(self._timed, when)
            self._until = _earliest((self._next_limits, self._next_test(when)))
        return self._now

    def _held(self, number: int, when: datetime, may_send: bool) -> tuple[LinkTest, ...]:
        tests = self._tests.get(number, ()) if may_send else ()
        return tuple(one for one in tests if one.begins_at - _ARMED_AHEAD <= when < one.ends_at)

    def _next_test(self, after: datetime) -> datetime | None:
        moments = (at for tests in self._tests.values() for one in tests for at in _moments(one) if at > after)
        return min(moments, default=None)

    def next_limits(self, after: datetime) -> datetime | None:
        """As `next_change`."""
        self.at(after, may_send=self._may_send)
        return self._next_limits

    def next_change(self, after: datetime) -> datetime | None:
        """When a timed limit begins, steps or ends, or a test that sends is to be armed or ends."""
        self.at(after, may_send=self._may_send)
        return self._until


def _at(link: LinkInfo, limits: Limits, tests: tuple[LinkTest, ...] = ()) -> LinkInfo:
    """The link as if this held at all times."""
    return replace(link.with_limits(limits), tests=tests)


def _moments(test: LinkTest) -> tuple[datetime, datetime]:
    return test.begins_at - _ARMED_AHEAD, test.ends_at


def _earliest(moments: Iterable[datetime | None]) -> datetime | None:
    return min((one for one in moments if one is not None), default=None)
