"""What a disk may hold after a power cut: a model of fsync(2), fed with what a process really did.

A file's content is durable as of the last fsync of that file, and so is what a folder holds as of the last fsync of
that folder; whatever came later may be there or not, each independently of the others. That is what POSIX leaves open,
and worse than any file system of today does (ext4, XFS and btrfs keep the order of names, and flush a renamed file).

Inodes have an identity here, as on a disk: a file that was renamed before its folder was synced is the same file under
its old name.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from tests.faults.agent.tracer import Effect

_REMOVES_A_FOLDER = 0x200  # AT_REMOVEDIR


@dataclass(eq=False)
class File:
    now: bytes = b""
    durable: bytes = b""


@dataclass(eq=False)
class Folder:
    now: dict[str, Node] = field(default_factory=dict)
    durable: dict[str, Node] = field(default_factory=dict)


Node = File | Folder


class Disk:
    """One tree, from `root` on; what happens elsewhere is not looked at."""

    def __init__(self, root: Path) -> None:
        """As the tree is now, all of it durable."""
        self._root = PurePosixPath(root)
        self._tree = _read(root)

    def apply(self, effect: Effect) -> bool:
        """Whether it changed this tree. Raises `AssertionError` for a call that the model does not know."""
        path = PurePosixPath(effect.path)
        if not effect.succeeded or not path.is_relative_to(self._root):
            return False
        parent, name = self._parent(path)
        call = effect.call
        if call in {"openat", "open", "creat"}:
            file = parent.now.setdefault(name, File())
            assert isinstance(file, File)
            file.now = b"" if effect.flags & os.O_TRUNC else file.now
        elif call == "write":
            file = parent.now[name]
            assert isinstance(file, File)
            file.now += effect.data  # nothing of ours writes anywhere but at the end
        elif call in {"fsync", "fdatasync"}:
            _sync(self._tree if path == self._root else parent.now[name])
        elif call in {"mkdir", "mkdirat"}:
            parent.now[name] = Folder()
        elif call in {"unlink", "unlinkat", "rmdir"}:
            del parent.now[name]
        elif call in {"rename", "renameat", "renameat2"}:
            there, new = self._parent(PurePosixPath(effect.target))
            there.now[new] = parent.now.pop(name)
        else:
            assert call in {"chmod", "fchmod", "chown", "fchown", "flock"}, call
            return False
        return True

    def _parent(self, path: PurePosixPath) -> tuple[Folder, str]:
        folder = self._tree
        for part in path.relative_to(self._root).parts[:-1]:
            inner = folder.now[part]
            assert isinstance(inner, Folder)
            folder = inner
        return folder, path.name

    def after_power_cut(self, limit: int = 4096) -> Iterator[Folder]:
        """Every tree that may be found, as folders whose `now` counts: each thing that is not durable kept or lost.

        Raises `AssertionError` where there are more than `limit` of them.
        """
        unsafe = [one for one in _all(self._tree) if one.now != one.durable]
        assert 2 ** len(unsafe) <= limit, len(unsafe)
        for kept in itertools.product((False, True), repeat=len(unsafe)):
            lost = {id(one) for one, is_kept in zip(unsafe, kept, strict=True) if not is_kept}
            yield _found(self._tree, lost)


def write_tree(tree: Folder, to: Path) -> None:
    """Make the folder `to` hold this tree."""
    to.mkdir(mode=0o700)
    for name, node in tree.now.items():
        if isinstance(node, Folder):
            write_tree(node, to / name)
        else:
            (to / name).write_bytes(node.now)


def fingerprint(tree: Folder) -> tuple[object, ...]:
    """Equal for trees that no reader can tell apart."""
    return tuple(
        (name, fingerprint(node) if isinstance(node, Folder) else node.now) for name, node in sorted(tree.now.items())
    )


def _read(path: Path) -> Folder:
    found: dict[str, Node] = {}
    for one in path.iterdir() if path.exists() else ():
        if one.is_dir():
            found[one.name] = _read(one)
        else:
            found[one.name] = File(one.read_bytes(), one.read_bytes())
    return Folder(dict(found), dict(found))


def _sync(node: Node) -> None:
    if isinstance(node, File):
        node.durable = node.now
    else:
        node.durable = dict(node.now)


def _all(folder: Folder) -> Iterable[Node]:
    """Each node once, whether its name is durable or not."""
    seen: dict[int, Node] = {}
    pending: list[Node] = [folder]
    while pending:
        one = pending.pop()
        if id(one) not in seen:
            seen[id(one)] = one
            if isinstance(one, Folder):
                pending += [*one.now.values(), *one.durable.values()]
    return seen.values()


def _found(folder: Folder, lost: set[int]) -> Folder:
    names = folder.durable if id(folder) in lost else folder.now
    tree = Folder()
    for name, node in names.items():
        if isinstance(node, Folder):
            tree.now[name] = _found(node, lost)
        else:
            tree.now[name] = File(node.durable if id(node) in lost else node.now)
    return tree
