"""A limiter that only plays: it takes the agent's document and writes the state file of a limiter, without any kernel.

`./dev run` shows with it, without root, what the pages say of links in each state. Traffic is made up: each direction
carries a share of its limit that changes every ten minutes (`lab.sample_traffic`); above its limit it is refused.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Container, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from ap_agent.common.lock import Lock
from ap_agent.common.problem import Problem
from ap_agent.document.handover import FILE_NAME, Configuration, read_document
from ap_agent.document.live import ASKED_FOR_S, LOOKS_FILE, read_request, write_live
from ap_agent.document.series import SeriesSample, SideSample
from ap_agent.document.signatures import read_signed
from ap_agent.document.state import Counters, Direction, DirectionState, LimiterState, LinkState, Total, write_state
from ap_agent.document.timetable import Timetable
from bandwidth_config import Limits
from contract.link_info import LinkInfo
from lab.sample_traffic import HEARTBEATS_BYTES, PACKET_BYTES, TEN_MINUTES_MS, share

DIRECTIONS: tuple[Direction, Direction] = ("to_user", "from_user")
SECOND = timedelta(seconds=1)
INTERVAL = timedelta(seconds=10)  # as `usage_interval_s`
REFUSAL = "The kernel rejected the class: no memory (ENOMEM). This limiter is played by ./dev run."
_HEARTBEAT_BYTES = 80


@dataclass
class _Lane:
    """One direction of a link: its rate in the kernel, and what it carried since `segment` began."""

    rate_kbit: int
    segment: int
    passed: float = 0.0
    refused: float = 0.0
    heartbeats: float = 0.0

    def carry(self, seconds: float, wanted_share: float) -> None:
        room = self.rate_kbit * 125 * seconds
        heartbeats = min(room, HEARTBEATS_BYTES / 10 * seconds)
        wanted = room * wanted_share
        self.heartbeats += heartbeats
        self.passed += min(room, wanted + heartbeats)
        self.refused += max(0.0, wanted + heartbeats - room) if self.rate_kbit else HEARTBEATS_BYTES / 10 * seconds

    def said(self) -> DirectionState:
        size = PACKET_BYTES if self.rate_kbit else _HEARTBEAT_BYTES
        passed, refused, heartbeats = int(self.passed), int(self.refused), int(self.heartbeats)
        counters = Counters(
            passed, passed // PACKET_BYTES, refused, refused // size, heartbeats, heartbeats // _HEARTBEAT_BYTES
        )
        return DirectionState(self.rate_kbit, self.segment, counters, 0, 0)


class PlayedLimiter:
    """Of one host. It holds the limiter's lock until `close`. Links to a user AS in `failing` are not taken."""

    def __init__(self, state_dir: Path, limiter_run_dir: Path, *, failing: Container[str | None] = ()) -> None:
        self._document_file, self._run_dir, self._failing = state_dir / FILE_NAME, limiter_run_dir, failing
        limiter_run_dir.mkdir(parents=True, exist_ok=True)
        self._lock = Lock(limiter_run_dir, "limiter", "played").__enter__()
        self._run, self._number, self._writes = secrets.token_hex(16), 0, 0
        self._data: bytes | None = None
        self._document: Configuration | None = None
        self._timetable = Timetable({})
        self._lanes: dict[tuple[int, Direction], _Lane] = {}
        self._wanted: Mapping[int, LinkInfo] = {}
        self._carried_at = self._written_at = self._counted_at = datetime.fromtimestamp(0, UTC)

    def close(self) -> None:
        self._lock.__exit__(None, None, None)

    def work(self) -> None:
        """Call it some times a second. Writes a state where something changed, and every 10 s."""
        now = datetime.now(UTC)
        is_new = self._take()
        wanted = {
            number: link
            for number, link in self._timetable.at(now).items()
            if link.is_user_as and link.isd_as not in self._failing
        }
        self._carry(now)
        is_changed = self._enforce(wanted)
        if is_new or is_changed or now - self._written_at >= INTERVAL:
            self._write(now, is_step=is_changed and not is_new)
        self._count(now)

    def _count(self, now: datetime) -> None:
        """Each second, what somebody looks at."""
        looks = self._document_file.with_name(LOOKS_FILE)
        if (
            not looks.exists()
            or now.timestamp() - looks.stat().st_mtime > ASKED_FOR_S
            or now - self._counted_at < SECOND
        ):
            return
        self._counted_at = now
        at_ms, clock_ms = round(now.timestamp() * 1000), round(time.monotonic() * 1000)
        samples = {}
        for number in read_request(looks.parent):
            sides = [self._lanes.get((number, name)) for name in DIRECTIONS]
            said = [
                SideSample(one.segment, one.rate_kbit, *one.said().counters[:4]) for one in sides if one is not None
            ]
            if len(said) == 2:
                samples[number] = SeriesSample(at_ms, clock_ms, 1, said[0], said[1])
        write_live(self._run_dir, samples)

    def _take(self) -> bool:
        """Whether the agent handed over another document."""
        try:
            data = self._document_file.read_bytes()
        except FileNotFoundError:
            return False
        if data == self._data:
            return False
        self._document = read_document(data, host_id=None, verify=read_signed).configuration
        self._data, self._timetable = data, Timetable(self._document.links)
        return True

    def _carry(self, now: datetime) -> None:
        seconds = min((now - self._carried_at).total_seconds(), INTERVAL.total_seconds())
        ten_minutes = int(now.timestamp() * 1000) // TEN_MINUTES_MS
        for (number, name), lane in self._lanes.items():
            lane.carry(seconds, share(number, name, ten_minutes))
        self._carried_at = now

    def _enforce(self, wanted: Mapping[int, LinkInfo]) -> bool:
        """Whether a rate was set. A lane whose rate changes keeps its counters, as in the kernel."""
        before = self._writes
        limits: dict[tuple[int, Direction], int] = {}
        for number, link in wanted.items():
            limits[number, "to_user"], limits[number, "from_user"] = link.limits
        for key in set(self._lanes) - set(limits):
            del self._lanes[key]
            self._writes += 1
        for key, kbit in limits.items():
            lane = self._lanes.get(key)
            if lane is None:
                self._lanes[key] = _Lane(kbit, 1 + secrets.randbits(31))
            elif lane.rate_kbit == kbit:
                continue
            else:
                lane.rate_kbit = kbit
            self._writes += 1
        return self._writes != before

    def _write(self, now: datetime, *, is_step: bool) -> None:
        document = self._document
        links = {} if document is None else {n: one for n, one in self._timetable.at(now).items() if one.is_user_as}
        said = {number: self._said(number, link) for number, link in sorted(links.items())}
        failed = [number for number, one in said.items() if one.state == "error"]
        total = document.total_kbit if document is not None else None
        self._number += 1
        state = LimiterState(
            run=self._run,
            number=self._number,
            written_at=now,
            observed_at=now,
            host_id=document.host_id if document is not None else None,
            order=document.order if document is not None else None,
            limits_digest=document.limits_digest if document is not None else None,
            is_ok=not failed,
            writes=self._writes,
            links=said,
            problems=tuple(Problem("apply_failed", f"link {number}", REFUSAL) for number in failed),
            is_step=is_step,
            total=Total(total, total, total) if total is not None else None,
            devices=("eth0",),
            next_step_at=self._timetable.next_limits(now),
        )
        write_state(self._run_dir, state)
        self._written_at = now

    def _said(self, number: int, link: LinkInfo) -> LinkState:
        to_user, from_user = self._lanes.get((number, "to_user")), self._lanes.get((number, "from_user"))
        limits = Limits(*link.limits)
        if to_user is None or from_user is None:
            return LinkState(number, limits, "error", REFUSAL, None, None)
        is_observed = link.is_observed or (self._document is not None and self._document.is_observe_only)
        return LinkState(
            number, limits, "observed" if is_observed else "enforced", None, to_user.said(), from_user.said()
        )
