"""The partial file: FILE.part, and FILE.part.map with the bytes it contains."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Iterable
from pathlib import Path

from multipath import LocalError, UsageError, WrongHashError
from multipath.paths import Pieces
from multipath.state import Facts, Span, Spans

FORMAT = "mpget 1"


class Part:
    """One writer at a time. The map is never ahead of the data, even after a power failure."""

    def __init__(self, target: Path, pieces: Pieces | None, *, resume: bool) -> None:
        """Raises `UsageError` if a part file exists and is not to be resumed, and `LocalError`."""
        self.target, self._pieces = target, pieces
        self.path, self._map = (target.with_name(target.name + suffix) for suffix in (".part", ".part.map"))
        if target.is_dir():
            raise UsageError(f"{target} is a folder. Give -o FILE.")
        if not resume and (self.path.exists() or self._map.exists()):
            raise UsageError(f"{self.path} exists from an earlier download. Give --resume, or delete it.")
        try:
            self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(f"Another mpget is writing {self.path}. Wait for it, or give another -o FILE.") from None
        except OSError as exc:
            raise LocalError(f"{self.path}: {exc.strerror}.") from None

    def load(self) -> tuple[Facts | None, list[Span]]:
        """Facts of the earlier download's file, and its bytes; with hashes, only complete correct pieces."""
        try:
            found = json.loads(self._map.read_text(encoding="utf-8"))
            reference, spans = Facts(**found["file"]), Spans((int(s), int(e)) for s, e in found["done"])
            if found["format"] != FORMAT or any(not 0 <= s < e <= reference.size for s, e, _ in spans):
                raise ValueError
        except FileNotFoundError:
            os.ftruncate(self._fd, 0)
            return None, []
        except (ValueError, KeyError, TypeError, AttributeError):
            raise UsageError(f"{self._map} is not a map of mpget. Delete it and {self.path.name}.") from None
        if self._pieces is not None:
            for piece in range(len(self._pieces.hashes)):
                if not self.is_right(piece):
                    spans.cut(piece * self._pieces.length, (piece + 1) * self._pieces.length)
        return reference, [(s, e) for s, e, _ in spans]

    def write(self, at: int, data: memoryview) -> None:
        """Raises `LocalError`, for example if the disk is full."""
        try:
            while data:
                written = os.pwrite(self._fd, data, at)
                at, data = at + written, data[written:]
        except OSError as exc:
            raise LocalError(f"{self.path}: {exc.strerror}. Then --resume continues.") from None

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

    def save(self, reference: Facts, done: Iterable[Span]) -> None:
        """Write the map of bytes that are already written. Raises `LocalError`."""
        fresh = self._map.with_name(self._map.name + ".new")
        try:
            os.fdatasync(self._fd)
            with fresh.open("w", encoding="utf-8") as file:
                json.dump({"format": FORMAT, "file": vars(reference), "done": list(done)}, file)
                file.flush()
                os.fsync(file.fileno())
            fresh.replace(self._map)
        except OSError as exc:
            raise LocalError(f"{self._map}: {exc.strerror}. Then --resume continues.") from None

    def finish(self, size: int, whole: tuple[str, str] | None) -> None:
        """Rename it into place. Raises `WrongHashError`, after which it cannot be resumed."""
        os.ftruncate(self._fd, size)
        if whole is not None and self.digest(0, size, whole[0]).hex() != whole[1]:
            self._map.unlink(missing_ok=True)
            raise WrongHashError(
                f"{self.path} is not what the Metalink's {whole[0]} says. Delete it, and ask its author."
            )
        os.fsync(self._fd)
        self.path.replace(self.target)
        self._map.unlink(missing_ok=True)
