"""A change of routes that is rolled back unless it is confirmed in time, because it may cut off its operator.

`<routes_dir>/trial-<network namespace>.json` has the previous state and the deadline. A guard process in its own
session survives terminal, shell and SIGHUP; SIGTERM makes it roll back immediately. After `kill -9` systemd restarts
it, or the waiting `apply` does; without either, nothing is rolled back until `routes rollback` is run. A reboot removes
all rules and routes, and voids this file.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any, Final

from ap_agent.common import threads
from ap_agent.common.errors import AgentError, StoreError
from ap_agent.common.files import read_own, sealed, unsealed, write_atomically
from ap_agent.common.lock import Lock, holder
from ap_agent.common.log import get_logger
from ap_agent.common.settings import ENVIRONMENT_PREFIX
from ap_agent.common.times import time_text
from ap_agent.routes import kernel
from ap_agent.routes.plan import Goal, Route, Rule, plan

_CONFIRMED: Final = "uplinks.toml"  # in `routes_dir`: applied at boot
_MAX_BYTES = 16 * 1024 * 1024
_GUARD_STARTS_S = 30.0  # Python on a busy machine
_PAUSE_S = 0.1
_ASK_AGAIN_S = 1.0
_ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Trial:
    """`state` is `armed` until the change is made, `pending` until it is `confirmed` or `rolled_back`. `deadline_s` is
    seconds since boot. `text` is the uplinks.toml for the next boot once it is confirmed; None: none."""

    before: Goal
    text: str | None
    within_s: int
    is_by_hand: bool
    deadline_s: float
    boot: str
    state: str = "armed"
    ended_by: str = ""
    ended_at: str = ""
    refused: tuple[str, ...] = ()

    @property
    def is_waiting(self) -> bool:
        return self.state in {"armed", "pending"}

    @property
    def left_s(self) -> float:
        return max(0.0, self.deadline_s - _now_s())


def new_trial(before: Goal, text: str | None, within_s: int, *, is_by_hand: bool) -> Trial:
    return Trial(before, text, within_s, is_by_hand, _now_s() + within_s, _boot())


def made(folder: Path, trial: Trial) -> None:
    """The change is made: the time for its confirmation begins."""
    save(folder, replace(trial, state="pending", deadline_s=_now_s() + trial.within_s))


def load(folder: Path) -> Trial | None:
    """None if there was none since boot. Raises `StoreError`, `NotPermittedError`."""
    remedy = "See what is set with `routes show`, then delete that file."
    found = read_own(_path(folder), _MAX_BYTES, lambda data: _trial_of(unsealed(data)), remedy)
    return found if found is not None and found.boot == _boot() else None


def save(folder: Path, trial: Trial) -> None:
    _write(_path(folder), sealed(_json_of(trial)))


def conclude(folder: Path, *, by: str, confirms: bool) -> Trial | None:
    """End a waiting trial, and return it; an ended one is returned unchanged. The caller has the lock."""
    trial = load(folder)
    if trial is None or not trial.is_waiting:
        return trial
    refused: list[str] = []
    if confirms:
        keep_for_boot(folder, trial.text)
    else:
        present = kernel.read()
        refused = kernel.carry_out(plan(present, trial.before), present, until_refused=False)
    state = "confirmed" if confirms else "rolled_back"
    ended = replace(trial, state=state, ended_by=by, ended_at=time_text(datetime.now(UTC)), refused=tuple(refused))
    save(folder, ended)
    return ended


def keep_for_boot(folder: Path, text: str | None) -> None:
    """Input of `apply --boot`; None: nothing is applied at boot. Raises `StoreError`."""
    path = confirmed_path(folder)
    if text is not None:
        _write(path, text.encode())
        return
    try:
        path.unlink(missing_ok=True)
    except OSError as exc:
        raise StoreError(f"{path} cannot be deleted: {exc.strerror}.") from exc


def confirmed_path(folder: Path) -> Path:
    return folder / _CONFIRMED


# --- the guard --------------------------------------------------------------------------------------------------------


def guard(folder: Path, is_service_reached: Callable[[], bool]) -> None:
    """Wait for the confirmation, otherwise roll back. Ends with the trial."""
    terminated, reached = threading.Event(), threading.Event()
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: terminated.set())
    with Lock(folder, "routes-guard", "guard"):
        threads.start(lambda: _ask(folder, is_service_reached, reached))
        while (trial := load(folder)) is not None and trial.is_waiting:
            if reached.is_set() or terminated.is_set() or not trial.left_s:
                try:
                    with Lock(folder, "routes", "guard"):
                        _end(folder, is_reached=reached.is_set(), is_terminated=terminated.is_set())
                except AgentError as exc:  # `confirm` is running, or a temporary obstacle: retry
                    get_logger().error("routes.guard", message=exc.message)
            time.sleep(_PAUSE_S)


def _end(folder: Path, *, is_reached: bool, is_terminated: bool) -> None:
    """The caller now has the lock, so the change is made, and its time has begun."""
    trial = load(folder)
    if is_reached:
        conclude(folder, by="the Coordination Service was reached", confirms=True)
    elif is_terminated:
        conclude(folder, by="SIGTERM", confirms=False)
    elif trial is not None and not trial.left_s:
        conclude(folder, by=f"no confirmation within {trial.within_s} s", confirms=False)


def _ask(folder: Path, is_service_reached: Callable[[], bool], reached: threading.Event) -> None:
    """Only a request made after the change counts."""
    while (trial := load(folder)) is not None and trial.is_waiting and not trial.is_by_hand:
        if trial.state == "pending" and is_service_reached():
            reached.set()
            return
        time.sleep(_ASK_AGAIN_S if trial.state == "pending" else _PAUSE_S)


def start_guard(folder: Path, arguments: Sequence[str], environment: Mapping[str, str]) -> None:
    """`arguments` are those of the agent's command line. Returns when the guard runs. Raises `AgentError`."""
    command = [sys.executable, "-P", "-m", "ap_agent", *arguments]
    kept = {name: value for name, value in environment.items() if name == "PATH" or name.startswith(ENVIRONMENT_PREFIX)}
    kept.pop(f"{ENVIRONMENT_PREFIX}HOST_SECRET", None)  # systemd-run's arguments are public
    kept["PYTHONPATH"] = str(_ROOT)
    if not (_is_systemd_here() and _started_by_systemd(command, kept)):
        nowhere = subprocess.DEVNULL
        subprocess.Popen(
            command, env=kept, cwd="/", start_new_session=True, stdin=nowhere, stdout=nowhere, stderr=nowhere
        )
    until = time.monotonic() + _GUARD_STARTS_S
    while not is_guarded(folder):
        if time.monotonic() > until:
            raise AgentError("The process that would roll back does not start; nothing was changed. Try again.")
        time.sleep(_PAUSE_S)


def is_guarded(folder: Path) -> bool:
    return holder(folder, "routes-guard") is not None


def under_systemd(command: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """A separate unit is not part of the operator's session, which logind may kill, and is restarted after `kill
    -9`."""
    unit = f"--unit=scionlab-bw-routes-guard-{os.getpid()}"
    variables = [f"--setenv={name}={one}" for name, one in environment.items()]
    return ["systemd-run", "--quiet", "--collect", unit, "--property=Restart=on-failure", *variables, "--", *command]


def _started_by_systemd(command: Sequence[str], environment: Mapping[str, str]) -> bool:
    try:
        done = subprocess.run(under_systemd(command, environment), capture_output=True, timeout=30, check=False)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def _is_systemd_here() -> bool:
    """Whether systemd runs in our network namespace, in which it would start the guard."""
    try:
        is_same = os.path.samestat(Path("/proc/1/ns/net").stat(), Path("/proc/self/ns/net").stat())
    except OSError:
        return False
    return is_same and Path("/run/systemd/system").is_dir() and shutil.which("systemd-run") is not None


# --- the file ---------------------------------------------------------------------------------------------------------


def _path(folder: Path) -> Path:
    return folder / f"trial-{Path('/proc/self/ns/net').stat().st_ino}.json"


def _write(path: Path, data: bytes) -> None:
    try:
        write_atomically(path, data, mode=0o644)
    except OSError as exc:
        raise StoreError(f"{path} cannot be written: {exc.strerror}.") from exc


def _now_s() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def _json_of(trial: Trial) -> dict[str, Any]:
    def texts(values: Sequence[Any]) -> list[Any]:
        return [one if isinstance(one, int | None) else str(one) for one in values]

    before = {
        "rules": [texts(one) for one in trial.before.rules],
        "routes": [texts(one) for one in trial.before.routes],
    }
    return {**asdict(trial), "before": before, "deadline_s": str(trial.deadline_s)}


def _trial_of(document: dict[str, Any]) -> Trial:
    rules = (Rule(first, ip_network(source), *rest) for first, source, *rest in document["before"]["rules"])
    routes = (
        Route(table, ip_network(network), dev, ip_address(gateway) if gateway is not None else None)
        for table, network, dev, gateway in document["before"]["routes"]
    )
    before = Goal(frozenset(rules), frozenset(routes))
    found = {**document, "before": before, "deadline_s": float(document["deadline_s"])}
    return Trial(**{**found, "refused": tuple(document["refused"])})
