"""Files in which the processes of one machine count together: prometheus_client's multiprocess mode.

Each process has a number, held by a lock, and counts in its files. A new process takes the lowest free number and
continues its files, so sums never fall, and there are only as many files as concurrent processes. If no process holds a
number the folder is wiped, as prometheus_client requires between runs.
"""

from __future__ import annotations

import fcntl
import logging
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from prometheus_client import CollectorRegistry, Metric, values
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead

logger = logging.getLogger(__name__)

REGISTRY: Final = CollectorRegistry()
_FOLDER: Final = "PROMETHEUS_MULTIPROC_DIR"  # read by prometheus_client
_KINDS: Final = ("counter", "histogram", "gauge_livesum", "gauge_mostrecent")
# Allocated beforehand: on a full disk, the first write to a page of a mapped file kills the process (SIGBUS).
_ROOM_BYTES: Final = 512 * 1024
_held: dict[int, tuple[int, int]] = {}  # process id -> its number, and the descriptor of its lock


def share(folder: str) -> None:
    """Store metrics created from now on in files of `folder`; in memory if there is none, or it is full."""
    os.environ.pop(_FOLDER, None)
    if not folder:
        return
    os.environ[_FOLDER] = folder
    try:
        values.ValueClass = values.MultiProcessValue(_own_number)  # type: ignore[no-untyped-call]  # it has no types
    except OSError as exc:
        del os.environ[_FOLDER]
        logger.warning("metrics.alone error=%r; this process counts for itself", exc)


def collect() -> Iterable[Metric]:
    """Counts of all processes; without a folder, of this one."""
    if _FOLDER not in os.environ:
        return REGISTRY.collect()
    folder = Path(os.environ[_FOLDER])
    with _free_numbers(folder) as free:
        for number in free:
            mark_process_dead(number, folder)  # type: ignore[no-untyped-call]  # it has no types
    found: Iterable[Metric] = MultiProcessCollector(None, folder).collect()  # type: ignore[no-untyped-call]  # as above
    return found


def _own_number() -> int:
    """The number of this process; a forked one takes its own. Raises `OSError`."""
    if os.getpid() not in _held:
        for _, lock in _held.values():
            os.close(lock)  # the parent's, which alone holds it from now on
        _held.clear()
        _held[os.getpid()] = _take(Path(os.environ[_FOLDER]))
    return _held[os.getpid()][0]


def _take(folder: Path) -> tuple[int, int]:
    with _free_numbers(folder) as free:
        known = len(list(folder.glob("*.lock")))
        if len(free) == known:
            for file in folder.glob("*.db"):
                file.unlink()
        number = min(free, default=known)
        lock = os.dup(free[number]) if number in free else _lock(folder, number)
        assert lock is not None  # noqa: S101  nobody else takes a number meanwhile
        mark_process_dead(number, folder)  # type: ignore[no-untyped-call]  # it has no types; who had it before
        for kind in _KINDS:
            with (folder / f"{kind}_{number}.db").open("ab") as room:
                os.posix_fallocate(room.fileno(), 0, _ROOM_BYTES)
        return number, lock


@contextmanager
def _free_numbers(folder: Path) -> Iterator[dict[int, int]]:
    """Numbers that no process holds, with descriptors of their locks; none is taken meanwhile."""
    free: dict[int, int] = {}
    with (folder / "numbers").open("ab") as door:
        fcntl.flock(door, fcntl.LOCK_EX)
        try:
            for file in folder.glob("*.lock"):
                lock = _lock(folder, int(file.stem))
                if lock is not None:
                    free[int(file.stem)] = lock
            yield free
        finally:
            for lock in free.values():
                os.close(lock)


def _lock(folder: Path, number: int) -> int | None:
    descriptor = os.open(folder / f"{number}.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor
