"""The partial file: FILE.part, and FILE.part.map with the bytes it contains."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from multipath import LocalError, UsageError, WrongHashError
from multipath.paths import Pieces
from multipath.state import Facts, Span, Spans

FORMAT = "mpget 1"
MAP_BYTES = 256 << 10  # given up of what was received, so that a full disk has room for the map
SPECIAL = {stat.S_IFDIR: "a folder", stat.S_IFLNK: "a symbolic link", stat.S_IFIFO: "a FIFO", stat.S_IFSOCK: "a socket"}


@contextmanager
def _local(path: Path, remedy: str = "") -> Iterator[None]:
    """The system's errors as `LocalError`."""
    try:
        yield
    except OSError as exc:
        raise LocalError(f"{path}: {exc.strerror}.{remedy}") from None


def exists(path: Path) -> bool:
    """As a regular file, the only kind that is ever replaced. Raises `UsageError` for another one, and `LocalError`."""
    with _local(path):
        try:
            kind = stat.S_IFMT(path.lstat().st_mode)
        except FileNotFoundError:
            return False
    if kind != stat.S_IFREG:
        what = SPECIAL.get(kind, "a device")
        raise UsageError(f"{path} is {what}, and only a regular file is replaced. Give another -o FILE.")
    return True


class Part:
    """One writer at a time. The map is never ahead of the data, even after a power failure."""

    def __init__(
        self,
        target: Path,
        pieces: Pieces | None,
        *,
        resume: bool,
        may_replace: bool = True,
        is_verified: bool = False,
    ) -> None:
        """`may_replace`: an existing target; `is_verified`: by hashes, at the end at the latest. Raises `UsageError` if
        it may not be replaced, or if a part file exists and is not to be resumed, and `LocalError`."""
        self.target, self._pieces, self._may_replace, self._is_verified = target, pieces, may_replace, is_verified
        self.path, self._map, self._fresh = (
            target.with_name(target.name + suffix) for suffix in (".part", ".part.map", ".part.map.new")
        )
        self._is_map_ours = False
        if not may_replace and os.path.lexists(target):
            raise UsageError(f"{target} exists. Give -o {target} to replace it, or another -o FILE.")
        _, *earlier = [exists(path) for path in (target, self.path, self._map, self._fresh)]
        if not resume and any(earlier[:2]):
            raise UsageError(f"{self.path} exists from an earlier download. Give --resume, or delete it.")
        with _local(self.path):
            self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                busy = f"Another mpget is writing {self.path}. Wait for it, or give another -o FILE."
                raise UsageError(busy) from None

    def close(self) -> None:
        """After a failure; a part file without a byte is removed."""
        if os.fstat(self._fd).st_size == 0:
            self.path.unlink(missing_ok=True)
            if self._is_map_ours:
                self._map.unlink(missing_ok=True)

    def load(self) -> tuple[Facts | None, list[Span]]:
        """Facts of the earlier download's file, and its bytes; with hashes, only complete correct pieces."""
        try:
            found = json.loads(self._map.read_text(encoding="utf-8"))
            reference, spans = Facts(**found["file"]), Spans((int(s), int(e)) for s, e in found["done"])
            if found["format"] != FORMAT or not isinstance(reference.size, int):
                raise ValueError
            if any(not 0 <= s < e <= reference.size for s, e, _ in spans):
                raise ValueError
            needs_hashes = bool(found["is_verified"])
        except FileNotFoundError:
            os.ftruncate(self._fd, 0)
            return None, []
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
            raise UsageError(f"{self._map} is not a map of mpget. Delete it and {self.path.name}.") from None
        except OSError as exc:
            raise LocalError(f"{self._map}: {exc.strerror}.") from None
        if needs_hashes and not self._is_verified:  # its bytes may be of mirrors with other ETags, and unchecked
            raise UsageError(f"{self.path} was begun with hashes. Give its --metalink again, or delete it.")
        self._is_map_ours = True
        if self._pieces is not None:
            for piece in range(len(self._pieces.hashes)):
                if not self.is_right(piece):
                    spans.cut(piece * self._pieces.length, (piece + 1) * self._pieces.length)
        return reference, [(s, e) for s, e, _ in spans]

    def write(self, at: int, data: memoryview) -> None:
        """Raises `LocalError`, for example if the disk is full."""
        with _local(self.path, " Then use --resume."):
            while data:
                written = os.pwrite(self._fd, data, at)
                at, data = at + written, data[written:]

    def digest(self, start: int, end: int, algorithm: str = "sha256") -> bytes:
        """A hash of these bytes in the file."""
        found = hashlib.new(algorithm, usedforsecurity=False)
        for at in range(start, end, 1 << 20):
            found.update(os.pread(self._fd, min(1 << 20, end - at), at))
        return found.digest()

    def is_right(self, piece: int) -> bool:
        """By its hash; without hashes always True."""
        cut = self._pieces
        if cut is None:
            return True
        return self.digest(piece * cut.length, (piece + 1) * cut.length, cut.algorithm).hex() == cut.hashes[piece]

    def save(self, reference: Facts, done: Sequence[Span], *, may_cut: bool = False) -> None:
        """Write the map of bytes that are already written. `may_cut`: nothing is written any more, so that on a full
        disk the last bytes give way to the map. Raises `LocalError`."""
        with _local(self._map, " Then use --resume."):
            try:
                self._save(reference, done)
            except OSError as exc:
                if exc.errno not in {errno.ENOSPC, errno.EDQUOT} or not may_cut or not done:
                    raise
                end = max(0, done[-1][1] - MAP_BYTES)
                os.ftruncate(self._fd, end)
                self._save(reference, [(s, min(e, end)) for s, e in done if s < end])

    def _save(self, reference: Facts, done: Sequence[Span]) -> None:
        os.fdatasync(self._fd)
        self._fresh.unlink(missing_ok=True)
        with self._fresh.open("x", encoding="utf-8") as file:
            about = {"format": FORMAT, "file": vars(reference), "is_verified": self._is_verified}
            json.dump({**about, "done": done}, file)
            file.flush()
            os.fsync(file.fileno())
        self._fresh.replace(self._map)
        self._is_map_ours = True

    def finish(self, size: int, whole: tuple[str, str] | None) -> None:
        """Rename it into place. Raises `WrongHashError`, after which it cannot be resumed, and `LocalError`."""
        with _local(self.path):
            self._finish(size, whole)

    def _finish(self, size: int, whole: tuple[str, str] | None) -> None:
        os.ftruncate(self._fd, size)
        if whole is not None and self.digest(0, size, whole[0]).hex() != whole[1]:
            self._map.unlink(missing_ok=True)
            raise WrongHashError(
                f"{self.path} is not what the Metalink's {whole[0]} says. Delete it, and ask its author."
            )
        os.fsync(self._fd)
        if exists(self.target) and not self._may_replace:
            raise LocalError(f"{self.target} was made by another program meanwhile. The file is {self.path}.")
        self.path.replace(self.target)
        self._map.unlink(missing_ok=True)
