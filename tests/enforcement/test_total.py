"""The total of an attachment point: set by administrators, delivered in the signed text, in force when a receipt says
so, and shown wherever limits are."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from django.db import DatabaseError, transaction
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from bandwidth_config import Limits
from scionlab.accounts.models import User
from scionlab.cockpit.testbed import ApState, read_testbed
from scionlab.delivery.render import config_for
from scionlab.enforcement.agents import agent_of
from scionlab.enforcement.models import HostReceipt
from scionlab.enforcement.total import TotalStatus, total_status
from scionlab.limits.defaults import ap_update
from scionlab.platform.field_errors import FieldRuleError
from scionlab.testbed.models import AttachmentPoint, BandwidthChange, Host, Link
from tests.admin_pages import confirm_preview
from tests.cases import table
from tests.factories import attach, spec
from tests.support.html import Page
from tests.support.polling import config_members

pytestmark = pytest.mark.django_db

AP = "17-ffaa:0:1107"
WANTED = 5000
KBIT, LESS = (f"{text}\N{NO-BREAK SPACE}kbit/s" for text in ("5\N{NO-BREAK SPACE}000", "4\N{NO-BREAK SPACE}999"))


def set_total(ap: AttachmentPoint, total_kbit: int | None, **values: Any) -> None:
    ap_update(attachment_point_id=ap.pk, values={"total_kbit": total_kbit}, **{"actor": None, **values})


def fresh(ap: AttachmentPoint) -> AttachmentPoint:
    return AttachmentPoint.objects.select_related("AS__isd", "host__receipt").get(pk=ap.pk)


def total_of(ap: AttachmentPoint) -> TotalStatus | None:
    found = fresh(ap)
    agent = agent_of(found.host, found.AS.isd_as, now=timezone.now())
    return total_status(found, agent, generation=1)


def state_of(ap: AttachmentPoint) -> ApState:
    return next(state for state in read_testbed(now=timezone.now()).states if state.ap == ap)


def confirm(host: Host, **values: Any) -> None:
    """The agent has fetched what is newest, and says that it enforces the total, but for `values`."""
    host.refresh_from_db()
    Host.objects.filter(pk=host.pk).update(delivered_limits_version=host.limits_version)
    says = {"total_to_user_kbit": WANTED, "total_from_user_kbit": WANTED}
    newest = {"limits_version": host.limits_version, "says_total": True, "observe_only": False}
    HostReceipt.objects.filter(host=host).update(**{**newest, **says, **values})


@pytest.fixture
def wanted(ap: AttachmentPoint, receipt: HostReceipt) -> AttachmentPoint:
    """The agent reports, and does not know the total of 5000 kbit/s yet."""
    set_total(ap, WANTED)
    return ap


# --- setting it -------------------------------------------------------------------------------------------------


def test_it_is_kept_with_who_set_it_and_why(ap: AttachmentPoint, staff: User) -> None:
    set_total(ap, 5000, actor=staff, reason="the line costs too much")
    set_total(ap, 5000, actor=staff, reason="again")
    set_total(ap, None, actor=staff)
    rows = list(BandwidthChange.objects.order_by("pk").values_list("kind", "old_kbit", "new_kbit", "reason"))
    assert rows == [("ap_total", None, 5000, "the line costs too much"), ("ap_total", 5000, None, "")]
    assert fresh(ap).total_kbit is None


@table("kbit", [0, -1, 100_000_001])
def test_it_is_a_number_from_1_to_100_000_000(ap: AttachmentPoint, kbit: int) -> None:
    with pytest.raises(FieldRuleError) as refused:
        set_total(ap, kbit)
    assert (refused.value.code, refused.value.field) == ("total_range", "total_kbit")
    with pytest.raises(DatabaseError), transaction.atomic():
        AttachmentPoint.objects.filter(pk=ap.pk).update(total_kbit=kbit)
    for edge in (1, 100_000_000):
        set_total(ap, edge)
        assert fresh(ap).total_kbit == edge


def signed_text(host: Host) -> dict[str, Any]:
    content = config_for(Host.objects.select_related("AS__isd").get(pk=host.pk)).content
    text: dict[str, Any] = json.loads(json.loads(config_members(content)["scionlab-config.json"])["signed"])
    return text


def test_the_signed_text_has_it_from_the_next_version_on(ap: AttachmentPoint, link: Link, host_a: Host) -> None:
    before = signed_text(host_a)
    assert "total_kbit" not in before
    set_total(ap, 5000)
    after = signed_text(host_a)
    assert (after["total_kbit"], after["limits_version"]) == (5000, before["limits_version"] + 1)
    assert (after["config_version"], after["sha256"]) == (before["config_version"], before["sha256"])
    set_total(ap, None)
    assert "total_kbit" not in signed_text(host_a)


def test_administrators_set_it_in_django_admin_and_the_default_along_with_it(
    door: Client, ap: AttachmentPoint, link: Link, host_a: Host
) -> None:
    url = reverse("admin:testbed_attachmentpoint_change", args=[ap.pk])
    host_a.refresh_from_db()
    before = host_a.limits_version
    typed = {"default_bandwidth_kbit": "300", "total_kbit": "5000", "reason": "cost"}
    saved = door.post(url, typed)
    assert (fresh(ap).default_bandwidth_kbit, fresh(ap).total_kbit) == (None, 5000), "the default is previewed"
    confirm_preview(door, saved)
    found = fresh(ap)
    assert (found.default_bandwidth_kbit, found.total_kbit, found.observe_only) == (300, 5000, False)
    host_a.refresh_from_db()
    assert host_a.limits_version == before + 1
    refused = door.post(url, {**typed, "total_kbit": "0"})
    assert "A total of 0" in Page(refused).text
    assert fresh(ap).total_kbit == 5000


# --- in force or not --------------------------------------------------------------------------------------------


def problems(code: str) -> list[dict[str, str]]:
    return [{"code": code, "subject": "agent", "message": "as the agent says it"}]


LONG_AGO = timezone.now() - timedelta(seconds=181)
NOT_IN_FORCE: dict[str, tuple[dict[str, Any], str, str]] = {
    "to the users only": ({"total_from_user_kbit": None}, "failed", "the agent reports no total"),
    "another number": ({"total_to_user_kbit": 4999}, "failed", f"reports {LESS} to the user AS and {KBIT} from it"),
    "an old agent": (
        {"says_total": False, "total_to_user_kbit": None, "total_from_user_kbit": None},
        "failed",
        "not supported by this agent",
    ),
    "a foreign document": ({"content": "foreign"}, "delivered", "limits that this service did not issue"),
    "nothing is limited there": ({"observe_only": True}, "observed", "the operator set it to observe only"),
    "no right": ({"problems": problems("no_bpf_right")}, "failed", "the limiter lacks CAP_BPF or CAP_NET_ADMIN"),
    "another generation": ({"generation": 2}, "delivered", "not confirmed yet"),
    "a silent agent": ({"received_at": LONG_AGO}, "no_report", "no report since "),
    "a silent limiter": ({"problems": problems("limiter_silent")}, "no_report", "the limiter does not answer"),
    "removed limits": ({"problems": problems("limits_removed")}, "failed", "the operator removed the limits at "),
}


def test_it_counts_as_in_force_when_the_newest_receipt_says_so_of_both_directions(wanted: AttachmentPoint) -> None:
    confirm(wanted.host)
    assert total_of(wanted) == TotalStatus(WANTED, Limits.both(WANTED), "enforced", "")


@table("name", NOT_IN_FORCE)
def test_it_does_not_count_as_in_force_with(name: str, wanted: AttachmentPoint) -> None:
    changes, state, why = NOT_IN_FORCE[name]
    confirm(wanted.host, **changes)
    found = total_of(wanted)
    assert found is not None
    assert (found.state, found.is_in_force) == (state, False)
    assert found.remark.startswith("not enforced: ")
    assert why in found.remark


def test_without_an_agent_nobody_knows(wanted: AttachmentPoint) -> None:
    HostReceipt.objects.all().delete()
    assert total_of(wanted) == TotalStatus(WANTED, None, "waiting", "no agent reports what is enforced")


def test_it_is_under_way_until_the_agent_says_so(wanted: AttachmentPoint) -> None:
    HostReceipt.objects.update(says_total=True, observe_only=False)  # and its L is that from before
    assert total_of(wanted) == TotalStatus(WANTED, None, "waiting", "not fetched yet")
    host = Host.objects.get(pk=wanted.host_id)
    Host.objects.filter(pk=host.pk).update(delivered_limits_version=host.limits_version)
    assert total_of(wanted) == TotalStatus(WANTED, None, "delivered", "not confirmed yet")


def test_one_that_is_wanted_no_more_is_told_as_long_as_the_agent_has_it(wanted: AttachmentPoint) -> None:
    confirm(wanted.host)
    set_total(wanted, None)
    found = total_of(wanted)
    assert found is not None
    assert (found.state, found.text) == ("waiting", f"There is no total, but the agent still enforces one of {KBIT}.")
    HostReceipt.objects.update(total_to_user_kbit=None, total_from_user_kbit=None)
    assert total_of(wanted) is None


# --- shown ------------------------------------------------------------------------------------------------------


def test_a_total_in_force_bounds_what_is_committed_of_the_uplink(wanted: AttachmentPoint, owner: User) -> None:
    for port in range(50_010, 50_014):
        attach(owner, spec(wanted, public_port=port))
    AttachmentPoint.objects.filter(pk=wanted.pk).update(uplink_kbit=4000)
    set_total(wanted, 2000)
    all_five = Limits.both(5000)
    state = state_of(wanted)
    assert (state.standing, state.committed, state.oversubscription) == (all_five, all_five, 1.25)
    confirm(wanted.host, total_to_user_kbit=2000, total_from_user_kbit=2000)
    state = state_of(wanted)
    assert (state.standing, state.committed, state.oversubscription) == (all_five, Limits.both(2000), 0.5)
    set_total(wanted, 6000)
    confirm(wanted.host, total_to_user_kbit=6000, total_from_user_kbit=6000)
    assert state_of(wanted).committed == all_five, "one above the sum of the limits adds nothing"


def test_pages_say_it_to_administrators_and_to_the_users_who_share_it(
    door: Client, owner: User, link: Link, wanted: AttachmentPoint
) -> None:
    users = Client()
    users.force_login(owner)
    as_id = link.interface_b.AS_id
    pages = [
        (door, reverse("cockpit")),
        (door, reverse("cockpit_ap", args=[wanted.pk])),
        (users, reverse("link_detail", args=[as_id, link.pk])),
        (users, reverse("user_as_detail", args=[as_id])),
    ]

    def say(words: str) -> list[bool]:
        return [words in Page(browser.get(url)).text for browser, url in pages]

    HostReceipt.objects.update(says_total=False)
    assert say("5 000 kbit/s") == say("not enforced: not supported by this agent") == [True] * 4
    assert say(f"All links at {AP} together carry at most 5 000 kbit/s in each direction.")[2:] == [True] * 2
    assert "total not enforced: not supported by this agent" in [one.words for one in state_of(wanted).troubles]
    confirm(wanted.host)
    assert say("5 000 kbit/s") == [True] * 4
    assert say("not enforced") == [False] * 4
    set_total(wanted, None)
    assert say("together")[2:] == [False] * 2


def test_rest_tells_it_with_the_link_and_with_the_attachment_point(
    client: Client, owner: User, link: Link, wanted: AttachmentPoint
) -> None:
    client.force_login(owner)
    confirm(wanted.host)
    assert client.get(f"/api/v1/links/{link.pk}/").json()["status"]["total"] == {
        "wanted_kbit": 5000,
        "is_in_force": True,
        "text": f"All links together carry at most {KBIT} in each direction.",
    }
    assert client.get(f"/api/v1/attachment-points/{wanted.pk}/").json()["total_kbit"] == 5000
    set_total(wanted, None)
    assert client.get(f"/api/v1/links/{link.pk}/").json()["status"]["total"] is None
