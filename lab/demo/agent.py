"""The demo's agent on the attachment point, and what the kernel there says (read with `tc`, not by the agent)."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from lab import witness
from lab.demo.site import DemoSite
from lab.demo.world import SITE_URL, UserAs
from lab.service import REPOSITORY
from measuring.netns import LabError, Namespace

NIC, IFB = "eth0", "slbw0"
_LOOK_INTERVAL_S = 0.02
_CHANGE_DEADLINE_S = 30.0
_CONFIG = """\
# Written by the demo. The keys are explained in docs/agent.md.
allow_plain_http = true      # the lab has no certificate; never do this on a real network
credentials_file = "{folder}/credentials.json"
state_dir = "{folder}/state"
run_dir = "{folder}/run"
receipt_interval_s = 5
{more}"""


def write_config(folder: Path, more: str = "") -> Path:
    """Write agent.toml as an operator would; it holds no secret. `more` are further lines."""
    folder.mkdir()
    config = folder / "agent.toml"
    config.write_text(_CONFIG.format(folder=folder, more=more), encoding="utf-8")
    return config


def agent_command(*arguments: str | Path) -> list[str]:
    """`python -m ap_agent ...`, from whatever folder."""
    return ["env", f"PYTHONPATH={REPOSITORY}", sys.executable, "-m", "ap_agent", *map(str, arguments)]


class DemoAgent:
    """The agent inside the attachment point: enrolled with a one-time token, then `python -m ap_agent run`."""

    def __init__(self, ap: Namespace, folder: Path, more: str = "") -> None:
        self._ap = ap
        self._config = write_config(folder, more)
        self._log = folder / "agent.log"
        self._process: subprocess.Popen[str] | None = None

    def enrol(self, token: str, url: str = SITE_URL) -> list[str]:
        """`ap_agent enrol`, the token on its standard input; returns what it says. Raises `LabError`."""
        said = self._ap.run(*agent_command("enrol", url, "--config", self._config), stdin=f"{token}\n")
        return said.splitlines()

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    def start(self) -> None:
        """The lab ends the process when it closes."""
        with self._log.open("w", encoding="utf-8") as log:
            self._process = self._ap.python(
                "ap_agent", "run", "--config", str(self._config), stdout=log, stderr=subprocess.STDOUT
            )

    def check(self) -> None:
        """Raises `LabError` when the agent has ended."""
        if self._process is not None and self._process.poll() is not None:
            raise LabError(f"the agent ended with {self._process.returncode}: {self._log.read_text()[-1500:]}")

    def wait(self, timeout_s: float) -> None:
        """Until the process that somebody ended is gone. Raises `subprocess.TimeoutExpired`."""
        if self._process is not None:
            self._process.wait(timeout_s)

    @property
    def state(self) -> Path:
        """Where it stores configurations and what it counted."""
        return self._config.with_name("state")

    @property
    def credentials(self) -> Path:
        """What the enrolment wrote."""
        return self._config.with_name("credentials.json")

    def problems(self) -> list[str]:
        """What the agent says is wrong now, in its health file."""
        health = json.loads((self._config.parent / "run" / "health.json").read_text(encoding="utf-8"))
        return [f"{one['code']}: {one['message']}" for one in health["problems"]]

    def planned_writes(self) -> int:
        """How many kernel writes a further cycle would make: `ap_agent plan --json`, which touches nothing."""
        text = self._ap.run(*agent_command("plan", "--json", "--config", self._config), check=False)
        return len(json.loads(text)["plan"]["ops"])

    # --- the kernel, by tc ----------------------------------------------------------------------------------------

    def kernel_rates_kbit(self, interface_id: int) -> tuple[int | None, int | None]:
        """(to the user AS, from it): the rate of the link's class on the NIC and on the IFB, None where it has none.

        0 where both leaves have a limit of 0 bytes, which drops everything (docs/adr/0002).
        """
        return self._rate(NIC, 1, interface_id), self._rate(IFB, 3, interface_id)

    def _rate(self, dev: str, major: int, interface_id: int) -> int | None:
        found = witness.classes(self._ap, dev).get(f"{major:x}:{interface_id:x}")
        if found is None:
            return None
        leaves = {f"{base + interface_id:x}:" for base in (0x1000, 0x2000)}
        limits = [one["options"]["limit"] for one in witness.qdiscs(self._ap, dev) if one["handle"] in leaves]
        return 0 if limits == [0, 0] else found.rate_bits // 1000

    def time_until_rate(self, site: DemoSite, user_as: UserAs, kbit: int, save: Callable[[], float]) -> float:
        """Seconds from the moment when the form was sent (returned by `save`) until the kernel has the rate both ways.

        The kernel is looked at every 20 ms from before the form is sent on. Raises `LabError` after 30 s.
        """
        interface_id = int(site.link(user_as)["attachment_point_interface_id"])
        seen_at: list[float] = []
        stop = threading.Event()

        def watch() -> None:
            while not stop.is_set():
                now = time.monotonic()
                if self.kernel_rates_kbit(interface_id) == (kbit, kbit):
                    seen_at.append(now)
                    return
                time.sleep(_LOOK_INTERVAL_S)

        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            saved_at = save()
            watcher.join(_CHANGE_DEADLINE_S)
        finally:
            stop.set()
            watcher.join()
        self.check()
        if not seen_at:
            rates = self.kernel_rates_kbit(interface_id)
            raise LabError(f"the kernel did not get {kbit} kbit/s in {_CHANGE_DEADLINE_S:g} s; it has {rates}")
        return seen_at[0] - saved_at
