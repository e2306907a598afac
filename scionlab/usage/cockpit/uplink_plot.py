"""Plot of an attachment point's recent traffic against its uplink."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from scionlab.testbed.models import AttachmentPoint
from scionlab.usage.models import UsageUplink
from scionlab.usage.pages.usage_panel import DirectionPanel
from scionlab.usage.totals import SLOT_MS, of_ms, to_ms
from scionlab.web.pages.plots import Slot, scale_of, ticks, usage_plot

SLOT: Final = timedelta(milliseconds=SLOT_MS)
SPAN: Final = timedelta(hours=6)
_DIRECTIONS: Final = {"to_user": "To the user ASes", "from_user": "From the user ASes"}


@dataclass(frozen=True)
class UplinkPlot:
    directions: list[DirectionPanel]
    ticks: list[datetime]

    @property
    def is_empty(self) -> bool:
        return all(one.plot.is_empty for one in self.directions)


def uplink_plot(ap: AttachmentPoint, *, now: datetime) -> UplinkPlot:
    """Build the plot of both directions on one scale from 5-minute sums; one SQL statement."""
    ends_at = of_ms(to_ms(now) // SLOT_MS * SLOT_MS)
    begins_at = ends_at - SPAN
    stored = UsageUplink.objects.filter(ap_isd_as=ap.AS.isd_as, begins_at__gte=begins_at, begins_at__lt=ends_at)
    rows = {row.begins_at: row for row in stored}
    times = [begins_at + number * SLOT for number in range(SPAN // SLOT)]
    slots = {key: [_slot(at, rows.get(at), key, ap.uplink_kbit) for at in times] for key in _DIRECTIONS}
    top = scale_of(list(slots.values()))
    directions = [
        DirectionPanel(f"uplink-{key}", _DIRECTIONS[key], usage_plot(found, top_kbit=top), found)
        for key, found in slots.items()
    ]
    return UplinkPlot(directions, ticks(begins_at, ends_at, 7))


def _slot(begins_at: datetime, row: UsageUplink | None, key: str, uplink_kbit: int | None) -> Slot:
    rate = None if row is None else getattr(row, f"{key}_kbit")
    kbit = None if rate is None else float(rate)
    is_full = kbit is not None and uplink_kbit is not None and kbit >= 0.95 * uplink_kbit
    seconds = SLOT.total_seconds()
    return Slot(
        begins_at=begins_at,
        kbit=kbit,
        limit_kbit=uplink_kbit,
        bytes=0,
        drops=0 if row is None else getattr(row, f"{key}_drops"),
        at_limit_s=seconds if is_full else 0,
        covered_s=seconds,
    )
