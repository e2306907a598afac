"""A process with agent and limiter imported and nothing begun, from which both are forked within 20 ms.

It runs inside a host's namespaces (network and mounts), reads one JSON command per line and answers with one line. A
program begins with what a start of its own would find: its arguments, no sockets, no threads. What cannot be done to a
process from outside is prepared in the child before the program's `main`: `OPTIONS`.

    {"do": "watch", "program": "agent", "argv": ["once", ...], "log": "...", "kill_before": 17}     under `tracer`
    {"do": "start", "program": "limiter", "argv": ["run", ...], "log": "...", "options": {...}}     on its own
    {"do": "wait", "pid": 4711, "timeout_s": 10}                                its exit code, or null
    {"do": "mount", "kind": "tmpfs", "path": "...", "flags": 0, "data": "size=1m"}      here alone (32: mounted anew)
    {"do": "unmount", "path": "..."}
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ap_agent.commands import agent_cli, limiter_cli
from tests.faults.agent import tracer

MAINS = {"agent": agent_cli.main, "limiter": limiter_cli.main}
_CAP_NET_ADMIN = 12  # <linux/capability.h>
_libc = ctypes.CDLL(None, use_errno=True)


# --- what is done to a child before the agent begins ------------------------------------------------------------------


def permission_switch(_: object) -> None:
    """SIGUSR1 takes CAP_NET_ADMIN from the agent's main thread, SIGUSR2 gives it back."""
    status = dict(line.split(":\t") for line in Path("/proc/self/status").read_text().splitlines())
    everything = int(status["CapPrm"], 16)
    signal.signal(signal.SIGUSR1, lambda *_: set_capabilities(everything & ~(1 << _CAP_NET_ADMIN), everything))
    signal.signal(signal.SIGUSR2, lambda *_: set_capabilities(everything, everything))


def set_capabilities(effective: int, permitted: int) -> None:
    """capset(2), version 3, of the calling thread."""
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    low, high = 0xFFFFFFFF, 32
    data = (ctypes.c_uint32 * 6)(effective & low, permitted & low, 0, effective >> high, permitted >> high, 0)
    if _libc.capset(header, data) != 0:
        raise OSError(ctypes.get_errno(), "capset")


def disk_that_cannot_sync(disk: str) -> None:
    """fsync below `disk` fails with EIO while a file `<disk>-fails` is there; no device of ours does that."""
    real = os.fsync

    def fsync(descriptor: Any) -> None:
        if Path(f"{disk}-fails").exists() and str(Path(f"/proc/self/fd/{descriptor}").readlink()).startswith(disk):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        real(descriptor)

    os.fsync = fsync


OPTIONS: dict[str, Callable[[Any], None]] = {
    "permission_switch": permission_switch,
    "disk_that_cannot_sync": disk_that_cannot_sync,
}


# --- commands ---------------------------------------------------------------------------------------------------------


def _program(command: dict[str, Any]) -> Callable[[], int]:
    log, options = command["log"], command.get("options", {})
    Path(log).touch()

    def begin() -> int:
        descriptor = os.open(log, os.O_WRONLY | os.O_APPEND)
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        os.close(descriptor)
        for name, value in options.items():
            OPTIONS[name](value)
        return MAINS[command["program"]](command["argv"], {})

    return begin


def _watch(command: dict[str, Any]) -> dict[str, Any]:
    found = tracer.watch(_program(command), kill_before=command.get("kill_before"))
    return {
        "exit_code": found.exit_code,
        "killed_at": str(found.killed_at) if found.killed_at else None,
        "calls": [one.call for one in found.effects],
    }


def _start(command: dict[str, Any]) -> dict[str, Any]:
    child = os.fork()
    if child == 0:
        os.setsid()
        code = 70
        try:
            code = _program(command)()
        except SystemExit as exc:
            code = exc.code if isinstance(exc.code, int) else 1
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    return {"pid": child}


def _wait(command: dict[str, Any]) -> dict[str, Any]:
    """A negative code is the signal that ended it."""
    deadline = time.monotonic() + command["timeout_s"]
    while True:
        pid, status = os.waitpid(command["pid"], os.WNOHANG)
        if pid:
            return {"exit_code": os.waitstatus_to_exitcode(status)}
        if time.monotonic() > deadline:
            return {"exit_code": None}
        time.sleep(0.01)


def _mount(command: dict[str, Any]) -> dict[str, Any]:
    kind, path, data = (command[name].encode() for name in ("kind", "path", "data"))
    if _libc.mount(kind, path, kind, ctypes.c_ulong(command["flags"]), data) != 0:
        raise OSError(ctypes.get_errno(), "mount")
    return {}


def _unmount(command: dict[str, Any]) -> dict[str, Any]:
    if _libc.umount2(command["path"].encode(), 2) != 0:  # MNT_DETACH
        raise OSError(ctypes.get_errno(), "umount")
    return {}


def serve() -> None:
    commands = {"watch": _watch, "start": _start, "wait": _wait, "mount": _mount, "unmount": _unmount}
    print(json.dumps({"pid": os.getpid()}), flush=True)
    for line in sys.stdin:
        command = json.loads(line)
        print(json.dumps(commands[command["do"]](command)), flush=True)


if __name__ == "__main__":
    serve()
