"""The decisions of `mpget`: whatever dies, lies, stalls or is slow, the right bytes come, or it says that none can.

`World` stands for servers, networks, disk and clock: hypothesis chooses what happens next, then everything that is left
of it runs to the end by itself.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from multipath.core import STALL_S, Download, Rules, Task
from multipath.state import (
    MAX_FAILURES,
    MAX_UNDER_WAY,
    MAX_WRONG,
    MIN_RANGE,
    Facts,
    State,
)  # fmt: skip
from tests.cases import case

URL = "http://192.0.2.1/file"
HONEST, LIES, NO_RANGE, OTHER_LENGTH, OTHER_ETAG = "honest", "lies", "no Range", "other length", "other ETag"


class World:
    """A file of some bytes, its part file, and paths of some kinds. `now` is the clock."""

    def __init__(self, size: int, kinds: list[str], *, piece_bytes: int | None, rules: Rules | None = None) -> None:
        self.right = hashlib.shake_128(b"file").digest(size)
        self.part = bytearray(size)
        self.kinds, self.now = kinds, 100.0
        self.core = Download(len(kinds), rules or Rules(), piece_bytes=piece_bytes)
        self.times: Counter[int] = Counter()  # how often a byte arrived and was kept
        self.wrong_checks, self.watched = 0, False

    def facts(self, kind: str) -> Facts:
        size = len(self.right) + (kind == OTHER_LENGTH)
        return Facts(URL, size, etag="other" if kind == OTHER_ETAG else "one", ranged=kind != NO_RANGE)

    def open(self, index: int, handshake_s: float = 0.01) -> None:
        self.core.opened(index, self.facts(self.kinds[index]), handshake_s, self.now)

    def deliver(self, task: Task, count: int) -> None:
        """The next bytes of a task, wrong ones from a liar; only what a server was asked for."""
        count = min(count, task.end - task.pos)
        if not count:
            return
        at = task.pos
        for start, end in self.core.arrived(task, count, self.now):
            assert at <= start < end <= at + count
            lies = self.kinds[task.path] == LIES
            self.part[start:end] = bytes(b ^ 1 for b in self.right[start:end]) if lies else self.right[start:end]
            self.times.update(range(start, end, 512))

    def bring_free_bytes(self, *indexes: int) -> None:
        """All of them, over these paths in turn."""
        while self.core.free.total:
            for index in indexes:
                if task := self.core.take(index, self.now):
                    self.deliver(task, task.end)

    def check(self) -> None:
        """As `transfer` does: the hash of a piece that is done."""
        if self.core.unchecked:
            piece = min(self.core.unchecked)
            start, end = self.core.piece_span(piece)
            good = self.part[start:end] == self.right[start:end]
            self.wrong_checks += not good
            self.core.checked(piece, good, lambda s, e: bytes(self.part[s:e]), self.now)

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.core.tick(self.now)

    def holds(self) -> None:
        """No byte is lost, none is free and under way, none is under way more than twice."""
        core, size = self.core, len(self.right)
        if core.size is None:
            return
        under_way: Counter[int] = Counter()
        marks = sorted({0, size, *(p for t in core.tasks for p in (t.pos, t.end)),
                        *(p for s in (*core.free, *core.done) for p in s[:2]),
                        *(p for one in core.suspects for p in core.piece_span(one))})  # fmt: skip
        for low, high in pairwise(marks):
            free = bool(core.free.within(low, high))
            done = bool(core.done.within(low, high))
            is_suspect = any(s <= low < e for s, e in map(core.piece_span, core.suspects))
            under_way[low] = sum(t.pos <= low < t.end for t in core.tasks)
            assert free or done or under_way[low] or is_suspect, f"{low} to {high} is lost"
            assert not (free and (done or under_way[low])), f"{low} to {high} is free and fetched"
            assert under_way[low] <= 2
            assert not (is_suspect and free), f"{low} to {high} is free, and of a wrong piece"
        for piece in core.suspects:
            start, end = core.piece_span(piece)
            over = [one for one in core.tasks if one.pos < end and start < one.end]
            assert all(one.piece == piece or not core.paths[one.path].ranged for one in over)
            assert over or piece in core.unchecked or not core.done.within(start, end)
        assert sum(not core.paths[one.path].ranged for one in core.tasks) <= 1
        assert core.free.total == sum(e - s for s, e, _ in core.free)
        assert core.done.total == sum(e - s for s, e, _ in core.done)

    def run(self, *, rates: dict[int, int] | None = None, step_s: float = 0.05, limit_s: float = 900) -> None:
        """Every path brings bytes at its rate (bytes/s, in turn over its tasks) until it is complete or dead."""
        until = self.now + limit_s
        owed: Counter[int] = Counter()
        while not (self.core.is_complete or self.core.is_dead):
            assert self.now < until, f"no end: {self.core.paths} {self.core.tasks}"
            for index, kind in enumerate(self.kinds):
                if self.core.paths[index].state is State.OPENING:
                    self.open(index)
                while self.core.take(index, self.now):
                    pass
                rate = (rates or {}).get(index, 1_000_000)
                mine = [task for task in self.core.tasks if task.path == index]
                owed[index] = int(owed[index] + rate * step_s) if mine else 0
                for task in mine:
                    count = owed[index] // len(mine)
                    self.deliver(task, count)
                owed[index] %= max(1, len(mine))
                if kind == NO_RANGE and not self.core.paths[index].ranged and len(mine) > 1:
                    raise AssertionError("two requests to a server without Range")
            if self.now // step_s % 3:  # hashing takes its time
                self.check()
            self.pass_time(step_s)
            if self.watched:
                self.holds()


KINDS = st.lists(
    st.sampled_from([HONEST, HONEST, LIES, LIES, NO_RANGE, OTHER_LENGTH, OTHER_ETAG]), min_size=1, max_size=4
)
EVENTS = st.lists(
    st.tuples(
        st.sampled_from([*["open", "take"] * 2, *["deliver"] * 3, "fail", "out", "late", "time", "check"]),
        st.integers(0, 3), st.integers(1, 60_000),
    ), max_size=60,
)  # fmt: skip


@settings(max_examples=400)
@given(kinds=KINDS, size=st.integers(0, 150_000), events=EVENTS, piece=st.sampled_from([None, 5_000, 20_000, 200_000]),
       rates=st.lists(st.sampled_from([0, 3_000, 50_000, 1_000_000]), min_size=4, max_size=4),
       max_paths=st.integers(1, 4))  # fmt: skip
def test_every_interleaving_ends_with_the_right_bytes_or_says_that_it_cannot(
    kinds: list[str], size: int, events: list[tuple[str, int, int]], piece: int | None, rates: list[int], max_paths: int
) -> None:
    with pytest.MonkeyPatch.context() as patched:
        for name, value in {"MIN_RANGE": 4096, "TAIL_RANGE": 512}.items():  # so that there are many of them
            patched.setattr(f"multipath.state.{name}", value)
        _try(kinds, size, events, piece, rates, max_paths)


def _try(
    kinds: list[str], size: int, events: list[tuple[str, int, int]], piece: int | None, rates: list[int], max_paths: int
) -> None:
    world = World(size, kinds, piece_bytes=piece, rules=Rules(max_paths=max_paths, slot_s=1.0))
    core, ended = world.core, []
    for what, number, count in events:
        index = number % len(kinds)
        task = core.tasks[count % len(core.tasks)] if core.tasks else None
        if what == "open":
            world.open(index, count / 60_000)
        elif what == "take":
            core.take(index, world.now)
        elif what == "deliver" and task:
            world.deliver(task, count)
        elif what == "fail" and task:
            ended.append(task)
            core.failed(task.path, "broken", world.now)
            core.drop(task)
        elif what == "late" and ended:
            assert core.arrived(ended[-1], 1, world.now) == []
        elif what == "out" and count % 5 == 0:
            core.leave(index, "gone", world.now)
        elif what == "time":
            world.pass_time(count / 10_000)
        elif what == "check":
            world.check()
        world.holds()
    speeds = dict(enumerate(rates))
    world.watched = True
    stuck = [index for index in range(len(kinds)) if not speeds[index]]
    for index in stuck:  # the edge gives up on what brings no bytes
        core.leave(index, "no bytes", world.now)
    world.run(rates=speeds)
    assert core.is_complete or core.is_dead
    if core.is_complete and core.size == size and (piece is not None or LIES not in kinds):
        assert bytes(world.part) == world.right
    # Each wrong hash costs its only contributor a strike, or is the first one of its piece.
    pieces = 0 if piece is None else -(-size // piece)
    assert world.wrong_checks <= pieces + MAX_WRONG * len(kinds)


# --- one decision at a time ----------------------------------------------------------------------------------------


@settings(max_examples=40)
@given(
    rates=st.integers(20_000, 200_000).flatmap(
        lambda slowest: st.lists(st.integers(slowest, 10 * slowest), min_size=2, max_size=5)
    ),
    size=st.integers(1, 1_000_000),
)
def test_without_faults_little_is_wasted_and_none_is_waited_for(rates: list[int], size: int) -> None:
    """Rates within a factor of ten. With several paths at a hundredth of the quickest 1 MB takes up to
    3 s: their first ranges are as long as everybody's, and no byte is asked for more than twice."""
    world = World(size, [HONEST] * len(rates), piece_bytes=None, rules=Rules(min_weight=0))
    step_s = 0.01  # of this world: each path is served in whole steps
    world.run(rates=dict(enumerate(rates)), step_s=step_s)
    assert bytes(world.part) == world.right
    # Twice comes at most what was under way when nothing was free any more: the tails of the last ranges.
    assert world.core.waste <= MAX_UNDER_WAY * MIN_RANGE * len(rates)
    # As long as no rate is known all paths get the same, so that the others take over what a slow one was asked for.
    assert world.now - 100 <= 1.05 * size / sum(rates) + 1.0 + len(rates) * step_s


def test_at_most_n_paths_are_at_work_the_quickest_first_and_a_spare_one_steps_in() -> None:
    world = World(1_000_000, [HONEST] * 4, piece_bytes=None, rules=Rules(max_paths=2))
    for index, handshake_s in ((1, 0.03), (3, 0.05), (0, 0.02), (2, 0.04)):
        world.open(index, handshake_s)
    states = [one.state for one in world.core.paths]
    assert states == [State.SPARE, State.ACTIVE, State.SPARE, State.ACTIVE]  # the first two that answered
    world.core.leave(3, "gone", world.now)
    assert world.core.paths[0].state is State.ACTIVE
    for _ in range(MAX_FAILURES):
        world.now += 60
        world.core.failed(1, "no answer", world.now)
    assert world.core.paths[2].state is State.ACTIVE


def test_a_path_below_the_least_weight_rests_and_is_probed_again() -> None:
    world = World(50_000_000, [HONEST] * 2, piece_bytes=None, rules=Rules(slot_s=1.0))
    slow = world.core.paths[1]
    rates = {0: 500_000, 1: 50_000}
    seen = []
    for second in range(30):
        with pytest.raises(AssertionError, match="no end"):
            world.run(rates=rates, limit_s=1.0)
        seen.append(slow.state)
        if second == 15:
            rates[1] = 400_000  # and now it is worth it
    assert seen[3] is State.RESTING
    assert 2 <= slow.rests <= 4
    assert seen[-8:] == [State.ACTIVE] * 8


def test_a_path_that_fails_is_tried_again_later_and_later_and_comes_back() -> None:
    world = World(1_000_000, [HONEST] * 2, piece_bytes=None)
    world.open(0)
    world.open(1)
    path, waits = world.core.paths[1], []
    for _ in range(9):
        task = world.core.take(1, world.now)
        assert task is not None
        world.core.failed(1, "reset", world.now)
        world.core.failed(1, "reset", world.now)  # of another range, at the same time
        world.core.drop(task)
        assert world.core.take(1, world.now) is None
        waits.append(path.retry_at_s - world.now)
        world.now = path.retry_at_s
    assert waits == [0.5, 1, 2, 4, 8, 16, 30, 30, 30]
    assert not path.is_usable
    assert not world.core.is_dead
    task = world.core.take(1, world.now)
    assert task is not None
    world.deliver(task, 1)
    assert path.is_usable
    assert world.core.take(1, world.now) is not None


def test_a_range_that_stalls_at_the_end_is_taken_over_whole() -> None:
    world = World(2 * MIN_RANGE, [HONEST] * 2, piece_bytes=None)
    world.open(0)
    world.open(1)
    stalled = world.core.take(0, world.now)
    assert stalled is not None
    world.pass_time(0.2)
    world.deliver(stalled, 1000)
    world.bring_free_bytes(1)
    world.pass_time(STALL_S + 0.1)
    again = world.core.take(1, world.now)
    assert again is not None
    assert (again.pos, again.end) == (1000, stalled.end)
    assert world.core.take(1, world.now) is None  # nobody is asked for it a third time
    world.deliver(again, MIN_RANGE)
    assert world.core.is_complete
    world.deliver(stalled, 10)
    assert not stalled.is_live


def test_a_server_without_range_is_used_alone_and_gives_way_to_one_with_it() -> None:
    world = World(100_000, [NO_RANGE, NO_RANGE, HONEST], piece_bytes=None)
    world.open(0)
    world.open(1)
    assert world.core.take(0, world.now) is None  # the third one may have Range
    world.core.failed(2, "no answer", world.now)
    task = world.core.take(0, world.now)
    assert task is not None
    assert (task.pos, task.end) == (0, 100_000)
    assert [world.core.take(index, world.now) for index in (0, 1)] == [None, None]
    world.deliver(task, 40_000)
    world.now += 1
    world.open(2)
    assert not task.is_live
    other = world.core.take(2, world.now)
    assert other is not None
    assert other.pos == 40_000


def test_of_a_wrong_piece_of_two_paths_the_one_that_lied_is_blamed() -> None:
    size = 2 * MIN_RANGE
    world = World(size, [HONEST, LIES, HONEST], piece_bytes=size)
    for index in range(3):
        world.open(index)
    world.bring_free_bytes(0, 1)
    world.check()
    assert [one.wrong for one in world.core.paths] == [0, 0, 0]  # as yet it may be either's
    assert [world.core.take(index, world.now) for index in (0, 1)] == [None, None]
    again = world.core.take(2, world.now)
    assert again is not None
    assert (again.pos, again.end) == (0, size)
    world.deliver(again, size)
    world.check()
    assert [one.wrong for one in world.core.paths] == [0, 1, 0]
    assert world.core.is_complete


def test_which_answers_are_of_another_file(subtests: pytest.Subtests) -> None:
    other_url = "http://198.51.100.1/file"
    table = [
        ("another length", None, Facts(URL, 11, "a"), True),
        ("another ETag", None, Facts(URL, 10, "b"), True),
        ("another mirror's ETag", None, Facts(other_url, 10, "b"), True),
        ("another mirror's ETag, with hashes", 5, Facts(other_url, 10, "b"), False),
        ("another ETag of one URL, with hashes", 5, Facts(URL, 10, "b"), True),
        ("no ETag, another date", None, Facts(URL, 10, None, "Tue"), True),
        ("no ETag, the same date", None, Facts(URL, 10, None, "Mon"), False),
        ("the same", None, Facts(URL, 10, "a", "Tue"), False),
    ]
    for name, piece_bytes, facts, is_other in table:
        with case(subtests, name):
            core = Download(2, Rules(), piece_bytes=piece_bytes)
            core.opened(0, Facts(URL, 10, "a", "Mon"), 0.01, 100.0)
            core.opened(1, facts, 0.01, 100.0)
            assert (core.paths[1].state is State.OUT) == is_other


def test_without_a_validator_in_common_only_hashes_bring_paths_together(subtests: pytest.Subtests) -> None:
    table = [
        ("neither has one: each is a download of its own", Facts(URL, 10), Facts(URL, 10), False, (False, False)),
        ("the second has none", Facts(URL, 10, "a"), Facts(URL, 10), False, (True, None)),
        ("the first has none", Facts(URL, 10), Facts(URL, 10, "a"), False, (False, None)),
        ("an ETag and a date", Facts(URL, 10, "a"), Facts(URL, 10, None, "Mon"), False, (True, None)),
        ("neither has one, with a hash", Facts(URL, 10), Facts(URL, 10), True, (True, True)),
        ("the second has none, with a hash", Facts(URL, 10, "a"), Facts(URL, 10), True, (True, True)),
    ]
    for name, first, second, is_verified, ranged in table:
        with case(subtests, name):
            core = Download(2, Rules(), is_verified=is_verified)
            core.opened(0, first, 0.01, 100.0)
            core.opened(1, second, 0.01, 100.0)
            assert tuple(None if one.state is State.OUT else one.ranged for one in core.paths) == ranged
