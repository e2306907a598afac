"""A process watched at each of its effects, and killed by SIGKILL before any chosen one.

What others can see of a process (files, sockets, the kernel's traffic control) changes by its system calls and in no
other way, so to kill it before each call that has an effect is to kill it at every moment that makes a difference. The
kernel stops the process at these calls alone (seccomp with SECCOMP_RET_TRACE, ptrace(2)); a call at which it is killed
is not carried out. All threads are followed.

Not stopped at: what only reads, and close(2). Not counted: the log (stdout, stderr) and pipes inside of the process.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import signal
import struct
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
_libc.ptrace.restype = ctypes.c_long

# <sys/ptrace.h>, <linux/ptrace.h>
_TRACEME, _CONT, _SETOPTIONS, _GET_SYSCALL_INFO = 0, 7, 0x4200, 0x420E
_O_TRACECLONE, _O_TRACESECCOMP, _O_EXITKILL = 0x8, 0x80, 0x100000
_EVENT_SECCOMP = 7
_SYSCALL_SECCOMP = 3  # ptrace_syscall_info.op
_WALL = 0x40000000  # threads too

# arch/x86/entry/syscalls/syscall_64.tbl: the calls that change something outside of the process.
CALLS = {
    1: "write", 18: "pwrite64", 20: "writev", 42: "connect", 44: "sendto", 46: "sendmsg", 307: "sendmmsg",
    48: "shutdown", 49: "bind", 2: "open", 85: "creat", 257: "openat", 82: "rename", 264: "renameat",
    316: "renameat2", 86: "link", 265: "linkat", 88: "symlink", 266: "symlinkat", 87: "unlink", 263: "unlinkat",
    83: "mkdir", 258: "mkdirat", 84: "rmdir", 76: "truncate", 77: "ftruncate", 74: "fsync", 75: "fdatasync",
    73: "flock", 90: "chmod", 91: "fchmod", 268: "fchmodat", 92: "chown", 93: "fchown", 94: "lchown",
    260: "fchownat", 165: "mount", 321: "bpf", 231: "exit_group",
}  # fmt: skip
_OF_A_DESCRIPTOR = {
    *("write", "pwrite64", "writev", "connect", "sendto", "sendmsg", "sendmmsg", "shutdown", "bind"),
    *("ftruncate", "fsync", "fdatasync", "flock", "fchmod", "fchown"),
}
# enum bpf_cmd: those that change something. What a limiter writes into the memory of a map is no call: it is between.
_BPF = {0: "a map", 2: "an entry", 3: "an entry that goes", 5: "a program", 6: "a name", 26: "entries of a map"}
_FLAGS_AT = {"open": 1, "openat": 2}
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


def missing() -> str | None:
    """None where processes can be watched like this, else one sentence."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return f"The tracer knows the system calls of Linux on x86_64 only; this is {platform.machine()}."
    if os.geteuid() != 0:
        return "Watching a process needs root; run this as root."
    return None


needs_tracer = pytest.mark.skipif(missing() is not None, reason=str(missing()))


@dataclass(frozen=True)
class Effect:
    """One system call that is about to happen. `on` is the descriptor that it works on, where it has one."""

    call: str
    on: str = ""

    def __str__(self) -> str:
        return f"{self.call} {self.on}".strip()


@dataclass
class Watched:
    """How a run went. `exit_code` is None where it was killed; `killed_at` is then the effect that did not happen."""

    effects: list[Effect] = field(default_factory=list)
    exit_code: int | None = None
    killed_at: Effect | None = None


def watch(function: Callable[[], int], *, kill_before: int | None = None) -> Watched:
    """Run `function` in a child (a fork of this process, which must have one thread) and follow its effects.

    `kill_before`: SIGKILL before the effect of this number, counted from 0.
    """
    child = os.fork()
    if child == 0:
        _be_watched(function)
    return _Tracer(child, kill_before).run()


def _be_watched(function: Callable[[], int]) -> None:
    code = 70
    try:
        _ptrace(_TRACEME, 0)
        os.kill(os.getpid(), signal.SIGSTOP)
        _stop_at_effects()
        code = function()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


class _Tracer:
    def __init__(self, child: int, kill_before: int | None) -> None:
        self._child, self._kill_before = child, kill_before
        self._info = ctypes.create_string_buffer(88)  # struct ptrace_syscall_info
        self._seen = 0
        self._found = Watched()

    def run(self) -> Watched:
        os.waitpid(self._child, 0)
        _ptrace(_SETOPTIONS, self._child, data=_O_TRACECLONE | _O_TRACESECCOMP | _O_EXITKILL)
        _ptrace(_CONT, self._child)
        while True:
            thread, status = os.waitpid(-1, _WALL)
            if os.WIFEXITED(status) or os.WIFSIGNALED(status):
                if thread != self._child:
                    continue
                if os.WIFEXITED(status):
                    self._found.exit_code = os.WEXITSTATUS(status)
                return self._found
            self._stopped(thread, status)

    def _stopped(self, thread: int, status: int) -> None:
        number, event = os.WSTOPSIG(status), status >> 16
        deliver = 0
        with contextlib.suppress(ProcessLookupError):  # killed by us while another of its threads was stopped
            if event == _EVENT_SECCOMP:
                if self._enter(thread):
                    os.kill(self._child, signal.SIGKILL)
                    return
            elif event == 0 and number not in {signal.SIGSTOP, signal.SIGTRAP}:
                deliver = number
            _ptrace(_CONT, thread, data=deliver)

    def _enter(self, thread: int) -> bool:
        """Whether this is where to kill it."""
        _ptrace(_GET_SYSCALL_INFO, thread, len(self._info), ctypes.addressof(self._info))
        operation = self._info.raw[0]
        assert operation == _SYSCALL_SECCOMP, operation
        number, *arguments = struct.unpack_from("<7Q", self._info.raw, 24)
        effect = _effect(thread, CALLS[number], arguments)
        if effect is None:
            return False
        if self._seen == self._kill_before:
            self._found.killed_at = effect
            return True
        self._seen += 1
        self._found.effects.append(effect)
        return False


def _effect(thread: int, call: str, arguments: list[int]) -> Effect | None:
    """None for what is not counted."""
    if call == "bpf":
        return Effect(call, _BPF[arguments[0]]) if arguments[0] in _BPF else None
    if call in _OF_A_DESCRIPTOR:
        path = _descriptor(thread, arguments[0])
        if arguments[0] in {1, 2} or path.startswith(("pipe:", "anon_inode:")):
            return None
        return Effect(call, path)
    if call in _FLAGS_AT and not arguments[_FLAGS_AT[call]] & _WRITING:
        return None
    return Effect(call)


def _descriptor(thread: int, number: int) -> str:
    try:
        return str(Path(f"/proc/{thread}/fd/{ctypes.c_int(number & 0xFFFFFFFF).value}").readlink())
    except OSError:
        return f"descriptor {number}"


def _ptrace(request: int, thread: int, address: int = 0, data: int = 0) -> None:
    if _libc.ptrace(request, thread, address, data) < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _stop_at_effects() -> None:
    """A seccomp filter on this process (and its threads to come): RET_TRACE for `CALLS`, RET_ALLOW for the rest."""
    # <linux/filter.h>: BPF_LD|BPF_W|BPF_ABS, BPF_JMP|BPF_JEQ|BPF_K, BPF_RET|BPF_K; seccomp_data.nr is at offset 0
    load, equal, leave = 0x20, 0x15, 0x06
    numbers = sorted(CALLS)
    program = [struct.pack("<HBBI", load, 0, 0, 0)]
    program += [struct.pack("<HBBI", equal, len(numbers) - at, 0, number) for at, number in enumerate(numbers)]
    program += [struct.pack("<HBBI", leave, 0, 0, 0x7FFF0000), struct.pack("<HBBI", leave, 0, 0, 0x7FF00000)]
    code = ctypes.create_string_buffer(b"".join(program))
    filters = ctypes.create_string_buffer(struct.pack("<HxxxxxxQ", len(program), ctypes.addressof(code)))
    no_new_privileges, seccomp, mode_filter = 38, 22, 2  # <linux/prctl.h>
    for request in ((no_new_privileges, 1, 0, 0, 0), (seccomp, mode_filter, ctypes.addressof(filters), 0, 0)):
        if _libc.prctl(*(ctypes.c_ulong(one) for one in request)) != 0:
            raise OSError(ctypes.get_errno(), "prctl")
