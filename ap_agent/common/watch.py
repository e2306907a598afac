"""Noticing at once that a file was replaced: inotify(7) on its folder, because a rename gives the name another file."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable
from pathlib import Path

_EVENTS = 0x8 | 0x40 | 0x80 | 0x100 | 0x200 | 0x400  # <sys/inotify.h>: closed after writing, moved, made, deleted


class Watch:
    """On files that need not exist yet, nor their folders. Raises `OSError`."""

    def __init__(self, paths: Iterable[Path]) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._paths = tuple(paths)
        self._descriptor = self._checked(self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
        self._arm()

    def _arm(self) -> None:
        """Watch the folders, or what is there of them. Watching one that is watched already changes nothing."""
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
        """Take what waits; whether there was anything. It says when to look at the files, not what became of them."""
        try:
            is_heard = bool(os.read(self._descriptor, 65536))
        except BlockingIOError:
            is_heard = False
        self._arm()
        return is_heard

    def close(self) -> None:
        os.close(self._descriptor)
