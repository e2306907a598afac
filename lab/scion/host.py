"""One AS on one host of the lab: its files below etc/scion, and the real SCION programs that run on them."""

from __future__ import annotations

import functools
import json
import re
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from contract.scion_files import CONFIG_DIR, FOLDER, METRICS_BASE_PORT, PACKAGES, STATE_DIR, TOPOLOGY_PATH
from lab.scion.programs import program
from measuring.iproute import LabError
from measuring.netns import Namespace

DAEMON_ADDRESS = "127.0.0.1:30255"
PING_TIMEOUT_S = 1  # how long `scion ping` waits after its last request
_METRICS_TIMEOUT_S = 30.0
_LOOK_INTERVAL_S = 0.05


@dataclass(frozen=True)
class Pings:
    """`sending_s` is from the first request to the last one. None is sent where there is no path."""

    sent: int
    received: int
    average_ms: float
    sending_s: float

    @property
    def are_all_answered(self) -> bool:
        return 0 < self.sent == self.received


@functools.cache
def real_time() -> tuple[str, ...]:
    """Words before a command that let it run before all other work of this machine, where that is permitted. A router
    that gets no processor for 0.6 s takes its links down, whatever the limiter does."""
    words = ("chrt", "--rr", "1")
    done = subprocess.run([*words, "true"], capture_output=True, check=False) if shutil.which("chrt") else None
    return words if done is not None and done.returncode == 0 else ()


class ScionHost:
    """`members` is its tarball; it is the only host of its AS. All hosts of the lab share one file system, so each has
    folders of its own instead of /etc/scion and /var/lib/scion, and that is all that is changed in what was
    rendered."""

    def __init__(self, namespace: Namespace, folder: Path, members: Mapping[str, bytes]) -> None:
        self.namespace = namespace
        self.config, self.state, self.logs = folder / "etc", folder / "state", folder / "log"
        self._running: dict[str, subprocess.Popen[str]] = {}
        self._installed: set[str] = set()
        for one in (self.config, self.state, self.logs):
            one.mkdir(parents=True)
        self._take(members)

    def _take(self, members: Mapping[str, bytes]) -> None:
        self.topology = json.loads(members[TOPOLOGY_PATH])
        self.isd_as: str = self.topology["isd_as"]
        self.routers = sorted(self.topology["border_routers"])
        self._internal_ip = self.topology["control_service"]["cs-1"]["addr"].rpartition(":")[0].strip("[]")
        files = {
            path.removeprefix(f"{FOLDER}/"): self._moved(path, content)
            for path, content in members.items()
            if path.startswith(FOLDER)
        }
        for name in self._installed - files.keys():
            (self.config / name).unlink()
        self.install(files)
        self._installed = set(files)
        packages = next(one for one in PACKAGES.values() if f"{FOLDER}/{one.daemon_file}" in members)
        self._settings = {router: ("router", f"{router}.toml") for router in self.routers} | {
            "control": ("control", "cs-1.toml"),
            "daemon": ("daemon", packages.daemon_file),
            "dispatcher": ("dispatcher", packages.dispatcher_file),
        }

    def update(self, members: Mapping[str, bytes]) -> None:
        """Do with a newer tarball what the stock client does: stop SCION, delete what is in the former one alone, put
        the rest in place, start SCION. The databases stay."""
        self.stop()
        self._take(members)
        self.start()

    @property
    def address(self) -> str:
        """As `scion ping` takes it."""
        return f"{self.isd_as},{self._internal_ip}"

    def _moved(self, path: str, content: bytes) -> bytes:
        if not path.endswith(".toml"):
            return content
        text = content.decode().replace(CONFIG_DIR, str(self.config)).replace(STATE_DIR, str(self.state))
        return text.encode()

    def install(self, files: Mapping[str, bytes]) -> None:
        """Put files below etc/scion, keys before what they belong to, each under another name first: a running control
        service reads chains and TRCs, and ends on half of one."""
        for name in sorted(files, key=lambda one: (not one.endswith(".key"), one)):
            path = self.config / name
            path.parent.mkdir(parents=True, exist_ok=True)
            beside = path.with_name(f"{path.name}.new")
            beside.write_bytes(files[name])
            beside.chmod(0o600)
            beside.rename(path)

    # --- programs -----------------------------------------------------------------------------------------------

    def start(self, *names: str) -> None:
        """All, or the named ones: br-1, control, daemon, dispatcher. The lab ends them at the latest."""
        for name in names or self._settings:
            kind, settings = self._settings[name]
            argv = [
                *(real_time() if kind == "router" else ()),
                str(program(kind)),
                "--config",
                str(self.config / settings),
            ]
            with self._log(name).open("a", encoding="utf-8") as log:
                self._running[name] = self.namespace.popen(argv, stdout=log, stderr=subprocess.STDOUT)

    def stop(self, *names: str) -> None:
        for name in names or tuple(self._running):
            self.namespace.lab.stop(self._running.pop(name))

    def pids(self) -> dict[str, int]:
        """By name."""
        return {name: process.pid for name, process in self._running.items()}

    def forget_paths(self) -> None:
        """Stop control service and daemon, and start them with nothing in their databases."""
        self.stop("control", "daemon")
        shutil.rmtree(self.state)
        self.state.mkdir()
        self.start("control", "daemon")

    def check(self) -> None:
        """Raises `LabError` when a program has ended."""
        for name, process in self._running.items():
            if process.poll() is not None:
                raise LabError(f"{name} of {self.isd_as} ended with {process.returncode}: {self.said(name)[-2000:]}")

    def said(self, name: str) -> str:
        """The log of a program, over all its starts."""
        return self._log(name).read_text(encoding="utf-8", errors="replace")

    def _log(self, name: str) -> Path:
        return self.logs / f"{name}.log"

    # --- what SCION says ----------------------------------------------------------------------------------------

    def paths(self, to: str, *, probe: bool = False) -> list[str]:
        """The sequences of interfaces of the paths to an ISD-AS that the daemon has; with `probe` those that answer."""
        flags = [] if probe else ["--no-probe"]
        text = self.scion("showpaths", to, "--timeout", "4s", "--format", "json", *flags)
        found = (json.loads(text).get("paths") or []) if text.strip() else []
        return [one["sequence"] for one in found if not probe or one["status"] == "alive"]

    def extended_paths(self, to: str) -> str:
        """`scion showpaths --extended`, with the metadata of each hop."""
        return self.scion("showpaths", to, "--extended", "--no-probe", "--no-color")

    def ping(self, other: ScionHost, count: int = 5, *, interval_ms: int = 200, payload_bytes: int = 0) -> Pings:
        """Echo requests to the other host, and what came back until a second after the last. Raises `LabError` after a
        time."""
        words = ["-c", str(count), "--interval", f"{interval_ms}ms", "-s", str(payload_bytes), "--format", "json"]
        timeout = ["--timeout", f"{PING_TIMEOUT_S}s"]
        text = self.scion("ping", other.address, *words, *timeout, timeout_s=60 + 3 * count * interval_ms / 1000)
        if not text.strip():
            return Pings(0, 0, 0.0, 0.0)
        said = json.loads(text)["statistics"]
        # It ends with the last answer, or at the time-out where one is missing.
        waited_s = PING_TIMEOUT_S if said["received"] < said["sent"] else 0.0
        return Pings(said["sent"], said["received"], said["avg_rtt"], said["time"] / 1000 - waited_s)

    def state_changes(self) -> int:
        """How often BFD of its routers took any link down or up since they began."""
        return sum(self._state_changes(int(router.removeprefix("br-"))) for router in self.routers)

    def _state_changes(self, number: int) -> int:
        url = f"http://127.0.0.1:{METRICS_BASE_PORT + number}/metrics"
        text = self.namespace.call(lambda: urllib.request.urlopen(url, timeout=_METRICS_TIMEOUT_S).read().decode())
        return sum(int(float(one)) for one in re.findall(r"^router_bfd_state_changes_total\{.*\} (\S+)$", text, re.M))

    def time_until_path(self, to: str, deadline_s: float) -> float | None:
        """Seconds from now until there is a path; None where there is none in time. Raises `LabError`."""
        began = time.monotonic()
        return self.until(lambda: self.paths(to), deadline_s, began=began)

    def until(self, condition: Callable[[], object], deadline_s: float, *, began: float) -> float | None:
        while not condition():
            self.check()
            if time.monotonic() - began > deadline_s:
                return None
            time.sleep(_LOOK_INTERVAL_S)
        return time.monotonic() - began

    def scion(self, command: str, *words: str, timeout_s: float = 30.0) -> str:
        """What the program `scion` of this host prints."""
        argv = [str(program("scion")), command, "--sciond", DAEMON_ADDRESS, *words]
        return self.namespace.run(*argv, timeout_s=timeout_s, check=False)
