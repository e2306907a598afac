"""When usage is sampled and uploaded, and what happens to what the service, the disk or the kernel refuse."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from ap_agent.agent.cycle import Agent
from ap_agent.agent.fetch import NotModified, UsageRefusedError, UsageUnknownError
from ap_agent.agent.loop import Loop
from ap_agent.common.errors import AgentError, FetchError
from ap_agent.common.log import get_logger
from ap_agent.common.settings import Settings
from ap_agent.common.systemd import Notifier
from ap_agent.usage import recorder
from ap_agent.usage.reading import Device
from ap_agent.usage.recorder import UsageRecorder
from ap_agent.usage.spool import Spool
from tests.agent_clock import AtOnce, Clock, FakeClient, middle, run_for, settings_in, store_v7
from tests.agent_engine import FakeEngine
from tests.usage_classes import Class, device, link
from tests.usage_ledger import Ledger

EPOCH = 1_795_300_020.0  # a whole minute
MARK = 0x5EADBEEF


@dataclass
class FakeReader:
    """A kernel with one link, whose counters grow by 100 bytes a second; `error` is raised by every reading."""

    clock: Clock
    mark: int = MARK
    error: Exception | None = None
    readings: list[float] = field(default_factory=list)
    opened: int = 0
    during: Callable[[], None] = lambda: None

    def __call__(self) -> FakeReader:
        self.opened += 1
        return self

    def close(self) -> None:
        self.opened -= 1

    def read(self, names: Iterable[str]) -> list[Device]:
        if self.error is not None:
            raise self.error
        self.readings.append(self.clock.now)
        self.during()
        return [device(name, link(1, mark=self.mark, size=self.size())) for name in names]

    def size(self) -> int:
        return round((self.clock.now - 1000) * 100)


class UsageClient(FakeClient):
    """Keeps batches; `refusals` are raised first."""

    ledger: Ledger
    refusals: list[Exception]
    uploads: list[float]

    def send_usage(self, data: bytes) -> None:
        self.uploads.append(self.clock.now)
        if self.refusals:
            raise self.refusals.pop(0)
        self.ledger.take(data)


@dataclass
class World:
    """An agent with a fake kernel, a fake service and time that passes only while somebody waits."""

    folder: Path
    clock: Clock = field(default_factory=Clock)

    def __post_init__(self) -> None:
        self.settings = settings_in(self.folder)
        store_v7(self.settings)
        self.engine, self.reader = FakeEngine(), FakeReader(self.clock)
        self.client = UsageClient([NotModified()], self.clock)
        self.client.ledger, self.client.refusals, self.client.uploads = Ledger(), [], []
        self.start()

    def start(self, **changes: Any) -> None:
        """Another process."""
        self.settings = Settings(**{**vars(self.settings), **changes})
        self.agent = Agent(self.settings, self.engine, self.client, get_logger())
        self.usage = UsageRecorder(
            self.agent, get_logger(), reader=self.reader, wall=lambda: EPOCH + self.clock.now - 1000
        )
        self.loop = Loop(
            self.agent,
            get_logger(),
            notifier=Notifier({}),
            errands=AtOnce,
            monotonic=self.clock.monotonic,
            wait=self.clock.wait,
            uniform=middle,
            companions=(self.usage,),
        )
        self.loop.start()

    def run(self, seconds: float) -> None:
        run_for(self.loop, self.clock, seconds)

    @property
    def spool(self) -> Spool:
        return Spool(self.settings.state_dir / "usage")

    @property
    def codes(self) -> set[str]:
        return {one.code for one in self.agent.problems}

    def bytes_uploaded(self) -> int:
        return self.client.ledger.sums()[1, "to_user"][0]


@pytest.fixture(autouse=True)
def _no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of files are written here, and no power is cut; tests/unit/test_usage_spool.py looks at the disk."""
    monkeypatch.setattr(os, "fsync", lambda _descriptor: None)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_samples_are_taken_at_once_and_then_at_multiples_of_the_interval(world: World) -> None:
    world.clock.now += 3.5
    world.run(40)

    assert world.reader.readings == pytest.approx([1003.5, 1010, 1020, 1030, 1040], abs=0.01)


def test_batch_is_uploaded_soon_after_each_minute_is_over(world: World) -> None:
    world.run(125)

    assert world.client.uploads == pytest.approx([1055, 1115], abs=0.01)  # jitter: half of 10 s
    first, second = (batch["times"] for batch in world.client.ledger.batches.values())
    assert [time[14:19] for time in first] == ["27:00", "27:10", "27:20", "27:30", "27:40", "27:50"]
    assert [time[14:19] for time in second][::5] == ["28:00", "28:50"]
    assert world.client.ledger.versions() == {"1.18"}
    assert world.spool.closed() == []


def test_nothing_is_read_where_it_is_switched_off(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.start(usage_interval_s=0)
    world.run(100)

    assert world.reader.readings == []
    assert not world.spool.folder.exists()


def test_killed_agent_s_samples_are_uploaded_by_the_next_one_which_goes_on_with_the_segment(world: World) -> None:
    world.run(31)
    world.start()
    world.run(60)

    assert len(world.client.ledger.batches) == 2
    assert world.bytes_uploaded() == 5000  # at 1050
    assert {key[2] for key in world.client.ledger.segments()} == {f"{MARK:08x}"}


def test_segment_that_ended_while_nobody_looked_keeps_what_was_sampled(world: World) -> None:
    world.run(31)
    world.reader.mark = 0x42424242
    world.start()
    world.run(60)

    assert world.bytes_uploaded() == 3000 + 5000


def test_kernel_s_last_word_counts_under_the_configuration_of_before(world: World) -> None:
    world.run(31)
    world.usage.hear([Class(1, MARK, bytes=3333, packets=9).body(1)])
    world.reader.mark = 0x42424242
    world.run(60)

    segments = world.client.ledger.segments()
    assert segments[1, "to_user", f"{MARK:08x}"][0] == 3333
    assert world.spool.closed() == []


def test_device_that_is_about_to_lose_all_its_classes_is_counted_once_more(world: World) -> None:
    world.run(31)
    world.clock.now += 4
    world.usage.before_loss(["eth0"])
    world.reader.mark = 0x42424242
    world.run(60)

    assert world.client.ledger.segments()[1, "to_user", f"{MARK:08x}"][0] == 3500


def test_sample_that_another_configuration_overtook_is_thrown_away_and_repeated(world: World) -> None:
    world.run(31)
    before = len(world.reader.readings)
    world.reader.during = lambda: world.usage.expect("1.19")
    world.run(9.5)
    world.reader.during = lambda: None
    world.usage.enforced("1.19", world.agent.enforced)
    world.run(40)

    assert len(world.reader.readings) > before + 2
    old, new = world.client.ledger.batches.values()
    assert (old["version"], len(old["times"])) == ("1.18", 4)
    assert new["version"] == "1.19"


def test_clock_that_is_set_back_costs_no_byte_and_counts_none_twice(world: World) -> None:
    offset = [0.0]
    world.client.answers = [FetchError("away")]
    world.usage._wall = world.usage._keeper._now = lambda: EPOCH + world.clock.now - 1000 + offset[0]
    world.run(95)
    offset[0] = -7200.0
    world.run(95)
    world.client.answers = [NotModified()]
    world.run(330)  # the longest pause after failures is 300 s

    batches = list(world.client.ledger.batches.values())
    sizes = [one for batch in batches for one in batch["links"]["1"]["to_user"]["bytes"]]
    assert sizes == sorted(sizes)  # in the order in which they were counted
    assert {key[2] for key in world.client.ledger.segments()} == {f"{MARK:08x}"}
    assert min(batch["times"][0] for batch in batches) < "2026-11-21T21"


# --- what goes wrong ------------------------------------------------------------------------------------------------


def test_batches_of_an_outage_are_sent_in_order_and_not_all_at_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder, "BATCHES_PER_MINUTE", 4)
    world.start(usage_interval_s=30)
    world.client.answers = [FetchError("away")]
    world.run(60 * 9)
    assert world.client.uploads == []  # a service that does not answer a question is not asked to store
    assert len(world.spool.closed()) == 9
    world.client.answers = [NotModified()]
    world.run(400)

    times = [batch["times"][0] for batch in world.client.ledger.batches.values()]
    assert times == sorted(times)
    assert len(times) >= 15
    burst = [one for one in world.client.uploads if one < world.client.uploads[0] + 59]
    assert len(burst) == 4


def test_batch_that_fails_is_tried_again_and_told_of_meanwhile(world: World) -> None:
    world.client.refusals = [FetchError("The service answered 503; trying again later.", retry_after_s=30)]
    world.run(60)
    assert "usage_failed" in world.codes
    world.run(60)

    assert "usage_failed" not in world.codes
    assert world.client.uploads[1] - world.client.uploads[0] >= 30
    assert world.spool.closed() == []
    assert world.usage.sent == 2


def test_batch_that_the_service_refuses_is_set_aside_and_the_next_one_goes_out(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder, "TOLD_FOR_S", 100)
    world.client.refusals = [UsageRefusedError("The service refused it (400): links.1: Send an object here.")]
    world.run(125)

    (problem,) = [one for one in world.agent.problems if one.code == "usage_refused"]
    assert "Send an object here" in problem.message
    assert len(world.client.ledger.batches) == 1
    (aside,) = world.spool.folder.glob("*.refused")
    assert json.loads(gzip.decompress(aside.read_bytes()))["times"]
    world.run(100)
    assert "usage_refused" not in world.codes


def test_service_that_knows_no_usage_is_asked_rarely_and_without_a_problem(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder, "UNKNOWN_FOR_S", 600.0)
    world.start(usage_interval_s=30)
    world.client.refusals = [UsageUnknownError("older")]
    world.run(720)

    assert world.codes == set()
    assert world.client.uploads[1] - world.client.uploads[0] == pytest.approx(recorder.UNKNOWN_FOR_S, abs=1)
    assert len(world.client.ledger.batches) >= 10  # what was kept meanwhile


def test_kernel_that_cannot_be_read_is_a_problem_and_a_gap_and_nothing_else(world: World) -> None:
    world.run(11)
    world.reader.error = AgentError("The kernel did not answer within 30 s; try again.")
    world.run(20)
    assert "usage_unread" in world.codes
    assert world.agent.enforced is not None
    assert world.agent.enforced.ok
    world.reader.error = None
    world.run(30)

    assert world.codes == set()
    assert world.reader.opened == 1  # another socket after the failure
    (batch,) = world.client.ledger.batches.values()
    assert [time[14:19] for time in batch["times"]] == ["27:00", "27:10", "27:40", "27:50"]


def test_full_disk_is_a_problem_and_costs_nothing_that_is_still_counted(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.run(11)
    with monkeypatch.context() as full:
        full.setattr(Spool, "_lacking", lambda _self: 1)
        world.run(60)
        assert "usage_unwritable" in world.codes
        assert world.agent.enforced is not None
        assert world.agent.enforced.ok
    world.run(60)

    assert world.codes == set()
    assert world.bytes_uploaded() == 11_000
    first = min(world.client.ledger.batches.values(), key=lambda one: str(one["times"][0]))
    assert len(first["times"]) == 6  # what was in memory is not lost either


def test_what_waited_too_long_is_dropped_and_said(world: World) -> None:
    world.client.refusals = [FetchError("away") for _ in range(10_000)]
    world.start(usage_interval_s=30, backoff_max_s=86_400)
    world.run(130)
    world.clock.now += 3 * 86_400
    world.run(31)

    assert "usage_dropped" in world.codes
    assert all(path.name > f"{int((EPOCH + 2 * 86_400) * 1000)}" for path in world.spool.closed())


def test_health_file_says_how_far_it_is(world: World) -> None:
    world.run(11)

    health = json.loads((world.settings.run_dir / "health.json").read_bytes())
    assert health["usage"]["sampled_at"] == "2026-11-21T22:27:10.000Z"
    assert health["usage"]["waiting_batches"] == 0
    assert health["usage"]["spool_bytes"] > 0
