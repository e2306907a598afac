"""The last 24 hours of each agent's reports, in quarters of an hour: when reports were missing.

A past gap is a `ReportGap`; a current one begins with the newest receipt. Nothing is known about the time before gaps
were recorded or before the first receipt.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby
from typing import Final

from scionlab.cockpit.testbed import ApState
from scionlab.enforcement.agents import SILENT_AFTER
from scionlab.enforcement.models import ReportGap

SHOWN: Final = timedelta(hours=24)
SLOT: Final = timedelta(minutes=15)
SLOTS: Final = SHOWN // SLOT

Gap = tuple[datetime, datetime]


@dataclass(frozen=True)
class Reports:
    """`gaps` are those of the last 24 hours, oldest first; the last one may be current. `known_from` is None if no
    agent ever reported."""

    now: datetime
    known_from: datetime | None
    gaps: list[Gap]

    @property
    def silent(self) -> timedelta:
        return sum((ends - begins for begins, ends in self.gaps), timedelta())

    @property
    def words(self) -> str:
        """`3 gaps, 42 min`, `no gap in 24 h`"""
        if self.known_from is None:
            return "never reported"
        count = len(self.gaps)
        if count == 0:
            return f"no gap in {_amount(min(self.now - self.known_from, SHOWN))}"
        return f"{count} gap{'' if count == 1 else 's'}, {_amount(self.silent)}"

    @property
    def gap_path(self) -> str:
        """SVG path of the quarters with a missing report: bars of height 6; 96 units are 24 hours."""
        return _bars([any(ends > begin and begins < end for begins, ends in self.gaps) for begin, end in self._slots()])

    @property
    def known_path(self) -> str:
        """SVG path of the quarters about which something is known."""
        known = self.known_from
        return _bars([known is not None and end > known for _, end in self._slots()])

    def _slots(self) -> list[Gap]:
        begin = self.now - SHOWN
        return [(begin + slot * SLOT, begin + (slot + 1) * SLOT) for slot in range(SLOTS)]


def _amount(time: timedelta) -> str:
    minutes = round(time.total_seconds() / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h"


def _bars(slots: list[bool]) -> str:
    path, at = "", 0
    for is_drawn, run in groupby(slots):
        length = len(list(run))
        path += f"M{at} 0h{length}v6h-{length}z" if is_drawn else ""
        at += length
    return path


def load_reports(states: Iterable[ApState], *, now: datetime) -> dict[int, Reports]:
    """Load the reports by attachment point; one SQL statement."""
    states = list(states)
    since = now - SHOWN
    gaps: dict[int, list[Gap]] = {}
    rows = ReportGap.objects.filter(ends_at__gt=since, host__in=[state.host.pk for state in states])
    for host, begins_at, ends_at in rows.order_by("ends_at").values_list("host", "begins_at", "ends_at"):
        gaps.setdefault(host, []).append((max(begins_at, since), ends_at))
    return {state.ap.pk: _reports(state, gaps.get(state.host.pk, []), now) for state in states}


def _reports(state: ApState, gaps: list[Gap], now: datetime) -> Reports:
    receipt = state.receipt
    if receipt is None:
        return Reports(now, None, [])
    last = receipt.received_at
    lasting = [(max(last, now - SHOWN), now)] if now - last > SILENT_AFTER else []
    # A current gap is known, whatever its length.
    return Reports(now, min(receipt.gaps_since, last), gaps + lasting)
