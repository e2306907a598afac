"""Usage of a Link on a page: plots, a table with the same figures, and sums, from an hour to all time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from django.db.models import F, OuterRef, QuerySet, Subquery

from scionlab.enforcement.directions import DIRECTIONS, NAMES, DirectionName
from scionlab.limits.measured import DirectionUsage, UsagePoint
from scionlab.testbed.models import Link
from scionlab.usage.compact import totals_unpack
from scionlab.usage.models import UsageDay, UsageSamples, UsageSeries, UsageSlot
from scionlab.usage.series import STEPS_MS, Step, usage_of_link
from scionlab.web.pages.plots import Slot, UsagePlot, scale_of, slots_of, ticks, usage_plot

SpanName = Literal["hour", "day", "week", "quarter", "all"]


@dataclass(frozen=True)
class Span:
    """A period: step of the stored figures, `drawn` slots in the plot and `written` rows."""

    words: str
    length: timedelta | None  # None: since the beginning
    step: Step
    drawn: int
    rows: int


SPANS: dict[SpanName, Span] = {
    "hour": Span("last hour", timedelta(hours=1), "10s", 180, 12),
    "day": Span("last day", timedelta(days=1), "5min", 144, 24),
    "week": Span("last week", timedelta(days=7), "5min", 168, 14),
    "quarter": Span("90 days", timedelta(days=90), "day", 90, 15),
    "all": Span("all", None, "day", 120, 12),
}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class DirectionPanel:
    """One direction: the plot, and the sums of the period. `highest_kbit` is that of a drawn slot."""

    key: str
    name: str
    plot: UsagePlot
    slots: list[Slot]

    @property
    def bytes(self) -> int:
        return sum(slot.bytes for slot in self.slots)

    @property
    def drops(self) -> int:
        return sum(slot.drops for slot in self.slots)

    @property
    def at_limit_s(self) -> float:
        return sum(slot.at_limit_s for slot in self.slots)

    @property
    def covered_s(self) -> float:
        return sum(slot.covered_s for slot in self.slots)

    @property
    def mean_kbit(self) -> float | None:
        rated = [(slot.kbit, slot.covered_s) for slot in self.slots if slot.kbit is not None]
        seconds = sum(covered_s for _, covered_s in rated)
        return sum(kbit * covered_s for kbit, covered_s in rated) / seconds if seconds else None

    @property
    def highest_kbit(self) -> float | None:
        return max((slot.kbit for slot in self.slots if slot.kbit is not None), default=None)

    @property
    def at_limit_percent(self) -> float | None:
        return 100 * self.at_limit_s / self.covered_s if self.covered_s else None


@dataclass(frozen=True)
class UsagePanel:
    name: SpanName
    span: Span
    begins_at: datetime
    ends_at: datetime
    directions: list[DirectionPanel]
    rows: list[tuple[Slot, Slot]]

    @property
    def is_empty(self) -> bool:
        return not any(slot.is_measured for direction in self.directions for slot in direction.slots)

    @property
    def begins_text(self) -> str:
        """For a URL."""
        return f"{self.begins_at:%Y-%m-%dT%H:%M:%SZ}"

    @property
    def ends_text(self) -> str:
        return f"{self.ends_at:%Y-%m-%dT%H:%M:%SZ}"

    @property
    def ticks(self) -> list[datetime]:
        return ticks(self.begins_at, self.ends_at, 4)


def newest_usage(link: Link) -> dict[str, Subquery]:
    """By step, start of the Link's newest figures, for `span_named`; an expression for another statement."""

    def newest(rows: QuerySet[Any]) -> Subquery:
        of_series = rows.filter(series=OuterRef("pk")).order_by("-begins_at").values("begins_at")[:1]
        series = UsageSeries.objects.filter(link=link).annotate(newest_at=Subquery(of_series))
        return Subquery(series.order_by(F("newest_at").desc(nulls_last=True)).values("newest_at")[:1])

    stored = {"10s": UsageSamples.objects, "5min": UsageSlot.objects, "day": UsageDay.objects}
    return {step: newest(rows.all()) for step, rows in stored.items()}


def span_named(name: str, newest: Mapping[str, datetime], *, now: datetime) -> SpanName:
    """For an unknown name the shortest period with figures; without any, the last day."""
    for one, span in SPANS.items():
        at = newest.get(span.step)
        has_figures = at is not None and (span.length is None or at > now - span.length)
        if one == name or (name not in SPANS and has_figures):
            return one
    return "day"


def usage_panel(link: Link, name: SpanName, *, now: datetime) -> UsagePanel:
    """As many SQL statements as `usage_of_link`."""
    span = SPANS[name]
    size = timedelta(milliseconds=STEPS_MS[span.step])
    ends_at = _EPOCH + -((_EPOCH - now) // size) * size  # end of the current step
    begins_at = ends_at - span.length if span.length is not None else _beginning(link, ends_at, size, span.rows)
    points = usage_of_link(link.pk, begins_at=begins_at, ends_at=ends_at, step=span.step).points
    drawn = min(span.drawn, round((ends_at - begins_at) / size))
    by_direction = [_slots(points, key, begins_at, ends_at, drawn) for key in DIRECTIONS]
    top = scale_of(by_direction)
    panels = [
        DirectionPanel(key, words, usage_plot(slots, top_kbit=top), slots)
        for key, words, slots in zip(DIRECTIONS, NAMES.values(), by_direction, strict=True)
    ]
    tables = [_slots(points, key, begins_at, ends_at, span.rows) for key in DIRECTIONS]
    return UsagePanel(name, span, begins_at, ends_at, panels, list(zip(*tables, strict=True)))


def _beginning(link: Link, ends_at: datetime, size: timedelta, rows: int) -> datetime:
    """Creation of the AS, and early enough for every row to have a step."""
    made = link.interface_b.AS.useras.created_at
    steps = max(rows, -((made - ends_at) // size))
    return ends_at - -(-steps // rows) * rows * size


def _slots(
    points: Iterable[UsagePoint], key: DirectionName, begins_at: datetime, ends_at: datetime, count: int
) -> list[Slot]:
    found = ((point.begins_at, getattr(point, key)) for point in points)
    return slots_of(found, begins_at=begins_at, ends_at=ends_at, count=count)


# --- in small, beside each Link of an AS -----------------------------------------------------------------------

SPARK = timedelta(days=1)
SPARK_SLOTS = 96


def sparks_of(links: Sequence[Link], now: datetime) -> dict[int, UsagePlot]:
    """By Link: traffic to the user AS in the last day, as a line. Links without figures are omitted; one statement. The
    last minutes, which are not rolled up yet, are omitted, too: the Link's page has figures."""
    begins_at = now - SPARK
    rows = UsageSlot.objects.filter(series__link__in=[link.pk for link in links], begins_at__gte=begins_at)
    by_link: dict[int, list[tuple[datetime, DirectionUsage]]] = {}
    for link_id, at, packed in rows.values_list("series__link_id", "begins_at", "packed"):
        sums = totals_unpack(packed)["to_user"]
        if sums.covered_ms:
            usage = DirectionUsage(
                bytes=sums.rated_bytes,
                covered_s=sums.covered_ms / 1000,
                limit_kbit=sums.limit_kbit or 0,
                backlog_bytes=0,
                at_limit_s=0,
            )
            by_link.setdefault(link_id, []).append((at, usage))
    return {
        link_id: usage_plot(slots_of(points, begins_at=begins_at, ends_at=now, count=SPARK_SLOTS))
        for link_id, points in by_link.items()
    }
