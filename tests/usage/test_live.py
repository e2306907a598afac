"""What passes now: who looks is told to the agent, what it reports stands on pages, and nothing is in the database."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import timedelta
from html import unescape
from typing import Any

import pytest
from django.core.cache import caches
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from django.utils.html import strip_tags
from pytest_django import DjangoAssertNumQueries
from redis.exceptions import RedisError

from scionlab.accounts.models import User
from scionlab.delivery.polls import wakeup
from scionlab.testbed.models import Host, Link
from scionlab.usage import live
from tests.cases import table
from tests.factories import attach, spec
from tests.support.polling import DEADLINE_S, NEVER_S, WebServer, credentials

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _nobody_looked() -> None:
    caches["live"].clear()


def end(link: Link) -> live.End:
    return link.interface_a.host.uid, link.interface_a.interface_id


def side(passed: int, limit: int = 500, dropped: int = 0) -> dict[str, int]:
    return {"rate_kbit": limit, "passed_bytes": passed, "dropped_bytes": dropped}


def rates(to_user: dict[str, int] | None, **fields: Any) -> dict[str, Any]:
    return {"over_ms": 1000, "in_force": True, "to_user": to_user, "from_user": side(0)} | fields


def report(client: Client, host: Host, links: Mapping[int, Any], *, age_ms: int = 4) -> Any:
    document = {"schema": 1, "age_ms": age_ms, "links": {str(number): one for number, one in links.items()}}
    return client.post(
        reverse("host_live", args=[host.uid]),
        json.dumps(document),
        content_type="application/json",
        headers=credentials(host),
    )


@pytest.fixture
def owners(owner: User) -> Client:
    browser = Client()
    browser.force_login(owner)
    return browser


def words(answer: Any) -> str:
    return " ".join(unescape(strip_tags(answer.content.decode())).split())


def text_of(browser: Client, link: Link, name: str = "link_now") -> str:
    return words(browser.get(reverse(name, args=[link.interface_b.AS_id, link.pk])))


# --- the agent ------------------------------------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
@pytest.mark.xdist_group("polls")
@pytest.mark.parametrize("has_messages", [True, False], ids=["Redis", "embedded"])
def test_a_look_ends_the_poll_of_its_host_with_the_links(
    has_messages: bool, host_b: Host, link: Link, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not has_messages:
        request.getfixturevalue("_no_messages")
    monkeypatch.setattr(wakeup, "SAFETY_NET_S", NEVER_S)
    server: WebServer = request.getfixturevalue("server")
    called, other = server.wait(link.interface_a.host, live=1), server.wait(host_b)  # of an agent that reports nothing
    live.request_rates([(host_b.uid, 1), end(link)])
    answer = called.result(DEADLINE_S)
    assert (answer.status, answer.body) == (304, b"")
    assert answer.headers["scionlab-looked-at"] == str(link.interface_a.interface_id)
    assert not other.done()


def test_report_is_answered_with_what_is_looked_at_and_touches_no_table(
    client: Client, link: Link, host: Host, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    number = link.interface_a.interface_id
    assert report(client, host, {number: rates(side(51_500))}).json() == {"links": []}
    live.request_rates([end(link)])
    with django_assert_num_queries(2):  # who the host is, and whether it is an attachment point's
        assert report(client, host, {number: rates(side(51_500))}).json() == {"links": [str(number)]}
    found = live.request_rates([end(link)])[end(link)].rates
    assert found is not None
    assert found.to_user == live.Side(500, 51_500, 0)
    other = ("0" * 32, number)
    assert live.request_rates([other])[other].rates is None, "another host's"


def test_agent_that_reports_is_not_called_again(
    client: Client, link: Link, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    monkeypatch.setattr(live, "call", lambda uid, _: calls.append(uid))
    report(client, host, {})
    live.request_rates([end(link)])
    assert calls == []
    caches["live"].delete(f"heard:{host.uid}")
    live.request_rates([end(link)])
    live.request_rates([end(link)])  # not each second, where nobody answers
    assert calls == [host.uid]


@table(
    ("document", "place"),
    [
        ({"links": {"1": rates(side(1), over_ms=0)}}, "links.1.over_ms"),
        ({"links": {"1": rates(side(-1))}}, "links.1.to_user.passed_bytes"),
        ({"links": {"0": rates(side(1))}}, "links.0"),
        ({"links": {str(one): rates(side(1)) for one in range(1, 66)}}, "links"),
    ],
)
def test_report_that_is_malformed_is_refused(client: Client, host: Host, document: dict[str, Any], place: str) -> None:
    content = json.dumps({"schema": 1, "age_ms": 0, "links": {}} | document)
    url = reverse("host_live", args=[host.uid])
    answer = client.post(url, content, content_type="application/json", headers=credentials(host))
    assert (answer.status_code, place in answer.json()["fields"]) == (400, True)


def test_only_attachment_points_report(client: Client, link: Link) -> None:
    answer = report(client, link.interface_b.host, {})
    assert (answer.status_code, answer.json()["code"]) == (400, "not_attachment_point")


# --- pages ----------------------------------------------------------------------------------------------------------

SHOWN = {
    "within": (rates(side(51_500)), "To your AS 412 of 500 kbit/s From your AS 0 of 500 kbit/s Traffic in one second"),
    "dropped": (rates(side(62_500, dropped=12_500)), "500 of 500 kbit/s 100 kbit/s dropped"),
    "blocked": (rates(side(0, 0)), "To your AS blocked From"),
    "observed": (rates(side(51_500), in_force=False), "To your AS 412 kbit/s no limit in force"),
    "over 5 s": (
        rates(side(5 * 51_500), over_ms=5000),
        "To your AS 412 of 500 kbit/s From your AS 0 of 500 kbit/s Mean of 5 s",
    ),
    "one direction": (rates(None), "From your AS 0 of 500 kbit/s Traffic in one second"),
    "half a second": (rates(side(51_500), over_ms=500), "824 of 500 kbit/s"),
}


@table("said, shown", list(SHOWN.values()), ids=list(SHOWN))
def test_dials_say_what_passes_of_the_limit(
    client: Client, owners: Client, link: Link, host: Host, said: dict[str, Any], shown: str
) -> None:
    report(client, host, {link.interface_a.interface_id: said})
    assert shown in text_of(owners, link)
    assert shown in text_of(owners, link, "link_detail")


def test_what_is_older_than_two_seconds_is_not_shown_as_current(
    client: Client, owners: Client, link: Link, host: Host
) -> None:
    number = link.interface_a.interface_id
    for age_ms, is_fresh, has_dials in ((500, True, True), (2500, False, True), (30_000, False, False)):
        report(client, host, {number: rates(side(51_500))}, age_ms=age_ms)
        found = text_of(owners, link)
        assert ("Traffic in one second" in found, "412" in found) == (is_fresh, has_dials)


def test_rates_that_nobody_asked_for_before_are_not_called_missing(
    client: Client, owners: Client, link: Link, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An agent reports current rates only while a page is open: before, silence says nothing about it."""
    number, began = link.interface_a.interface_id, timezone.now()
    report(client, host, {number: rates(side(51_500))}, age_ms=20_000)  # of somebody who looked then
    steps = [
        (0, None, "Asking the attachment point for current rates"),
        (6, None, "The attachment point has sent no current rates for 6 s."),
        (7, 0, "Traffic in one second"),
        (14, None, "The attachment point has sent no current rates for 7 s."),
        (40, None, "Asking the attachment point for current rates"),  # the page was closed meanwhile
    ]
    for at, age_ms, shown in steps:
        monkeypatch.setattr(timezone, "now", lambda at=at: began + timedelta(seconds=at))
        if age_ms is not None:
            report(client, host, {number: rates(side(51_500))}, age_ms=age_ms)
        found = text_of(owners, link)
        assert (at, shown in found, "No report" in found) == (at, True, False)


def test_list_has_one_line_for_each_as_with_the_sum_of_its_links(
    client: Client,
    owners: Client,
    owner: User,
    link: Link,
    host: Host,
    django_assert_max_num_queries: DjangoAssertNumQueries,
) -> None:
    ap = link.interface_a.AS.attachment_point
    made = attach(owner, *[spec(ap, public_port=50_200 + number, bandwidth_kbit=900) for number in range(2)])
    both = [one.interface_a.interface_id for one in Link.objects.filter(interface_b__AS=made)]
    report(client, host, {both[0]: rates(side(50_000, 900)), both[1]: rates(side(25_000, 900))})
    with django_assert_max_num_queries(5):
        lines = words(owners.get(reverse("ases_now")))
    assert "To your AS 600 of 1 800 kbit/s" in lines
    assert "asking for current rates" in lines
    report(client, host, {both[0]: rates(side(50_000, 900))})
    caches["live"].delete(f"live:{host.uid}:{both[1]}")
    assert "of 1 of 2 links" in words(owners.get(reverse("user_as_list")))


def test_cache_that_is_away_is_nobody_who_reports(
    owners: Client, client: Client, link: Link, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: Any, **__: Any) -> None:
        raise RedisError("away")

    for name in ("get_many", "set_many"):
        monkeypatch.setattr(type(caches["live"]), name, away)
    assert "Current rates are not available at the moment." in text_of(owners, link)
    assert report(client, host, {}).json() == {"links": []}


def test_look_ends_by_itself(link: Link, host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    live.request_rates([end(link)])
    later = timezone.now() + timedelta(seconds=live.LOOKED_FOR_S + 1)
    monkeypatch.setattr(timezone, "now", lambda: later)
    assert live.store(host.uid, {}) == []
