"""Samples and batches on disk: they survive a kill and a power cut until the service has them.

    <state_dir>/usage.sqlite      mode 0600, write-ahead log, one writer: the running agent
        samples     those of the open batch, and the two newest of all
        batches     closed, in the order of sending; `body` is the upload
        refused     rejected by the service (400, 413); kept for inspection
        ended       segments whose last counters are in a batch

Each change is one transaction. Of a batch that is discarded, for age or space, the newest values of ended segments are
kept: later samples make up for all others.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
import weakref
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ap_agent.common.errors import StoreError
from ap_agent.usage.batch import Sample, body, last_values, new_batch_id, packed_rows, rows_of

FILE_NAME = "usage.sqlite"
KEPT_MS = 2 * 86_400_000
MAX_BYTES = 256 * 1024 * 1024
SPARE_BYTES = 16 * 1024 * 1024  # of the file system, or a twentieth of a small one: configurations need space, too
MAX_REFUSED = 8
_SCHEMA_VERSION = 1
_SCHEMA = """
CREATE TABLE samples (number INTEGER PRIMARY KEY, at_ms INTEGER, version TEXT, rows BLOB, is_open INTEGER);
CREATE TABLE batches (
    number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT UNIQUE, ended_ms INTEGER, body BLOB, is_short INTEGER DEFAULT 0);
CREATE TABLE refused (number INTEGER PRIMARY KEY, id TEXT, reason TEXT, body BLOB);
CREATE TABLE ended (segment TEXT PRIMARY KEY, at_ms INTEGER);
"""


@dataclass(frozen=True)
class StoredBatch:
    """`data` is gzipped JSON."""

    number: int
    batch_id: str
    data: bytes


class Spool:
    """One file. Every method raises `StoreError` and leaves the content unchanged; `changes` combines several.
    Thread-safe only if used by one thread at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with _as_store_errors(path):
            self._db = _opened(path)
        # The thread that stores a sample may still hold it when the agent ends; from 3.13 on Python warns of the rest.
        self.close = weakref.finalize(self, self._db.close)

    @contextmanager
    def changes(self) -> Iterator[None]:
        """A transaction: everything inside is stored durably, or nothing."""
        with _as_store_errors(self.path):
            if _lacking(self.path.parent) > 0:
                raise OSError(errno.ENOSPC, "the remaining space on this file system is reserved for configurations")
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._db.execute("COMMIT")
            except BaseException:
                with contextlib.suppress(sqlite3.Error):  # SQLite did it itself if the disk is full
                    self._db.execute("ROLLBACK")
                raise

    # --- samples ---

    def open_samples(self) -> list[Sample]:
        """Samples of the open batch, oldest first."""
        with _as_store_errors(self.path):
            return _samples(self._db, "WHERE is_open ORDER BY number")

    def newest_samples(self) -> list[Sample]:
        """The two newest, oldest first."""
        with _as_store_errors(self.path):
            return _samples(self._db, _NEWEST)[::-1]

    def add_sample(self, one: Sample) -> None:
        values = (one.at_ms, one.version, packed_rows(one.rows))
        self._db.execute("INSERT INTO samples (at_ms, version, rows, is_open) VALUES (?, ?, ?, 1)", values)

    def close_batch(self, samples: Sequence[Sample]) -> None:
        """Close the open batch with these samples."""
        if samples:
            self.add_batch(samples)
        self._db.execute("UPDATE samples SET is_open = 0")
        self._db.execute("DELETE FROM samples WHERE number <= (SELECT max(number) - 2 FROM samples)")

    # --- batches ---

    def add_batch(self, samples: Sequence[Sample]) -> None:
        """Append it: within a segment smaller counters must be sent first."""
        batch_id = new_batch_id()
        values = (batch_id, samples[-1].at_ms, body(batch_id, samples))
        self._db.execute("INSERT INTO batches (id, ended_ms, body) VALUES (?, ?, ?)", values)

    def oldest(self) -> StoredBatch | None:
        with _as_store_errors(self.path):
            row = self._db.execute("SELECT number, id, body FROM batches ORDER BY number LIMIT 1").fetchone()
        return StoredBatch(*row) if row is not None else None

    def drop(self, number: int) -> None:
        with _as_store_errors(self.path):
            self._db.execute("DELETE FROM batches WHERE number = ?", (number,))

    def refuse(self, number: int, reason: str) -> None:
        """Set aside a rejected batch."""
        with self.changes():
            self._db.execute(
                "INSERT INTO refused (id, reason, body) SELECT id, ?, body FROM batches WHERE number = ?",
                (reason, number),
            )
            self._db.execute("DELETE FROM batches WHERE number = ?", (number,))
            self._db.execute(
                "DELETE FROM refused WHERE number <= (SELECT max(number) FROM refused) - ?", (MAX_REFUSED,)
            )

    def waiting(self) -> int:
        return self._number("SELECT count(*) FROM batches")

    def bytes_used(self) -> int:
        used = "(SELECT page_count FROM pragma_page_count) - (SELECT freelist_count FROM pragma_freelist_count)"
        return self._number(f"SELECT ({used}) * page_size FROM pragma_page_size")  # noqa: S608 - our own text

    def _number(self, question: str) -> int:
        with _as_store_errors(self.path):
            return int(self._db.execute(question).fetchone()[0])

    def prune(self, now_ms: int, living: frozenset[str]) -> int:
        """Discard the oldest batches beyond the bounds; return their number. `living` are the current segments."""
        dropped = 0
        with _as_store_errors(self.path):
            found = self._db.execute(
                "SELECT number, ended_ms, length(body), is_short FROM batches ORDER BY is_short, number"
            )
            listed = found.fetchall()
            total = sum(size for _, _, size, _ in listed)
            lacking = max(0, _lacking(self.path.parent)) if listed else 0
            for number, ended_ms, size, is_short in listed:
                is_old = ended_ms < now_ms - KEPT_MS and not is_short
                if not is_old and total <= MAX_BYTES and lacking <= 0:
                    continue
                left = 0 if is_short else self._shorten(number, living)
                if not left:
                    self._db.execute("DELETE FROM batches WHERE number = ?", (number,))
                total, lacking, dropped = total - size + left, lacking - size + left, dropped + 1
            self._db.executescript("PRAGMA incremental_vacuum")  # frees space of sent batches; one step is a page
        return dropped

    def _shorten(self, number: int, living: frozenset[str]) -> int:
        """Keep the newest values of ended segments; return the bytes that remain."""
        data = self._db.execute("SELECT body FROM batches WHERE number = ?", (number,)).fetchone()[0]
        try:
            short = last_values(data, living)
        except (ValueError, OSError, EOFError, KeyError, TypeError):
            return 0
        if short is None:
            return 0
        values = (new_batch_id(), short, number)
        self._db.execute("UPDATE batches SET id = ?, body = ?, is_short = 1 WHERE number = ?", values)
        return len(short)

    # --- segments that ended ---

    def ended(self) -> dict[str, int]:
        """Segments whose last counters are stored, and when they ended (ms)."""
        with _as_store_errors(self.path):
            return dict(self._db.execute("SELECT segment, at_ms FROM ended"))

    def note_ended(self, segments: Iterable[tuple[str, int]]) -> None:
        self._db.executemany("INSERT OR IGNORE INTO ended (segment, at_ms) VALUES (?, ?)", segments)

    def forget_ended(self, before_ms: int) -> None:
        self._db.execute("DELETE FROM ended WHERE at_ms < ?", (before_ms,))


def read_newest(path: Path) -> list[Sample]:
    """The two newest samples, oldest first, read-only. Raises `StoreError`."""
    if not path.exists():
        return []
    with _as_store_errors(path):
        db = sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, isolation_level=None)
        try:
            return _samples(db, _NEWEST)[::-1]
        finally:
            db.close()


_NEWEST = "ORDER BY number DESC LIMIT 2"


def _samples(db: sqlite3.Connection, which: str) -> list[Sample]:
    found = db.execute(f"SELECT at_ms, version, rows FROM samples {which}")  # noqa: S608 - our own text
    return [Sample(at_ms, version, rows_of(rows)) for at_ms, version, rows in found]


def _opened(path: Path) -> sqlite3.Connection:
    """A damaged file is set aside: its content is lost, but later samples are stored."""
    if path.is_symlink():
        raise OSError(errno.ELOOP, "it is a symbolic link")
    try:
        return _connected(path)
    except sqlite3.DatabaseError as exc:
        if isinstance(exc, sqlite3.OperationalError):  # locked, full, read-only: the content is intact
            raise
        path.rename(path.with_name(f"{path.name}.damaged"))
        for suffix in ("-wal", "-shm"):
            path.with_name(path.name + suffix).unlink(missing_ok=True)
        return _connected(path)


def _connected(path: Path) -> sqlite3.Connection:
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
    db = sqlite3.connect(path, timeout=1.0, isolation_level=None, check_same_thread=False)
    try:
        version = db.execute("PRAGMA user_version").fetchone()[0]
        if version not in {0, _SCHEMA_VERSION}:
            raise sqlite3.DatabaseError("another schema")
        if version == 0:
            db.execute("PRAGMA auto_vacuum = INCREMENTAL")
        db.execute("PRAGMA journal_mode = WAL").fetchone()
        db.execute("PRAGMA synchronous = FULL")  # committed data survives a power cut
        db.execute("PRAGMA journal_size_limit = 4194304").fetchone()
        if version == 0:
            db.executescript(f"BEGIN; {_SCHEMA} PRAGMA user_version = {_SCHEMA_VERSION}; COMMIT;")
    except BaseException:
        db.close()
        raise
    return db


def _lacking(folder: Path) -> int:
    """Bytes of the file system that should be free and are not; negative if there are enough."""
    found = os.statvfs(folder)
    return min(SPARE_BYTES, found.f_blocks * found.f_frsize // 20) - found.f_bavail * found.f_frsize


@contextmanager
def _as_store_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except (sqlite3.Error, OSError, ValueError) as exc:
        reason = exc.strerror if isinstance(exc, OSError) and exc.strerror else str(exc)
        raise StoreError(
            f"Usage cannot be stored in {path}: {reason}. Free disk space, or repair that folder."
        ) from exc
