"""Named network namespaces by iproute2: its commands, entering one, and removing those that a dead owner left.

Root is needed (CAP_NET_ADMIN and CAP_SYS_ADMIN); `available` says in words what is missing. Only processes inside a
namespace that carries our name are ended.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

RUN_NETNS = Path("/run/netns")  # where iproute2 keeps named namespaces
_CLONE_NEWNET = 0x40000000  # <linux/sched.h>
_OWNER_ALIAS = "lab-owner"  # of `lo` in each namespace: lab-owner:<pid>:<start time of that process>
_DOOMED_GROUP = 86  # any number but 0, in which devices are born


class LabError(RuntimeError):
    """The lab could not make, run or remove something; the message has the command and what it said."""


def available() -> str | None:
    """None where a lab can be made, else one sentence on what is missing."""
    for program in ("ip", "tc"):
        if shutil.which(program) is None:
            return f"The program {program} is missing; install the package iproute2."
    if os.geteuid() != 0:
        return "Network namespaces need root; run this as root."
    name = f"labprobe-{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, check=False)
    if made.returncode != 0:
        return f"This machine refuses network namespaces: {made.stderr.strip()}"
    subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
    return None


def run_command(argv: Sequence[str], *, stdin: str | None = None, timeout_s: float = 30.0, check: bool = True) -> str:
    """Run a program to its end and return its stdout. Raises `LabError` when it fails (`check`) or takes too long."""
    try:
        done = subprocess.run(
            list(argv),
            input=stdin if stdin is not None else "",
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired as exc:
        raise LabError(f"`{' '.join(argv)}` did not end within {timeout_s:g} s") from exc
    if check and done.returncode != 0:
        raise LabError(f"`{' '.join(argv)}` ended with {done.returncode}: {(done.stderr or done.stdout).strip()}")
    return done.stdout


def enter(name: str) -> None:
    """Move the *calling thread* into a named namespace. Raises `LabError`."""
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = os.open(RUN_NETNS / name, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if libc.setns(descriptor, _CLONE_NEWNET) != 0:
            raise LabError(f"setns into {name}: {os.strerror(ctypes.get_errno())}")
    finally:
        os.close(descriptor)


def mark_owner() -> str:
    """The line of `ip -batch` that notes in a namespace that this process owns it, for `cleanup_stale`."""
    pid = os.getpid()
    return f"link set lo alias {_OWNER_ALIAS}:{pid}:{_start_time(pid)}"


def cleanup_stale(prefix: str) -> list[str]:
    """Remove namespaces of this prefix whose owner is dead, with the processes in them; returns their names.

    A living owner is one whose pid exists and, where the namespace noted it, has the same start time: a pid that was
    given to another program since does not protect a corpse.
    """
    removed = []
    for path in sorted(RUN_NETNS.glob(f"{prefix}-*-*")) if RUN_NETNS.is_dir() else []:
        match = re.fullmatch(re.escape(prefix) + r"-([0-9]+)-.+", path.name)
        if match is not None and not _owner_lives(path.name, int(match.group(1))):
            remove(path.name)
            removed.append(path.name)
    return removed


def pids_in(name: str) -> list[int]:
    """The processes whose network namespace is this one, without the calling process."""
    listed = run_command(["ip", "netns", "pids", name], check=False)
    return [pid for pid in map(int, listed.split()) if pid != os.getpid()]


def remove(name: str) -> None:
    """End what still runs inside a namespace of ours, then delete it; its devices go with it."""
    for pid in pids_in(name):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    if not (RUN_NETNS / name).exists():
        return
    # Devices first and by name: a namespace that a dying process or socket still holds would keep them for a while,
    # and with them the other end of each wire.
    links = run_command(["ip", "-n", name, "-o", "link", "show"], check=False)
    devices = [line.split(":", 2)[1].strip().partition("@")[0] for line in links.splitlines()]
    # As a group: one by one the kernel waits for each.
    lines = [f"link set {dev} group {_DOOMED_GROUP}\n" for dev in devices if dev != "lo"]
    run_command(["ip", "-force", "-n", name, "-batch", "-"], stdin="".join(lines), check=False)
    run_command(["ip", "-n", name, "link", "del", "group", str(_DOOMED_GROUP)], check=False)
    run_command(["ip", "netns", "del", name])


def _owner_lives(name: str, pid: int) -> bool:
    now = _start_time(pid)
    if now is None:
        return False
    noted = re.search(
        rf"{_OWNER_ALIAS}:[0-9]+:([0-9]+)", run_command(["ip", "-n", name, "link", "show", "lo"], check=False)
    )
    return noted is None or int(noted.group(1)) == now


def _start_time(pid: int) -> int | None:
    """When a process started, in clock ticks since boot (proc(5), field 22 of stat), or None when there is none."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text.rpartition(")")[2].split()  # the name in parentheses may hold spaces; state is field 3
    return None if fields[0] == "Z" else int(fields[19])
