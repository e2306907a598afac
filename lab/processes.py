"""The two programs of an attachment point, as their units start them: the limiter and the agent, in one namespace.

    with Processes(ap, folder, {"url": "http://192.0.2.100:8000", ...}) as programs:
        programs.start("limiter")
        programs.start("agent")
        programs.state()             # what the limiter says of the kernel

Below `folder` are agent.toml, a state and a run folder for each, their logs, and `bpf`: a BPF file system of its own,
so that no map of a lab is in that of this machine.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

from ap_agent.document.state import LimiterState, read_state
from lab.service import on_this_host
from measuring.iproute import LabError, run_command
from measuring.netns import Namespace

REPOSITORY = Path(__file__).resolve().parent.parent
Program = Literal["limiter", "agent"]
MODULES: Mapping[Program, str] = {"limiter": "ap_agent.commands.limiter_cli", "agent": "ap_agent"}
LOOK_INTERVAL_S = 0.005
_STOP_S = 10.0
_MNT_DETACH = 2  # <sys/mount.h>


def mount_bpf(folder: Path) -> None:
    """Raises `LabError`. `ip netns exec` gives each program a copy of the mounts that are there."""
    folder.mkdir(parents=True, exist_ok=True)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"bpf", os.fsencode(folder), b"bpf", ctypes.c_ulong(0), None) != 0:
        raise LabError(f"no BPF file system can be mounted on {folder}: {os.strerror(ctypes.get_errno())}")


def unmount_bpf(folder: Path) -> None:
    """Maps that no filter uses end with it. Nothing happens where none is mounted."""
    while os.path.ismount(folder):
        if ctypes.CDLL(None, use_errno=True).umount2(os.fsencode(folder), _MNT_DETACH) != 0:
            return


def settings_text(values: Mapping[str, object]) -> str:
    """agent.toml."""
    return "".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items())


def folders_of(folder: Path) -> dict[str, str]:
    """The keys of agent.toml that keep both programs below `folder`."""
    names = ("state_dir", "run_dir", "limiter_state_dir", "limiter_run_dir")
    return {name: str(folder / name.removesuffix("_dir").replace("_", "-")) for name in names} | {
        "maps_dir": str(folder / "bpf" / "maps")
    }


class Processes:
    """Context manager. `settings` are keys of agent.toml beside the folders. Without `host` they run here."""

    def __init__(self, host: Namespace | None, folder: Path, settings: Mapping[str, object]) -> None:
        self.host = host
        self.folder = folder
        self.config = folder / "agent.toml"
        self._running: dict[Program, subprocess.Popen[str]] = {}
        folder.mkdir(parents=True, exist_ok=True)
        self.configure(settings)

    def configure(self, settings: Mapping[str, object]) -> None:
        """Write agent.toml anew, with the folders."""
        self.config.write_text(settings_text({**folders_of(self.folder), **settings}), encoding="utf-8")
        self.config.chmod(0o600)

    def __enter__(self) -> Processes:
        """Raises `LabError`."""
        mount_bpf(self.folder / "bpf")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        for name in list(self._running):
            self.stop(name)
        unmount_bpf(self.folder / "bpf")

    # --- running ------------------------------------------------------------------------------------------------

    def command(self, name: Program, *arguments: str | Path) -> list[str]:
        """`python -m ... arguments --config ...`, from whatever folder."""
        words = [*map(str, arguments), "--config", str(self.config)]
        return ["env", f"PYTHONPATH={REPOSITORY}", sys.executable, "-m", MODULES[name], *words]

    def run(self, name: Program, *arguments: str | Path, stdin: str = "", check: bool = True) -> str:
        """One command to its end; returns what it printed. Raises `LabError`."""
        inside = ["ip", "netns", "exec", self.host.name] if self.host is not None else []
        return run_command([*inside, *self.command(name, *arguments)], stdin=stdin, check=check, timeout_s=60.0)

    def start(self, name: Program, *, first: str = "") -> int:
        """`run`; returns its pid. `first` is Python that its process runs before. The lab ends it at the latest."""
        argv = self.command(name, "run")
        if first:
            code = f"import sys\nfrom {MODULES[name]} import __main__ as program\n" if name == "agent" else ""
            code = code or f"import sys\nimport {MODULES[name]} as program\n"
            argv[3:5] = ["-c", f"{code}{first}\nsys.exit(program.main(sys.argv[1:]))\n"]
        with self.log_file(name).open("a", encoding="utf-8") as log:
            if self.host is not None:
                self._running[name] = self.host.popen(argv, stdout=log, stderr=subprocess.STDOUT)
            else:
                self._running[name] = on_this_host(argv, cwd=REPOSITORY, stdout=log, stderr=subprocess.STDOUT)
        return self._running[name].pid

    def start_both(self) -> None:
        for name in MODULES:
            self.start(name)

    def pid(self, name: Program) -> int:
        """Raises `LabError` where it does not run."""
        if name not in self._running:
            raise LabError(f"the {name} was not started")
        return self._running[name].pid

    def signal(self, name: Program, number: int) -> None:
        os.kill(self.pid(name), number)

    def kill(self, name: Program) -> None:
        """kill -9, and wait until it is gone."""
        self.signal(name, signal.SIGKILL)
        self._running.pop(name).wait(_STOP_S)

    def stop(self, name: Program) -> int:
        """SIGTERM; returns its exit status, which is negative where it had to be killed."""
        process = self._running.pop(name)
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
        return process.wait()

    def check(self) -> None:
        """Raises `LabError` when one has ended."""
        for name, process in self._running.items():
            if process.poll() is not None:
                raise LabError(f"the {name} ended with {process.returncode}: {self.said(name)[-1500:]}")

    def log_file(self, name: Program) -> Path:
        return self.folder / f"{name}.log"

    def said(self, name: Program) -> str:
        """Its log so far, over all its starts."""
        path = self.log_file(name)
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

    def until(self, condition: Callable[[], object], deadline_s: float, what: str = "it did not happen") -> float:
        """Look every few milliseconds; returns the moment (monotonic) at which it held. Raises `LabError`."""
        deadline = time.monotonic() + deadline_s
        while not condition():
            self.check()
            if time.monotonic() > deadline:
                tails = "\n".join(f"{name}: {self.said(name)[-1500:]}" for name in MODULES)
                raise LabError(f"{what} within {deadline_s:g} s.\n{tails}")
            time.sleep(LOOK_INTERVAL_S)
        return time.monotonic()

    # --- what they say ------------------------------------------------------------------------------------------

    def path_of(self, key: str) -> Path:
        """One of the folders of agent.toml, `state_dir` for example."""
        return Path(folders_of(self.folder)[key])

    def state(self) -> LimiterState | None:
        """What the limiter wrote last; None while there is nothing."""
        return read_state(self.path_of("limiter_run_dir"))

    def planned_writes(self) -> int:
        """How many kernel writes a further pass of the limiter would make: `plan --json`, which touches nothing."""
        return len(json.loads(self.run("limiter", "plan", "--json", check=False))["operations"])

    def health(self) -> dict[str, Any]:
        """The agent's health file; empty while there is none."""
        return _read(self.path_of("run_dir") / "health.json")

    def problems(self) -> dict[str, str]:
        """Of both: subject by code."""
        state = self.state()
        of_limiter = {one.code: one.subject for one in state.problems} if state is not None else {}
        return of_limiter | {one["code"]: one["subject"] for one in self.health().get("problems", [])}


def _read(path: Path) -> dict[str, Any]:
    with contextlib.suppress(FileNotFoundError):
        found: dict[str, Any] = json.loads(path.read_bytes())
        return found
    return {}
