"""One agent at a time on one kernel: a lock file that the kernel releases when its holder dies, however it dies.

The traffic control of a host belongs to its network namespace, so the lock does too: its name holds the namespace's
number. Agents of different namespaces (a lab) may share a folder.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from ap_agent.common.errors import AgentError, LockHeldError, NotPermittedError
from ap_agent.common.files import parse_json, read_plain

SERVICE = "scionlab-bw-agent"
_MAX_LOCK_BYTES = 4096
_NETWORK_NAMESPACE = Path("/proc/self/ns/net")
_OF_ANOTHER_USER = {errno.EACCES, errno.EPERM, errno.ELOOP}  # ELOOP: a symbolic link that somebody laid there


@dataclass(frozen=True)
class Holder:
    """Who has the lock, as far as the file says."""

    pid: int
    command: str


def lock_path(run_dir: Path) -> Path:
    return run_dir / f"agent-{_NETWORK_NAMESPACE.stat().st_ino}.lock"


class AgentLock:
    """A `with` block that has this kernel for itself. Never waits.

    Raises `LockHeldError`, `NotPermittedError`, and `AgentError` where the folder is of no use.
    """

    def __init__(self, run_dir: Path, command: str) -> None:
        self._path = lock_path(run_dir)
        self._command = command
        self._descriptor = -1

    def __enter__(self) -> AgentLock:
        self._descriptor = self._take()
        return self

    def keep(self) -> None:
        """Take it again where somebody deleted its file under us: the next agent would make another one and believe
        that it is alone. Raises as above; `LockHeldError` where that has happened already."""
        if not self._is_still_the_file(self._descriptor):
            former, self._descriptor = self._descriptor, self._take()
            os.close(former)

    def _take(self) -> int:
        try:
            self._path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            return self._open()
        except OSError as exc:
            text = f"The lock {self._path} cannot be taken: {exc.strerror}."
            if exc.errno in _OF_ANOTHER_USER:
                raise NotPermittedError(f"{text} Run as root, or choose run_dir.") from exc
            raise AgentError(f"{text} Repair that folder, or choose run_dir.") from exc

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.ftruncate(self._descriptor, 0)
        os.close(self._descriptor)  # the file stays: removing it would let two holders have two files of one name

    def _open(self) -> int:
        while True:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(descriptor)
                raise LockHeldError(_refusal(holder(self._path), self._path)) from None
            if self._is_still_the_file(descriptor):
                break
            os.close(descriptor)  # systemd removed the folder between our open and our lock
        owner = self._path.parent.stat()
        if os.geteuid() == 0 and owner.st_uid != 0:  # made by root's hand in the service's folder: the service needs it
            os.fchown(descriptor, owner.st_uid, owner.st_gid)
        if os.fstat(descriptor).st_uid == os.geteuid():
            os.fchmod(descriptor, 0o644)  # whoever asks for the status reads it, whatever umask the unit has
        os.ftruncate(descriptor, 0)
        mine = {"pid": os.getpid(), "started": _started(os.getpid()), "command": self._command}
        os.write(descriptor, json.dumps(mine).encode())
        return descriptor

    def _is_still_the_file(self, descriptor: int) -> bool:
        try:
            return os.path.samestat(os.fstat(descriptor), self._path.stat())
        except FileNotFoundError:
            return False


def holder(path: Path) -> Holder | None:
    """The living process that wrote the lock file; None where there is none. Changes nothing."""
    try:
        document = parse_json(read_plain(path, _MAX_LOCK_BYTES)[0])
        found = Holder(int(document["pid"]), str(document["command"]))
        return found if document["started"] == _started(found.pid) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _started(pid: int) -> int:
    """When a process began, in clock ticks since the boot: another process of the same pid began later.

    Raises `OSError` where there is none.
    """
    after_name = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2]
    return int(after_name.split()[19])  # field 22 of proc_pid_stat(5); the name, field 2, may hold anything


def _refusal(found: Holder | None, path: Path) -> str:
    if found is None:
        return f"Another process of the agent holds the lock {path}; try again when it has ended."
    if found.command == "run":
        return (
            f"The agent's service is running (pid {found.pid}) and looks after this kernel. To work by hand, stop it "
            f"first: `systemctl stop {SERVICE}` (or end process {found.pid}); the limits stay in the kernel."
        )
    return f"`{found.command}` is at work on this kernel (pid {found.pid}); try again when it has ended."
