"""The minute around each change of a Link: time of saving, limit in the kernel, and traffic.

From samples of 10 s, which are kept for some days, and from receipts: what was not measured is not drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from bandwidth_config import format_kbit
from scionlab.enforcement.directions import DIRECTIONS, NAMES
from scionlab.enforcement.facts import shows_wanted
from scionlab.enforcement.models import LinkEnforcement
from scionlab.limits.measured import UsagePoint
from scionlab.limits.pages.change_lines import ChangeLine, Line
from scionlab.testbed.models import BandwidthChange, Link
from scionlab.usage.series import usage_around
from scionlab.web.pages.plots import WIDTH, Slot, scale_of, slots_of, usage_plot

BEFORE: Final = timedelta(seconds=20)
AFTER: Final = timedelta(seconds=40)
STEP: Final = timedelta(seconds=10)


def drawn_lines(link: Link, changes: Sequence[BandwidthChange]) -> list[ChangeLine]:
    """In the order of the changes. One statement; `link` as from `selectors.links_of`."""
    minutes = usage_around(link.pk, [one.at for one in changes], before=BEFORE, after=AFTER)
    newest = next((one for one in changes if _is_newest(link, one)), None)
    confirmed = {} if newest is None else {newest.pk: confirmed_at(link, newest)}
    return [_line_of(one, points, confirmed.get(one.pk)) for one, points in zip(changes, minutes, strict=True)]


def _is_newest(link: Link, change: BandwidthChange) -> bool:
    """Whether the Link's current limits are from this change, or one a moment later."""
    return change.kind == BandwidthChange.Kind.LINK and abs(change.at - link.changed_at) < timedelta(seconds=1)


def confirmed_at(link: Link, newest: BandwidthChange) -> datetime | None:
    """When a receipt first confirmed the Link's newest change; None if unknown, because timed limits also change the
    wanted limits."""
    row: LinkEnforcement | None = getattr(link, "enforcement", None)
    if row is None or link.timed_in_configuration or link.is_to_observe:
        return None
    return row.since if row.since >= newest.at and shows_wanted(link, row, at=row.since) else None


def _line_of(change: BandwidthChange, points: Sequence[UsagePoint], confirmed: datetime | None) -> ChangeLine:
    after_s = None if confirmed is None else (confirmed - change.at).total_seconds()
    if not any(one.to_user or one.from_user for one in points):
        return ChangeLine(change, kernel_after_s=after_s)
    begins_at, ends_at = points[0].begins_at, points[-1].begins_at + STEP
    slots = {
        key: slots_of(
            [(one.begins_at, getattr(one, key)) for one in points],
            begins_at=begins_at,
            ends_at=ends_at,
            count=len(points),
        )
        for key in DIRECTIONS
    }
    top = scale_of(list(slots.values()))
    lines = [Line(NAMES[key], usage_plot(slots[key], top_kbit=top), words_of(change.at, slots[key])) for key in slots]

    def x(at: datetime | None) -> str:
        return "" if at is None or at > ends_at else f"{WIDTH * ((at - begins_at) / (ends_at - begins_at)):.0f}"

    return ChangeLine(change, lines, x(change.at), x(confirmed), after_s)


def words_of(saved_at: datetime, slots: Sequence[Slot]) -> str:
    """`490 kbit/s of 500 before, 790 of 800 at the end`: of the first and last measured steps."""
    known = [slot for slot in slots if slot.kbit is not None]
    before = [slot for slot in known if slot.begins_at + STEP <= saved_at][:1]
    after = [slot for slot in known if slot.begins_at > saved_at][-1:]
    parts = [
        f"{_passed(slot)} {name}"
        for found, name in ((before, "before"), (after, "at the end of the minute"))
        for slot in found
    ]
    return ", ".join(parts) or "not measured before and after"


def _passed(slot: Slot) -> str:
    limit = "an unknown limit" if slot.limit_kbit is None else format_kbit(slot.limit_kbit)
    return f"{format_kbit(round(slot.kbit or 0))} of {limit}"
