"""What one Link carried, over a time, in steps: for plots, files and the API."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal

from django.conf import settings
from django.utils import timezone

from bandwidth_config import RuleError
from scionlab.models import UsageDay, UsageSamples, UsageSeries, UsageSlot
from scionlab.usage.batch import DIRECTIONS
from scionlab.usage.packing import LONGEST_ROW, unpack
from scionlab.usage.rows import NAMES, Both, nothing, totals_of
from scionlab.usage.totals import DAY, SLOT, TEN_SECONDS, Interval, Totals, floor

Step = Literal["10s", "5min", "day"]
STEPS: Final[dict[Step, timedelta]] = {"10s": TEN_SECONDS, "5min": SLOT, "day": DAY}
MAX_POINTS: Final = 40_000  # 90 days of 5 minutes are 25 920
_FINE_SPANS: Final[tuple[tuple[Step, timedelta], ...]] = (("10s", timedelta(hours=2)), ("5min", timedelta(days=7)))


@dataclass(frozen=True)
class DirectionUsage:
    """`bytes`, `packets` and `drops` are all that was counted in this time, `rated_bytes` the part of them that fell
    into the `covered_s` of which a rate is known. `limit_kbit` is the mean limit, `backlog_bytes` the most that was
    seen waiting. `at_limit_s`: with at least 95 % of the limit; of a blocked link, while it dropped."""

    bytes: int
    packets: int
    drops: int
    covered_s: float
    limit_kbit: int
    backlog_bytes: int
    at_limit_s: float
    rated_bytes: int | None = None  # None: all of them

    @property
    def kbit(self) -> int | None:
        """The mean rate while covered [kbit/s]; None where nothing was."""
        bits = 8 * (self.bytes if self.rated_bytes is None else self.rated_bytes)
        return round(bits / (1000 * self.covered_s)) if self.covered_s else None


@dataclass(frozen=True)
class UsagePoint:
    """One step; a direction of which nothing is known (a gap) is None."""

    begins_at: datetime
    to_user: DirectionUsage | None
    from_user: DirectionUsage | None


@dataclass(frozen=True)
class Usage:
    """Every step from `begins_at` (rounded down to a step) to before `ends_at`, gaps too."""

    link_id: int
    begins_at: datetime
    ends_at: datetime
    step_s: int
    points: list[UsagePoint]


def usage_of_link(link_id: int, *, begins_at: datetime, ends_at: datetime, step: Step | None = None) -> Usage:
    """At most four statements. Without a step: 10 s up to 2 hours and 5 minutes up to a week, as far back as they are
    kept, else days. Raises `RuleError` (`usage_span`, `usage_too_many`)."""
    if begins_at >= ends_at:
        raise RuleError(
            "usage_span", f"{begins_at.isoformat()} is not before {ends_at.isoformat()}. Begin before the end."
        )
    chosen = step or _fitting_step(begins_at, ends_at)
    size = STEPS[chosen]
    first = floor(begins_at, size)
    count = -((first - ends_at) // size)
    if count > MAX_POINTS:
        raise RuleError(
            "usage_too_many",
            f"{count} points of {chosen} are above the limit of {MAX_POINTS}. Ask for a shorter time, or longer steps.",
        )
    series = list(UsageSeries.objects.filter(link=link_id).values_list("pk", flat=True))
    buckets: dict[datetime, Both] = {}
    if chosen == "10s":
        _add_samples(buckets, _rows_of_samples(series, first, ends_at), first=first, ends_at=ends_at, size=size)
    else:
        # Two statements: who looks while a batch goes over into the sums may miss it, and never sees it twice.
        _add_sums(buckets, chosen, series, first, ends_at)
        waiting = _rows_of_samples(series, first, ends_at, waiting=True)
        _add_samples(buckets, waiting, first=first, ends_at=ends_at, size=size)
    points = [_point(first + index * size, buckets.get(first + index * size)) for index in range(count)]
    return Usage(link_id, first, ends_at, int(size.total_seconds()), points)


def _fitting_step(begins_at: datetime, ends_at: datetime) -> Step:
    now = timezone.now()
    kept = {
        "10s": timedelta(days=settings.USAGE_KEEP_10S_DAYS),
        "5min": timedelta(days=settings.USAGE_KEEP_5MIN_DAYS),
    }
    for step, longest in _FINE_SPANS:
        if ends_at - begins_at <= longest and now - begins_at <= kept[step]:
            return step
    return "day"


# --- samples --------------------------------------------------------------------------------------------------

_SampleRow = tuple[datetime, str]


def _rows_of_samples(
    series: Sequence[int], begins_at: datetime, ends_at: datetime, *, waiting: bool = False
) -> Iterable[_SampleRow]:
    """Rows that may say something of this time; `waiting`: those that are not in the sums yet."""
    # The middle of a sample's interval decides where it counts, and that is at most 15 s before it.
    rows = UsageSamples.objects.filter(
        series__in=series, begins_at__gte=begins_at - LONGEST_ROW, begins_at__lt=ends_at + timedelta(seconds=15)
    )
    if waiting:
        rows = rows.filter(batch__rolled_up=False)
    return rows.order_by("begins_at", "pk").values_list("begins_at", "packed")


def _add_samples(
    buckets: dict[datetime, Both],
    rows: Iterable[_SampleRow],
    *,
    first: datetime,
    ends_at: datetime,
    size: timedelta,
) -> None:
    for row in rows:
        for name, intervals in zip(DIRECTIONS, unpack(*row), strict=True):
            for interval in intervals:
                for part in _split(interval) if size == TEN_SECONDS else [interval]:
                    bucket = part.bucket(size)
                    if first <= bucket < ends_at:
                        buckets.setdefault(bucket, nothing())[name].add(part)


def _split(interval: Interval) -> Iterator[Interval]:
    """An interval of 20 or 30 s, because a sample is missing or the agent is set so, is no gap: it fills its steps."""
    n = max(1, round(interval.covered_ms / (TEN_SECONDS / timedelta(milliseconds=1))))
    if n == 1:
        yield interval
        return
    for index in range(n):
        yield interval._replace(
            ends_at=interval.ends_at - timedelta(milliseconds=interval.covered_ms * (n - 1 - index) // n),
            covered_ms=_share(interval.covered_ms, index, n),
            bytes=_share(interval.bytes, index, n),
            packets=_share(interval.packets, index, n),
            drops=_share(interval.drops, index, n),
        )


def _share(whole: int, index: int, n: int) -> int:
    """Shares of all indexes together are the whole."""
    return whole * (index + 1) // n - whole * index // n


# --- sums -----------------------------------------------------------------------------------------------------


def _add_sums(
    buckets: dict[datetime, Both], step: Step, series: Sequence[int], begins_at: datetime, ends_at: datetime
) -> None:
    manager = UsageSlot.objects if step == "5min" else UsageDay.objects
    rows = manager.filter(series__in=series, begins_at__gte=begins_at, begins_at__lt=ends_at)
    for row in rows.values("begins_at", *NAMES):
        both = buckets.setdefault(row["begins_at"], nothing())
        for name, totals in totals_of(row).items():
            both[name].merge(totals)


def _point(begins_at: datetime, both: Both | None) -> UsagePoint:
    if both is None:
        return UsagePoint(begins_at, None, None)
    return UsagePoint(begins_at, _usage(both["to_user"]), _usage(both["from_user"]))


def _usage(totals: Totals) -> DirectionUsage | None:
    if totals.limit_kbit is None:
        return None
    return DirectionUsage(
        bytes=totals.bytes,
        packets=totals.packets,
        drops=totals.drops,
        covered_s=totals.covered_ms / 1000,
        limit_kbit=totals.limit_kbit,
        backlog_bytes=totals.backlog_bytes,
        at_limit_s=totals.at_limit_ms / 1000,
        rated_bytes=totals.rated_bytes,
    )
