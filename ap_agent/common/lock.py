"""Locks for one agent and one limiter per run folder, which the kernel releases when the holder dies.

Their names contain the number of the network namespace: processes of different namespaces (a lab) may share a folder.
Both files have open file description locks (F_OFD_SETLK, fcntl(2)):

    limiter-<namespace>.lock  0600  the exclusive lock. For its owner alone: whoever may open the file could keep the
                                    program from starting again with a read lock
    limiter-<namespace>.pid   0644  pid and command of the holder, which keeps a shared lock on it: everybody sees
                                    whether it lives, although nobody else may read its /proc, and nobody can prevent it
"""

from __future__ import annotations

import contextlib
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
_MAX_COMMAND_CHARS = 120
_NETWORK_NAMESPACE = Path("/proc/self/ns/net")
_OF_ANOTHER_USER = {errno.EACCES, errno.EPERM, errno.ELOOP}  # ELOOP: a planted symbolic link
_STRUCT = struct.Struct("hhqqi4x")  # struct flock of 64-bit Linux: type, whence, start, length (0: all), pid
_EXCLUSIVE, _SHARED = (_STRUCT.pack(kind, os.SEEK_SET, 0, 0, 0) for kind in (fcntl.F_WRLCK, fcntl.F_RDLCK))


@dataclass(frozen=True)
class Holder:
    """The holder of the lock, according to its file."""

    pid: int
    command: str


def unit_of(program: Program) -> str:
    """`scionlab-bw-agent`, `scionlab-bw-limiter`: the name of its unit and of its command."""
    return f"scionlab-bw-{program}"


def lock_path(run_dir: Path, program: Program) -> Path:
    return run_dir / f"{program}-{_NETWORK_NAMESPACE.stat().st_ino}.lock"


def pid_path(run_dir: Path, program: Program) -> Path:
    return lock_path(run_dir, program).with_suffix(".pid")


class Lock:
    """A `with` block that runs only once per program, folder and network namespace. Never waits. Raises
    `LockHeldError`, `NotPermittedError`, and `AgentError` if the folder is unusable."""

    def __init__(self, run_dir: Path, program: Program, command: str) -> None:
        self._run_dir, self._program, self._command = run_dir, program, command
        self._path, self._pid_path = lock_path(run_dir, program), pid_path(run_dir, program)
        self._descriptor = self._pid_descriptor = -1

    def __enter__(self) -> Lock:
        try:
            self.keep()
        except AgentError:
            self._close()
            raise
        return self

    def keep(self) -> None:
        """Take it again if a file was deleted: another process would create a new one and lock that. Raises as above;
        `LockHeldError` if that has already happened."""
        try:
            if not _is_at(self._descriptor, self._path):
                self._run_dir.mkdir(mode=0o755, parents=True, exist_ok=True)
                former, self._descriptor = self._descriptor, self._taken()
                _close(former)
            if not _is_at(self._pid_descriptor, self._pid_path):
                former, self._pid_descriptor = self._pid_descriptor, self._opened(self._pid_path, 0o644)
                _close(former)
                self._show()
        except OSError as exc:
            key = {"agent": "run_dir", "limiter": "limiter_run_dir"}.get(self._program, "routes_dir")
            text = f"The lock {self._path} cannot be taken: {exc.strerror}."
            if exc.errno in _OF_ANOTHER_USER:
                raise NotPermittedError(f"{text} Run as root, or choose {key}.") from exc
            raise AgentError(f"{text} Repair that folder, or choose {key}.") from exc

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.ftruncate(self._pid_descriptor, 0)
        self._close()

    def _close(self) -> None:
        """The files stay: removing one would allow two holders of two files with one name."""
        _close(self._pid_descriptor)
        _close(self._descriptor)

    def _taken(self) -> int:
        while True:
            descriptor = self._opened(self._path, 0o600)
            try:
                fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _EXCLUSIVE)
            except BlockingIOError:
                refusal = self._refusal(descriptor)
                os.close(descriptor)
                raise LockHeldError(refusal) from None
            if _is_at(descriptor, self._path):
                return descriptor
            os.close(descriptor)  # systemd removed the folder between our open and our lock

    def _opened(self, path: Path, mode: int) -> int:
        """Of the folder's owner, and with this mode, whatever the unit's umask."""
        owner = self._run_dir.stat()
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
        try:
            if os.geteuid() == 0 and owner.st_uid != 0:  # created by root in the service's folder: the service needs it
                os.fchown(descriptor, owner.st_uid, owner.st_gid)
            if os.geteuid() in (0, os.fstat(descriptor).st_uid):
                os.fchmod(descriptor, mode)
        except OSError:
            os.close(descriptor)
            raise
        return descriptor

    def _show(self) -> None:
        fcntl.fcntl(self._pid_descriptor, fcntl.F_OFD_SETLK, _SHARED)
        with contextlib.suppress(OSError):  # a full file system: the lock counts, not its description
            os.ftruncate(self._pid_descriptor, 0)
            os.write(self._pid_descriptor, json.dumps({"pid": os.getpid(), "command": self._command}).encode())

    def _refusal(self, descriptor: int) -> str:
        """Who holds the lock file, whose descriptor this is."""
        found = holder(self._run_dir, self._program)
        if found is not None and found.command == "run":
            unit = unit_of(self._program)
            after = "; the limits stay in the kernel" if self._program == "limiter" else ""
            return (
                f"The {self._program}'s service is running (pid {found.pid}). To work by hand, stop it first: "
                f"`systemctl stop {unit}` (or end process {found.pid}){after}."
            )
        if found is not None and found.command:
            return f"`{found.command}` is running (pid {found.pid}); try again when it has ended."
        pid = _STRUCT.unpack(fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, _EXCLUSIVE))[4]
        if pid > 0:
            return f"Process {pid} ({command_of(pid)}) holds the lock {self._path}; end it, and try again."
        return f"Another process of the {self._program} holds the lock {self._path}; try again when it has ended."


def command_of(pid: int) -> str:
    """Its command line, as `ps -o args` shows it."""
    with contextlib.suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").replace("\0", " ").strip()
        if words:
            return words[:_MAX_COMMAND_CHARS]
    return "a process that is not visible here"


def _close(descriptor: int) -> None:
    if descriptor >= 0:
        os.close(descriptor)


def _is_at(descriptor: int, path: Path) -> bool:
    """Whether it is open, and `path` is still its file."""
    try:
        return descriptor >= 0 and os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def holder(run_dir: Path, program: Program) -> Holder | None:
    """The process that holds the lock; None if free. Read-only. pid is 0 if the holder has not written its name, or the
    file is unreadable."""
    path = pid_path(run_dir, program)
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
