"""The attachment points of `./dev run`: for each the real agent, and a limiter that plays (`lab.played_limiter`).

The agent is enrolled, polls, verifies and reports as everywhere; only what the kernel has is made up, so neither root
nor a second machine is needed. One attachment point is silent: its agent reported once, and is gone.
"""

from __future__ import annotations

import json
import re
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from lab.played_limiter import PlayedLimiter
from lab.processes import Processes
from lab.service import CoordinationService, ServiceError

PAUSE_S = 0.2  # between two looks of the limiters
_FIRST_REPORT_S = 60.0
_TOLD = re.compile(r"receipt\.sent writes=[1-9]")  # of limits that are in the kernel


class _Point:
    def __init__(self, folder: Path, known: dict[str, Any]) -> None:
        self.known = known
        self.agent = Processes(
            None,
            folder,
            {"allow_plain_http": True, "credentials_file": str(folder / "credentials.json"), "log_level": "debug"},
        )
        self.limiter = PlayedLimiter(
            self.agent.path_of("state_dir"), self.agent.path_of("limiter_run_dir"), failing=frozenset(known["failing"])
        )

    def enrol(self, site_url: str) -> None:
        if self.known["token"] is not None:
            self.agent.run("agent", "enrol", site_url, stdin=f"{self.known['token']}\n")

    def has_reported(self) -> bool:
        """Or did in an earlier run."""
        return self.known["token"] is None or _TOLD.search(self.agent.said("agent")) is not None

    def close(self) -> None:
        self.agent.stop("agent")
        self.limiter.close()


class Points:
    """`start` when the site answers; then call `play` some times a second, and `close` at the end."""

    def __init__(self, service: CoordinationService) -> None:
        self._service = service
        self._folder = service.var_dir / "aps"
        self._points: list[_Point] = []

    def start(self) -> None:
        """Enrol what is not enrolled yet, start the agents, and wait for their first reports. Raises `LabError`,
        `ServiceError`."""
        enrolled = [path.parent.name for path in self._folder.glob("*/credentials.json")]
        known = json.loads(self._service.output_of("-m", "lab.seed", "--points", *enrolled))
        self._points = [
            _Point(self._folder / one["name"], one) for one in known if one["token"] is not None or not one["is_silent"]
        ]
        with ThreadPoolExecutor(len(self._points) or 1) as pool:
            list(pool.map(lambda point: point.enrol(self._service.site_url), self._points))
        for point in self._points:
            point.agent.start("agent")
        self._until_reported()
        for point in [one for one in self._points if one.known["is_silent"]]:
            point.close()
            self._points.remove(point)
            self._service.output_of("-m", "lab.seed", "--set-back", str(point.known["host"]))

    def play(self) -> None:
        """Raises `LabError` when an agent has ended."""
        for point in self._points:
            point.agent.check()
            point.limiter.work()

    def close(self) -> None:
        for point in self._points:
            point.close()
        self._points.clear()

    def _until_reported(self) -> None:
        deadline = time.monotonic() + _FIRST_REPORT_S
        while late := [point.known["name"] for point in self._points if not point.has_reported()]:
            self.play()
            if time.monotonic() > deadline:
                names = ", ".join(late)
                raise ServiceError(f"no report of {names} within {_FIRST_REPORT_S:g} s; see the logs in {self._folder}")
            time.sleep(PAUSE_S)
