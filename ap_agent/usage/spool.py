"""Batches on the disk: what was counted survives a kill and a power cut until the service has it.

    <state_dir>/usage/                                mode 0700
        1763704800000-<batch>.open                    the batch that grows: records with length and checksum
        1763704740000-<batch>.json.gz                 closed, to be sent; the service gets these very bytes
        1763704680000-<batch>.refused                 the service would not have it (400, 413); kept to be looked at

A record that a power cut tore is where reading ends; everything before it counts. The first record of an open batch has
the last two samples before it, so that the next process knows every segment. The number in front is when the batch
began (Unix time in ms); names sort in that order.

Times are the caller's. Every method raises `OSError` and leaves what was there.
"""

from __future__ import annotations

import contextlib
import errno
import gzip
import json
import os
import re
import struct
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ap_agent.common.files import parse_json
from ap_agent.usage.batch import Batch, Rows, rows_of, sample_text
from ap_agent.usage.lives import Row
from ap_agent.usage.reading import Key

FOLDER = "usage"  # below state_dir
KEPT_MS = 2 * 86_400_000
MAX_BYTES = 256 * 1024 * 1024
SPARE_BYTES = 16 * 1024 * 1024  # of the file system, or a twentieth of a small one: configurations need room too
MAX_REFUSED = 8
OPEN, CLOSED, REFUSED = ".open", ".json.gz", ".refused"
_RECORD = struct.Struct(">II")  # length and CRC-32 of what follows
_MAX_RECORD_BYTES = 64 * 1024 * 1024
_NEW = ".new"
_NAME = re.compile(r"[0-9]{13}-[0-9a-f]{32}\.(open|json\.gz|refused)(\.new)?", flags=re.ASCII)


@dataclass(frozen=True)
class Found:
    """What an open batch holds: `carried` are the last samples before it."""

    batch: Batch
    began_ms: int
    carried: list[tuple[int, dict[Key, Row]]]

    @property
    def newest(self) -> tuple[int, Rows] | None:
        return next(reversed(self.samples), None)

    @property
    def samples(self) -> list[tuple[int, Rows]]:
        return [*self.carried, *self.batch.samples]


class Spool:
    """One folder of batches; made when something is written."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._open: Path | None = None
        self._records: list[bytes] = []  # of the open batch, all
        self._is_whole = False  # the file has all of them

    # --- the batch that grows ---

    def begin(self, batch: Batch, now_ms: int, carried: Iterable[tuple[int, Rows]] = ()) -> None:
        """From now on `append` goes to this batch's file. Nothing is written yet."""
        head = json.dumps({"batch": batch.id, "version": batch.version})
        carries = ",".join(sample_text(*one) for one in carried)
        self._open = self.folder / f"{now_ms:013d}-{batch.id}{OPEN}"
        self._records = [_record(f'{head[:-1]},"carried":[{carries}]}}')]
        self._is_whole = False

    def append(self, at_ms: int, rows: Rows) -> None:
        """Durably, when this returns. What could not be written is written with the next one."""
        assert self._open is not None  # noqa: S101 - for the type checker: `begin` comes first
        record = _record(sample_text(at_ms, rows))
        self._records.append(record)
        was_whole, self._is_whole = self._is_whole, False
        self._prepare()
        if was_whole and self._open.exists():
            self._write(self._open, record, os.O_APPEND)
            self._is_whole = True
        else:
            self.save()

    def save(self) -> None:
        """The open batch's file as it must be, from its begin."""
        assert self._open is not None  # noqa: S101 - as above
        self._prepare()
        self._write(self._open, b"".join(self._records), os.O_CREAT | os.O_TRUNC)
        _sync(self.folder)
        self._is_whole = True

    def close(self, batch: Batch) -> None:
        """To be sent. Where this is cut off there may be both files, which say the same."""
        if batch.samples:
            self._prepare()
            self._write_closed(self._place(batch), batch)
        self._remove_open(batch.id)

    def _place(self, batch: Batch) -> Path:
        """Behind all that wait, also where the clock was set back: of one segment the smaller counters must go first,
        or they look like counters that began anew."""
        waiting = self.closed()
        known = next((path for path in waiting if batch.id in path.name), None)
        after_ms = int(waiting[-1].name.partition("-")[0]) + 1 if waiting else 0
        return known or self.folder / f"{max(batch.samples[0][0], after_ms):013d}-{batch.id}{CLOSED}"

    def _write_closed(self, path: Path, batch: Batch) -> None:
        new = path.with_name(path.name + _NEW)
        self._write(new, gzip.compress(batch.text(), 6, mtime=0), os.O_CREAT | os.O_TRUNC)
        new.replace(path)
        _sync(self.folder)

    def _remove_open(self, batch_id: str) -> None:
        for path in self._named(OPEN):
            if batch_id in path.name:
                path.unlink(missing_ok=True)

    # --- what is there ---

    def open_batches(self) -> Iterator[Found]:
        """What was left open, oldest first; what is no batch is left out."""
        for path in self._named(OPEN):
            with contextlib.suppress(ValueError, KeyError, TypeError):
                yield _found(path)

    def drop_damaged(self) -> None:
        """Open files without a whole first record, and what was being written when somebody was killed."""
        for path in self._named(OPEN):
            try:
                _found(path)
            except (ValueError, KeyError, TypeError):
                path.unlink(missing_ok=True)
        for path in self._named(_NEW):
            path.unlink(missing_ok=True)

    def closed(self) -> list[Path]:
        """To be sent, oldest first."""
        return self._named(CLOSED)

    def refuse(self, path: Path) -> None:
        """Set aside what the service would not have."""
        with contextlib.suppress(FileNotFoundError):
            path.rename(path.with_name(path.name.removesuffix(CLOSED) + REFUSED))
        for old in self._named(REFUSED)[:-MAX_REFUSED]:
            old.unlink(missing_ok=True)

    def bytes_used(self) -> int:
        return sum(size for _, size in self._sized(CLOSED, REFUSED, OPEN))

    def prune(self, now_ms: int) -> int:
        """Drop the oldest closed batches beyond the bounds; returns how many."""
        found = self._sized(CLOSED, REFUSED)
        total = sum(size for _, size in found)
        missing = max(0, self._lacking()) if found else 0
        dropped = 0
        for path, size in found:
            is_old = int(path.name.partition("-")[0]) < now_ms - KEPT_MS
            if not is_old and total <= MAX_BYTES and missing <= 0:
                break
            path.unlink(missing_ok=True)
            total, missing, dropped = total - size, missing - size, dropped + path.name.endswith(CLOSED)
        return dropped

    def _lacking(self) -> int:
        """Bytes of the file system that should be free and are not; below 0 where there are enough."""
        found = os.statvfs(self.folder)
        return min(SPARE_BYTES, found.f_blocks * found.f_frsize // 20) - found.f_bavail * found.f_frsize

    def _named(self, suffix: str) -> list[Path]:
        try:
            return sorted(one for one in self.folder.iterdir() if one.name.endswith(suffix) and _is_ours(one))
        except FileNotFoundError:
            return []

    def _sized(self, *suffixes: str) -> list[tuple[Path, int]]:
        found = []
        for path in sorted(path for suffix in suffixes for path in self._named(suffix)):
            with contextlib.suppress(FileNotFoundError):  # sent in this moment
                found.append((path, path.stat().st_size))
        return found

    # --- files ---

    def _prepare(self) -> None:
        if not self.folder.is_dir():
            self.folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.folder.mkdir(mode=0o700)
            self._give_away(self.folder)
            _sync(self.folder.parent)
        if self._lacking() > 0:
            raise OSError(errno.ENOSPC, "what is left on this file system is kept for configurations")

    def _write(self, path: Path, data: bytes, how: int) -> None:
        descriptor = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC | how, 0o600)
        with open(descriptor, "wb", buffering=0) as stream:  # noqa: PTH123  # of a descriptor
            if how & os.O_CREAT:
                self._give_away(descriptor)
            view = memoryview(data)
            while view:
                view = view[stream.write(view) or 0 :]
            os.fsync(descriptor)

    def _give_away(self, target: Path | int) -> None:
        """Root's hand in a folder of the service's user; a thread beside cannot change who it is (`ownership`)."""
        owner = self.folder.parent.stat()
        if os.geteuid() == 0 and owner.st_uid != 0:
            os.chown(target, owner.st_uid, owner.st_gid)


def _is_ours(path: Path) -> bool:
    return _NAME.fullmatch(path.name) is not None and path.is_file() and not path.is_symlink()


def _record(text: str) -> bytes:
    packed = zlib.compress(text.encode(), 1)
    return _RECORD.pack(len(packed), zlib.crc32(packed)) + packed


def _records_of(data: bytes) -> Iterator[Any]:
    """Up to the first one that is torn or damaged."""
    position = 0
    while position + _RECORD.size <= len(data):
        length, checksum = _RECORD.unpack_from(data, position)
        packed = data[position + _RECORD.size : position + _RECORD.size + length]
        if len(packed) < length or zlib.crc32(packed) != checksum:
            return
        try:
            unpacked = zlib.decompressobj().decompress(packed, _MAX_RECORD_BYTES)
        except zlib.error:
            return
        try:
            yield parse_json(unpacked)
        except ValueError:
            return
        position += _RECORD.size + length


def _found(path: Path) -> Found:
    """Raises `ValueError`, `KeyError`, `TypeError` for a file that holds nothing of ours."""
    records = _records_of(path.read_bytes())
    header = next(records, None)
    if not isinstance(header, dict):
        raise ValueError("no header")
    batch = Batch(header["version"], header["batch"])
    carried = [(one["at"], rows_of(one["rows"])) for one in header["carried"]]
    for record in records:
        at_ms, rows = record["at"], rows_of(record["rows"])
        if batch.takes(at_ms, rows, batch.version):
            batch.add(at_ms, rows)
    return Found(batch, int(path.name.partition("-")[0]), carried)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
