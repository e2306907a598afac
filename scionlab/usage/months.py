"""95th percentiles of a month, kept after its 5-minute values are deleted.

Of all known 5-minute means of the month (missing ones are not zero), the smallest that 95 % of them do not exceed:
"nearest rank", as carriers bill. An attachment point's mean is the sum of its links' in that slot.

Each hour the new values are added to the windows of the month's rows (`usage.rank`), one attachment point at a time;
the newest five minutes, which may still grow, only count for the current result. Rows without a window, because of late
values or because the percentile left it, are recomputed, some at a time (docs/adr/0015).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from typing import Any, Final
from zlib import crc32

from django.db import transaction
from django.db.models import Min, Sum

from scionlab.enforcement.directions import DIRECTIONS, DirectionName
from scionlab.platform.clock import database_now
from scionlab.platform.retry import retried
from scionlab.usage.compact import numbers_pack, numbers_unpack
from scionlab.usage.models import UsageBatch, UsageMonth, UsageProgress, UsageSeries, UsageSlot, UsageUplink
from scionlab.usage.progress import ALL, Who, blank, hold_progress, open_months, skip
from scionlab.usage.rank import OutsideError, Window, place_of, window_unpack
from scionlab.usage.totals import LATE, SLOT_MS, month_of, next_month

READ_AT_ONCE: Final = 50  # rows recomputed in one transaction, each of at most 8928 five minutes
RANKED_AT_ONCE: Final = timedelta(hours=2)
FAR: Final = timedelta(days=1)  # behind: then recomputing everything is less work
_SLOT: Final = timedelta(milliseconds=SLOT_MS)

_Windows = dict[DirectionName, Window]
_Values = dict[DirectionName, list[int]]


def compute_due(*, now: datetime) -> int:
    """Update the percentiles of all attachment points; return the number of changed rows. Those of a month are final 4
    days after its end, when every batch was added."""
    known = UsageSeries.objects.order_by("ap_isd_as").values_list("ap_isd_as", flat=True).distinct()
    rows = 0
    for ap_isd_as in list(known):
        more = True
        while more:
            changed, more = _step(ap_isd_as, now)
            rows += changed
    return rows


def settled_before() -> date | None:
    """Day before which no percentile needs five-minute rows; None without traffic."""
    found: date | None = UsageProgress.objects.aggregate(first=Min("settled_before"))["first"]
    return found


@retried
@transaction.atomic
def _step(ap_isd_as: str, now: datetime) -> tuple[int, bool]:
    """Part of an attachment point's work: number of changed rows, and whether more is left."""
    newest = UsageUplink.objects.filter(ap_isd_as=ap_isd_as).order_by("-begins_at").first()
    if newest is None:
        return 0, False
    progress = hold_progress({ap_isd_as: newest.begins_at})[ap_isd_as]
    until = newest.begins_at
    if until - progress.ranked_until > FAR:
        skip(progress, until)
    begins_at = progress.ranked_until
    ends_at = max(begins_at, min(until, begins_at + RANKED_AT_ONCE, next_month(month_of(begins_at))))
    is_left = ends_at < until
    changed = 0
    series = _series(ap_isd_as)
    for month in open_months(progress, until):
        ranking = _Ranking(ap_isd_as, month, begins_at, ends_at, newest=None if is_left else until)
        rows, is_more = ranking.run(series)
        changed += rows
        is_left |= is_more
    progress.ranked_until = ends_at
    if not is_left:
        _forget_empty(progress)
        _settle(progress, until, now)
    progress.save()
    return changed, is_left


def _series(ap_isd_as: str) -> dict[Who, list[int]]:
    found: dict[Who, list[int]] = {}
    rows = UsageSeries.objects.filter(ap_isd_as=ap_isd_as).order_by("pk")
    for pk, isd_as, owner_email in rows.values_list("pk", "isd_as", "owner_email"):
        found.setdefault((isd_as, owner_email), []).append(pk)
    return found


def _forget_empty(progress: UsageProgress) -> None:
    """Drop rows without values: they were computed because values may have moved from or to their AS."""
    rows = UsageMonth.objects.filter(ap_isd_as=progress.ap_isd_as, begins_on__gte=progress.settled_before)
    rows.filter(to_user_slots=0, from_user_slots=0).delete()


def _settle(progress: UsageProgress, until: datetime, now: datetime) -> None:
    """Mark months as final that cannot change any more."""
    for month in list(open_months(progress, max(until, now - LATE))):
        final_at = next_month(month) + LATE
        if now < final_at or UsageBatch.objects.filter(rolled_up=False, received_at__lt=final_at).exists():
            return
        UsageMonth.objects.filter(ap_isd_as=progress.ap_isd_as, begins_on=month.date()).update(window=None)
        progress.settled_before = next_month(month).date()


@dataclass
class _Ranking:
    """A month of an attachment point, with new values from `begins_at` to `ends_at`, and preliminary `newest` ones."""

    ap_isd_as: str
    month: datetime
    begins_at: datetime
    ends_at: datetime
    newest: datetime | None
    changed: list[UsageMonth] = field(default_factory=list)
    computed_at: datetime = field(default_factory=database_now)

    def run(self, series: Mapping[Who, list[int]]) -> tuple[int, bool]:
        rows = UsageMonth.objects.filter(ap_isd_as=self.ap_isd_as, begins_on=self.month.date()).exclude(isd_as="")
        stored = {(row.isd_as, row.owner_email): row for row in rows}
        # Owners changed addresses: values move from their rows to others, which may be new.
        gone = [row.pk for who, row in stored.items() if who not in series]
        moved = {who[0] for who, row in stored.items() if not _is_of(row, series.get(who, []))}
        new = self._values(self._slots(self.begins_at, self.ends_at))
        passing = self._values([] if self.newest is None else self._slots(self.newest, self.newest + _SLOT))
        anew = []
        for who in series.keys() & (stored.keys() | new.keys() | passing.keys() | _all_of(moved, series)):
            row = stored.get(who) or blank(self.ap_isd_as, self.month, who)
            mark = _mark(series[who])
            window = row.window
            if window is None or bytes(window[:4]) != mark:
                anew.append(row)
            elif who in new or who in passing:
                try:
                    self._rank(row, mark, _unpack(window), new.get(who), passing.get(who))
                except OutsideError:
                    anew.append(row)
        now, later = anew[:READ_AT_ONCE], anew[READ_AT_ONCE:]
        self._read(now, series, passing)
        for row in later:
            row.window = None
            self.changed.append(row)
        self._rank_all()
        self._store(gone)
        return len(self.changed), bool(later)

    def _slots(self, begins_at: datetime, ends_at: datetime) -> Iterable[tuple[Who, dict[str, Any]]]:
        return self._rates(begins_at, ends_at, {"series__ap_isd_as": self.ap_isd_as})

    def _rates(
        self, begins_at: datetime, ends_at: datetime, which: Mapping[str, Any]
    ) -> Iterable[tuple[Who, dict[str, Any]]]:
        first, end = max(begins_at, self.month), min(ends_at, next_month(self.month))
        if first >= end:
            return
        rows = UsageSlot.objects.filter(begins_at__gte=first, begins_at__lt=end, **which)
        sums = {f"{name}_sum": Sum(f"{name}_kbit") for name in DIRECTIONS}
        for row in rows.values("series__isd_as", "series__owner_email", "begins_at").annotate(**sums).iterator():
            yield (row["series__isd_as"], row["series__owner_email"]), dict(row)

    def _values(self, rates: Iterable[tuple[Who, dict[str, Any]]]) -> dict[Who, _Values]:
        found: dict[Who, _Values] = {}
        for who, row in rates:
            for name in DIRECTIONS:
                kbit = row[f"{name}_sum"]
                if kbit is not None:
                    found.setdefault(who, {one: [] for one in DIRECTIONS})[name].append(int(kbit))
        return found

    def _read(
        self, rows: Collection[UsageMonth], series: Mapping[Who, list[int]], passing: Mapping[Who, _Values]
    ) -> None:
        """Make their windows from all stored values, of which there may be none."""
        ids = [pk for row in rows for pk in series[row.isd_as, row.owner_email]]
        found = self._values(self._rates(self.month, self.ends_at, {"series__in": ids})) if rows else {}
        for row in rows:
            who = (row.isd_as, row.owner_email)
            values = found.get(who, {name: [] for name in DIRECTIONS})
            windows: _Windows = {name: Window.of(values[name]) for name in DIRECTIONS}
            self._rank(row, _mark(series[who]), windows, None, passing.get(who))

    def _rank(
        self, row: UsageMonth, mark: bytes, windows: _Windows, new: _Values | None, passing: _Values | None
    ) -> None:
        """Raises `OutsideError` and keeps the row as it was."""
        said: dict[str, int | None] = {}
        for name, window in windows.items():
            for kbit in [] if new is None else new[name]:
                window.add(kbit)
            window.trim()
            now = window.with_more([] if passing is None else passing[name])
            said |= {f"{name}_p95_kbit": now.percentile(), f"{name}_slots": now.count}
        row.window = mark + b"".join(windows[name].pack() for name in DIRECTIONS)
        self._say(row, said)

    def _rank_all(self) -> None:
        rows = UsageUplink.objects.filter(
            ap_isd_as=self.ap_isd_as, begins_at__gte=self.month, begins_at__lt=next_month(self.month)
        )
        said: dict[str, int | None] = {}
        for name in DIRECTIONS:
            known = rows.filter(**{f"{name}_kbit__isnull": False}).order_by(f"{name}_kbit")
            kbits = list(known.values_list(f"{name}_kbit", flat=True))
            said |= {
                f"{name}_p95_kbit": kbits[place_of(len(kbits))] if kbits else None,
                f"{name}_slots": len(kbits),
            }
        if any(said.values()):
            self._say(blank(self.ap_isd_as, self.month, ALL), said)

    def _say(self, row: UsageMonth, said: Mapping[str, int | None]) -> None:
        for name, value in said.items():
            setattr(row, name, value)
        row.computed_at = self.computed_at
        self.changed.append(row)

    def _store(self, gone: Collection[int]) -> None:
        for row in self.changed:
            row.pk = None  # identified by its names, stored or not
        said = [f"{name}_{what}" for name in DIRECTIONS for what in ("p95_kbit", "slots")]
        UsageMonth.objects.bulk_create(
            self.changed,
            update_conflicts=True,
            unique_fields=["begins_on", "ap_isd_as", "isd_as", "owner_email"],
            update_fields=[*said, "computed_at", "window"],
        )
        if gone:
            UsageMonth.objects.filter(pk__in=gone).delete()


def _mark(series_ids: Iterable[int]) -> bytes:
    """Record the series of a window: an owner's new address moves them to another row."""
    return crc32(numbers_pack(series_ids)).to_bytes(4, "big")


def _is_of(row: UsageMonth, series_ids: Iterable[int]) -> bool:
    return row.window is not None and bytes(row.window[:4]) == _mark(series_ids)


def _all_of(isd_ases: Collection[str], series: Mapping[Who, list[int]]) -> set[Who]:
    return {who for who in series if who[0] in isd_ases}


def _unpack(window: bytes | memoryview) -> _Windows:
    numbers = numbers_unpack(window[4:])
    return {name: window_unpack(numbers) for name in DIRECTIONS}
