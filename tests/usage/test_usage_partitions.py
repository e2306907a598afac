"""Five minutes in narrow rows and partitions of a day: sums stay exact, and percentiles are those of all values."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

import pytest
from django.db import IntegrityError, connection, transaction
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scionlab.enforcement.directions import DIRECTIONS
from scionlab.testbed.models import Host, Link
from scionlab.usage import months, partitions
from scionlab.usage.models import UsageBatch, UsageDay, UsageMonth, UsageSeries, UsageSlot, UsageUplink
from scionlab.usage.pages.usage_panel import usage_panel
from scionlab.usage.rollup import prune, roll_up
from scionlab.usage.series import usage_of_link
from tests.usage_world import Column, add_slot, document, series_of, simple, store, stored_samples, stored_sums

pytestmark = pytest.mark.django_db

MIDNIGHT = datetime(2026, 11, 1, tzinfo=UTC)  # of a month, too
SLOT, HOUR, DAY = timedelta(minutes=5), timedelta(hours=1), timedelta(days=1)
postgresql = pytest.mark.skipif(connection.vendor != "postgresql", reason="SQLite has no partitions")


def carry(one: UsageSeries, at: datetime, kbit: int, covered_ms: int = 300_000) -> None:
    both = {f"{name}_{what}": kbit * covered_ms // 8 for name in DIRECTIONS for what in ("bytes", "rated_bytes")}
    add_slot(one, at, **both, **{f"{name}_covered_ms": covered_ms for name in DIRECTIONS})


def days_there() -> set[str]:
    return {name.rpartition("_")[2] for name in partitions._there()}

    # --- exact ----------------------------------------------------------------------------------------------------


def test_bytes_are_exact_across_midnight_in_batches_sent_again_and_late(host: Host, link: Link) -> None:
    """The bodies overlap, the first comes last, and each is sent again after it was added up."""
    counters = [1000 * number for number in range(60)]
    begins_at = MIDNIGHT - SLOT
    bodies = [
        simple(host, begins_at + timedelta(seconds=10 * first), counters[first : first + 25]) for first in (0, 20, 40)
    ]
    for body in (bodies[1], bodies[2], bodies[0], *bodies):
        store(host, body, MIDNIGHT + HOUR)
        roll_up()
    whole = {"to_user": (59_000, 590, 0), "from_user": (0, 0, 0)}
    assert [stored_samples(), stored_sums(UsageSlot), stored_sums(UsageDay)] == [whole] * 3
    assert UsageDay.objects.count() == 2
    points = usage_of_link(link.pk, begins_at=begins_at, ends_at=MIDNIGHT + SLOT, step="5min").points
    assert sum(point.to_user.bytes for point in points if point.to_user) == 59_000
    if connection.vendor == "postgresql":
        assert {"20261031", "20261101"} <= days_there()


@postgresql
def test_days_are_made_ahead_and_where_one_is_missing(host: Host) -> None:
    roll_up()
    today = datetime.now(UTC).date()
    assert {f"{today + number * DAY:%Y%m%d}" for number in range(4)} <= days_there()
    assert "20261101" not in days_there()
    store(host, simple(host, MIDNIGHT, [0, 1000]), MIDNIGHT + HOUR)
    roll_up()
    assert "20261101" in days_there()
    assert stored_sums(UsageSlot)["to_user"][0] == 1000


@postgresql
def test_nothing_is_lost_where_a_day_cannot_be_made(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    store(host, simple(host, MIDNIGHT, [0, 1000]), MIDNIGHT + HOUR)
    monkeypatch.setattr(partitions, "ensure", lambda _days: None)
    with pytest.raises(IntegrityError, match="no partition"), transaction.atomic():
        roll_up()
    assert UsageBatch.objects.filter(rolled_up=False).count() == 1
    assert not UsageDay.objects.exists()
    monkeypatch.undo()
    assert roll_up() == 1
    assert stored_sums(UsageSlot) == stored_sums(UsageDay) == stored_samples()


# --- percentiles ----------------------------------------------------------------------------------------------


def nearest_rank(values: Iterable[int]) -> tuple[int | None, int]:
    ordered = sorted(values)
    return (ordered[(len(ordered) * 95 + 99) // 100 - 1] if ordered else None), len(ordered)


def recomputed() -> dict[tuple[str, ...], list[tuple[int | None, int]]]:
    """By month, AS and owner, from all that is stored: both directions' percentile and number of values."""
    values: dict[tuple[str, ...], list[dict[datetime, int]]] = {}
    for row in UsageSlot.objects.select_related("series"):
        month = f"{row.begins_at:%Y-%m-01}"
        for who in (("", ""), (row.series.isd_as, row.series.owner_email)):
            sums = values.setdefault((month, *who), [{}, {}])
            for number, kbit in enumerate((row.to_user_kbit, row.from_user_kbit)):
                if kbit is not None:
                    sums[number][row.begins_at] = sums[number].get(row.begins_at, 0) + kbit
    return {
        key: [nearest_rank(one.values()) for one in both]
        for key, both in values.items()
        if any(both) or key[1:] == ("", "")
    }


def said() -> dict[tuple[str, ...], list[tuple[int | None, int]]]:
    return {
        (row.begins_on.isoformat(), row.isd_as, row.owner_email): [
            (row.to_user_p95_kbit, row.to_user_slots),
            (row.from_user_p95_kbit, row.from_user_slots),
        ]
        for row in UsageMonth.objects.all()
    }


acts = st.lists(
    st.one_of(
        st.tuples(st.just("carry"), st.integers(0, 3), st.integers(0, 2000)),
        st.tuples(st.just("carry"), st.integers(0, 3), st.integers(0, 2000)),
        st.tuples(st.just("late"), st.integers(0, 3), st.integers(0, 60)),
        st.tuples(st.just("rank"), st.just(0), st.just(0)),
        st.tuples(st.just("pause"), st.just(0), st.sampled_from([1, 5, 30, 300])),
        st.tuples(st.just("owner"), st.integers(0, 3), st.integers(0, 1)),
    ),
    min_size=10,
    max_size=30,
)


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(acts)
def test_percentiles_are_the_nearest_rank_of_all_rows(history: list[tuple[str, int, int]]) -> None:
    """Of any history over the end of a month: late five minutes, gaps, links of one AS, owners with a new address."""
    for model in (UsageSlot, UsageSeries, UsageMonth, UsageUplink):
        model.objects.all().delete()
    links = [series_of(interface_id=number, isd_as=f"17-ffaa:1:{number // 2}") for number in range(4)]  # two each
    clock, now = MIDNIGHT - HOUR, MIDNIGHT + 3 * DAY
    for act, which, number in [*history, ("rank", 0, 0)]:
        match act:
            case "carry":
                clock += SLOT * (number % 2)
                carry(links[which], clock, number, covered_ms=0 if number % 9 == 0 else 300_000 - number)
            case "late":
                carry(links[which], max(clock - number * SLOT, MIDNIGHT - DAY), number * 50, covered_ms=100_000)
            case "rank":
                UsageMonth.objects.update(computed_at=now - DAY)
                months.compute_due(now=now)
                assert said() == recomputed()
            case "pause":
                clock += number * SLOT
            case "owner":
                UsageSeries.objects.filter(pk=links[which].pk).update(owner_email=f"{number}@example.org")


def test_late_rows_of_yesterday_are_in_the_percentile_a_day_later(host: Host, link: Link) -> None:
    for number in range(40):
        store(host, simple(host, MIDNIGHT + number * HOUR, [number * 5000, number * 5000 + 1000]), MIDNIGHT + 40 * HOUR)
    roll_up()
    months.compute_due(now=MIDNIGHT + 40 * HOUR)
    late = simple(host, MIDNIGHT + timedelta(minutes=30), [0, 1_250_000, 2_500_000], segment="boot-0")
    store(host, late, MIDNIGHT + 40 * HOUR)
    roll_up()
    months.compute_due(now=MIDNIGHT + 63 * HOUR)
    assert UsageMonth.objects.get(begins_on="2026-11-01", isd_as="").to_user_slots == 40
    months.compute_due(now=MIDNIGHT + 64 * HOUR)
    assert said() == recomputed()
    assert UsageMonth.objects.get(begins_on="2026-11-01", isd_as="").to_user_slots == 41


# --- what is old ----------------------------------------------------------------------------------------------


def test_only_days_of_settled_months_go_and_as_a_whole(host: Host) -> None:
    store(host, simple(host, MIDNIGHT - HOUR, [0, 1000]), MIDNIGHT)
    store(host, simple(host, MIDNIGHT + HOUR, [2000, 3000]), MIDNIGHT + HOUR)
    waiting = simple(host, MIDNIGHT - 2 * HOUR, [7], segment="boot-0")
    store(host, waiting, MIDNIGHT + HOUR)
    later = MIDNIGHT + 200 * DAY
    batch = UsageBatch.objects.latest("pk")
    UsageBatch.objects.filter(pk=batch.pk).update(rolled_up=True)  # as if a worker was not there yet
    roll_up()
    UsageBatch.objects.filter(pk=batch.pk).update(rolled_up=False)
    months.compute_due(now=later)
    assert prune(now=later)["days"] == 0, "a batch of October waits"
    roll_up()
    assert prune(now=later)["days"] == 0, "and its percentiles are not for good yet"
    months.compute_due(now=MIDNIGHT + 5 * DAY)
    assert prune(now=later)["days"] == 1, "October's"
    assert {row.begins_at for row in UsageSlot.objects.all()} == {MIDNIGHT + HOUR - SLOT, MIDNIGHT + HOUR}
    assert stored_sums(UsageDay)["to_user"][0] == 3007
    assert UsageMonth.objects.get(begins_on="2026-10-01", isd_as="").to_user_slots == 1


def test_a_month_of_which_no_rate_is_known_is_settled_too(host: Host) -> None:
    """A lone sample has bytes, and no rate."""
    store(host, simple(host, MIDNIGHT - HOUR, [7]), MIDNIGHT)
    roll_up()
    months.compute_due(now=MIDNIGHT + 5 * DAY)
    prune(now=MIDNIGHT + 200 * DAY)
    assert not UsageSlot.objects.exists()
    settled = UsageMonth.objects.get(begins_on="2026-10-01", isd_as="")
    assert (settled.is_final, settled.to_user_slots, settled.to_user_p95_kbit) == (True, 0, None)


def test_bytes_without_a_rate_are_no_silence_of_the_attachment_point(host: Host, link: Link) -> None:
    store(host, simple(host, MIDNIGHT - HOUR, [7]), MIDNIGHT)
    roll_up()
    panel = usage_panel(link, "day", now=MIDNIGHT)
    assert [one.bytes for one in panel.directions] == [7, 0]
    assert panel.is_empty is False
    assert usage_panel(link, "day", now=MIDNIGHT + 2 * DAY).is_empty is True


def test_an_idle_link_without_a_rate_is_no_silence_of_the_attachment_point(host: Host, link: Link) -> None:
    """As of an agent with an interval above 30 s."""
    minutes = [MIDNIGHT - number * timedelta(minutes=1) for number in range(60, 57, -1)]
    idle = Column("boot-1", [(1000, 0, 0, 0, 0)] * 3)
    store(host, document(host, minutes, {1: {"to_user": idle}}), MIDNIGHT)
    panel = usage_panel(link, "day", now=MIDNIGHT)
    assert panel.is_empty is False
    assert panel.rows[-1][0].is_measured is True
    assert panel.rows[-1][1].is_measured is False
