"""One number for all Links of an AS: on its page, over the API and with `scionlab-bw set-all`."""

from __future__ import annotations

import pytest
from django.test import Client
from django.urls import reverse

from bandwidth_config import Limits
from scionlab.accounts.models import User
from scionlab.testbed.models import AttachmentPoint, Host, Link, UserAS
from tests.clients.test_client import Run, _own_folder, logged_in, run, url
from tests.factories import attach, spec
from tests.limits.test_exceptions_pages import as_
from tests.support.html import Page
from tests.user_ases.test_rest_api import api, error_of

__all__ = ["_own_folder", "logged_in", "run", "url"]  # the fixtures
pytestmark = pytest.mark.django_db


@pytest.fixture
def wide(owner: User, ap: AttachmentPoint, ap_b: AttachmentPoint) -> UserAS:
    """A Link of 100 kbit/s to the user AS and 200 from it at `ap`, and one of 250 at `ap_b`, whose maximum is 500."""
    AttachmentPoint.objects.filter(pk=ap_b.pk).update(default_bandwidth_kbit=500, maximum_kbit=500)
    slow = spec(ap, public_ip="198.51.100.21", bandwidth_kbit=100, from_user_kbit=200)
    return attach(owner, slow, spec(ap_b, public_ip="198.51.100.22", bandwidth_kbit=250))


def links_of(wide: UserAS) -> list[Link]:
    return list(Link.objects.filter(interface_b__AS=wide.pk).order_by("pk"))


def limits(wide: UserAS) -> list[Limits]:
    return [link.requested for link in links_of(wide)]


def test_the_page_sets_all_and_l_of_each_attachment_point_rises_once(
    owner: User, wide: UserAS, ap: AttachmentPoint, ap_b: AttachmentPoint
) -> None:
    before = {host.pk: (host.config_version, host.limits_version) for host in Host.objects.all()}
    page = Page(as_(owner).post(reverse("user_as_limit", args=[wide.pk]), {"bandwidth_kbit": "0.4M"}, follow=True))
    assert "Set for all 2 links" in page.text
    assert limits(wide) == [Limits.both(400)] * 2
    after = {host.pk: (host.config_version, host.limits_version) for host in Host.objects.all()}
    rose = {pk for pk, versions in after.items() if versions != before[pk]}
    assert rose == {ap.host_id, ap_b.host_id}
    assert all(after[pk] == (before[pk][0], before[pk][1] + 1) for pk in rose)


def test_one_that_may_not_have_it_keeps_all_as_they_are_and_is_named(
    owner: User, wide: UserAS, ap_b: AttachmentPoint
) -> None:
    before = limits(wide)
    page = Page(as_(owner).post(reverse("user_as_limit", args=[wide.pk]), {"bandwidth_kbit": "800"}, follow=True))
    assert f"above the maximum of 1 of 2 links: to {ap_b.AS.isd_as} (at most 500 kbit/s)" in page.text
    for typed in ("", "x", "-5"):
        assert as_(owner).post(reverse("user_as_limit", args=[wide.pk]), {"bandwidth_kbit": typed}).status_code == 302
    assert limits(wide) == before
    Link.objects.filter(interface_a__AS=ap_b.AS_id).update(bandwidth_kbit=800)  # chosen before the default fell
    as_(owner).post(reverse("user_as_limit", args=[wide.pk]), {"bandwidth_kbit": "800"})
    assert limits(wide) == [Limits.both(800)] * 2


def test_the_api_has_it_with_the_field_in_error(owner: User, wide: UserAS, client: Client) -> None:
    address = reverse("api_as_detail", args=[wide.pk])
    changed = api(owner).patch(address, {"bandwidth_kbit": 500, "label": "Lab"}, format="json").json()
    assert (changed["label"], [one["to_user_kbit"] for one in changed["links"]]) == ("Lab", [500, 500])
    refused = api(owner).patch(address, {"bandwidth_kbit": 501, "label": "Attic"}, format="json")
    assert error_of(refused) == (400, "bandwidth_too_high")
    assert "bandwidth_kbit" in refused.json()["fields"]
    assert UserAS.objects.get(pk=wide.pk).label == "Lab"


@pytest.mark.django_db(transaction=True)
def test_the_command_says_what_became_of_each_link(run: Run, logged_in: str, wide: UserAS) -> None:
    code, out, err = run("set-all", wide.isd_as, "0.3M")
    assert (code, err, out.partition(" ")[0]) == (0, "", "Saved.")
    assert all(f" {link.interface_a.AS.isd_as}: " in out for link in links_of(wide))
    assert limits(wide) == [Limits.both(300)] * 2
    code, _, err = run("set-all", wide.isd_as, "1M")
    assert (code, "Nothing was changed" in err) == (1, True)
