"""My ASes, and the page of one: what is requested, delivered and enforced, and the buttons there."""

from __future__ import annotations

import io
import json
import tarfile
from datetime import datetime, timedelta

import pytest
from django.test import Client
from django.utils import timezone

from scionlab.accounts.models import User
from scionlab.enforcement.models import HostReceipt, LinkEnforcement
from scionlab.testbed.models import AttachmentPoint, Host, Link, UserAS
from tests.factories import HostReceiptFactory, LinkEnforcementFactory, attach, spec
from tests.support.html import Element, Page

pytestmark = pytest.mark.django_db


@pytest.fixture
def client(owner: User) -> Client:
    browser = Client()
    browser.force_login(owner)
    return browser


def deliver(ap: AttachmentPoint, at: datetime | None = None) -> Host:
    """The AP's agent fetched its newest configuration."""
    host = Host.objects.get(pk=ap.host_id)
    host.delivered_config_version, host.delivered_limits_version = host.config_version, host.limits_version
    host.delivered_at = at or timezone.now()
    host.save()
    return host


def confirm(link: Link, *, at: datetime | None = None, **values: object) -> LinkEnforcement:
    """The AP's agent said what its kernel has."""
    at = at or timezone.now()
    host = deliver(link.attachment_point, at)
    HostReceipt.objects.filter(host=host).delete()
    HostReceiptFactory(host=host, received_at=at)
    LinkEnforcement.objects.filter(link=link).delete()
    fresh = Link.objects.get(pk=link.pk)
    return LinkEnforcementFactory(link=fresh, received_at=at, **values)


def steps(page: Page) -> list[str]:
    return [step.text for step in page.root.one("ol", class_="way").all("li")]


def cells(row: Element) -> list[str]:
    return [cell.text for cell in row.children if isinstance(cell, Element)]


# --- my ASes ------------------------------------------------------------------------------------------------


def test_the_list_tells_of_each_link_what_is_requested_allowed_and_enforced(
    client: Client, owner: User, ap: AttachmentPoint, ap_b: AttachmentPoint
) -> None:
    made = attach(owner, spec(ap, bandwidth_kbit=500), spec(ap_b, public_port=50_001, bandwidth_kbit=700), label="Lab")
    since = timezone.now() - timedelta(minutes=3, seconds=12)
    confirm(Link.objects.order_by("pk")[0], since=since)
    page = Page(client.get("/ases/"))
    assert page.root.one("a", href=f"/ases/{made.pk}/").text == "17-ffaa:1:1"
    assert [cells(row) for row in page.root.one("tbody").all("tr")] == [
        ["17-ffaa:0:1107", "500 kbit/s", "1 000 kbit/s", "500 kbit/s", "Enforced for 3 min"],
        ["17-ffaa:0:1108", "700 kbit/s", "1 000 kbit/s", "\N{EN DASH}", "Waiting"],
    ]
    assert page.root.one("time").attrs["datetime"] == since.isoformat(timespec="seconds")


# --- the way of a number ------------------------------------------------------------------------------------


def detail(client: Client, user_as: UserAS) -> Page:
    return Page(client.get(f"/ases/{user_as.pk}/"))


def link_page(client: Client, link: Link) -> Page:
    return Page(client.get(f"/ases/{link.interface_b.AS_id}/links/{link.pk}/"))


def stage_words(page: Page) -> str:
    return page.root.one("span", data_part="").text


def test_enforced_shows_since_when_and_both_directions_from_the_kernel(
    client: Client, user_as: UserAS, link: Link
) -> None:
    to_user = {"to_user_bytes": 1_234_567, "to_user_packets": 1_000, "to_user_drops": 12_345}
    from_user = {"from_user_bytes": 800, "from_user_packets": 7, "from_user_drops": 0}
    confirm(link, since=timezone.now() - timedelta(hours=2, minutes=40), **to_user, **from_user)
    page = detail(client, user_as)
    assert stage_words(page) == "Enforced"
    assert steps(page)[2] == "Enforced 1 000 kbit/s in both directions for 2 h"
    kernel = link_page(client, link).root.one("table", class_="stack kernel")
    assert [cells(row) for row in kernel.one("tbody").all("tr")] == [
        ["To your AS", "1 000 kbit/s", "1.23 MB", "1 000", "12 345"],
        ["From your AS", "1 000 kbit/s", "800 B", "7", "0"],
    ]


def test_a_delivery_for_somebody_else_is_not_shown_as_this_links(client: Client, user_as: UserAS, link: Link) -> None:
    """The host's newest delivery may be later than the one that brought this Link its limit."""
    since = timezone.now() - timedelta(minutes=7)
    confirm(link, since=since)
    Host.objects.filter(interfaces__link_as_a=link).update(delivered_at=since - timedelta(seconds=1))
    assert steps(detail(client, user_as))[1] == "Delivered 1 000 kbit/s 7 min ago"
    Host.objects.filter(interfaces__link_as_a=link).update(delivered_at=since + timedelta(seconds=1))
    assert steps(detail(client, user_as))[1] == "Delivered 1 000 kbit/s"


def test_a_direction_without_limit_is_never_shown_as_enforced(client: Client, user_as: UserAS, link: Link) -> None:
    confirm(link, from_user_rate_kbit=None)
    page = detail(client, user_as)
    assert stage_words(page) == "Failed"
    assert steps(page)[2] == "Enforced Failed"
    assert "the kernel has 1 000 kbit/s to the user AS and no limit from it." in page.text
    kernel = link_page(client, link).root.one("table", class_="stack kernel")
    assert cells(kernel.one("tbody").all("tr")[1])[1] == "none"


def test_a_page_on_which_nothing_is_under_way_fetches_itself_seldom(
    client: Client, user_as: UserAS, link: Link
) -> None:
    paths = ["/ases/", f"/ases/{user_as.pk}/", f"/ases/{user_as.pk}/links/{link.pk}/"]

    def live() -> list[tuple[str, str]]:
        parts = [Page(client.get(path)).by_id("live").attrs for path in paths]
        return [(part["data-live"].partition("?")[0], part["data-every"]) for part in parts]

    assert live() == [(path, "2") for path in paths]
    confirm(link)
    assert live() == [(path, "10") for path in paths]


# --- buttons ------------------------------------------------------------------------------------------------


def test_an_as_is_deactivated_and_activated(client: Client, user_as: UserAS, link: Link) -> None:
    page = Page(client.post(f"/ases/{user_as.pk}/active/", {"active": "0"}, follow=True))
    link.refresh_from_db()
    assert link.active is False
    assert stage_words(page) == "Inactive"
    client.post(f"/ases/{user_as.pk}/active/", {"active": "1"})
    link.refresh_from_db()
    assert link.active is True


def test_deleting_asks_first_and_then_takes_the_as_away(client: Client, user_as: UserAS, link: Link) -> None:
    page = Page(client.get(f"/ases/{user_as.pk}/delete/"))
    assert "1 link will be removed:" in page.text
    assert UserAS.objects.filter(pk=user_as.pk).exists()
    client.post(f"/ases/{user_as.pk}/delete/")
    assert not UserAS.objects.exists()
    assert not Link.objects.exists()


def test_the_configuration_is_downloaded_with_a_name_and_never_cached(
    client: Client, user_as: UserAS, link: Link
) -> None:
    answer = client.get(f"/ases/{user_as.pk}/configuration/")
    assert answer.headers["Content-Type"] == "application/gzip"
    assert answer.headers["Content-Disposition"] == 'attachment; filename="scionlab_17-ffaa_1_1.tar.gz"'
    assert "no-store" in answer.headers["Cache-Control"]
    with tarfile.open(fileobj=io.BytesIO(answer.content)) as tar:
        topology = next(name for name in tar.getnames() if name.endswith("etc/scion/topology.json"))
        member = tar.extractfile(topology)
        assert member is not None
        assert json.load(member)["isd_as"] == "17-ffaa:1:1"
