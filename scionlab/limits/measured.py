"""What extensions measured at Links, for pages and APIs of other apps.

An extension appends its source in `AppConfig.ready`. Without one `TRAFFIC` or `LAST_TESTS` is empty, and who shows
figures says that they are not measured here.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Final, Protocol

from rest_framework import serializers

from scionlab.enforcement.counters import Kept


class DirectionUsage(Kept, kw_only=True):
    """Counters are the totals of the period, `rated_bytes` the part within the `covered_s` with a known rate.
    `at_limit_s`: for a blocked link, while it dropped."""

    covered_s: Annotated[float, "Measured time."]
    limit_kbit: Annotated[int, "Mean limit."]
    backlog_bytes: Annotated[int, "Highest queue backlog."]
    at_limit_s: Annotated[float, "Time with at least 95 % of the limit in use."]
    rated_bytes: int | None = None  # None: all of them

    @property
    def kbit(self) -> int | None:
        """Mean rate while covered [kbit/s]; None without coverage."""
        bits = 8 * (self.bytes if self.rated_bytes is None else self.rated_bytes)
        return round(bits / (1000 * self.covered_s)) if self.covered_s else None


@dataclass(frozen=True)
class UsagePoint:
    """One step; an unknown direction (a gap) is None."""

    begins_at: datetime
    to_user: DirectionUsage | None
    from_user: DirectionUsage | None


class Traffic(Protocol):
    """Counters of Links over time."""

    def of_links(self, link_ids: Collection[int], *, begins_at: datetime) -> dict[int, UsagePoint]:
        """One sum per Link since then, without Links that have no figures."""

    def in_steps(self, link_id: int, *, begins_at: datetime, ends_at: datetime) -> list[UsagePoint]:
        """Every step of 10 s, including gaps."""

    def now_kbit(self, attachment_point_id: int, *, now: datetime) -> int:
        """What the Links there carry together in the busier direction, as far as known."""


class LastTest(Protocol):
    """A test that has begun. `text`: its result in one sentence."""

    @property
    def begins_at(self) -> datetime: ...
    @property
    def text(self) -> str: ...


class Tests(Protocol):
    """Tests of Links. `document` is the serializer of a `LastTest`."""

    @property
    def document(self) -> type[serializers.Serializer[Any]]: ...

    def last_tests(self, link_ids: Collection[int], *, now: datetime) -> Mapping[int, LastTest]:
        """By Link, the newest one that has begun and was not cancelled."""


TRAFFIC: Final[list[Traffic]] = []
LAST_TESTS: Final[list[Tests]] = []


def usage_of_links(link_ids: Collection[int], *, begins_at: datetime) -> dict[int, UsagePoint]:
    return {key: point for one in TRAFFIC for key, point in one.of_links(link_ids, begins_at=begins_at).items()}


def last_tests(link_ids: Collection[int], *, now: datetime) -> dict[int, LastTest]:
    return {key: found for one in LAST_TESTS for key, found in one.last_tests(link_ids, now=now).items()}
