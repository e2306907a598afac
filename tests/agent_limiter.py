"""A limiter without a kernel: it takes what the agent hands over, and writes its state."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from ap_agent.common.lock import Lock
from ap_agent.common.problem import Problem
from ap_agent.common.settings import Settings
from ap_agent.document.handover import FILE_NAME, Configuration, read_document
from ap_agent.document.signatures import read_signed
from ap_agent.document.signed_text import Version
from ap_agent.document.state import ClosedSegment, Counters, DirectionState, LimiterState, LinkState, write_state
from ap_agent.document.timetable import Timetable
from bandwidth_config import Limits

T0 = datetime(2026, 11, 21, 6, 0, tzinfo=UTC)
INTERVAL = timedelta(seconds=10)


def counters(size: int = 0, *, packets: int | None = None, refused: int = 0) -> Counters:
    return Counters(size, size // 1000 if packets is None else packets, refused * 1000, refused, 0, 0)


def direction(kbit: int = 500, size: int = 0, *, segment: int = 0x4141, **more: Any) -> DirectionState:
    """`dropped` and `backlog` are HTB's; `refused` and `packets` are the program's."""
    dropped, backlog = more.pop("dropped", 0), more.pop("backlog", 0)
    return DirectionState(kbit, segment, counters(size, **more), dropped, backlog)


def link_state(number: int, kbit: int = 500, size: int = 0, **changes: Any) -> LinkState:
    """Enforced, with the same limit, counters and segments (one apart) in both directions."""
    to_user = direction(kbit, size, segment=2 * number + 1000)
    from_user = direction(kbit, size, segment=2 * number + 1001)
    return LinkState(number, Limits(kbit, kbit), "enforced", None, to_user, from_user)._replace(**changes)


def limiter_state(links: Mapping[int, LinkState] | None = None, **changes: Any) -> LimiterState:
    """Of configuration 1.18 with limits 7, one link of 500 kbit/s, at T0."""
    found = LimiterState(
        run="1f" * 16,
        number=1,
        written_at=T0,
        observed_at=T0,
        host_id="host",
        order=Version(1, 18, 7),
        limits_digest="ab" * 32,
        is_ok=True,
        writes=0,
        links=links if links is not None else {1: link_state(1)},
        devices=("eth0",),
    )
    return replace(found, **changes)


class FakeLimiter:
    """Of one host. `kernel` has the limits that its kernel has; `size` says what each direction passed by now."""

    def __init__(self, settings: Settings, now: Callable[[], datetime], *, run: str = "2e" * 16) -> None:
        self.settings, self.now = settings, now
        self.kernel: dict[int, Limits] = {}
        self.refused: frozenset[int] = frozenset()  # links that the kernel does not take
        self.size: Callable[[], int] = lambda: 0
        self.closed: list[ClosedSegment] = []
        self.changes: dict[str, Any] = {}  # of everything that is written
        self.document: Configuration | None = None
        self.run, self.number, self.writes = run, 0, 0
        self.states: list[LimiterState] = []
        self._timetable = Timetable({})
        self._data: bytes | None = None
        self._told: tuple[object, ...] | None = None
        self._lock: Lock | None = None
        self.live()

    def live(self) -> None:
        self._lock = self._lock or Lock(self.settings.limiter_run_dir, "limiter", "run").__enter__()

    def die(self) -> None:
        """Killed: its last state stays."""
        if self._lock is not None:
            self._lock.__exit__(None, None, None)
        self._lock = None

    def __del__(self) -> None:
        self.die()

    def work(self) -> bool:
        """Whatever is to be done now; whether there is another state afterwards."""
        if self._lock is None:
            return False
        is_new = self._take()
        wanted = {number: one.limits for number, one in self._timetable.at(self.now()).items() if one.is_user_as}
        for number, limits in wanted.items():
            if self.kernel.get(number) != limits and number not in self.refused:
                self.kernel[number] = limits
                self.writes += 1
        for number in set(self.kernel) - set(wanted):
            del self.kernel[number]
            self.writes += 1
        is_old = not self.states or self.now() - self.states[-1].written_at >= INTERVAL
        said = (wanted, self._data, dict(self.kernel), self.refused, self.writes)
        if said == self._told and not is_old:
            return False
        is_step = not is_new and self._told is not None and wanted != self._told[0]
        self._told = said
        self.write(wanted, is_step=is_step)
        return True

    def _take(self) -> bool:
        try:
            data = (self.settings.state_dir / FILE_NAME).read_bytes()
        except FileNotFoundError:
            return False
        if data == self._data:
            return False
        self.document = read_document(data, host_id=None, verify=read_signed).configuration
        self._data, self._timetable = data, Timetable(self.document.links)
        return True

    def write(self, wanted: Mapping[int, Limits] | None = None, **changes: Any) -> LimiterState:
        """A state, now."""
        links = {number: self._link(number, limits) for number, limits in sorted((wanted or {}).items())}
        problems = tuple(
            Problem("apply_failed", f"link {number}", "The kernel refused it.") for number in sorted(self.refused)
        )
        document = self.document
        self.number += 1
        said: dict[str, Any] = {
            "written_at": self.now(),
            "observed_at": self.now(),
            "host_id": document.host_id if document is not None else None,
            "order": document.order if document is not None else None,
            "limits_digest": document.limits_digest if document is not None else None,
            "is_ok": not problems,
            "writes": self.writes,
            "problems": problems,
            "closed": tuple(self.closed),
            **self.changes,
            **changes,
        }
        state = limiter_state(links, run=self.run, number=self.number, **said)
        self.states.append(state)
        self.settings.limiter_run_dir.mkdir(parents=True, exist_ok=True)
        write_state(self.settings.limiter_run_dir, state)
        return state

    def _link(self, number: int, limits: Limits) -> LinkState:
        found = self.kernel.get(number)
        if found is None:
            return LinkState(number, limits, "error", "The kernel refused it.", None, None)
        sides = (
            direction(found.to_user_kbit, self.size(), segment=2 * number + 1000),
            direction(found.from_user_kbit, self.size(), segment=2 * number + 1001),
        )
        good = found == limits
        problem = None if good else f"The kernel has {found.to_user_kbit} kbit/s."
        return LinkState(number, limits, "enforced" if good else "error", problem, *sides)

    @property
    def limits(self) -> dict[int, int]:
        """kbit/s to the user of each link in its kernel."""
        return {number: limits.to_user_kbit for number, limits in sorted(self.kernel.items())}
