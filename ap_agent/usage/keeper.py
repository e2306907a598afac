"""What happens with a sample, in a thread beside: read it, give it to its segments, put it on the disk.

One call at a time, so nothing here locks anything. The loop's thread hands over jobs and gets back what there is to
tell (`Kept`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from ap_agent.common.errors import AgentError
from ap_agent.linkstate import NO_REFUSALS, Refusals
from ap_agent.model import IFB_NAME, Direction, LinkState
from ap_agent.usage.batch import MINUTE_MS, Batch, Rows
from ap_agent.usage.lives import Lives, Row
from ap_agent.usage.reading import (
    DIRECTION_OF,
    Counted,
    Device,
    Farewell,
    Key,
    Layouts,
    UsageReader,
    decode,
    farewell,
)
from ap_agent.usage.spool import Spool

_BLOCKED_BYTES_S = 1000  # 8 kbit/s: the nominal rate of a class whose leaves drop everything (docs/adr/0002)
_WAITING_BATCHES = 8  # closed ones that the disk does not take


@dataclass(frozen=True)
class Sample:
    """Read all classes of these devices now. `links` is what the engine read back last. `is_wanted` says whether the
    kernel is still that of the configuration `version` when the reading is over."""

    version: str
    links: tuple[LinkState, ...]
    is_wanted: Callable[[], bool]


@dataclass(frozen=True)
class Farewells:
    """Messages of the kernel about classes that were deleted, heard at that time."""

    version: str
    at_ms: int
    bodies: Sequence[bytes]


@dataclass(frozen=True)
class LastWords:
    """Devices as they were right before what they carry was deleted by us."""

    version: str
    at_ms: int
    devices: Sequence[Device]


Job = Sample | Farewells | LastWords


@dataclass(frozen=True)
class Newest:
    """The newest sample, as metrics and people want it."""

    at_ms: int
    rows: Rows = field(default_factory=dict)


@dataclass(frozen=True)
class Kept:
    """How some jobs went."""

    newest: Newest | None
    spool_bytes: int
    waiting: int  # batches that are to be sent
    dropped: int = 0  # batches that were too old or too many
    seconds: float = 0.0  # that the sample took, if there was one
    is_superseded: bool = False  # the configuration changed meanwhile: the sample does not count
    read_error: str | None = None
    write_error: str | None = None


def devices_of(links: Iterable[LinkState]) -> list[str]:
    """Those that carry limits, so far as the engine read back."""
    names = {side.dev for link in links for side in (link.to_user, link.from_user) if side is not None}
    return sorted(names)


@dataclass(frozen=True)
class _Expected:
    """Where the engine says that each direction is, and which ones are blocked."""

    links: tuple[LinkState, ...] = ()
    homes: Mapping[Key, str] = field(default_factory=dict)
    blocked: frozenset[Key] = frozenset()

    @classmethod
    def of(cls, links: tuple[LinkState, ...]) -> _Expected:
        homes: dict[Key, str] = {}
        blocked: set[Key] = set()
        for link in links:
            for direction, side in (("to_user", link.to_user), ("from_user", link.from_user)):
                if side is None:
                    continue
                key = (link.interface_id, cast(Direction, direction))
                homes[key] = side.dev
                if side.rate_kbit == 0:
                    blocked.add(key)
        return cls(links, homes, frozenset(blocked))


class Keeper:
    """Of one state directory. `reader` is opened when it is needed and after each failure anew. `refused` says how many
    packets of each link were dropped in front of its leaves; it is asked in the keeper's thread."""

    def __init__(
        self,
        folder: Path,
        reader: Callable[[], UsageReader] = UsageReader,
        *,
        now: Callable[[], float] = time.time,
        interval_s: Callable[[], float],
        refused: Callable[[], Refusals] = lambda: NO_REFUSALS,
    ) -> None:
        self.spool = Spool(folder)
        self._new_reader = reader
        self._reader: UsageReader | None = None
        self._now = now
        self._interval_s = interval_s
        self._refused = refused
        self._layouts = Layouts()
        self._lives = Lives()
        self._batch: Batch | None = None
        self._recent: list[tuple[int, Rows]] = []  # the two newest samples
        self._unwritten: list[Batch] = []
        self._names: dict[int, str] = {}  # of devices that were read, by number
        self._expected = _Expected()
        self._is_recovered = False
        self._write_error: str | None = None
        self._read_error: str | None = None

    def work(self, jobs: Sequence[Job]) -> Kept:
        """Never raises `AgentError` or `OSError`: what went wrong is in the answer."""
        self._write_error = self._read_error = None
        self._recover()
        seconds, is_superseded = 0.0, False
        for job in jobs:
            if isinstance(job, Farewells):
                self._bury(job)
            elif isinstance(job, LastWords):
                self._count_last(job)
            else:
                began = time.monotonic()
                is_superseded = not self._sample(job)
                seconds = time.monotonic() - began
        return self._kept(seconds, is_superseded=is_superseded)

    def _kept(self, seconds: float, *, is_superseded: bool) -> Kept:
        dropped = waiting = size = 0
        try:
            dropped = self.spool.prune(self._now_ms())
            waiting, size = len(self.spool.closed()), self.spool.bytes_used()
        except OSError as exc:
            self._fail(exc)
        newest = Newest(*self._recent[-1]) if self._recent else None
        return Kept(newest, size, waiting, dropped, seconds, is_superseded, self._read_error, self._write_error)

    def _now_ms(self) -> int:
        return int(self._now() * 1000)

    def _fail(self, exc: OSError) -> None:
        self._write_error = exc.strerror or type(exc).__name__

    # --- a start ----------------------------------------------------------------------------------------------------

    def _recover(self) -> None:
        """Close what an agent before us left open, and go on with its segments."""
        if self._is_recovered:
            return
        try:
            self.spool.drop_damaged()
            for found in list(self.spool.open_batches()):
                newest = found.newest
                if newest is not None:
                    self._lives.remember(dict(newest[1]), found.batch.version)
                    self._recent = [newest]
                self.spool.close(found.batch)
            self._is_recovered = True
        except OSError as exc:
            self._fail(exc)

    # --- samples ----------------------------------------------------------------------------------------------------

    def _sample(self, job: Sample) -> bool:
        """Whether it counts. Without a reading nothing is claimed: a gap stays a gap."""
        names = devices_of(job.links)
        if not names:
            return True
        try:
            at_ms, devices = self._read(names)
        except (AgentError, OSError) as exc:
            self._read_error = str(exc)
            return True
        if not job.is_wanted():
            return False
        counted = self._counted(devices, self._expected_of(job.links))
        rows = {key: self._lives.count(key, one, job.version) for key, one in counted.items()}
        self._lives.tick()
        if rows:
            self._add(at_ms, rows, job.version)
        return True

    def _read(self, names: Sequence[str]) -> tuple[int, list[Device]]:
        if self._reader is None:
            self._reader = self._new_reader()
        at_ms = self._now_ms()
        try:
            devices = self._reader.read(names)
        except BaseException:
            self._reader.close()
            self._reader = None
            raise
        self._names = {one.ifindex: one.name for one in devices}
        return at_ms, devices

    def _expected_of(self, links: tuple[LinkState, ...]) -> _Expected:
        if self._expected.links is not links:
            self._expected = _Expected.of(links)
        return self._expected

    def _counted(self, devices: Iterable[Device], expected: _Expected) -> dict[Key, Counted]:
        """Of the links that the engine looks after. One that is on two interfaces for a moment, because it moves, is
        counted where it belongs; what the other one counted comes with its farewell."""
        found: dict[Key, Counted] = {}
        refused = self._refused()
        for device in devices:
            direction = DIRECTION_OF[device.major]
            for number, one in decode(device.pieces, device.major, self._layouts).items():
                key: Key = (number, direction)
                home = expected.homes.get(key)
                if home is None or (key in found and home != device.name):
                    continue
                is_blocked = key in expected.blocked and one.rate_bytes_s == _BLOCKED_BYTES_S
                found[key] = one._replace(rate_bytes_s=0) if is_blocked else one
                if key in refused:
                    found[key] = found[key]._replace(refused=refused[key])
        return found

    def _add(self, at_ms: int, rows: Rows, version: str | None) -> None:
        batch = self._batch
        if batch is None or not batch.takes(at_ms, rows, version):
            self._close()
            batch = self._begin(at_ms, version)
        batch.add(at_ms, rows)
        try:
            self.spool.append(at_ms, rows)
        except OSError as exc:
            self._fail(exc)
        self._recent = [*self._recent[-1:], (at_ms, rows)]
        if (at_ms + self._interval_s() * 1000) // MINUTE_MS != at_ms // MINUTE_MS:
            self._turn(at_ms + 1, version)

    def _begin(self, at_ms: int, version: str | None) -> Batch:
        batch = self._batch = Batch(version)
        self.spool.begin(batch, at_ms, self._recent)
        return batch

    def _turn(self, at_ms: int, version: str | None) -> None:
        """The next batch, on the disk at once: it carries what the next process must know."""
        self._close()
        self._begin(at_ms, version)
        try:
            self.spool.save()
        except OSError as exc:
            self._fail(exc)

    def _close(self) -> None:
        if self._batch is not None:
            batch, self._batch = self._batch, None
            self._finish([batch])

    def _finish(self, batches: Iterable[Batch]) -> None:
        """Make them ready to be sent; what the disk does not take now is tried again."""
        self._unwritten = [*self._unwritten, *batches][-_WAITING_BATCHES:]
        while self._unwritten:
            try:
                self.spool.close(self._unwritten[0])
            except OSError as exc:
                self._fail(exc)
                return
            self._unwritten.pop(0)

    # --- before a class goes ----------------------------------------------------------------------------------------

    def _bury(self, job: Farewells) -> None:
        """The last rows of segments whose classes were deleted: batches of their own, since nothing else is in them."""
        ends: list[tuple[Key, Row, str | None]] = []
        for body in job.bodies:
            one = farewell(body, self._layouts)
            if one is None or not self._is_ours(one):
                continue
            end = self._lives.end(one, job.version)
            if end is not None and end[0].bytes:
                ends.append((one.key, *end))
        self._send_last(job.at_ms, ends)

    def _is_ours(self, one: Farewell) -> bool:
        name = self._names.get(one.ifindex)
        return name is not None and (name == IFB_NAME) == (one.key[1] == "from_user")

    def _count_last(self, job: LastWords) -> None:
        counted = self._counted(job.devices, self._expected)
        rows = {key: self._lives.count(key, one, job.version) for key, one in counted.items()}
        self._send_last(job.at_ms, [(key, row, job.version) for key, row in rows.items()])

    def _send_last(self, at_ms: int, ends: Iterable[tuple[Key, Row, str | None]]) -> None:
        """After the sample before, whatever the clock says; a link that ended twice is in two batches."""
        at_ms = max(at_ms, self._recent[-1][0] + 1 if self._recent else at_ms)
        batches: list[tuple[str | None, dict[Key, Row]]] = []
        for key, row, version in ends:
            rows = next((rows for known, rows in batches if known == version and key not in rows), None)
            if rows is None:
                batches.append((version, rows := {}))
            rows[key] = row
        made = []
        for version, rows in batches:
            made.append(Batch(version))
            made[-1].add(at_ms, rows)
        if made:
            version = self._batch.version if self._batch is not None else made[-1].version
            self._turn(at_ms + 1, version)  # what was counted before is sent before
            self._finish(made)
