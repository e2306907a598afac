"""The service's clock stands still at T0, in each module that imports `now`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

T0 = datetime(2026, 10, 25, 0, 0, tzinfo=UTC)  # an hour before the clocks of Europe are set back


def at(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


class Now:
    moment = T0

    def __call__(self) -> datetime:
        return self.moment


@pytest.fixture(autouse=True)
def now(monkeypatch: pytest.MonkeyPatch) -> Now:
    clock = Now()
    monkeypatch.setattr("django.utils.timezone.now", clock)
    return clock
