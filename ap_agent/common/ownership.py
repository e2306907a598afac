"""Writing as root in a folder of the service's user: `once`, `accept-older` and the thesis' commands are run by
root."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def as_owner_of(folder: Path) -> Iterator[None]:
    """Switch root to the folder's owner inside of `with`; no effect for others, or without the folder. Files stay
    writable for the service. And a compromised service user cannot make root write or delete elsewhere through a
    symbolic link. The whole process changes its effective user: no other thread may need root meanwhile."""
    try:
        owner = folder.stat()
    except OSError:  # missing; or reported by the caller
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
