"""Observe only: everything is measured and reported, nothing is limited, and nobody is told anything else."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from bandwidth_config import Limits, generate_link_info
from scionlab.accounts.models import Mail, User
from scionlab.enforcement.models import HostReceipt, LinkEnforcement
from scionlab.enforcement.status import LinkStatus, link_status
from scionlab.limits.defaults import ap_update
from scionlab.limits.pages.consequences import takes_effect
from scionlab.limits.update import link_update
from scionlab.testbed.models import AttachmentPoint, BandwidthChange, Host, Link
from scionlab.testbed.selectors import with_relations
from tests.cases import table
from tests.enforcement.test_receipt import direction, link_entry, store
from tests.enforcement.test_total import signed_text
from tests.support.html import Page

pytestmark = pytest.mark.django_db

AP = "17-ffaa:0:1107"


def observe(link: Link, observe_only: bool = True, **values: Any) -> None:
    link_update(link_id=link.pk, observe_only=observe_only, **{"actor": None, **values})


def observe_ap(ap: AttachmentPoint, observe_only: bool = True, **values: Any) -> None:
    ap_update(attachment_point_id=ap.pk, values={"observe_only": observe_only}, **{"actor": None, **values})


def say(host: Host, state: str, **values: Any) -> None:
    """The agent's receipt about its newest configuration."""
    store(host, {"1": link_entry(1000, state=state)}, now=timezone.now(), observe_only=False, **values)


def status_of(link: Link) -> LinkStatus:
    return link_status(with_relations(Link.objects.filter(pk=link.pk)).get(), now=timezone.now())


# --- setting it -------------------------------------------------------------------------------------------------


def test_link_info_says_it_of_the_link_and_the_signed_text_of_the_attachment_point(
    link: Link, ap: AttachmentPoint
) -> None:
    def observed() -> tuple[object, object]:
        host = Host.objects.get(pk=ap.host_id)
        return generate_link_info(host)["1"].get("Observe"), signed_text(host).get("observe_only")

    assert observed() == (None, None)
    observe(link)
    assert observed() == (True, None)
    observe_ap(ap)
    assert observed() == (True, True)
    observe(link, False)
    assert observed() == (None, True)


def test_it_is_kept_with_who_set_it_and_why(link: Link, ap: AttachmentPoint, staff: User) -> None:
    BandwidthChange.objects.all()
    before = BandwidthChange.objects.count()
    for _ in range(2):
        observe(link, actor=staff, reason="looking first")
        observe_ap(ap, actor=staff, reason="looking first")
    observe(link, False, actor=staff)
    rows = list(BandwidthChange.objects.order_by("pk").values_list("kind", "detail", "reason", "link")[before:])
    assert rows == [
        ("link_observe", "Observed only: nothing is limited", "looking first", link.pk),
        ("ap_observe", "Observed only: nothing is limited", "looking first", None),
        ("link_observe", "Limited again, no longer observed only", "", link.pk),
    ]


def test_administrators_set_it_in_django_admin(door: Client, link: Link, ap: AttachmentPoint) -> None:
    url = reverse("admin:testbed_link_change", args=[link.pk])
    typed = {"bandwidth_kbit": "1000", "active": "on", "reason": "looking first"}
    assert door.post(url, {**typed, "observe_only": "on"}).status_code == 302
    assert Link.objects.get(pk=link.pk).is_to_observe
    assert door.post(url, typed).status_code == 302
    assert not Link.objects.get(pk=link.pk).is_to_observe
    url = reverse("admin:testbed_attachmentpoint_change", args=[ap.pk])
    assert door.post(url, {"observe_only": "on"}).status_code == 302
    assert Link.objects.get(pk=link.pk).is_to_observe


def test_an_owner_cannot_set_it(client: Client, owner: User, link: Link) -> None:
    client.force_login(owner)
    refused = client.patch(f"/api/v1/links/{link.pk}/", {"observe_only": True}, content_type="application/json")
    assert (refused.status_code, refused.json()["code"]) == (400, "unknown_field")
    assert client.get(reverse("admin:testbed_link_change", args=[link.pk])).status_code == 302


# --- what holds -------------------------------------------------------------------------------------------------


def test_a_link_is_observed_when_a_receipt_says_so_and_not_before(host: Host, link: Link) -> None:
    say(host, "enforced")
    observe(link)
    assert status_of(link).state == "waiting"
    say(host, "enforced")
    assert (status_of(link).state, status_of(link).remark) != ("observed", None)
    say(host, "observed")
    status = status_of(link)
    assert (status.stage, status.state, status.enforced, status.last_known) == ("observed", "observed", None, None)
    observe(link, False)
    say(host, "observed")
    assert status_of(link).state == "failed"
    say(host, "enforced")
    assert (status_of(link).state, status_of(link).enforced_kbit) == ("enforced", 1000)


def test_since_when_it_is_observed_stays_whatever_becomes_of_the_limit(host: Host, link: Link) -> None:
    observe(link)
    say(host, "observed")
    since = LinkEnforcement.objects.get().since
    link_update(link_id=link.pk, limits=Limits.both(300), actor=None)
    store(host, {"1": link_entry(300, state="observed")}, now=timezone.now(), observe_only=False)
    assert LinkEnforcement.objects.get().since > since, "of the link as it is now"
    since = LinkEnforcement.objects.get().since
    store(host, {"1": link_entry(200, state="observed")}, now=timezone.now(), observe_only=False)
    assert LinkEnforcement.objects.get().since == since


def test_what_is_saved_meanwhile_is_told_to_count_later(link: Link) -> None:
    observe(link)
    stored = with_relations(Link.objects.filter(pk=link.pk)).get()
    assert takes_effect(stored, now=timezone.now()) == (
        "takes effect when the attachment point limits this link again (it is observed)"
    )


# --- mails ------------------------------------------------------------------------------------------------------


def test_the_owner_is_mailed_that_nothing_is_limited_and_once(host: Host, link: Link) -> None:
    say(host, "enforced")
    Mail.objects.all().delete()
    observe(link)
    for _ in range(3):
        say(host, "observed")
    mail = Mail.objects.get()
    assert mail.subject == f"Link observed, not limited at {AP}"
    assert f"{AP} has confirmed that it measures the link and limits nothing." in mail.body
    assert "enforces this" not in mail.body


@table("state", ["observed", "enforced"])
def test_nobody_is_mailed_that_something_holds_which_is_not_what_was_wanted(host: Host, link: Link, state: str) -> None:
    if state == "enforced":
        observe(link)
    say(host, state)
    assert Mail.objects.count() == 0


# --- shown ------------------------------------------------------------------------------------------------------


@pytest.fixture
def observed(link: Link, host_a: Host) -> Link:
    """Wanted and confirmed; 12 packets would not have passed to the user."""
    observe(link)
    host_a.refresh_from_db()
    Host.objects.filter(pk=host_a.pk).update(
        delivered_config_version=host_a.config_version, delivered_limits_version=host_a.limits_version
    )
    entry = link_entry(1000, state="observed", to_user=direction(1000, "slbw0") | PARTS)
    store(host_a, {"1": entry}, now=timezone.now(), observe_only=False)
    return link


PARTS = {"drops": 12, "refused": 10, "dropped": 2}


def test_the_page_says_that_nothing_is_limited_and_what_would_have_been(
    client: Client, owner: User, observed: Link
) -> None:
    client.force_login(owner)
    page = Page(client.get(reverse("link_detail", args=[observed.interface_b.AS_id, observed.pk])))
    assert "Observed: nothing is limited (since " in page.text
    assert "Would not have passed" in page.text
    assert "10 refused, 2 dropped from the queue" in page.text
    assert "Enforced in both directions" not in page.text


def test_rest_says_it_with_the_counters(client: Client, owner: User, observed: Link) -> None:
    client.force_login(owner)
    status = client.get(f"/api/v1/links/{observed.pk}/").json()["status"]
    assert (status["state"], status["observe_only"], status["enforced"]) == ("observed", True, None)
    counted = {"bytes": 1200, "packets": 9}
    assert status["counters"] == {
        "to_user": {**counted, **PARTS},
        "from_user": {**counted, "drops": 2, "refused": None, "dropped": None},
    }


def test_the_history_tells_it(client: Client, owner: User, observed: Link) -> None:
    client.force_login(owner)
    page = Page(client.get(reverse("link_history", args=[observed.interface_b.AS_id, observed.pk])))
    assert "Observed only: nothing is limited" in page.text
    assert "Temporary limit Observed" not in page.text
    newest = client.get(f"/api/v1/links/{observed.pk}/history/").json()["results"][0]
    assert (newest["kind"], newest["text"]) == ("link_observe", "Observed only: nothing is limited")


def test_the_cockpit_counts_it_and_says_whose_choice_it_is(
    door: Client, ap: AttachmentPoint, observed: Link, host_a: Host
) -> None:
    assert "1 link observed: nothing is limited" in Page(door.get(reverse("cockpit"))).text
    page = reverse("cockpit_ap", args=[ap.pk])
    observe_ap(ap)
    say(host_a, "observed")
    assert "set by an administrator: no link is to be limited; not confirmed yet" in Page(door.get(page)).text
    HostReceipt.objects.update(observe_only=None)
    shown = "set by an administrator: no link is to be limited; not supported by this agent"
    assert shown in Page(door.get(page)).text
    HostReceipt.objects.update(observe_only=True)
    observe_ap(ap, False)
    assert "set by the operator of the host: nothing is limited" in Page(door.get(page)).text


# --- the limiter is silent --------------------------------------------------------------------------------------

SILENT = [{"code": "limiter_silent", "subject": "limiter", "message": "since 07:29; the limits stay in the kernel"}]


def test_a_silent_limiter_is_no_report_since_it_was_read_last(host: Host, link: Link) -> None:
    say(host, "enforced")
    read_at = timezone.now() - timedelta(minutes=4)
    values = {"observed_at": read_at.isoformat(), "run": "0" * 31 + "1", "number": 1, "problems": SILENT}
    store(host, {"1": link_entry(1000)}, now=timezone.now(), **values)
    status = status_of(link)
    assert (status.stage, status.since, status.read_at) == ("silent", read_at, read_at)
    assert (status.enforced, status.last_known) == (None, link.enforced)
    assert f"No report since {read_at:%Y-%m-%d %H:%M:%S} UTC: the limiter does not answer its agent" in status.text


def test_nobody_is_mailed_by_a_silent_limiter_and_everybody_when_it_answers(host: Host, link: Link) -> None:
    store(host, {"1": link_entry(1000)}, now=timezone.now(), problems=SILENT)
    assert Mail.objects.count() == 0
    assert status_of(link).last_known is None, "nothing was known before, and nothing counts now"
    store(host, {"1": link_entry(1000)}, now=timezone.now())
    assert [mail.subject for mail in Mail.objects.all()] == [f"Link limited to 1 000 kbit/s at {AP}"]
    Mail.objects.all().delete()
    store(host, {"1": link_entry(1000)}, now=timezone.now(), problems=SILENT)
    store(host, {"1": link_entry(1000)}, now=timezone.now())
    assert Mail.objects.count() == 0, "it was known all the time"


def test_the_sentence_of_the_receipt_reaches_the_cockpit(door: Client, ap: AttachmentPoint, host: Host) -> None:
    store(host, {"1": link_entry(1000)}, now=timezone.now(), problems=SILENT)
    text = Page(door.get(reverse("cockpit_ap", args=[ap.pk]))).text
    assert "The limiter does not answer its agent, so the enforced limits are not known." in text
    assert json.dumps("since 07:29")[1:-1] in text
