"""What notices a touch outside of a folder: every file operation of this process, before it happens (PEP 578).

An audit hook cannot be removed again, so it is set once and looks only while somebody is inside the fence.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_PATHS_AT = {
    "os.mkdir": (0,),
    "os.rename": (0, 1),
    "os.remove": (0,),
    "os.rmdir": (0,),
    "os.symlink": (1,),
    "os.link": (0, 1),
    "os.chmod": (0,),
    "os.chown": (0,),
    "os.truncate": (0,),
    "os.utime": (0,),
    "os.mkfifo": (0,),
    "os.mknod": (0,),
}
_FOLDER_AT = {"os.mkdir": 2, "os.remove": 1, "os.rmdir": 1, "os.symlink": 2}  # where the folder's descriptor stands
_NEVER = ("subprocess.", "os.system", "os.exec", "os.fork", "os.posix_spawn", "socket.", "ctypes.")
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class TrespassError(BaseException):
    """Something outside of the fence was about to be touched. Nobody who catches `Exception` catches it."""


class Fence:
    """`with fence.closed():` nothing but what lies below `folder` may be changed, and no program or socket used."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.resolve()
        self._is_closed = False
        sys.addaudithook(self._look)

    @contextmanager
    def closed(self) -> Iterator[None]:
        self._is_closed = True
        try:
            yield
        finally:
            self._is_closed = False

    def _look(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self._is_closed:
            return
        if event == "open":
            path, _mode, flags = arguments
            if not isinstance(path, int) and flags & _WRITING:
                self._check(event, path, -1)
        elif event in _PATHS_AT:
            folder = arguments[_FOLDER_AT[event]] if event in _FOLDER_AT else -1
            for at in _PATHS_AT[event]:
                self._check(event, arguments[at], folder)
        elif event.startswith(_NEVER):
            raise TrespassError(f"{event} {arguments!r}")

    def _check(self, event: str, path: Any, folder: int) -> None:
        if isinstance(path, int):  # of a descriptor that was opened under our eyes
            return
        name = os.fsdecode(path)
        if folder not in (-1, None) and not name.startswith("/"):
            name = f"{Path(f'/proc/self/fd/{folder}').readlink()}/{name}"
        # The folder as the kernel finds it, links and all; the last part as it is: a link there would be replaced.
        where = Path(os.path.realpath(Path(name).parent)) / Path(name).name
        if where != self._folder and self._folder not in where.parents:
            raise TrespassError(f"{event} {where}")


def picture(folder: Path, without: Path) -> dict[str, tuple[int, int, bytes]]:
    """Everything below `folder` but not below `without`: mode, time of change, content."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path != without and without not in path.parents:
            status = path.lstat()
            content = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
            found[str(path)] = (status.st_mode, status.st_mtime_ns, content)
    return found
