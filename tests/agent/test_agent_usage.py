"""When batches are uploaded, and what happens to what the service or the disk refuses."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass, field

import pytest

from ap_agent.agent import usage as usage_module
from ap_agent.agent.fetch import NewBundle, NotEnabledError, NotModified, UploadRefusedError
from ap_agent.common.errors import FetchError
from ap_agent.common.settings import Settings
from ap_agent.usage import spool as spool_module
from ap_agent.usage.spool import FILE_NAME
from tests.agent_clock import V8, Clock, FakeClient, World, store_v7, world_of
from tests.usage_ledger import Ledger


@dataclass
class UsageClient(FakeClient):
    """Keeps batches; `refusals` are raised first."""

    ledger: Ledger = field(default_factory=Ledger)
    refusals: list[Exception] = field(default_factory=list)
    uploads: list[float] = field(default_factory=list)

    def send_usage(self, data: bytes) -> None:
        self.uploads.append(self.clock.now)
        if self.refusals:
            raise self.refusals.pop(0)
        self.ledger.take(data)


def started(settings: Settings, *refusals: Exception) -> tuple[World, UsageClient]:
    """Each direction of link 1 passes 100 bytes a second."""
    store_v7(settings)
    clock = Clock()
    client = UsageClient([NotModified()], clock, refusals=list(refusals))
    world = world_of(settings, client, clock)
    world.limiter.size = lambda: round((clock.now - 1000) * 100)
    world.loop.start()
    return world, client


def counted(client: UsageClient) -> int:
    return client.ledger.sums()[1, "to_user"][0]


def test_batch_of_a_minute_is_uploaded_when_it_is_over(settings: Settings) -> None:
    world, client = started(settings)
    world.run_for(301)
    assert [moment // 60 * 60 for moment in client.uploads] == [1020 + 60 * number for number in range(5)]
    assert counted(client) >= 28_000
    assert client.ledger.versions() == {"1.18"}
    assert world.codes == []


def test_refused_batch_is_set_aside_named_for_an_hour_and_the_next_ones_go_on(settings: Settings) -> None:
    world, client = started(settings, UploadRefusedError("The service rejected the request (400): times"))
    world.run_for(200)
    assert world.codes == ["usage_refused"]
    assert world.receipts[-1]["problems"][0]["code"] == "usage_refused"
    assert counted(client) >= 15_000  # absolute: the next batch has it
    world.run_for(3600)
    assert world.codes == []
    with closing(sqlite3.connect(settings.state_dir / FILE_NAME)) as database:
        stored = database.execute("SELECT reason FROM refused").fetchall()
    assert stored == [("The service rejected the request (400): times",)]


def test_usage_that_the_service_does_not_take_delays_no_receipt(settings: Settings) -> None:
    world, client = started(settings, *[FetchError("The service answered 500.")] * 100)
    world.run_for(600)
    assert world.codes == ["usage_failed"]
    before = len(world.receipts)
    client.answers.append(NewBundle(V8))
    world.run_for(12)  # a poll each ten seconds
    assert [one["limits_version"] for one in world.receipts[before:]][-1:] == [8]


def test_a_failure_is_over_when_the_service_answers_that_it_takes_no_usage(settings: Settings) -> None:
    world, _ = started(settings, FetchError("away"), *[NotEnabledError("no such report")] * 100)
    while "usage_failed" not in world.codes:
        world.run_for(1)
        assert world.clock.now < 1200
    world.run_for(600)
    assert world.codes == []


def test_backlog_is_sent_thirty_batches_a_minute(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    world, client = started(settings, FetchError("away"))
    monkeypatch.setattr(usage_module, "BATCHES_PER_MINUTE", 5)
    with monkeypatch.context() as patched:
        patched.setattr(type(world.loop.usage), "due", lambda _self: None)
        world.run_for(1200)
    before = len(client.uploads)
    world.run_for(59)
    assert len(client.uploads) - before <= 10
    world.run_for(300)
    assert world.loop.usage.waiting <= 1


def test_full_disk_is_named_and_costs_no_byte(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    world, client = started(settings)
    world.run_for(100)
    with monkeypatch.context() as patched:
        patched.setattr(spool_module, "_lacking", lambda _folder: 1)
        world.run_for(100)
        assert world.codes == ["usage_unwritable"]
        assert world.limiter.limits == {1: 500}
    world.run_for(130)
    assert world.codes == []
    assert counted(client) >= 25_000
