"""Detects replaced files: inotify(7) on their folders, because a rename gives the name to another file."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterable
from pathlib import Path

# <sys/inotify.h>
_EVENTS = 0x8 | 0x40 | 0x80 | 0x100 | 0x200 | 0x400  # closed after writing, moved, created, deleted
_OF_FOLDERS = 0x4000_0000 | 0x8000 | 0x4000 | 0x400  # a folder's; its watch ended; some were lost; it was deleted
_EVENT = struct.Struct("iIII")  # watch, mask, cookie, size of the name behind it


class Watch:
    """Watches files that need not exist yet, nor their folders. Raises `OSError`."""

    def __init__(self, paths: Iterable[Path]) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._paths = tuple(paths)
        self._names = {os.fsencode(one.name) for one in self._paths}
        self._descriptor = self._checked(self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
        self._arm()

    def _arm(self) -> None:
        """Watch the existing folders. Watching one again has no effect."""
        for path in self._paths:
            folder = next(one for one in path.parents if one.is_dir())
            self._checked(self._libc.inotify_add_watch(self._descriptor, os.fsencode(folder), _EVENTS))

    @staticmethod
    def _checked(result: int) -> int:
        if result < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        return result

    def fileno(self) -> int:
        """Readable when something happened in one of the folders."""
        return self._descriptor

    def drain(self) -> bool:
        """Consume events; return whether one concerns one of the files. The caller checks the file itself. Other files
        of the folder are ignored: a temporary file that is renamed later would cause a check that is too early, and
        delay the right one."""
        try:
            data = os.read(self._descriptor, 65536)
        except BlockingIOError:
            data = b""
        self._arm()
        position, is_concerned = 0, False
        while position < len(data):
            _, mask, _, size = _EVENT.unpack_from(data, position)
            name = data[position + _EVENT.size : position + _EVENT.size + size].rstrip(b"\0")
            is_concerned = is_concerned or bool(mask & _OF_FOLDERS) or name in self._names
            position += _EVENT.size + size
        return is_concerned

    def close(self) -> None:
        os.close(self._descriptor)
