"""Traffic of one Link over a period, in steps: for plots, files and the API."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import reduce
from operator import or_
from typing import Final, Literal

from django.conf import settings
from django.db.models import Q
from msgspec.structs import replace

from bandwidth_config import RuleError
from scionlab.enforcement.counters import KEPT, counts_of
from scionlab.enforcement.directions import DIRECTIONS
from scionlab.limits.measured import DirectionUsage, UsagePoint
from scionlab.platform.clock import database_now
from scionlab.usage.compact import totals_unpack
from scionlab.usage.counting import LONGEST_INTERVAL_MS
from scionlab.usage.models import UsageDay, UsageSamples, UsageSlot
from scionlab.usage.packing import LONGEST_ROW_MS, unpack
from scionlab.usage.rows import NAMES, Both, nothing, totals_of
from scionlab.usage.totals import DAY_MS, SLOT_MS, TEN_SECONDS_MS, Interval, Totals, of_ms, to_ms

Step = Literal["10s", "5min", "day"]
STEPS_MS: Final[dict[Step, int]] = {"10s": TEN_SECONDS_MS, "5min": SLOT_MS, "day": DAY_MS}
USUAL: Final = timedelta(days=1)  # without a time in a request: the last day
MAX_POINTS: Final = 9_000  # a second of CPU: a day of 10 s are 8 640, a month of 5 minutes 8 928
_FINE_SPANS: Final[tuple[tuple[Step, timedelta], ...]] = (("10s", timedelta(hours=2)), ("5min", timedelta(days=7)))


@dataclass(frozen=True)
class Usage:
    """Every step from `begins_at` (rounded down to a step) to before `ends_at`, including gaps."""

    link_id: int
    begins_at: datetime
    ends_at: datetime
    step_s: int
    points: list[UsagePoint]


def usage_of_link(link_id: int, *, begins_at: datetime, ends_at: datetime, step: Step | None = None) -> Usage:
    """At most two statements. Default step: 10 s up to 2 hours and 5 minutes up to a week, as far back as they are
    kept, otherwise days. Raises `RuleError` (`usage_span`, `usage_too_many`)."""
    if begins_at >= ends_at:
        raise RuleError(
            "usage_span", f"{begins_at.isoformat()} is not before {ends_at.isoformat()}. Choose an earlier start."
        )
    chosen = step or _fitting_step(begins_at, ends_at)
    size_ms = STEPS_MS[chosen]
    first_ms = to_ms(begins_at) // size_ms * size_ms
    count = -((first_ms - to_ms(ends_at)) // size_ms)
    first = of_ms(first_ms)
    if count > MAX_POINTS:
        raise RuleError(
            "usage_too_many",
            f"{count} points of {chosen} are above the limit of {MAX_POINTS}. Request a shorter period, or longer "
            "steps.",
        )
    buckets: dict[int, Both] = {}
    if chosen == "10s":
        _add_samples(buckets, _rows_of_samples(link_id, first, ends_at), first, ends_at, size_ms)
    else:
        # Two statements: a batch that is rolled up in between may be missed, but is never counted twice.
        _add_sums(buckets, chosen, link_id, first, ends_at)
        waiting = _rows_of_samples(link_id, first, ends_at, waiting=True)
        _add_samples(buckets, waiting, first, ends_at, size_ms)
    times_ms = range(first_ms, first_ms + count * size_ms, size_ms)
    points = [_point(of_ms(at_ms), buckets.get(at_ms)) for at_ms in times_ms]
    return Usage(link_id, first, ends_at, size_ms // 1000, points)


def _fitting_step(begins_at: datetime, ends_at: datetime) -> Step:
    now = database_now()
    kept_days = {"10s": settings.USAGE_KEEP_10S_DAYS, "5min": settings.USAGE_KEEP_5MIN_DAYS}
    for step, longest in _FINE_SPANS:
        if ends_at - begins_at <= longest and now - begins_at <= timedelta(days=kept_days[step]):
            return step
    return "day"


def usage_of_links(link_ids: Collection[int], *, begins_at: datetime) -> dict[int, UsagePoint]:
    """One sum per Link since then; without Links that have no figures, and without the last minutes that are not rolled
    up. One statement."""
    sums: dict[int, Both] = {}
    rows = UsageSlot.objects.filter(series__link__in=link_ids, begins_at__gte=begins_at)
    for link_id, packed in rows.values_list("series__link_id", "packed"):
        _merge(sums.setdefault(link_id, nothing()), totals_unpack(packed))
    return {link_id: _point(begins_at, both) for link_id, both in sums.items()}


def usage_around(
    link_id: int, moments: Sequence[datetime], *, before: timedelta, after: timedelta
) -> list[list[UsagePoint]]:
    """For each moment the steps of 10 s from `before` to `after` it, including its own; as far back as samples are
    kept. One statement, none without moments."""
    size_ms = TEN_SECONDS_MS
    spans = [(to_ms(at - before) // size_ms * size_ms, -(-to_ms(at + after) // size_ms) * size_ms) for at in moments]
    near = [
        Q(begins_at__gte=of_ms(first - LONGEST_ROW_MS), begins_at__lt=of_ms(end + LONGEST_INTERVAL_MS))
        for first, end in spans
    ]
    rows: list[_SampleRow] = []
    if near:
        found = UsageSamples.objects.filter(reduce(or_, near), series__link=link_id).order_by("begins_at", "pk")
        rows = list(found.values_list("begins_at", "packed"))
    several = []
    for first, end in spans:
        buckets: dict[int, Both] = {}
        mine = [row for row in rows if first - LONGEST_ROW_MS <= to_ms(row[0]) < end + LONGEST_INTERVAL_MS]
        _add_samples(buckets, mine, of_ms(first), of_ms(end), size_ms)
        several.append([_point(of_ms(at_ms), buckets.get(at_ms)) for at_ms in range(first, end, size_ms)])
    return several


# --- samples --------------------------------------------------------------------------------------------------

_SampleRow = tuple[datetime, str]


def _rows_of_samples(
    link_id: int, begins_at: datetime, ends_at: datetime, *, waiting: bool = False
) -> Iterable[_SampleRow]:
    """Rows that may cover this time; `waiting`: those that are not rolled up yet."""
    # A sample counts where its interval is, which begins at most 30 s before it.
    rows = UsageSamples.objects.filter(
        series__link=link_id,
        begins_at__gte=begins_at - timedelta(milliseconds=LONGEST_ROW_MS),
        begins_at__lt=ends_at + timedelta(milliseconds=LONGEST_INTERVAL_MS),
    )
    if waiting:
        rows = rows.filter(batch__rolled_up=False)
    return rows.order_by("begins_at", "pk").values_list("begins_at", "packed")


def _add_samples(
    buckets: dict[int, Both], rows: Iterable[_SampleRow], first: datetime, ends_at: datetime, size_ms: int
) -> None:
    first_ms, ends_at_ms = to_ms(first), to_ms(ends_at)
    for begins_at, packed in rows:
        for name, intervals in zip(DIRECTIONS, unpack(to_ms(begins_at), packed), strict=True):
            for interval in intervals:
                for part in _split(interval) if size_ms == TEN_SECONDS_MS else [interval]:
                    bucket = part.bucket(size_ms)
                    if first_ms <= bucket < ends_at_ms:
                        buckets.setdefault(bucket, nothing())[name].add(part)


def _split(interval: Interval) -> Iterator[Interval]:
    """An interval of 20 or 30 s, because a sample is missing or by the agent's setting, is not a gap: it fills its
    steps."""
    n = max(1, round(interval.covered_ms / TEN_SECONDS_MS))
    if n == 1:
        yield interval
        return
    for index in range(n):
        yield replace(
            interval,
            ends_at_ms=interval.ends_at_ms - interval.covered_ms * (n - 1 - index) // n,
            covered_ms=_share(interval.covered_ms, index, n),
            **{name: _share(getattr(interval, name), index, n) for name in KEPT},
        )


def _share(whole: int, index: int, n: int) -> int:
    """Shares of all indexes add up to the whole."""
    return whole * (index + 1) // n - whole * index // n


# --- sums -----------------------------------------------------------------------------------------------------


def _add_sums(buckets: dict[int, Both], step: Step, link_id: int, begins_at: datetime, ends_at: datetime) -> None:
    which = Q(series__link=link_id, begins_at__gte=begins_at, begins_at__lt=ends_at)
    found: Iterable[tuple[datetime, Both]]
    if step == "5min":
        slots = UsageSlot.objects.filter(which).values_list("begins_at", "packed")
        found = ((at, totals_unpack(packed)) for at, packed in slots)
    else:
        found = (
            (row["begins_at"], totals_of(row)) for row in UsageDay.objects.filter(which).values("begins_at", *NAMES)
        )
    for at, both in found:
        _merge(buckets.setdefault(to_ms(at), nothing()), both)


def _merge(both: Both, more: Both) -> None:
    for name, totals in more.items():
        both[name].merge(totals)


def _point(begins_at: datetime, both: Both | None) -> UsagePoint:
    if both is None:
        return UsagePoint(begins_at, None, None)
    return UsagePoint(begins_at, _usage(both["to_user"]), _usage(both["from_user"]))


def _usage(totals: Totals) -> DirectionUsage | None:
    if totals.limit_kbit is None:
        return None
    return DirectionUsage(
        *counts_of(totals),
        covered_s=totals.covered_ms / 1000,
        limit_kbit=totals.limit_kbit,
        backlog_bytes=totals.backlog_bytes,
        at_limit_s=totals.at_limit_ms / 1000,
        rated_bytes=totals.rated_bytes,
    )
