"""Drops rights and limits memory and time of the attachment point's process before its sockets are bound."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
from pathlib import Path

CPU_S, FILES, MEMORY_BYTES = 90, 32, 512 * 1024 * 1024
NOBODY = 65534
_PR_SET_NO_NEW_PRIVS, _PR_CAPBSET_DROP, _PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL = 38, 24, 47, 4  # <linux/prctl.h>
_CAPABILITY_VERSION_3 = 0x2008_0522  # <linux/capability.h>


def confine(deadline_s: float) -> None:
    """The kernel kills this process after `deadline_s`. Raises `OSError` if a limit is rejected."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, max(0.001, deadline_s))
    for which, most in (
        (resource.RLIMIT_CPU, CPU_S),
        (resource.RLIMIT_NOFILE, FILES),
        (resource.RLIMIT_AS, MEMORY_BYTES),
        (resource.RLIMIT_CORE, 0),
    ):
        _lower(which, most)
    libc = ctypes.CDLL(None, use_errno=True)
    _prctl(libc, _PR_SET_NO_NEW_PRIVS, 1)
    if _capabilities() or os.geteuid() == 0:
        _drop_capabilities(libc)
    if left := _capabilities():
        raise PermissionError(f"this process still has capabilities: {left:#x}")


def _lower(which: int, most: int) -> None:
    """Never raises an existing lower limit."""
    _, hard = resource.getrlimit(which)
    bound = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(which, (bound, bound))


def _drop_capabilities(libc: ctypes.CDLL) -> None:
    _prctl(libc, _PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL)
    last = int(Path("/proc/sys/kernel/cap_last_cap").read_text(encoding="utf-8"))
    for number in range(last + 1):
        try:
            _prctl(libc, _PR_CAPBSET_DROP, number)
        except PermissionError:  # without CAP_SETPCAP; no_new_privs prevents gaining what remains
            break
    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    nothing = (ctypes.c_uint32 * 6)()
    _check(libc.capset(header, nothing))


def _prctl(libc: ctypes.CDLL, option: int, argument: int) -> None:
    _check(libc.prctl(option, ctypes.c_ulong(argument), 0, 0, 0))


def _check(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _capabilities() -> int:
    found = 0
    for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        name, _, value = line.partition(":")
        if name in {"CapInh", "CapPrm", "CapEff", "CapAmb"}:
            found |= int(value, 16)
    return found
