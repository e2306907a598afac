"""Usage from a batch to the three levels that it is kept at (docs/adr/0015): exactly, once, and never a spike."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pytest_django import Settings

from bandwidth_config import Limits
from scionlab.accounts.models import User
from scionlab.enforcement.generation import generation_raise
from scionlab.enforcement.models import HostReceipt
from scionlab.limits.measured import DirectionUsage
from scionlab.limits.update import link_update
from scionlab.settings.base import CELERY_BEAT_SCHEDULE
from scionlab.testbed.models import AttachmentPoint, Host, Link, UserAS
from scionlab.testbed.versions import restarts
from scionlab.testbed.versions.counters import hosts_bump
from scionlab.usage import rollup, tasks
from scionlab.usage.compact import totals_unpack
from scionlab.usage.ingest import Stored
from scionlab.usage.models import (
    UsageBatch,
    UsageCounter,
    UsageDay,
    UsageMonth,
    UsageSamples,
    UsageSeries,
    UsageSlot,
    UsageUplink,
)
from scionlab.usage.months import compute_due
from scionlab.usage.rollup import prune, roll_up
from scionlab.usage.series import usage_around, usage_of_link
from scionlab.user_ases.user_as import user_as_delete
from tests.cases import table
from tests.factories import attach, spec
from tests.usage_world import Column, Kernel, document, simple, store, stored_samples, stored_sums, upload

pytestmark = pytest.mark.django_db

T0 = datetime(2026, 11, 21, 6, 0, 0, tzinfo=UTC)
MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)


def levels() -> list[int]:
    """Bytes to the user at 10 s, 5 minutes, days."""
    found = [stored_samples(), stored_sums(UsageSlot), stored_sums(UsageDay)]
    return [level["to_user"][0] for level in found]


def rates(link: Link, begins_at: datetime, ends_at: datetime, step: str) -> list[int | None]:
    points = usage_of_link(link.pk, begins_at=begins_at, ends_at=ends_at, step=step).points  # type: ignore[arg-type]
    return [None if point.to_user is None else point.to_user.kbit for point in points]


# --- through the door -----------------------------------------------------------------------------------------


def test_an_upload_is_stored_at_all_three_levels(host: Host, link: Link) -> None:
    now = datetime.now(UTC).replace(microsecond=0) - MINUTE
    response = upload(host, simple(host, now, [1000, 2000, 4000]))
    assert (response.status_code, json.loads(response.content)) == (200, {"stored": True})
    assert roll_up() == 1
    assert levels() == [4000, 4000, 4000]
    series = UsageSeries.objects.get()
    assert (series.link, series.host, series.attachment_point) == (link, host, host.attachment_point)
    assert (series.ap_isd_as, series.isd_as) == ("17-ffaa:0:1107", "17-ffaa:1:1")
    assert (series.owner_email, series.interface_id) == ("owner@example.org", 1)


def test_a_batch_that_comes_again_is_known(host: Host) -> None:
    body = simple(host, T0, [1000, 2000])
    assert store(host, body, T0 + MINUTE) == Stored(stored=True)
    assert store(host, body, T0 + MINUTE) == Stored(stored=False)
    roll_up()
    assert store(host, body, T0 + HOUR) == Stored(stored=False)
    roll_up()
    assert levels() == [2000, 2000, 2000]


# --- gaps and spikes ------------------------------------------------------------------------------------------


def test_a_silent_agent_is_a_gap_and_what_it_found_then_is_no_rate(host: Host, link: Link) -> None:
    store(host, simple(host, T0, [0, 1000, 2000]), T0 + MINUTE)
    store(host, simple(host, T0 + timedelta(seconds=110), [9_002_000, 9_003_000]), T0 + 2 * MINUTE)
    # What the sample at 06:01:50 found is no rate: there are bytes in that step, and no kbit/s.
    assert rates(link, T0, T0 + timedelta(seconds=120), "10s") == [1, 1, *[None] * 9, 1]
    roll_up()
    (point,) = usage_of_link(link.pk, begins_at=T0, ends_at=T0 + timedelta(minutes=5), step="5min").points
    # The sample at 06:00:00 counts in the five minutes before.
    assert point.to_user == DirectionUsage(
        9_003_000, 90_030, 0, covered_s=30.0, limit_kbit=1000, backlog_bytes=0, at_limit_s=0.0, rated_bytes=3000
    )
    assert point.to_user.kbit == 1
    assert point.from_user is None


def test_an_interval_of_30_s_fills_its_steps_before_the_end_of_the_period(host: Host, link: Link) -> None:
    store(host, simple(host, T0, [0]), T0 + MINUTE)
    store(host, simple(host, T0 + timedelta(seconds=30), [3750]), T0 + MINUTE)
    assert rates(link, T0, T0 + timedelta(seconds=30), "10s") == [1, 1, 1]
    assert rates(link, T0, T0 + timedelta(seconds=10), "10s") == [1]
    first = usage_around(link.pk, [T0], before=timedelta(0), after=timedelta(seconds=10))[0][0]
    assert first.to_user is not None
    assert first.to_user.kbit == 1


def test_a_new_segment_counts_from_zero_and_never_shows_a_spike(host: Host, link: Link) -> None:
    store(host, simple(host, T0, [5_000_000, 5_001_000]), T0 + MINUTE)
    store(host, simple(host, T0 + timedelta(seconds=20), [700_000, 701_000], segment="boot-2"), T0 + MINUTE)
    roll_up()
    assert levels() == [5_702_000, 5_702_000, 5_702_000]
    assert rates(link, T0, T0 + timedelta(seconds=30), "10s") == [1, None, 1]


# --- whose ----------------------------------------------------------------------------------------------------


def test_an_interface_id_counts_for_the_link_that_had_it(
    host: Host, link: Link, ap: AttachmentPoint, owner: User, user_as: UserAS, teammate: User
) -> None:
    old = simple(host, T0, [1000])
    last = simple(host, T0 + timedelta(seconds=10), [1500])
    store(host, old, T0 + MINUTE)
    user_as_delete(user_as_id=user_as.pk, actor=owner)
    attach(teammate, spec(ap, public_ip="198.51.100.8"))
    assert Link.objects.get(interface_a__host=host).interface_a.interface_id == 1
    early = simple(host, T0 + timedelta(seconds=20), [40_000], segment="other", version=last["version"])
    new = simple(host, T0 + timedelta(seconds=20), [70_000], segment="other")
    meanwhile = f"1.{int(last['version'].partition('.')[2]) + 1}"
    between = simple(host, T0 + timedelta(seconds=20), [90_000], segment="else", version=meanwhile)
    assert store(host, between, T0 + MINUTE).ignored_links == [1], "between the two nobody is known to have had it"
    for body in (last, new):
        assert store(host, body, T0 + MINUTE).ignored_links == []
    roll_up()
    sums = {row.series.owner_email: row.to_user_bytes for row in UsageDay.objects.select_related("series")}
    assert sums == {"owner@example.org": 1500, "teammate@example.org": 70_000}
    assert not Link.objects.filter(pk=UsageSeries.objects.get(owner_email="owner@example.org").link_id).exists()
    assert store(host, early, T0 + MINUTE).stored  # of a configuration with the former link: nothing of the new one's
    roll_up()
    assert UsageDay.objects.get(series__owner_email="teammate@example.org").to_user_bytes == 70_000


def test_links_that_the_configuration_cannot_mean_are_told(host: Host, link: Link) -> None:
    newer = simple(host, T0, [1], version=f"1.{host.config_version + 1}")
    older = simple(host, T0, [1], version=f"1.{link.wanted_config_version - 1}")
    unknown = simple(host, T0, [1], interface_id=77)
    assert store(host, newer, T0) == Stored(stored=True, ignored_links=[1])
    assert store(host, older, T0) == Stored(stored=True, ignored_links=[1])
    assert store(host, unknown, T0) == Stored(stored=True, ignored_links=[77])
    body = simple(host, T0, [1])
    generation_raise()
    assert store(host, body, T0) == Stored(stored=True, ignored_links=[1])
    assert not UsageSamples.objects.exists()


def test_traffic_below_a_document_that_is_not_ours_is_nobodys(host: Host, link: Link, receipt: HostReceipt) -> None:
    """After a restored backup interface 1 may be a lost AS's in the kernel, and somebody else's here."""
    HostReceipt.objects.update(content=HostReceipt.Content.FOREIGN)
    assert store(host, simple(host, T0, [1000]), T0 + MINUTE) == Stored(stored=True, ignored_links=[1])
    assert not UsageSamples.objects.exists()
    HostReceipt.objects.update(content=HostReceipt.Content.PROVEN)
    assert store(host, simple(host, T0 + MINUTE, [2000]), T0 + MINUTE) == Stored(stored=True)


def test_what_an_agent_sends_late_about_a_link_that_was_changed_meanwhile_counts(
    host: Host, link: Link, owner: User
) -> None:
    store(host, simple(host, T0, [1000]), T0 + MINUTE)
    late = simple(host, T0 + timedelta(seconds=10), [2000])
    link_update(link_id=link.pk, active=False, actor=owner)
    assert store(host, late, T0 + MINUTE) == Stored(stored=True)
    assert levels()[0] == 2000


def test_last_batch_of_a_deleted_link_counts_whoever_raised_h_before(
    host: Host, link: Link, ap: AttachmentPoint, owner: User, user_as: UserAS, teammate: User
) -> None:
    store(host, simple(host, T0, [1000]), T0 + MINUTE)
    attach(teammate, spec(ap, public_ip="198.51.100.8"))
    last = simple(host, T0 + timedelta(seconds=10), [1500])
    user_as_delete(user_as_id=user_as.pk, actor=owner)
    assert store(host, last, T0 + MINUTE) == Stored(stored=True)
    assert levels()[0] == 1500


def test_first_batch_of_a_link_counts_though_its_limit_was_changed_meanwhile(
    host: Host, link: Link, ap: AttachmentPoint, owner: User, teammate: User
) -> None:
    first = simple(host, T0, [1000])
    attach(teammate, spec(ap, public_ip="198.51.100.8"))
    link_update(link_id=link.pk, limits=Limits(321, 321), actor=owner)
    assert store(host, first, T0 + MINUTE) == Stored(stored=True)
    assert levels()[0] == 1000


def test_links_that_ended_before_their_first_batch_came_are_billed_to_their_owners(
    host: Host, link: Link, ap: AttachmentPoint, owner: User, user_as: UserAS, teammate: User, stranger: User
) -> None:
    """All three had interface 1."""
    bodies = [simple(host, T0, [1000], segment="1")]
    user_as_delete(user_as_id=user_as.pk, actor=owner)
    short = attach(teammate, spec(ap, public_ip="198.51.100.8"))
    bodies.append(simple(host, T0 + MINUTE, [200], segment="2"))
    user_as_delete(user_as_id=short.pk, actor=teammate)
    attach(stranger, spec(ap, public_ip="198.51.100.9"))
    bodies.append(simple(host, T0 + 2 * MINUTE, [30], segment="3"))
    assert [store(host, body, T0 + 3 * MINUTE).ignored_links for body in bodies] == [[], [], []]
    roll_up()
    sums = {row.series.owner_email: row.to_user_bytes for row in UsageDay.objects.select_related("series")}
    assert sums == {"owner@example.org": 1000, "teammate@example.org": 200, "stranger@example.org": 30}


def test_a_link_whose_removal_waits_for_a_restart_is_billed_until_then(
    host: Host,
    link: Link,
    ap: AttachmentPoint,
    owner: User,
    user_as: UserAS,
    teammate: User,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The interface id is another Link's already."""
    monkeypatch.setattr(restarts, "AT_ONCE", 0)
    user_as_delete(user_as_id=user_as.pk, actor=owner)
    attach(teammate, spec(ap, public_ip="198.51.100.8"))
    waiting = simple(host, T0, [1000])
    hosts_bump(config_ids=[host.pk])
    after = simple(host, T0 + MINUTE, [200], segment="boot-2")
    for body in (after, waiting):
        assert store(host, body, T0 + 2 * MINUTE) == Stored(stored=True)
    roll_up()
    sums = {row.series.owner_email: row.to_user_bytes for row in UsageDay.objects.select_related("series")}
    assert sums == {"owner@example.org": 1000, "teammate@example.org": 200}


def test_traffic_survives_its_attachment_point(host: Host, link: Link, ap: AttachmentPoint) -> None:
    store(host, simple(host, T0, [1000, 2000]), T0 + MINUTE)
    link.interface_a.delete()
    Host.objects.filter(pk=host.pk).delete()
    assert roll_up() == 1
    assert levels() == [2000, 2000, 2000]


# --- clocks ---------------------------------------------------------------------------------------------------


@table("wrong", [timedelta(days=400), timedelta(minutes=6), timedelta(days=-4), timedelta(days=-20_000)])
def test_a_batch_with_a_wrong_clock_ends_when_it_came(host: Host, wrong: timedelta) -> None:
    store(host, simple(host, T0 + wrong, [0, 1000, 2000]), T0)
    assert UsageBatch.objects.get().ends_at == T0
    roll_up()
    slot = UsageSlot.objects.get()
    sums = totals_unpack(slot.packed)["to_user"]
    assert (slot.begins_at, sums.bytes) == (T0 - timedelta(minutes=5), 2000)
    assert (sums.covered_ms, sums.rated_bytes) == (20_000, 2000)


@table("off", [timedelta(minutes=4), timedelta(days=-2, hours=-20)])
def test_a_clock_that_may_be_right_is_believed(host: Host, off: timedelta) -> None:
    store(host, simple(host, T0 + off, [0, 1000]), T0)
    assert UsageBatch.objects.get().ends_at == T0 + off + timedelta(seconds=10)


# --- adding up, and forgetting --------------------------------------------------------------------------------


def test_killed_while_it_adds_up_leaves_nothing_half_done(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    store(host, simple(host, T0, [0, 1000, 2000]), T0 + MINUTE)
    real = rollup._add

    def killed(model: type[UsageSlot], sums: object) -> None:
        if model is UsageDay:
            raise KeyboardInterrupt
        real(model, sums)  # type: ignore[arg-type]

    monkeypatch.setattr(rollup, "_add", killed)
    with pytest.raises(KeyboardInterrupt):
        roll_up()
    assert levels() == [2000, 0, 0]
    monkeypatch.undo()
    roll_up()
    roll_up()
    assert levels() == [2000, 2000, 2000]


def test_each_level_is_kept_as_long_as_it_is_meant_to_be(host: Host, link: Link, settings: Settings) -> None:
    settings.USAGE_KEEP_10S_DAYS, settings.USAGE_KEEP_5MIN_DAYS = 2, 90
    store(host, simple(host, T0, [0, 1000]), T0 + MINUTE)
    store(host, simple(host, T0 + HOUR, [2000, 3000]), T0 + HOUR)
    later = T0 + 2 * DAY + timedelta(minutes=30)
    assert prune(now=later) == {"batches": 0, "days": 0, "counters": 0}, "nothing goes that is not added up"
    roll_up()
    assert prune(now=later) == {"batches": 1, "days": 0, "counters": 0}
    assert UsageSamples.objects.get().begins_at == T0 + HOUR
    assert prune(now=T0 + 91 * DAY)["days"] == 0, "nor before the month's percentiles are for good"
    assert levels() == [0, 3000, 3000]
    compute_due(now=T0 + 91 * DAY)
    assert prune(now=T0 + 90 * DAY)["days"] == 0, "the day is not over"
    assert prune(now=T0 + 91 * DAY) == {"batches": 0, "days": 1, "counters": 0}
    assert levels() == [0, 0, 3000]
    compute_due(now=T0 + 91 * DAY)
    assert UsageMonth.objects.get(isd_as="").to_user_p95_kbit == 0
    assert not UsageUplink.objects.exists()
    assert UsageCounter.objects.count() == 1, "how far it is counted is known as long as the segment may go on"


def test_a_batch_that_comes_after_its_samples_were_forgotten_counts_nothing_twice(host: Host) -> None:
    body = simple(host, T0, [0, 1000])
    store(host, body, T0 + MINUTE)
    roll_up()
    prune(now=T0 + 3 * DAY)
    assert not UsageBatch.objects.exists()
    assert store(host, body, T0 + 3 * DAY - HOUR) == Stored(stored=True)
    roll_up()
    assert levels() == [0, 1000, 1000]


def test_beat_has_all_of_it_done(host: Host) -> None:
    now = datetime.now(UTC).replace(microsecond=0) - 2 * MINUTE
    upload(host, simple(host, now, [0, 1_250_000]))
    for entry in ("roll_up_usage", "compute_usage_months", "prune_usage"):
        getattr(tasks, CELERY_BEAT_SCHEDULE[entry]["task"].rpartition(".")[2])()
    assert levels() == [1_250_000] * 3
    assert UsageMonth.objects.get(isd_as="").to_user_p95_kbit == 1000


def test_a_worker_begins_nothing_when_its_time_is_over(host: Host) -> None:
    store(host, simple(host, T0, [0, 1000]), T0)
    assert roll_up(until=datetime.now(UTC)) == 0
    assert roll_up(until=datetime.now(UTC) + MINUTE) == 1


def test_segments_that_ended_are_forgotten_after_a_month(host: Host) -> None:
    store(host, simple(host, T0, [5]), T0)
    store(host, simple(host, T0 + MINUTE, [7], segment="boot-2"), T0 + MINUTE)
    assert prune(now=T0 + 29 * DAY)["counters"] == 0
    assert prune(now=T0 + 31 * DAY)["counters"] == 1
    assert UsageCounter.objects.get().segment == "boot-2"


# --- any history ----------------------------------------------------------------------------------------------

acts = st.lists(
    st.one_of(
        st.tuples(st.just("carry"), st.integers(0, 1), st.integers(0, 10**7)),
        st.tuples(st.just("sample"), st.just(0), st.sampled_from([10, 10, 10, 25, 400])),
        st.tuples(st.just("close"), st.just(0), st.just(0)),
        st.tuples(st.just("reboot"), st.integers(0, 1), st.just(0)),
        st.tuples(st.just("clock"), st.just(0), st.integers(-120, 60)),
        st.tuples(st.just("roll up"), st.just(0), st.just(0)),
    ),
    min_size=5,
    max_size=25,
)


@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(acts, st.data())
def test_any_history_adds_up_to_what_the_kernel_counted(
    host: Host, link: Link, history: list[tuple[str, int, int]], data: st.DataObject
) -> None:
    """Batches in any order, twice, cut anywhere, over reboots and clocks that were set: every level has the same.

    In any order only while the clock was not set back: then nothing tells what comes late from what began anew.
    """
    for model in (UsageBatch, UsageSeries):
        model.objects.all().delete()
    kernels = (Kernel(), Kernel())
    clock, batches = T0, []
    times: list[datetime] = []
    columns = [Column(one.segment) for one in kernels]

    def close() -> None:
        nonlocal times, columns
        if times:
            batches.append(document(host, times, {1: dict(zip(("to_user", "from_user"), columns, strict=True))}))
        times, columns = [], [Column(one.segment) for one in kernels]

    def see(step_s: int) -> None:
        nonlocal clock
        clock += timedelta(seconds=step_s)
        if (times and clock <= times[-1]) or len(times) == 60:
            close()
        times.append(clock)
        for column, kernel in zip(columns, kernels, strict=True):
            column.see(kernel)

    for act, which, number in history:
        match act:
            case "carry":
                kernels[which].carry(number, packets=number // 1000, drops=number % 3)
            case "sample":
                see(number)
            case "close":
                close()
            case "clock":
                clock += timedelta(seconds=number)
            case "reboot":
                see(1)  # the agent reads a class before it makes it anew
                close()
                kernels[which].begin_anew()
                close()
            case "roll up":
                roll_up()
    see(10)
    close()
    again = data.draw(st.lists(st.sampled_from(batches), max_size=4))
    was_set_back = any(act == "clock" and number < 0 for act, _, number in history)
    arrivals = batches + again if was_set_back else data.draw(st.permutations(batches + again))
    for body in arrivals:
        store(host, body, clock + MINUTE)
        if data.draw(st.booleans()):
            roll_up()
    roll_up()
    counted = {"to_user": kernels[0].all, "from_user": kernels[1].all}
    assert stored_samples() == counted
    assert stored_sums(UsageSlot) == counted
    assert stored_sums(UsageDay) == counted
