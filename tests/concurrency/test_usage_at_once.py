"""Uploads and additions at once: each byte counts once (docs/adr/0015)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from scionlab.accounts.models import User
from scionlab.testbed.models import AttachmentPoint, Host
from scionlab.usage import ingest, rollup
from scionlab.usage.models import UsageBatch, UsageDay, UsageSlot
from scionlab.usage.rollup import roll_up
from tests.concurrency.conftest import AtOnce, MeetIn
from tests.factories import attach, spec
from tests.usage_world import simple, store, stored_samples, stored_sums

T0 = datetime(2026, 11, 21, 6, 0, 0, tzinfo=UTC)
NOW = T0 + timedelta(minutes=10)


@pytest.fixture
def host(ap: AttachmentPoint, owner: User) -> Host:
    attach(owner, spec(ap))
    return Host.objects.get(pk=ap.host_id)


def levels() -> list[int]:
    found = [stored_samples(), stored_sums(UsageSlot), stored_sums(UsageDay)]
    return [level["to_user"][0] for level in found]


def test_batches_with_the_same_samples_at_once_count_them_once(host: Host, at_once: AtOnce, meet_in: MeetIn) -> None:
    """Both would find the counter at the same place, if its series were not locked."""
    store(host, simple(host, T0, [500]), NOW)
    bodies = [simple(host, T0 + timedelta(seconds=10), [1000, 2000]) for _ in range(2)]
    meeting = meet_in(ingest, "_counters")
    assert [one.stored for one in at_once(*[lambda body=body: store(host, body, NOW) for body in bodies])] == [True] * 2
    assert not meeting.met
    roll_up()
    assert levels() == [2000, 2000, 2000]


def test_a_batch_that_comes_while_others_are_added_is_not_forgotten(
    host: Host, at_once: AtOnce, monkeypatch: pytest.MonkeyPatch
) -> None:
    store(host, simple(host, T0, [0, 1000]), NOW)
    real, later = rollup.unpack, simple(host, T0 + timedelta(minutes=1), [2000, 3000])
    came: list[bool] = []

    def unpack(*row: Any) -> Any:
        if not came:
            came.append(True)
            (stored,) = at_once(lambda: store(host, later, NOW))
            assert stored.stored
        return real(*row)

    monkeypatch.setattr(rollup, "unpack", unpack)
    assert roll_up() == 2
    assert levels() == [3000, 3000, 3000]
    assert not UsageBatch.objects.filter(rolled_up=False).exists()
