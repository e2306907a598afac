"""The history of a Link, each with the traffic around it change."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from bandwidth_config import Limits
from scionlab.accounts.models import User
from scionlab.limits.pages.change_lines import ChangeLine, change_lines
from scionlab.limits.pages.presenters import history_of
from scionlab.limits.profiles import constant
from scionlab.limits.timed_limit import timed_limit_create
from scionlab.limits.update import link_update
from scionlab.testbed import selectors
from scionlab.testbed.models import AttachmentPoint, BandwidthChange, Link, UserAS
from scionlab.usage.models import UsageBatch, UsageSamples
from scionlab.usage.packing import pack
from scionlab.usage.totals import Interval, to_ms
from tests.cases import case
from tests.factories import attach, spec
from tests.limits.test_pages_link import client
from tests.limits.test_pages_status import confirm
from tests.usage_world import series_of

__all__ = ["client"]  # a fixture

pytestmark = pytest.mark.django_db


def samples(link: Link, saved_at: datetime, *, key: str = "k", frm: int = -60, until: int = 90) -> None:
    """Of both directions, a sample every 10 s: 490 of 500 kbit/s passed before, 790 of 800 from 10 s after it on."""
    intervals = []
    begin = saved_at.replace(microsecond=0) - timedelta(seconds=saved_at.second % 10)
    for offset_s in range(frm, until, 10):
        kbit, limit = (490, 500) if offset_s < 10 else (790, 800)
        ends_at = begin + timedelta(seconds=offset_s + 10)
        intervals.append(
            Interval(kbit * 1250, 100, ends_at_ms=to_ms(ends_at), covered_ms=10_000, limit_kbit=limit, backlog_bytes=0)
        )
    series = series_of(link)
    batch = UsageBatch.objects.create(host=link.interface_a.host, key=key, received_at=saved_at, ends_at=saved_at)
    for begins_at_ms, packed in pack(intervals, intervals):
        at = datetime.fromtimestamp(begins_at_ms / 1000, tz=UTC)
        UsageSamples.objects.create(batch=batch, series=series, begins_at=at, packed=packed)


def lines(link: Link) -> list[ChangeLine]:
    [read] = [one for one in selectors.links_of(link.interface_b.AS.useras) if one.pk == link.pk]
    return change_lines(read, history_of(read))


def plain(text: str) -> str:
    return text.replace("\N{NO-BREAK SPACE}", " ")


@pytest.fixture
def saved(user_as: UserAS, link: Link) -> BandwidthChange:
    link_update(link_id=link.pk, limits=Limits.both(800), actor=None)
    link.refresh_from_db()
    return history_of(link)[0]


def test_the_minute_shows_save_the_kernels_limit_and_the_traffic(link: Link, saved: BandwidthChange) -> None:
    samples(link, saved.at)
    found, *older = lines(link)
    assert [line.name for line in found.lines] == ["To your AS", "From your AS"]
    for line in found.lines:
        assert plain(line.words) == "490 kbit/s of 500 kbit/s before, 790 kbit/s of 800 kbit/s at the end of the minute"
        assert line.plot.values == "490,490,490,790,790,790,790"
    assert [one.change.pk for one in older] == [one.pk for one in history_of(link)[1:]]


def test_what_was_not_measured_is_not_drawn(
    subtests: pytest.Subtests, link: Link, saved: BandwidthChange, owner: User, ap: AttachmentPoint
) -> None:
    with case(subtests, "nothing"):
        assert lines(link)[0].lines == []
    with case(subtests, "nothing after"):
        samples(link, saved.at, until=0)
        [found, *_] = lines(link)
        assert plain(found.lines[0].words) == "490 kbit/s of 500 kbit/s before"
        assert found.lines[0].plot.values == "490,490,,,,,"
    with case(subtests, "another link"):
        other = attach(owner, spec(ap, public_port=50_009))
        samples(Link.objects.get(interface_b__AS=other), saved.at)
        assert lines(link)[0].lines == []
    with case(subtests, "another day alone"):
        samples(link, saved.at - timedelta(days=1))
        assert lines(link)[0].lines == []


def test_the_newest_change_has_the_time_of_its_confirmation(
    subtests: pytest.Subtests, link: Link, saved: BandwidthChange
) -> None:
    def confirmed() -> list[float | None]:
        return [one.kernel_after_s for one in lines(link)]

    at = saved.at + timedelta(seconds=0.8)
    with case(subtests, "not confirmed"):
        assert set(confirmed()) == {None}
    with case(subtests, "confirmed"):
        confirm(link, at=at, since=at)
        samples(link, saved.at)
        assert confirmed() == [pytest.approx(0.8), *[None] * (len(confirmed()) - 1)]
    with case(subtests, "confirmed before it"):
        confirm(link, at=at, since=saved.at - timedelta(seconds=1))
        assert set(confirmed()) == {None}
    with case(subtests, "another limit"):
        confirm(link, at=at, since=at, kbit=500, to_user_rate_kbit=500, from_user_rate_kbit=500)
        assert set(confirmed()) == {None}
    with case(subtests, "a temporary limit"):
        timed_limit_create(link_id=link.pk, profile=constant(Limits.both(100), 600), begins_at=None, actor=None)
        confirm(link, at=at, since=at)
        assert set(confirmed()) == {None}
