"""One agent and one limiter at a time on one kernel: a lock that the kernel releases when its holder dies, however.

The traffic control of a host belongs to its network namespace, so the locks do too: their names hold the namespace's
number. Processes of different namespaces (a lab) may share a folder.

It is a lock of the open file (F_OFD_SETLK, fcntl(2)), because anybody who may read the file can ask for it without
taking it: the agent sees that way whether the limiter lives, although neither may look into the other's /proc.
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
_OF_ANOTHER_USER = {errno.EACCES, errno.EPERM, errno.ELOOP}  # ELOOP: a symbolic link that somebody laid there
_STRUCT = struct.Struct("hhqqi4x")  # struct flock of 64-bit Linux: type, whence, start, length (0: all), pid
_EXCLUSIVE = _STRUCT.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)


@dataclass(frozen=True)
class Holder:
    """Who has the lock, as far as the file says."""

    pid: int
    command: str


def unit_of(program: Program) -> str:
    """`scionlab-bw-agent`, `scionlab-bw-limiter`: the name of its unit and of its command."""
    return f"scionlab-bw-{program}"


def lock_path(run_dir: Path, program: Program) -> Path:
    return run_dir / f"{program}-{_NETWORK_NAMESPACE.stat().st_ino}.lock"


class Lock:
    """A `with` block that is the only one of this program on this kernel. Never waits.

    Raises `LockHeldError`, `NotPermittedError`, and `AgentError` where the folder is of no use.
    """

    def __init__(self, run_dir: Path, program: Program, command: str) -> None:
        self._path = lock_path(run_dir, program)
        self._program = program
        self._command = command
        self._descriptor = -1

    def __enter__(self) -> Lock:
        self._descriptor = self._take()
        return self

    def keep(self) -> None:
        """Take it again where somebody deleted its file under us: the next process would make another one and believe
        that it is alone. Raises as above; `LockHeldError` where that has happened already."""
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
        os.close(self._descriptor)  # the file stays: removing it would let two holders have two files of one name

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
        if os.geteuid() == 0 and owner.st_uid != 0:  # made by root's hand in the service's folder: the service needs it
            os.fchown(descriptor, owner.st_uid, owner.st_gid)
        if os.fstat(descriptor).st_uid == os.geteuid():
            os.fchmod(descriptor, 0o644)  # whoever asks for the status reads it, whatever umask the unit has
        os.ftruncate(descriptor, 0)
        os.write(descriptor, json.dumps({"pid": os.getpid(), "command": self._command}).encode())
        return descriptor

    def _is_still_the_file(self, descriptor: int) -> bool:
        try:
            return os.path.samestat(os.fstat(descriptor), self._path.stat())
        except FileNotFoundError:
            return False


def holder(path: Path) -> Holder | None:
    """The process that has the lock now; None where none has it. Changes nothing, and needs no right but to read it.

    A holder that has not written who it is, or whose file cannot be read, has pid 0.
    """
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
