"""From the limiter's states to batches: every byte that it counted arrives, whatever dies in between."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ap_agent.common.errors import StoreError
from ap_agent.document.signed_text import Version
from ap_agent.document.state import ClosedSegment, Direction, LimiterState, LinkState
from ap_agent.usage import spool as spool_module
from ap_agent.usage.batch import MINUTE_MS
from ap_agent.usage.sampler import Sampler
from ap_agent.usage.spool import FILE_NAME, KEPT_MS, Spool
from tests.agent_limiter import T0, counters, direction, limiter_state, link_state
from tests.usage_ledger import Ledger

T0_MS = int(T0.timestamp() * 1000)


@dataclass
class Counting:
    """A spool whose process may be killed, and the service that gets what is in it."""

    folder: Path
    ledger: Ledger = field(default_factory=Ledger)

    def __post_init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        self.spool = Spool(self.folder / FILE_NAME)
        self.sampler = Sampler(self.spool)

    def kill(self) -> None:
        """Nothing is told to anybody: the file is as it is."""
        self.spool._db.close()

    def take(self, seconds: float, size: int | None = None, **changes: Any) -> None:
        links = {1: link_state(1, size=size)} if size is not None else {}
        given = {"links": links, **changes}
        moment = T0 + timedelta(seconds=seconds)
        self.sampler.take(limiter_state(written_at=moment, **given), 10.0)

    def upload(self) -> None:
        while (batch := self.spool.oldest()) is not None:
            self.ledger.take(batch.data)
            self.spool.drop(batch.number)

    def finish(self) -> None:
        """As the next start does."""
        self.kill()
        self.begin()
        self.upload()


@pytest.fixture
def counting(tmp_path: Path) -> Iterator[Counting]:
    found = Counting(tmp_path)
    yield found
    found.spool.close()


def closed(number: int, name: Direction, segment: int, size: int, seconds: float) -> ClosedSegment:
    return ClosedSegment(number, name, segment, 500, T0_MS + int(seconds * 1000), counters(size))


def documents(counting: Counting) -> list[dict[str, Any]]:
    return list(counting.ledger.batches.values())


def test_minute_of_samples_is_one_batch_with_absolute_counters(counting: Counting) -> None:
    for second in range(0, 60, 10):
        counting.take(second, size=second * 100)
    counting.upload()

    (document,) = documents(counting)
    assert document["times"] == [f"2026-11-21T06:00:{second:02d}.000Z" for second in range(0, 60, 10)]
    assert document["version"] == "1.18"
    assert document["links"]["1"]["to_user"] == {
        "segment": "00000000000003ea",
        "rate_kbit": [500] * 6,
        "bytes": [0, 1000, 2000, 3000, 4000, 5000],
        "packets": [0, 1, 2, 3, 4, 5],
        "drops": [0] * 6,
        "backlog_bytes": [0] * 6,
    }
    assert counting.sampler.newest is not None
    assert len(counting.spool.newest_samples()) == 2


def test_state_that_comes_early_is_no_sample_and_one_of_another_configuration_is(counting: Counting) -> None:
    counting.take(0, size=100)
    counting.take(5, size=200)
    counting.take(6, size=300, order=Version(1, 19, 8))
    counting.take(7, size=400, order=Version(1, 19, 8))
    assert counting.sampler.taken == 2
    counting.finish()
    assert [(one["version"], one["links"]["1"]["to_user"]["bytes"]) for one in documents(counting)] == [
        ("1.18", [100]),
        ("1.19", [300]),
    ]


def test_last_counters_of_a_segment_are_sent_once_under_the_configuration_that_it_was_counted_under(
    counting: Counting,
) -> None:
    counting.take(0, size=1000)
    last = (closed(1, "to_user", 1002, 1700, 4), closed(1, "from_user", 1003, 1800, 4))
    for second in range(5, 100, 10):  # the limiter names it for a day
        counting.take(second, order=Version(1, 19, 8), links={}, closed=last)
    counting.finish()

    assert [one["version"] for one in documents(counting)] == ["1.18", "1.18"]
    assert documents(counting)[1]["times"] == ["2026-11-21T06:00:04.000Z"]
    assert counting.ledger.sums() == {(1, "to_user"): (1700, 1, 0), (1, "from_user"): (1800, 1, 0)}


def test_segment_that_nobody_saw_while_it_lived_is_counted(counting: Counting) -> None:
    counting.take(0, closed=(closed(7, "to_user", 77, 4321, -3600),))
    counting.finish()
    assert counting.ledger.sums() == {(7, "to_user"): (4321, 4, 0)}
    assert documents(counting)[0]["times"] == ["2026-11-21T05:00:00.000Z"]


def test_drops_of_a_segment_never_go_back(counting: Counting) -> None:
    """HTB's own begin anew with its class, the segment goes on."""
    for second, segment, dropped in ((0, 5, 40), (10, 5, 3), (20, 5, 9), (30, 6, 1)):
        side = direction(500, 1000, segment=segment, refused=2, dropped=dropped)
        counting.take(second, links={1: link_state(1, to_user=side)})
    counting.finish()
    assert [one["links"]["1"]["to_user"]["drops"] for one in documents(counting)] == [[42, 42, 42], [3]]


def test_clock_that_is_set_back_keeps_the_order_of_batches(counting: Counting) -> None:
    counting.take(0, size=1000)
    counting.take(-3600, size=1100)
    counting.take(-3590, size=1200)
    counting.finish()
    assert [one["links"]["1"]["to_user"]["bytes"] for one in documents(counting)] == [[1000], [1100, 1200]]
    assert counting.ledger.sums()[1, "to_user"][0] == 1200


def test_disk_without_room_loses_resolution_and_no_byte(counting: Counting, monkeypatch: pytest.MonkeyPatch) -> None:
    counting.take(0, size=1000)
    with monkeypatch.context() as patched:
        patched.setattr(spool_module, "_lacking", lambda _folder: 1)
        with pytest.raises(StoreError, match="Free disk space"):
            counting.take(10, size=2000, closed=(closed(9, "to_user", 99, 50, 8),))
    counting.take(20, size=3000, closed=(closed(9, "to_user", 99, 50, 8),))
    counting.finish()
    assert counting.ledger.sums()[1, "to_user"][0] == 3000
    assert counting.ledger.sums()[9, "to_user"][0] == 50


# --- giving up --------------------------------------------------------------------------------------------------------


def test_two_days_without_a_service_cost_times_and_not_the_last_counters_of_what_ended(counting: Counting) -> None:
    counting.take(0, links={1: link_state(1, size=1000), 2: link_state(2, size=70_000)})
    counting.take(50, links={1: link_state(1, size=2000), 2: link_state(2, size=90_000)})
    for minute in range(0, KEPT_MS // MINUTE_MS + 60, 60):  # link 2 is gone, link 1 goes on
        counting.take(100 + 60 * minute, size=3000 + minute)
    assert counting.sampler.dropped > 0
    counting.finish()

    assert documents(counting)[0]["times"] != []
    oldest = counting.ledger.segments()
    assert oldest[2, "to_user", "00000000000003ec"][0] == 90_000
    assert counting.ledger.sums()[1, "to_user"][0] == 3000 + KEPT_MS // MINUTE_MS


def test_more_than_the_spool_may_hold_drops_the_oldest(counting: Counting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool_module, "MAX_BYTES", 5000)
    for minute in range(60):
        counting.take(60 * minute, size=minute * 1000)
        counting.take(60 * minute + 50, size=minute * 1000 + 500)
    kept = counting.spool.waiting()
    assert 5 <= kept < 30
    assert counting.sampler.dropped == 60 - kept
    counting.finish()
    assert counting.ledger.sums()[1, "to_user"][0] == 59_500


# --- kills ------------------------------------------------------------------------------------------------------------


@settings(max_examples=10)
@given(seed=st.integers(0, 2**32))
def test_kills_at_any_moment_lose_no_counted_byte(seed: int) -> None:
    """Links come, go and begin anew; the agent is killed between any two of its statements, and sends what it has."""
    chance = random.Random(seed)  # noqa: S311 - no secret
    with tempfile.TemporaryDirectory() as name:
        counting = Counting(Path(name))
        world = _World(chance)
        for _ in range(120):
            world.pass_time()
            state = world.state()
            kills = chance.random() < 0.2
            if kills:
                after = chance.randrange(1, 8)
                counting.spool._db.set_progress_handler(None, 0)
                counting.spool._db = _Dying(counting.spool._db, after)  # type: ignore[assignment]
            try:
                counting.sampler.take(state, 10.0)
            except _Killed:
                counting.begin()
            else:
                if kills:
                    counting.spool._db = counting.spool._db.inner  # type: ignore[attr-defined]
            if chance.random() < 0.2:
                counting.upload()
        counting.sampler.take(world.state(), 0.0)
        counting.finish()
        assert counting.ledger.sums() == {key: value for key, value in world.counted().items() if value[0]}


class _Killed(BaseException):
    pass


class _Dying:
    """A connection of a process that is killed before its n-th statement."""

    def __init__(self, inner: Any, after: int) -> None:
        self.inner, self._left = inner, after

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.inner, name)
        if name not in {"execute", "executemany"}:
            return found
        self._left -= 1
        if self._left < 0:
            self.inner.close()
            raise _Killed
        return found


@dataclass
class _World:
    """Links with counters, their segments, and those that ended."""

    chance: random.Random
    seconds: float = 0.0
    number: int = 0
    segments: dict[tuple[int, Direction], tuple[int, int]] = field(default_factory=dict)  # segment, bytes
    ended: list[ClosedSegment] = field(default_factory=list)

    def pass_time(self) -> None:
        self.seconds += self.chance.choice([0.5, 3.0, 10.0, 10.0, 10.0, 45.0])
        for key, (segment, size) in list(self.segments.items()):
            self.segments[key] = (segment, size + self.chance.randrange(0, 5000))
        number = self.chance.randrange(1, 5)
        for name in ("to_user", "from_user"):
            key = (number, name)
            if self.chance.random() < 0.3 and key in self.segments:
                segment, size = self.segments.pop(key)  # type: ignore[arg-type]
                self.ended.append(ClosedSegment(*key, segment, 500, self.at_ms(), counters(size)))  # type: ignore[arg-type]
            elif self.chance.random() < 0.5:
                self.segments.setdefault(key, (self.chance.randrange(1, 2**64), 0))  # type: ignore[arg-type]

    def at_ms(self) -> int:
        return T0_MS + int(self.seconds * 1000)

    def state(self) -> LimiterState:
        links: dict[int, LinkState] = {}
        for (number, name), (segment, size) in self.segments.items():
            before = links.get(number, link_state(number, to_user=None, from_user=None))
            links[number] = before._replace(**{name: direction(500, size, segment=segment)})
        self.number += 1
        moment = T0 + timedelta(seconds=self.seconds)
        return limiter_state(links, number=self.number, written_at=moment, closed=tuple(self.ended))

    def counted(self) -> dict[tuple[int, str], tuple[int, int, int]]:
        total: dict[tuple[int, str], tuple[int, int, int]] = {}
        last = [((one.interface_id, one.direction), one.counters.passed_bytes) for one in self.ended]
        for key, size in [*last, *((key, size) for key, (_, size) in self.segments.items())]:
            before = total.get(key, (0, 0, 0))
            total[key] = (before[0] + size, before[1] + size // 1000, 0)
        return total
