"""What the administrators' lists and first page say, how they are searched and filtered, in how many statements."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from scionlab.links.user_as import user_as_create
from scionlab.models import (
    AS,
    AttachmentPoint,
    BandwidthChange,
    Host,
    HostReceipt,
    Interface,
    Link,
    LinkEnforcement,
    User,
    UserAS,
)
from scionlab.network.infrastructure_links import infrastructure_link_create
from scionlab.notation.isd_as import parse_as_id
from tests.admin_pages import CHANGE, LIST, page
from tests.factories import attach, spec

pytestmark = pytest.mark.django_db


def rows(response: Any) -> list[Any]:
    return list(response.context["cl"].result_list)


@pytest.fixture
def three_links(owner: User, ap: AttachmentPoint, link: Link) -> list[Link]:
    """ffaa:1:1 (1000 kbit/s), ffaa:1:b6 (200) and ffaa:1:f00d (0), all at `ap`."""
    found = [link]
    for as_text, ip, bandwidth in (("ffaa:1:b6", "198.51.100.66", 200), ("ffaa:1:f00d", "2001:db8::f00d", 0)):
        made = user_as_create(
            owner=owner,
            actor=owner,
            label="",
            installation_type=UserAS.Installation.VM,
            attachments=[spec(ap, public_ip=ip, bandwidth_kbit=bandwidth)],
            as_id=parse_as_id(as_text),
        )
        found.append(Link.objects.get(interface_b__AS=made.pk))
    return found


SEARCHES = [
    ("17-ffaa:1:b6", ["ffaa:1:b6"]),
    ("ffaa:1:B6", ["ffaa:1:b6"]),
    ("17-ffaa_1_b6", ["ffaa:1:b6"]),
    ("b6", ["ffaa:1:b6"]),
    ("f00d", ["ffaa:1:f00d"]),
    ("19-ffaa:1:b6", []),
    ("ffaa:1:", ["ffaa:1:1", "ffaa:1:b6", "ffaa:1:f00d"]),
    ("17-ffaa:0:1107", ["ffaa:1:1", "ffaa:1:b6", "ffaa:1:f00d"]),
    ("ffaa:0:1107 b6", ["ffaa:1:b6"]),
    ("owner@example", ["ffaa:1:1", "ffaa:1:b6", "ffaa:1:f00d"]),
    ("198.51.100.66", ["ffaa:1:b6"]),
    ("2001:db8:0::f00d", ["ffaa:1:f00d"]),
    ("198.51.", ["ffaa:1:1", "ffaa:1:b6"]),
    ("ffaa:1:10000", []),
    ("99999-ffaa:1:b6", []),
    ("ffff" * 500, []),
    ("9" * 100, []),
    ("'; --", []),
]


@pytest.mark.parametrize(("term", "found"), SEARCHES)
def test_links_are_found_by_what_people_know_of_them(
    door: Client, three_links: list[Link], term: str, found: list[str]
) -> None:
    response = door.get(page(Link, LIST), {"q": term})
    assert [row.interface_b.AS.isd_as for row in rows(response)] == [f"17-{as_text}" for as_text in found]


def test_ases_are_filtered_by_what_they_are(door: Client, three_links: list[Link], ap: AttachmentPoint) -> None:
    assert rows(door.get(page(AS, LIST), {"kind": "ap"})) == [ap.AS]
    assert rows(door.get(page(AS, LIST), {"kind": "infrastructure"})) == []
    users = rows(door.get(page(AS, LIST), {"kind": "user"}))
    assert [as_.isd_as for as_ in users] == ["17-ffaa:1:1", "17-ffaa:1:b6", "17-ffaa:1:f00d"]


@pytest.mark.parametrize(
    ("model", "term", "count"),
    [
        (AS, "b6", 1),
        (AS, "ffaa:0:", 1),
        (UserAS, "f00d", 1),
        (Host, "17-ffaa:1:b6", 1),
        (Interface, "b6", 1),
        (AS, "ffaa:1:1g", 0),
    ],
)
def test_other_lists_are_searched_by_hexadecimal_ids_too(
    door: Client, three_links: list[Link], model: Any, term: str, count: int
) -> None:
    assert len(rows(door.get(page(model, LIST), {"q": term}))) == count


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ({"state": "waiting"}, ["b6", "f00d"]),
        ({"state": "enforced"}, ["1"]),
        ({"state": "failed"}, []),
        ({"clamped": "yes"}, ["1"]),
        ({"clamped": "no"}, ["b6", "f00d"]),
        ({"clamped": "blocked"}, ["f00d"]),
        ({"kind": "infrastructure"}, []),
        ({"ap": "abc"}, []),
        ({"ap": "9" * 40}, []),
    ],
    ids=str,
)
def test_links_are_filtered(
    door: Client,
    receipt: HostReceipt,
    three_links: list[Link],
    ap: AttachmentPoint,
    query: dict[str, str],
    found: list[str],
) -> None:
    if "clamped" in query:
        AttachmentPoint.objects.filter(pk=ap.pk).update(maximum_kbit=500)
    response = door.get(page(Link, LIST), query)
    assert sorted(row.interface_b.AS.isd_as for row in rows(response)) == [f"17-ffaa:1:{one}" for one in found]


@pytest.mark.parametrize(("from_user_kbit", "clamped"), [(501, "yes"), (0, "blocked")])
def test_a_link_is_clamped_or_blocked_by_what_it_may_send_alone(
    door: Client, three_links: list[Link], ap: AttachmentPoint, from_user_kbit: int, clamped: str
) -> None:
    AttachmentPoint.objects.filter(pk=ap.pk).update(maximum_kbit=500)
    link = three_links[1]
    assert link.bandwidth_kbit <= 500
    assert link not in rows(door.get(page(Link, LIST), {"clamped": clamped}))
    before = rows(door.get(page(AttachmentPoint, LIST)))[0].clamped_links
    Link.objects.filter(pk=link.pk).update(from_user_kbit=from_user_kbit)
    assert link in rows(door.get(page(Link, LIST), {"clamped": clamped}))
    assert rows(door.get(page(AttachmentPoint, LIST)))[0].clamped_links == before + (clamped == "yes")


def test_the_list_of_links_tells_requested_maximum_enforced_and_stage(
    door: Client, receipt: HostReceipt, ap: AttachmentPoint
) -> None:
    text = door.get(page(Link, LIST)).content.decode()
    assert '<td class="field-enforced">1\N{NO-BREAK SPACE}000\N{NO-BREAK SPACE}kbit/s</td>' in text
    assert '<span class="slb-badge slb-good"' in text
    AttachmentPoint.objects.filter(pk=ap.pk).update(maximum_kbit=300)
    text = door.get(page(Link, LIST)).content.decode()
    assert '<td class="field-maximum">300\N{NO-BREAK SPACE}kbit/s <span class="slb-badge slb-warn"' in text
    assert '<td class="field-requested">1\N{NO-BREAK SPACE}000\N{NO-BREAK SPACE}kbit/s</td>' in text


def test_a_silent_agent_is_seen_in_the_lists(door: Client, receipt: HostReceipt, link: Link, host_a: Host) -> None:
    long_ago = timezone.now() - timedelta(seconds=181)
    HostReceipt.objects.update(received_at=long_ago)
    LinkEnforcement.objects.update(received_at=long_ago)
    Host.objects.filter(pk=host_a.pk).update(last_seen_at=long_ago)
    assert rows(door.get(page(Link, LIST), {"state": "no_report"})) == [link]
    assert rows(door.get(page(Host, LIST), {"seen": "silent"})) == [host_a]
    text = door.get(page(AttachmentPoint, LIST)).content.decode()
    assert '<span class="slb-badge slb-warn" title="No report since ' in text


def test_a_host_that_polls_while_its_agent_is_silent_counts_as_silent(
    door: Client, receipt: HostReceipt, host_a: Host
) -> None:
    HostReceipt.objects.update(received_at=timezone.now() - timedelta(seconds=181))
    response = door.get(page(Host, LIST), {"seen": "silent"})
    assert rows(response) == [host_a]
    assert ">no report</span>" in response.content.decode()
    assert rows(door.get(page(Host, LIST), {"seen": "live"})) == []


def test_a_host_that_polls_without_an_agent_is_not_taken_for_one_that_enforces(
    door: Client, link: Link, host_a: Host
) -> None:
    Host.objects.filter(pk=host_a.pk).update(last_seen_at=timezone.now())
    assert rows(door.get(page(Host, LIST), {"seen": "live"})) == [host_a]
    assert ">no agent</span>" in door.get(page(AttachmentPoint, LIST)).content.decode()


def test_problems_that_an_agent_reports_are_shown_as_text(door: Client, receipt: HostReceipt, host_a: Host) -> None:
    message = "eth1 has a root qdisc <b>not</b> ours"
    HostReceipt.objects.update(problems=[{"code": "foreign_root", "subject": "eth1", "message": message}, "odd"])
    assert rows(door.get(page(Host, LIST), {"state": "problems"})) == [host_a]
    text = door.get(page(Host, CHANGE, host_a.pk)).content.decode()
    assert "eth1 has a root qdisc &lt;b&gt;not&lt;/b&gt; ours" in text
    assert message not in text


def test_an_attachment_point_sums_up_what_it_gives_away(
    door: Client, three_links: list[Link], ap: AttachmentPoint, ap_b: AttachmentPoint, stranger: User
) -> None:
    AttachmentPoint.objects.filter(pk=ap.pk).update(maximum_kbit=500)
    Link.objects.filter(pk=three_links[2].pk).update(active=False)
    infrastructure_link_create(a=ap.AS, b=ap_b.AS, type=Link.Type.PROVIDER)
    found = {row.pk: row for row in rows(door.get(page(AttachmentPoint, LIST)))}
    row = found[ap.pk]
    assert (row.links, row.active_links, row.clamped_links, row.sum_kbit) == (3, 2, 1, 700)
    row = found[ap_b.pk]
    assert (row.links, row.active_links, row.clamped_links, row.sum_kbit) == (1, 1, 0, 1000)


@pytest.mark.parametrize(
    "model",
    [Link, Host, AttachmentPoint, AS, UserAS, User, Interface, BandwidthChange, LinkEnforcement, HostReceipt],
    ids=lambda model: model.__name__,
)
def test_lists_take_as_many_statements_for_many_rows_as_for_few(
    door: Client,
    owner: User,
    ap: AttachmentPoint,
    receipt: HostReceipt,
    model: Any,
    django_assert_num_queries: Callable[..., Any],
) -> None:
    url = page(model, LIST)
    door.get(url)  # content types and the policy's row are read once per process
    with django_assert_num_queries(LIST_STATEMENTS[model]):
        door.get(url)
    User.objects.filter(pk=owner.pk).update(as_quota=20)
    owner.refresh_from_db()
    for number in range(10, 17):
        made = attach(owner, spec(ap, public_ip=f"198.51.100.{number}"))
        extra = Link.objects.get(interface_b__AS=made.pk)
        now = timezone.now()
        LinkEnforcement.objects.create(link=extra, kbit=1000, state="enforced", since=now, received_at=now)
        HostReceipt.objects.create(host=extra.interface_b.host, observed_at=now, received_at=now)
    with django_assert_num_queries(LIST_STATEMENTS[model]):
        door.get(url)


# Session, user, two counts and the rows; and what the filters offer, or the policy; nine for the notices over hosts.
LIST_STATEMENTS = {
    Link: 7,  # and their timed limits
    Host: 15,
    AttachmentPoint: 6,
    AS: 7,
    UserAS: 6,
    User: 5,
    Interface: 5,
    BandwidthChange: 7,
    LinkEnforcement: 5,
    HostReceipt: 5,
}
