"""Reads untrusted files and JSON: bounded, non-blocking, with reasons for failures. Writes files atomically."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import stat
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NoReturn, TypeVar

from ap_agent.common.errors import NotPermittedError, StoreError

T = TypeVar("T")
_MAX_DIGITS = 18
_KINDS = (
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISLNK, "a symbolic link"),
)


def open_plain(path: Path, *, is_foreign: bool = False) -> BinaryIO:
    """A plain file, or /dev/null, for reading; non-blocking. `is_foreign`: its folder is another user's, who could make
    us read anything through a symbolic link. Raises `OSError`, whose `strerror` names other file types."""
    found = path.lstat() if is_foreign else path.stat()
    _require_plain(found, path)  # before it is opened: opening a device may have effects
    nofollow = os.O_NOFOLLOW if is_foreign else 0
    stream = open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | nofollow), "rb")  # noqa: PTH123, SIM115
    try:
        _require_plain(os.fstat(stream.fileno()), path)
    except OSError:
        stream.close()
        raise
    return stream


def read_plain(path: Path, max_bytes: int, *, is_foreign: bool = False) -> tuple[bytes, os.stat_result]:
    """Content of such a file, and its stat result. Returns one byte more than `max_bytes` of a larger file, for the
    caller to reject. Raises as `open_plain`."""
    with open_plain(path, is_foreign=is_foreign) as stream:
        return stream.read(max_bytes + 1), os.fstat(stream.fileno())


def read_own(
    path: Path, max_bytes: int, parse: Callable[[bytes], T], remedy: str, *, is_foreign: bool = False
) -> T | None:
    """Read and parse a file written by our programs; None if missing. Raises `StoreError`, also with the reason of
    `parse` and the remedy, and `NotPermittedError`."""
    try:
        data = read_plain(path, max_bytes, is_foreign=is_foreign)[0]
    except FileNotFoundError:
        return None
    except PermissionError as exc:
        raise NotPermittedError(f"{path} cannot be read: {exc.strerror}. Run as root.") from exc
    except OSError as exc:
        raise StoreError(f"{path} cannot be read: {exc.strerror}.") from exc
    try:
        with readable():
            if len(data) > max_bytes:
                raise ValueError(f"it has more than {max_bytes} bytes")
            return parse(data)
    except ValueError as exc:
        raise StoreError(f"{path} cannot be used: {str(exc).rstrip('.')}. {remedy}") from exc


def identity(found: os.stat_result) -> tuple[int, ...]:
    """Changes when a file is replaced or written."""
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def identity_of(path: Path) -> tuple[int, ...] | None:
    """None if missing."""
    try:
        return identity(path.stat())
    except OSError:
        return None


def _require_plain(found: os.stat_result, path: Path) -> None:
    if stat.S_ISREG(found.st_mode) or (
        stat.S_ISCHR(found.st_mode) and os.path.samestat(found, Path(os.devnull).stat())
    ):
        return
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    kind = next((words for is_kind, words in _KINDS if is_kind(found.st_mode)), "no file")
    raise OSError(errno.EINVAL, f"it is {kind}; name a plain file", str(path))


@contextmanager
def readable() -> Iterator[None]:
    """Whatever a reader of a document raises becomes a `ValueError` with the reason."""
    try:
        yield
    except UnicodeDecodeError as exc:
        raise ValueError(f"it is not UTF-8 at byte {exc.start}") from exc
    except json.JSONDecodeError as exc:  # its text quotes nothing
        raise ValueError(f"invalid JSON at character {exc.pos}") from exc
    except RecursionError as exc:
        raise ValueError("it is nested too deeply") from exc
    except (LookupError, TypeError, AttributeError, OverflowError) as exc:
        raise ValueError(f"something is missing or of a wrong type ({type(exc).__name__}: {exc})") from exc


@readable()
def parse_json(data: bytes | str, *, allows_fractions: bool = False) -> Any:
    """Parse JSON in UTF-8: no duplicate keys, no numbers of more than 18 digits, no NaN, fractions only if allowed.
    Raises `ValueError` with the reason, which quotes nothing."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            raise ValueError("a key occurs twice")
        return found

    def whole(digits: str) -> int:
        if len(digits) > _MAX_DIGITS:
            raise ValueError(f"a number has more than {_MAX_DIGITS} digits")
        return int(digits)

    def no_fraction(_text: str) -> NoReturn:
        raise ValueError("a number is not an integer")

    return json.loads(
        data.decode("utf-8") if isinstance(data, bytes) else data,
        object_pairs_hook=unique,
        parse_int=whole,
        parse_float=float if allows_fractions else no_fraction,
        parse_constant=no_fraction,
    )


def parse_object(data: bytes | str, *, allows_fractions: bool = False) -> dict[str, Any]:
    """As `parse_json`, if it is an object."""
    found = parse_json(data, allows_fractions=allows_fractions)
    if not isinstance(found, dict):
        raise ValueError("it is not an object")
    return found


def read_toml(path: Path, max_bytes: int) -> tuple[dict[str, Any], str, os.stat_result]:
    """Content of an operator's file, its text, and its stat result. Raises `OSError`, and `ValueError` with the reason:
    it quotes positions and names, never a value."""
    data, found = read_plain(path, max_bytes)
    if len(data) > max_bytes:
        raise ValueError(f"is larger than {max_bytes} bytes")
    try:
        text = data.decode("utf-8")
        return tomllib.loads(text), text, found
    except UnicodeDecodeError as exc:
        raise ValueError(f"is not UTF-8 at byte {exc.start}") from exc
    except RecursionError:
        raise ValueError("is not valid TOML: it is nested too deeply") from None
    except ValueError as exc:  # also of a number with thousands of digits
        raise ValueError(f"is not valid TOML: {exc}") from exc


_SEAL = "sha256"


def sealed(document: dict[str, Any]) -> bytes:
    """JSON with a hash of itself: a flipped bit could leave a well-formed document that trusts another key."""
    return json.dumps(document | {_SEAL: _hash_of(document)}, indent=1).encode() + b"\n"


def unsealed(data: bytes) -> dict[str, Any]:
    """Inverse of `sealed`. Raises `ValueError`, also for a wrong hash."""
    document = parse_object(data)
    rest = {key: value for key, value in document.items() if key != _SEAL}
    if document.get(_SEAL) != _hash_of(rest):
        raise ValueError("a different content than was written")
    return rest


def _hash_of(document: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def write_atomically(path: Path, data: bytes, *, mode: int, is_durable: bool = True) -> None:
    """Readers see the old content or the new; with `is_durable` also after a power cut. Raises `OSError`, also if a
    folder has that name."""
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    new = path.with_name(f".{path.name}.scionlab-bw-new")  # a unique name
    new.unlink(missing_ok=True)
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
    with open(descriptor, "wb") as stream:  # noqa: PTH123  # of a descriptor
        os.fchmod(stream.fileno(), mode)  # independent of the unit's umask
        stream.write(data)
        stream.flush()
        if is_durable:
            os.fsync(stream.fileno())
    new.replace(path)
    if is_durable:
        sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make renames and new names in a folder survive a power cut (fsync(2): the folder needs its own)."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
