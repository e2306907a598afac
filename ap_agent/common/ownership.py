"""Root's hand in a folder of the service's user: `once`, `accept-older` and the thesis' commands are run by root."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def as_owner_of(folder: Path) -> Iterator[None]:
    """Root works as the folder's owner inside of `with`; nothing changes for others, or while there is no such folder.

    What is written there stays the service's to read and replace. And whoever took over the service's user cannot have
    root write or delete elsewhere: a symbolic link in the folder leads no further than that user could go.
    The whole process changes its effective user: no other thread of it may need root meanwhile.
    """
    try:
        owner = folder.stat()
    except OSError:  # not there; or said by who needs it
        owner = None
    if owner is None or os.geteuid() != 0 or owner.st_uid == 0:
        yield
        return
    group, groups = os.getegid(), os.getgroups()
    os.setgroups([])
    os.setegid(owner.st_gid)
    os.seteuid(owner.st_uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(group)
        os.setgroups(groups)
