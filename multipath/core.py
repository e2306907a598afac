"""Decides which path fetches which bytes. `transfer` brings events and time; nothing here waits.

A byte is done, requested in a task, free, or in a suspect piece. A path without free bytes takes the tail of the task
that would end last, sized so that both end together. That task continues, so a failure costs nothing; duplicate bytes
are waste. No byte is requested more than twice.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from multipath.state import (
    MAX_RANGE,
    MAX_WRONG,
    MIN_RANGE,
    MIN_UNDER_WAY,
    RANGE_S,
    TAIL_RANGE,
    Facts,
    Owned,
    PathState,
    Span,
    Spans,
    State,
)

HANDSHAKE_FLOOR_S = 0.1  # lower values depend on the machine's load, not on the path
REST_SLOTS = 5
STALL_S = 1.0  # of a task without a byte: others may take all of its rest
VERIFIED = -1  # owner of bytes with a correct hash


@dataclass(frozen=True)
class Rules:
    max_paths: int = 8
    min_weight: float = 20  # per cent of the best path
    slot_s: float = 2.0


@dataclass(eq=False)
class Task:
    """Bytes requested on one connection: `[pos, end)` are missing. `piece`: all of a suspect one."""

    path: int
    pos: int
    end: int
    heard_s: float
    piece: int | None = None
    is_live: bool = True


@dataclass
class Suspect:
    """A piece with a wrong hash: one task fetches all of it again. `brought` has a digest of each part, to identify the
    faulty path once the right piece arrives; `tried` are the paths that contributed to it."""

    brought: list[tuple[Owned, bytes]]
    tried: set[int] = field(default_factory=set)


class Download:
    """State of one download. Times are monotonic; paths are numbered from 0."""

    def __init__(
        self,
        paths: int,
        rules: Rules,
        *,
        piece_bytes: int | None = None,
        size: int | None = None,
        is_verified: bool = False,
        reference: Facts | None = None,
        done: Sequence[Span] = (),
    ) -> None:
        """`is_verified`: a hash of the whole file is checked at the end. `reference` and `done` are those of a resumed
        download; without a validator and hashes it begins again."""
        self.is_verified = is_verified or piece_bytes is not None
        if reference is not None and not (self.is_verified or reference.is_identified):
            reference, done = None, ()
        self.rules, self.piece_bytes, self.reference = rules, piece_bytes, reference
        self.paths = [PathState() for _ in range(paths)]
        self.size = reference.size if reference is not None else size
        self.free, self.done = Spans(), Spans(done)
        self.tasks: list[Task] = []
        self.suspects: dict[int, Suspect] = {}
        self.unchecked: set[int] = set()  # complete pieces whose hash is not checked yet
        self.waste = self.abandoned = 0  # bytes received twice or corrupt; bytes requested and abandoned
        self._slot_began_s = 0.0
        self._release(0, self.size or 0)

    @property
    def is_complete(self) -> bool:
        return self.size is not None and self.done.total == self.size and not self.unchecked

    @property
    def is_resumable(self) -> bool:
        """Whether another download of the same file can continue this one."""
        known = self.reference
        is_ranged = any(one.ranged for one in self.paths) or (known is not None and known.ranged)
        return is_ranged and (self.is_verified or (known is not None and known.is_identified))

    @property
    def is_dead(self) -> bool:
        return not any(one.is_usable for one in self.paths)

    def piece_span(self, piece: int) -> Span:
        length, size = self.piece_bytes or 1, self.size or 0
        return piece * length, min(size, (piece + 1) * length)

    def differs(self, facts: Facts) -> str | None:
        """Why these facts differ from those of the file being fetched. With hashes, each mirror may have its own
        ETag."""
        if self.size is not None and facts.size != self.size:
            return f"its file has {facts.size} bytes, the others' {self.size}"
        known = self.reference
        if self.piece_bytes is not None and known is not None and known.url != facts.url:
            known = next((one.facts for one in self.paths if one.facts and one.facts.url == facts.url), None)
        if known is None:
            return None
        is_other = facts.has_other_content(known)
        if is_other:
            return f"its file has the ETag {facts.etag or facts.modified}, the others' {known.etag or known.modified}"
        if is_other is None and not self.is_verified and (known.is_identified or facts.is_identified):
            return "it has no ETag or Last-Modified to compare with the others'"
        return None

    # --- events of paths ------------------------------------------------------------------------------------------

    def opened(self, index: int, facts: Facts, handshake_s: float, now: float) -> None:
        """The first response over a path; the path's file must match the others'."""
        path = self.paths[index]
        if path.state is State.OPENING:
            path.failures, path.handshake_s, path.state, path.facts = 0, handshake_s, State.SPARE, facts
            path.ranged = facts.ranged and (facts.is_identified or self.is_verified)
            if (reason := self.differs(facts)) is not None:
                self.leave(index, reason, now)
                return
            self.reference = self.reference or facts
            if self.size is None:
                self.size = facts.size
                self._release(0, self.size)
            self.fill(now)

    def failed(self, index: int, reason: str, now: float) -> None:
        """An attempt failed or was interrupted. Simultaneous failures count once."""
        path = self.paths[index]
        if path.state is not State.OUT and now >= path.retry_at_s:
            path.fail(reason, now)
            self.fill(now)

    def leave(self, index: int, reason: str, now: float) -> None:
        """Exclude the path permanently."""
        if self.paths[index].state is not State.OUT:
            self.paths[index].state, self.paths[index].reason = State.OUT, reason
            self._drop_all(index)
            self.fill(now)

    def tick(self, now: float) -> None:
        """Call it a few times a second."""
        if now - self._slot_began_s >= self.rules.slot_s:
            self._judge_slot(now)
            self._slot_began_s = now
        for path in self.paths:
            if path.state is State.RESTING and now >= path.back_at_s and self._places() > 0:
                path.state, path.slot_from = State.ACTIVE, None  # probing: judge the next complete slot
        self.fill(now)

    def _judge_slot(self, now: float) -> None:
        """Paths that worked for the whole slot rest if even one range more would be below the minimum share of the best
        one: a path exactly at the minimum is not judged by packets that arrived a moment later."""
        judged = [(p, p.received - p.slot_from) for p in self.paths if p.slot_from is not None and p.is_at_work]
        best = max((count for _, count in judged), default=0)
        for path, count in judged:
            if self.free.total and (count + path.last_range) * 100 < self.rules.min_weight * best:
                self._rest(path, now, slots=REST_SLOTS)
        for path in self.paths:
            path.slot_from = path.received if path.is_at_work else None

    def _rest(self, path: PathState, now: float, *, slots: int) -> None:
        path.state, path.rests = State.RESTING, path.rests + 1
        path.back_at_s = now + slots * self.rules.slot_s

    def _places(self) -> int:
        return self.rules.max_paths - sum(one.is_at_work for one in self.paths)

    def fill(self, now: float) -> None:
        """Start spare paths, fastest handshake first. One without Range or validator works alone, and only if there is
        no path with both."""
        usable = sorted((one for one in self.paths if one.is_usable and one.facts), key=lambda one: one.handshake_s)
        ranged = [one for one in usable if one.ranged]
        if not ranged:
            if any(one.state is State.OPENING and not one.failures for one in self.paths):
                return
            if usable and not any(one.is_at_work for one in usable):
                usable[0].state = State.ACTIVE
            return
        for index, path in enumerate(self.paths):
            if path.state is State.ACTIVE and not path.ranged:
                path.state = State.SPARE
                self._drop_all(index)
        for path in ranged:
            if path.state is State.SPARE and self._places() > 0:
                path.state, path.slot_from = State.ACTIVE, None
                if max(HANDSHAKE_FLOOR_S, ranged[0].handshake_s) * 100 < self.rules.min_weight * path.handshake_s:
                    self._rest(path, now, slots=1)
        if self._places() == self.rules.max_paths:
            for path in ranged:
                path.state = State.ACTIVE if path.state is State.RESTING else path.state

    # --- events of tasks ------------------------------------------------------------------------------------------

    def take(self, index: int, now: float) -> Task | None:
        """The next range for one more connection of a path, or None: retry later."""
        path, mine = self.paths[index], sum(one.path == index for one in self.tasks)
        if path.state is not State.ACTIVE or now < path.retry_at_s or mine >= path.under_way:
            return None
        task = self.choose(index, now)
        if task is not None:
            if not mine:
                path.measure(now, begins=True)
            self.free.cut(task.pos, task.end)
            self.tasks.append(task)
        return task

    def choose(self, index: int, now: float) -> Task | None:
        path, size = self.paths[index], self.size or 0
        if not path.ranged:
            if self.tasks or self.done.total == size:
                return None
            self.suspects.clear()  # it cannot fetch a single piece
            if path.facts is None or not (path.facts.is_identified or self.is_verified):
                self.waste += self.done.cut(0, size)  # another response may be of other content
            return Task(index, 0, size, now)
        at_work = {number for number, one in enumerate(self.paths) if one.is_at_work}
        for piece, suspect in self.suspects.items():  # fetched elsewhere while there is another path
            is_free = piece not in self.unchecked and all(one.piece != piece for one in self.tasks)
            if is_free and (index not in suspect.tried or at_work <= suspect.tried):
                return Task(index, *self.piece_span(piece), now, piece)
        for start, end, _ in self.free:
            rate = sum(one.rate for one in self.paths if one.is_at_work)
            left_s = self.free.total / rate if rate else math.inf
            share = self.free.total // (MIN_UNDER_WAY * max(1, sum(one.is_usable for one in self.paths)))
            return Task(index, start, min(end, start + path.range_bytes(left_s, share)), now)
        span = self._steal(index, now)
        return None if span is None else Task(index, *span, now)

    def _steal(self, index: int, now: float) -> Span | None:
        """The tail of the task that would end last."""
        path = self.paths[index]
        mine = 1 + sum(one.path == index for one in self.tasks)
        rate, latest, found = (path.rate or MIN_RANGE / RANGE_S) / mine, 0.0, None
        for task in self.tasks:
            is_stalled = now - task.heard_s > STALL_S
            alone = self._only_of(task)
            if task.piece is not None or not alone or (task.path == index and not is_stalled):
                continue
            start, end = alone[-1]
            theirs = self.paths[task.path].rate / sum(one.path == task.path for one in self.tasks)
            left_s, share = math.inf, float(end - start)
            if theirs and not is_stalled:
                left_s = (end - task.pos) / theirs
                share = min(share, (left_s - path.handshake_s) / (1 / rate + 1 / theirs))
            if end - start - share < TAIL_RANGE:
                share = end - start
            if left_s > latest and share >= min(TAIL_RANGE, end - start) and path.handshake_s + share / rate < left_s:
                latest, found = left_s, (end - min(int(share), MAX_RANGE), end)
        return found

    def _only_of(self, task: Task) -> list[Span]:
        """Missing bytes that only this task requested."""
        others = Spans((one.pos, one.end) for one in self.tasks if one is not task)
        return [gap for s, e in self.done.gaps(task.pos, task.end) for gap in others.gaps(s, e)]

    def arrived(self, task: Task, count: int, now: float) -> list[Span]:
        """The next bytes of a task arrived; return which of them to keep. The task ends (`is_live`) when all of its
        bytes are done, from any path."""
        path = self.paths[task.path]
        path.received, path.failures, task.heard_s = path.received + count, 0, now
        path.measure(now)
        if not task.is_live:
            self.waste += count
            return []
        start, task.pos = task.pos, task.pos + count
        new = self.done.add(start, task.pos, task.path)
        self.waste += count - sum(e - s for s, e in new)
        if self.piece_bytes is not None:
            for s, e in new:
                pieces = range(s // self.piece_bytes, (e - 1) // self.piece_bytes + 1)
                self.unchecked |= {one for one in pieces if not self.done.gaps(*self.piece_span(one))}
        if not self.done.gaps(task.pos, task.end):
            self.drop(task)
        return new

    def drop(self, task: Task) -> None:
        """End a task; its missing bytes are free again. A suspect piece is fetched again."""
        if task.is_live:
            task.is_live = False
            self.tasks.remove(task)
            self.abandoned += task.end - task.pos
            if task.piece is None or task.piece not in self.suspects:
                self._release(task.pos, task.end)
            elif task.pos < task.end:
                self.waste += self.done.cut(*self.piece_span(task.piece))

    def _drop_all(self, index: int) -> None:
        for task in [one for one in self.tasks if one.path == index]:
            self.drop(task)

    def _release(self, start: int, end: int) -> None:
        """Of these bytes, those neither done nor requested become free."""
        under_way = Spans((one.pos, one.end) for one in self.tasks)
        for s, e in self.done.gaps(start, end):
            for gap in under_way.gaps(s, e):
                self.free.add(*gap)

    def checked(self, piece: int, good: bool, digest: Callable[[int, int], bytes], now: float) -> None:
        """Result of a piece's hash check; `digest` hashes bytes in the part file."""
        start, end = self.piece_span(piece)
        parts, suspect = self.done.within(start, end), self.suspects.pop(piece, Suspect([]))
        self.unchecked.discard(piece)
        self.done.cut(start, end)
        if good:
            self.done.add(start, end, VERIFIED)
            for owner in {owner for (s, e, owner), before in suspect.brought if digest(s, e) != before}:
                self._blame(owner, now)
            return
        self.waste += end - start
        for task in [one for one in self.tasks if one.pos < end and start < one.end]:
            self.drop(task)
        self.free.cut(start, end)
        owners = {owner for _, _, owner in parts}
        brought = suspect.brought or [(part, digest(*part[:2])) for part in parts if len(owners) > 1]
        self.suspects[piece] = Suspect(brought, suspect.tried | owners)
        if len(owners) == 1:
            self._blame(owners.pop(), now)

    def _blame(self, index: int, now: float) -> None:
        self.paths[index].wrong += 1
        if self.paths[index].wrong >= MAX_WRONG:
            self.leave(index, f"{MAX_WRONG} wrong pieces", now)
