"""The service's time is the database's (`scionlab.platform.clock`)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.apps import apps
from django.core.cache.backends.locmem import LocMemCache
from django.utils import timezone
from psycopg import OperationalError

from scionlab.platform import clock
from tests.cases import table

T0 = datetime(2026, 11, 28, tzinfo=UTC)


class FakePostgres:
    """A connection to a database where it is T0; asking takes `trip_s`."""

    vendor = "postgresql"

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, ahead_s: float, trip_s: float) -> None:
        self.monotonic_s, self.trip_s, self.asked, self.is_lost = 1000.0, trip_s, 0, False
        self.connection = self
        monkeypatch.setattr(clock.time, "monotonic", lambda: self.monotonic_s)
        monkeypatch.setattr(clock.time, "time", lambda: T0.timestamp() - trip_s / 2 + ahead_s)
        monkeypatch.setattr(timezone, "now", lambda: T0 + timedelta(seconds=ahead_s))
        monkeypatch.setattr(clock, "connection", self)
        monkeypatch.setattr(clock, "cache", LocMemCache("of this test", {}))
        clock.cache.clear()
        monkeypatch.setattr(clock, "_ahead_s", 0.0)
        monkeypatch.setattr(clock, "_measured_at", float("-inf"))

    def cursor(self) -> FakePostgres:
        return self

    __enter__ = cursor

    def __exit__(self, *_: object) -> None:
        pass

    def execute(self, _sql: str) -> None:
        self.asked += 1
        self.monotonic_s += self.trip_s
        if self.is_lost:
            raise OperationalError("lost")

    def fetchone(self) -> tuple[float]:
        return (T0.timestamp(),)


@table(
    ("ahead_s", "trip_s", "off_s", "said"),
    [
        (3600, 0.01, 0, "is 3600 s ahead of the database's, at most 1 s is allowed"),
        (-3600, 0.01, 0, "is 3600 s behind the database's, at most 1 s is allowed"),
        (0.9, 0.01, 0.9, ""),  # as good as right
        (2.0, 0.01, 0, "is 2 s ahead of the database's"),
        (2.0, 2.5, 2.0, ""),  # not known that well: the question may have waited for 2.5 s
    ],
)
def test_it_is_the_databases_time(
    monkeypatch: pytest.MonkeyPatch, ahead_s: float, trip_s: float, off_s: float, said: str
) -> None:
    FakePostgres(monkeypatch, ahead_s=ahead_s, trip_s=trip_s)
    assert abs(clock.database_now() - T0 - timedelta(seconds=off_s)) < timedelta(milliseconds=10)
    problems = clock.clock_problems()
    assert (len(problems), said in "".join(problems)) == (bool(said), True)


def test_the_database_is_asked_every_30_s(monkeypatch: pytest.MonkeyPatch) -> None:
    database = FakePostgres(monkeypatch, ahead_s=3600, trip_s=0)
    for passed_s, asked in ((0, 1), (29, 1), (31, 2)):
        database.monotonic_s = 1000.0 + passed_s
        clock.database_now()
        assert (passed_s, database.asked) == (passed_s, asked)
    database.is_lost, database.monotonic_s = True, 1100.0
    assert clock.database_now() == T0, "what was measured last"


def test_no_row_gets_its_time_from_the_machine() -> None:
    """Ruff bans the functions; Django calls them for these options."""
    ours = [model for model in apps.get_models() if model.__module__.startswith("scionlab.")]
    fields: list[Any] = [field for model in ours for field in model._meta.fields]
    assert len(fields) > 200
    assert [
        str(field)
        for field in fields
        if getattr(field, "auto_now", False) or getattr(field, "auto_now_add", False) or field.default is timezone.now
    ] == []
