"""What the administrators' lists and first page say, how they are searched and filtered."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from django.db.models import F
from django.test import Client

from scionlab.accounts.models import User
from scionlab.platform.notation.isd_as import parse_as_id
from scionlab.testbed.infrastructure_links import infrastructure_link_create
from scionlab.testbed.models import AS, AttachmentPoint, Host, Link, UserAS
from scionlab.user_ases.user_as import user_as_create
from tests.admin_pages import LIST, page
from tests.cases import table
from tests.factories import spec

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
    ("b6", ["ffaa:1:b6"]),
    ("19-ffaa:1:b6", []),
    ("17-ffaa:0:1107", ["ffaa:1:1", "ffaa:1:b6", "ffaa:1:f00d"]),
    ("ffaa:0:1107 b6", ["ffaa:1:b6"]),
    ("owner@example", ["ffaa:1:1", "ffaa:1:b6", "ffaa:1:f00d"]),
    ("198.51.100.66", ["ffaa:1:b6"]),
    ("2001:db8:0::f00d", ["ffaa:1:f00d"]),
    ("198.51.", ["ffaa:1:1", "ffaa:1:b6"]),
    ("ffaa:1:10000", []),
    ("ffff" * 500, []),
    ("'; --", []),
]


@table(("term", "found"), SEARCHES)
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


@table(
    ("query", "found"),
    [
        ({"kind": "user"}, ["b6", "f00d"]),
        ({"kind": "infrastructure"}, ["0:1108"]),
        ({"kind": "user", "active__exact": "1"}, ["b6"]),
    ],
    ids=str,
)
def test_links_are_filtered(
    door: Client, three_links: list[Link], ap: AttachmentPoint, ap_b: AttachmentPoint, query: dict[str, str], found: Any
) -> None:
    Link.objects.filter(pk=three_links[0].pk).delete()
    Link.objects.filter(pk=three_links[2].pk).update(active=False)
    infrastructure_link_create(a=ap.AS, b=ap_b.AS, type=Link.Type.PROVIDER)
    response = door.get(page(Link, LIST), query)
    ends = {row.interface_b.AS.isd_as for row in rows(response)}
    assert ends == {f"17-ffaa:{one if ':' in one else f'1:{one}'}" for one in found}


@table(
    ("query", "values"),
    [
        ({"state": "behind"}, {"config_version": 7, "delivered_config_version": 6}),
        ({"state": "behind"}, {"limits_version": 7, "delivered_limits_version": 6}),
        ({"state": "limits_only"}, {"limits_only": True}),
        ({"last_seen_at__isnull": "False"}, {"last_seen_at": datetime(2026, 11, 22, tzinfo=UTC)}),
    ],
    ids=str,
)
def test_hosts_are_filtered(door: Client, host_a: Host, host_b: Host, query: Any, values: Any) -> None:
    Host.objects.update(delivered_config_version=F("config_version"), delivered_limits_version=F("limits_version"))
    assert rows(door.get(page(Host, LIST), query)) == []
    Host.objects.filter(pk=host_a.pk).update(**values)
    assert rows(door.get(page(Host, LIST), query)) == [host_a]


def test_an_attachment_points_links_are_counted_and_linked(
    door: Client, three_links: list[Link], ap: AttachmentPoint, ap_b: AttachmentPoint
) -> None:
    infrastructure_link_create(a=ap.AS, b=ap_b.AS, type=Link.Type.PROVIDER)
    response = door.get(page(AttachmentPoint, LIST))
    assert {row.pk: row.links for row in rows(response)} == {ap.pk: 3, ap_b.pk: 0}
    url = f"{page(Link, LIST)}?q={ap.AS.isd_as}&kind=user"
    assert url.replace("&", "&amp;").replace(":", "%3A") in response.content.decode()
    assert len(rows(door.get(url))) == 3
