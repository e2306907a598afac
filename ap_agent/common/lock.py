"""Locks for one agent and one limiter per kernel, which the kernel releases when the holder dies.

Traffic control belongs to a network namespace, so the locks' names contain the namespace's number. Processes of
different namespaces (a lab) may share a folder.

It is an open file description lock (F_OFD_SETLK, fcntl(2)): every reader of the file can query it without taking it, so
the agent sees whether the limiter lives, although neither can read the other's /proc.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import struct
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Literal

from ap_agent.common.errors import AgentError, LockHeldError, NotPermittedError
from ap_agent.common.files import parse_json, read_plain

Program = Literal["agent", "limiter", "routes", "routes-guard"]
_MAX_LOCK_BYTES = 4096
_NETWORK_NAMESPACE = Path("/proc/self/ns/net")
_OF_ANOTHER_USER = {errno.EACCES, errno.EPERM, errno.ELOOP}  # ELOOP: a planted symbolic link
_STRUCT = struct.Struct("hhqqi4x")  # struct flock of 64-bit Linux: type, whence, start, length (0: all), pid
_EXCLUSIVE = _STRUCT.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)


@dataclass(frozen=True)
class Holder:
    """The holder of the lock, according to the file."""

    pid: int
    command: str


def unit_of(program: Program) -> str:
    """`scionlab-bw-agent`, `scionlab-bw-limiter`: the name of its unit and of its command."""
    return f"scionlab-bw-{program}"


def lock_path(run_dir: Path, program: Program) -> Path:
    return run_dir / f"{program}-{_NETWORK_NAMESPACE.stat().st_ino}.lock"


class Lock:
    """A `with` block that runs only once per program and kernel. Never waits. Raises `LockHeldError`,
    `NotPermittedError`, and `AgentError` if the folder is unusable."""

    def __init__(self, run_dir: Path, program: Program, command: str) -> None:
        self._path = lock_path(run_dir, program)
        self._program = program
        self._command = command
        self._descriptor = -1

    def __enter__(self) -> Lock:
        self._descriptor = self._take()
        return self

    def keep(self) -> None:
        """Take it again if its file was deleted: another process would create a new file and lock that. Raises as
        above; `LockHeldError` if that has already happened."""
        if not self._is_still_the_file(self._descriptor):
            former, self._descriptor = self._descriptor, self._take()
            os.close(former)

    def _take(self) -> int:
        try:
            self._path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            return self._open()
        except OSError as exc:
            key = {"agent": "run_dir", "limiter": "limiter_run_dir"}.get(self._program, "routes_dir")
            text = f"The lock {self._path} cannot be taken: {exc.strerror}."
            if exc.errno in _OF_ANOTHER_USER:
                raise NotPermittedError(f"{text} Run as root, or choose {key}.") from exc
            raise AgentError(f"{text} Repair that folder, or choose {key}.") from exc

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.ftruncate(self._descriptor, 0)
        os.close(self._descriptor)  # the file stays: removing it would allow two holders of two files with one name

    def _open(self) -> int:
        while True:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
            try:
                fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _EXCLUSIVE)
            except BlockingIOError:
                os.close(descriptor)
                raise LockHeldError(_refusal(holder(self._path), self._path, self._program)) from None
            if self._is_still_the_file(descriptor):
                break
            os.close(descriptor)  # systemd removed the folder between our open and our lock
        owner = self._path.parent.stat()
        if os.geteuid() == 0 and owner.st_uid != 0:  # created by root in the service's folder: the service needs it
            os.fchown(descriptor, owner.st_uid, owner.st_gid)
        if os.fstat(descriptor).st_uid == os.geteuid():
            os.fchmod(descriptor, 0o644)  # `status` reads it, whatever the unit's umask
        os.ftruncate(descriptor, 0)
        os.write(descriptor, json.dumps({"pid": os.getpid(), "command": self._command}).encode())
        return descriptor

    def _is_still_the_file(self, descriptor: int) -> bool:
        try:
            return os.path.samestat(os.fstat(descriptor), self._path.stat())
        except FileNotFoundError:
            return False


def holder(path: Path) -> Holder | None:
    """The process that holds the lock; None if free. Read-only. pid is 0 if the holder has not written its name, or the
    file is unreadable."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        kind = _STRUCT.unpack(fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, _EXCLUSIVE))[0]
    finally:
        os.close(descriptor)
    if kind == fcntl.F_UNLCK:
        return None
    try:
        document = parse_json(read_plain(path, _MAX_LOCK_BYTES)[0])
        return Holder(int(document["pid"]), str(document["command"]))
    except (OSError, ValueError, KeyError, TypeError):
        return Holder(0, "")


def _refusal(found: Holder | None, path: Path, program: Program) -> str:
    if found is None or not found.command:
        return f"Another process of the {program} holds the lock {path}; try again when it has ended."
    if found.command == "run":
        unit = unit_of(program)
        after = "; the limits stay in the kernel" if program == "limiter" else ""
        return (
            f"The {program}'s service is running (pid {found.pid}). To work by hand, stop it first: "
            f"`systemctl stop {unit}` (or end process {found.pid}){after}."
        )
    return f"`{found.command}` is running (pid {found.pid}); try again when it has ended."
