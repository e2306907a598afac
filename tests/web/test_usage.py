"""Usage from a batch to the three levels that it is kept at (docs/adr/0015): exactly, once, and never a spike."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from scionlab.models import Host, Link, UsageDay, UsageSeries, UsageSlot
from scionlab.usage.ingest import Stored
from scionlab.usage.rollup import roll_up
from scionlab.usage.series import DirectionUsage, usage_of_link
from tests.usage_world import simple, store, stored_samples, stored_sums, upload

pytestmark = pytest.mark.django_db

T0 = datetime(2026, 11, 21, 6, 0, 0, tzinfo=UTC)
MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)


@pytest.fixture
def host(link: Link) -> Host:
    return link.interface_a.host


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


def test_the_same_samples_in_another_batch_count_once(host: Host) -> None:
    store(host, simple(host, T0, [1000, 2000, 3000]), T0 + MINUTE)
    store(host, simple(host, T0 + timedelta(seconds=10), [2000, 3000, 5000]), T0 + MINUTE)
    roll_up()
    assert levels() == [5000, 5000, 5000]


# --- gaps and spikes ------------------------------------------------------------------------------------------


def test_a_silent_agent_is_a_gap_and_what_it_found_then_is_no_rate(host: Host, link: Link) -> None:
    store(host, simple(host, T0, [0, 1000, 2000]), T0 + MINUTE)
    store(host, simple(host, T0 + timedelta(seconds=110), [9_002_000, 9_003_000]), T0 + 2 * MINUTE)
    # What the sample at 06:01:50 found is no rate: there are bytes in that step, and no kbit/s.
    assert rates(link, T0, T0 + timedelta(seconds=120), "10s") == [1, 1, *[None] * 9, 1]
    roll_up()
    (point,) = usage_of_link(link.pk, begins_at=T0, ends_at=T0 + timedelta(minutes=5), step="5min").points
    # The sample at 06:00:00 counts in the five minutes before.
    assert point.to_user == DirectionUsage(9_003_000, 90_030, 0, 30.0, 1000, 0, 0.0, 3000)
    assert point.to_user.kbit == 1
    assert point.from_user is None


def test_a_new_segment_counts_from_zero_and_never_shows_a_spike(host: Host, link: Link) -> None:
    store(host, simple(host, T0, [5_000_000, 5_001_000]), T0 + MINUTE)
    store(host, simple(host, T0 + timedelta(seconds=20), [700_000, 701_000], segment="boot-2"), T0 + MINUTE)
    roll_up()
    assert levels() == [5_702_000, 5_702_000, 5_702_000]
    assert rates(link, T0, T0 + timedelta(seconds=30), "10s") == [1, None, 1]
