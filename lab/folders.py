"""Folders that belong to one running program: a lock tells the living from the dead, whatever ended them.

The kernel drops an flock with its holder, also after SIGKILL, so a folder whose lock is free is nobody's any more.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from pathlib import Path
from typing import IO

_LOCK = "in-use"


def claim(folder: Path) -> IO[str] | None:
    """Take a folder until the returned file is closed or this process ends; None where a living program has it.

    Raises `OSError` when the folder cannot be written.
    """
    lock = (folder / _LOCK).open("a", encoding="ascii")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        return None
    return lock


class TemporaryFolder:
    """A folder that is removed at the end, or by the next program with this prefix if its owner was killed.

    `keep()` leaves it to the person: nobody removes it then.
    """

    def __init__(self, prefix: str) -> None:
        """Raises `OSError`."""
        # The final name comes after the lock: what another program finds under it is always claimed.
        made = Path(tempfile.mkdtemp(prefix=f".{prefix}-"))
        self._lock = claim(made)
        self.path = made.rename(made.with_name(made.name[1:]))
        self._kept = False

    def keep(self) -> None:
        (self.path / _LOCK).unlink(missing_ok=True)
        self._kept = True

    def close(self) -> None:
        if not self._kept:
            shutil.rmtree(self.path, ignore_errors=True)
        if self._lock is not None:
            self._lock.close()


def remove_abandoned(prefix: str) -> list[Path]:
    """Remove folders of ours whose program was killed; returns them."""
    removed = []
    for lock_path in sorted(Path(tempfile.gettempdir()).glob(f"{prefix}-*/{_LOCK}")):
        folder = lock_path.parent
        if folder.is_symlink() or folder.lstat().st_uid != os.geteuid():
            continue
        lock = claim(folder)
        if lock is not None:
            shutil.rmtree(folder, ignore_errors=True)
            lock.close()
            removed.append(folder)
    return removed
