"""The page that explains the throughput of a Link."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from django.test import Client
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from bandwidth_config import Limits
from scionlab.accounts.models import User
from scionlab.enforcement.models import HostReceipt, LinkEnforcement
from scionlab.limits.defaults import ap_default_set, fan_out
from scionlab.limits.profiles import constant
from scionlab.limits.timed_limit import timed_limit_create
from scionlab.limits.update import link_update
from scionlab.testbed.models import AttachmentPoint, Link, UserAS
from scionlab.usage.models import UsageBatch, UsageSamples
from scionlab.usage.packing import pack
from scionlab.usage.totals import Interval, to_ms
from tests.cases import case
from tests.limits.test_pages_link import MAX_BYTES, MAX_STATEMENTS, busy, client, url_of, weight
from tests.limits.test_pages_status import confirm
from tests.support.html import Page
from tests.usage_world import series_of

__all__ = ["client"]  # a fixture

pytestmark = pytest.mark.django_db

STEPS = [
    "Requested", "Maximum", "Temporary limit", "Enforced", "Total of all links", "Heartbeats", "Headers", "Passed",
    "Dropped by the limit", "Elsewhere",
]  # fmt: skip


def rows(page: Page, direction: str = "to_user") -> dict[str, tuple[str, str]]:
    section = page.root.one("section", aria_labelledby=f"{direction}-title")
    cells = [(row.one("th").text, *(cell.text for cell in row.all("td"))) for row in section.one("tbody").all("tr")]
    return {name: (amount, text) for name, amount, text in cells}


def answer(page: Page, direction: str = "to_user") -> str:
    return page.root.one("section", aria_labelledby=f"{direction}-title").all("p")[0].text


def used(link: Link, *, kbit: int, seconds: int = 600, frame: int = 242, drops: int = 0, limit_kbit: int = 500) -> None:
    """Both directions, in samples of 10 s that end a minute ago."""
    last: datetime = timezone.now().replace(second=0, microsecond=0) - timedelta(minutes=1)
    size = kbit * 10_000 // 8
    intervals = [
        Interval(
            size,
            size // frame,
            drops,
            ends_at_ms=to_ms(last) - 10_000 * number,
            covered_ms=10_000,
            limit_kbit=limit_kbit,
            backlog_bytes=0,
        )
        for number in reversed(range(seconds // 10))
    ]
    series = series_of(link)
    batch = UsageBatch.objects.create(host=link.interface_a.host, key="k", received_at=last, ends_at=last)
    for begins_at_ms, packed in pack(intervals, intervals):
        at = datetime.fromtimestamp(begins_at_ms / 1000, tz=last.tzinfo)
        UsageSamples.objects.create(batch=batch, series=series, begins_at=at, packed=packed)


@pytest.fixture
def enforced(user_as: UserAS, link: Link) -> Link:
    """500 kbit/s in both directions."""
    link_update(link_id=link.pk, limits=Limits.both(500), actor=None)
    link.refresh_from_db()
    confirm(link)
    return link


def test_each_step_from_the_request_to_what_passed_has_its_figure_and_sentence(client: Client, enforced: Link) -> None:
    used(enforced, kbit=499, drops=7)
    page = Page(client.get(url_of(enforced, "why/")))
    found = rows(page)
    assert list(found) == STEPS == list(rows(page, "from_user"))
    assert [amount for amount, _ in found.values()] == [
        "500 kbit/s", "500 kbit/s", "500 kbit/s", "500 kbit/s", "500 kbit/s", "495 kbit/s",
        "481 kbit/s of SCION packets", "412 kbit/s of SCION packets", "420 packets", "not measured",
    ]  # fmt: skip
    assert "Each counts as 134 bytes, so heartbeats take 5.4 to 7.1 kbit/s of the limit." in found["Heartbeats"][1]
    assert "42 bytes of headers (UDP 8, IPv4 20, Ethernet 14): one of 1 472 bytes as 1 514." in found["Headers"][1]
    assert "499 kbit/s passed as the limit counts, in packets of 200 bytes on average" in found["Passed"][1]
    assert found["Dropped by the limit"][1].startswith("In the last hour, 7 of them in the busiest 10 s.")
    assert answer(page) == (
        "The limit: for 600 s of the 600 s measured in the last hour the link was at its limit to your AS, and 420 "
        "packets were counted as dropped."
    )


def test_the_answer_is_what_is_known(subtests: pytest.Subtests, client: Client, enforced: Link) -> None:
    def said() -> str:
        return answer(Page(client.get(url_of(enforced, "why/"))))

    with case(subtests, "nothing measured"):
        assert said() == "Not known: nothing was measured to your AS in the last hour."
    with case(subtests, "little used"):
        used(enforced, kbit=185)
        assert said() == (
            "Not this limit: at most 37 % of it was used to your AS in any 10 s of the last hour, and it dropped "
            "nothing."
        )
    with case(subtests, "hardly used"):
        used(enforced, kbit=20)
        assert said() == "Not enough was sent to your AS to tell: at most 4 % of the limit was used in any 10 s."
    with case(subtests, "bursts are dropped"):
        used(enforced, kbit=185, drops=1, seconds=10)
        assert said().startswith("At times the limit: for 0 s of the 10 s measured")
    with case(subtests, "blocked"):
        link_update(link_id=enforced.pk, limits=Limits.both(0), actor=None)
        confirm(Link.objects.get(pk=enforced.pk))
        assert said() == "The limit is 0: nothing passes to your AS."
    with case(subtests, "not confirmed"):
        used(enforced, kbit=499)
        HostReceipt.objects.all().delete()
        LinkEnforcement.objects.all().delete()
        assert said().startswith("Not known: ")
        assert rows(Page(client.get(url_of(enforced, "why/"))))["Headers"][0] == "not known"
    with case(subtests, "observed"):
        used(enforced, kbit=499, drops=1)
        Link.objects.filter(pk=enforced.pk).update(observe_only=True)
        confirm(Link.objects.get(pk=enforced.pk), state="observed")
        assert said().startswith("Observed: nothing is limited")
        found = rows(Page(client.get(url_of(enforced, "why/"))))
        assert (found["Enforced"][0], found["Headers"][0]) == ("no limit", "not known")
        assert found["Dropped by the limit"][1].startswith("The limit would have dropped them")
    with case(subtests, "inactive"):
        Link.objects.filter(pk=enforced.pk).update(active=False)
        assert said() == "Inactive: the link is in no configuration."


def test_what_lowers_the_limit_is_named(
    subtests: pytest.Subtests, client: Client, enforced: Link, ap: AttachmentPoint, staff: User
) -> None:
    def found() -> dict[str, tuple[str, str]]:
        return rows(Page(client.get(url_of(enforced, "why/"))))

    with case(subtests, "maximum"):
        ap_default_set(attachment_point_id=ap.pk, default_bandwidth_kbit=300, actor=staff)
        fan_out()
        assert found()["Requested"][0] == "500 kbit/s"
        assert found()["Maximum"][0] == "300 kbit/s"
        assert "so your limit is clamped to it" in found()["Maximum"][1]
    with case(subtests, "temporary limit"):
        timed_limit_create(link_id=enforced.pk, profile=constant(Limits(200, 100), 600), begins_at=None, actor=None)
        assert found()["Temporary limit"][0] == "200 kbit/s"
        assert "it sets 200 kbit/s now" in found()["Temporary limit"][1]
    with case(subtests, "total in force"):
        AttachmentPoint.objects.filter(pk=ap.pk).update(total_kbit=400)
        total = {"says_total": True, "total_to_user_kbit": 400, "total_from_user_kbit": 400}
        HostReceipt.objects.update(**total)
        assert found()["Total of all links"][0] == "400 kbit/s"
        assert found()["Heartbeats"][0] == "395 kbit/s"
    with case(subtests, "total not in force"):
        AttachmentPoint.objects.filter(pk=ap.pk).update(total_kbit=400)
        amount, text = found()["Total of all links"]
        assert amount == "500 kbit/s"
        assert text.endswith("carry at most 400 kbit/s in each direction (not enforced: not supported by this agent).")
    with case(subtests, "a narrow uplink"):
        AttachmentPoint.objects.filter(pk=ap.pk).update(uplink_kbit=250)
        assert "uplink is entered as 250 kbit/s, less than this limit, for all it carries." in found()["Elsewhere"][1]


def test_the_page_is_light_and_the_link_leads_to_it(
    client: Client, owner: User, ap: AttachmentPoint, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    link = busy(owner, ap)
    url = url_of(link, "why/")
    assert Page(client.get(url_of(link))).root.all("a", href=url)
    with django_assert_max_num_queries(MAX_STATEMENTS):
        assert weight(client, url) <= MAX_BYTES
