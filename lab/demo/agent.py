"""The demo's attachment point: its two programs, and what the kernel there says (read with `tc`, not by them)."""

from __future__ import annotations

import threading
import time
import tomllib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from datetime import UTC, datetime
from pathlib import Path

from lab import witness
from lab.demo.site import DemoSite
from lab.demo.world import SITE_URL, UserAs
from lab.processes import Processes
from measuring.iproute import LabError
from measuring.netns import Namespace

IFBS = (("slbw0", 0), ("slbw1", 0x1000))  # to the user, from the user; bit of the classes' minors
MAJOR = "51b0"
_LOOK_INTERVAL_S = 0.02
_CHANGE_DEADLINE_S = 90.0
_STATE_DEADLINE_S = 90.0


def programs(ap: Namespace | None, folder: Path, more: str = "") -> Processes:
    """Both programs with an agent.toml as an operator would write it; it holds no secret. `more` are further lines.
    Without a namespace they run on this host."""
    settings = {
        "allow_plain_http": True,  # the lab has no certificate; never do this on a real network
        "credentials_file": str(folder / "credentials.json"),
        "receipt_interval_s": 5,
        **tomllib.loads(more),
    }
    return Processes(ap, folder, settings)


class DemoAgent:
    """Agent and limiter inside the attachment point: enrolled with a one-time token, then both run."""

    def __init__(self, ap: Namespace, folder: Path, more: str = "") -> None:
        self._ap = ap
        self._folder = folder
        self.programs = programs(ap, folder, more)

    def enrol(self, token: str, url: str = SITE_URL) -> list[str]:
        """`ap_agent enrol`, the token on its standard input; returns what it says. Raises `LabError`."""
        return self.programs.run("agent", "enrol", url, stdin=f"{token}\n").splitlines()

    @property
    def pid(self) -> int:
        """Of the agent."""
        return self.programs.pid("agent")

    def start(self) -> None:
        """Both programs. The lab ends them when it closes."""
        self.programs.__enter__()
        self.programs.start_both()

    def close(self) -> None:
        """End them, and let go of their maps."""
        self.programs.__exit__(None, None, None)

    def check(self) -> None:
        """Raises `LabError` when one has ended."""
        self.programs.check()

    @property
    def credentials(self) -> Path:
        """What the enrolment wrote."""
        return self._folder / "credentials.json"

    def problems(self) -> list[str]:
        """What the agent says is wrong now, in its health file."""
        return [f"{one['code']}: {one['message']}" for one in self.programs.health()["problems"]]

    def planned_writes(self) -> int:
        """How many kernel writes a further pass would make."""
        return self.programs.planned_writes()

    def shown(self, interface_id: int) -> list[str]:
        """The headings of the limiter's `show`, and the rows of one link (one for each direction)."""
        lines = self.programs.run("limiter", "show", check=False).splitlines()
        heading = next(number for number, line in enumerate(lines) if line.startswith("LINK"))
        first = next(number for number, line in enumerate(lines) if line.split()[:1] == [str(interface_id)])
        return [lines[heading], *lines[first : first + 2]]

    def refused(self, interface_id: int) -> int:
        """Packets of both directions that the limiter counted as above the limit, in a state that it writes from now
        on. Raises `LabError`."""
        self.wait_for_news()
        state = self.programs.state()
        link = state.links[interface_id] if state is not None else None
        both = (link.to_user, link.from_user) if link is not None else ()
        return sum(one.counters.refused_packets for one in both if one is not None)

    def wait_for_news(self) -> None:
        """Until the limiter wrote a state after now. Raises `LabError`."""
        now = datetime.now(UTC)

        def is_newer() -> bool:
            state = self.programs.state()
            return state is not None and state.written_at > now

        self.programs.until(is_newer, _STATE_DEADLINE_S, "the limiter wrote no state")

    # --- the kernel, by tc ----------------------------------------------------------------------------------------

    def kernel_rates_kbit(self, interface_id: int) -> tuple[int | None, int | None]:
        """(to the user AS, from it): the rate of the link's class on the IFB of each direction, None where it has none.

        A blocked link has none either, for nothing passes: it is 0 where the limiter read that back from its program.
        """
        state = self.programs.state()
        link = state.links.get(interface_id) if state is not None else None
        said = (None, None) if link is None else (link.to_user, link.from_user)
        rates = [
            self._rate(dev, bit | interface_id) if one is None or one.rate_kbit else 0
            for (dev, bit), one in zip(IFBS, said, strict=True)
        ]
        return rates[0], rates[1]

    def _rate(self, dev: str, minor: int) -> int | None:
        found = witness.classes(self._ap, dev).get(f"{MAJOR}:{minor:x}")
        return found.rate_bits // 1000 if found is not None else None

    def time_until_rate(self, site: DemoSite, user_as: UserAs, kbit: int, save: Callable[[], float]) -> float:
        """Seconds from the moment when the form was sent (returned by `save`) until the kernel has the rate both ways.

        The kernel is looked at every 20 ms from before the form is sent on. Raises `LabError` after 90 s.
        """
        interface_id = int(site.link(user_as)["attachment_point_interface_id"])
        stop = threading.Event()

        def watch() -> float | None:
            """When it was seen."""
            while not stop.is_set():
                now = time.monotonic()
                if self.kernel_rates_kbit(interface_id) == (kbit, kbit):
                    return now
                time.sleep(_LOOK_INTERVAL_S)
            return None

        with ThreadPoolExecutor(1) as pool:
            watcher = pool.submit(watch)
            try:
                saved_at = save()
                wait([watcher], _CHANGE_DEADLINE_S)
            finally:
                stop.set()
        self.check()
        seen_at = watcher.result()
        if seen_at is None:
            rates = self.kernel_rates_kbit(interface_id)
            raise LabError(f"the kernel did not get {kbit} kbit/s in {_CHANGE_DEADLINE_S:g} s; it has {rates}")
        return seen_at - saved_at
