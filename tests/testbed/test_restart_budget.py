"""A user restarts the SCION services of somebody else's attachment point (H rises there) 5 times, then once in 10
minutes; what is changed meanwhile is stored, waits, is told, and is delivered together."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from bandwidth_config import generate_link_info
from scionlab.accounts.models import User
from scionlab.delivery.render import config_for
from scionlab.enforcement.models import HostReceipt
from scionlab.limits.defaults import ap_default_set, fan_out
from scionlab.limits.pages.consequences import takes_effect
from scionlab.limits.profiles import outage
from scionlab.limits.timed_limit import timed_limit_create
from scionlab.limits.update import link_set_bandwidth, link_update
from scionlab.testbed.host import host_set_addresses
from scionlab.testbed.models import AttachmentPoint, Host, Link, RestartBudget, UserAS
from scionlab.testbed.selectors import links_of
from scionlab.testbed.versions.restarts import restarts_deliver
from scionlab.user_ases.user_as import user_as_delete
from tests.factories import attach, save, spec

pytestmark = pytest.mark.django_db


@pytest.fixture
def user_as(owner: User, ap: AttachmentPoint) -> UserAS:
    made = attach(owner, spec(ap, public_port=50_000, bandwidth_kbit=800))
    RestartBudget.objects.all().delete()
    return made


def set_port(user_as: UserAS, port: int, actor: User) -> None:
    link = links_of(user_as)[0]
    ap = link.attachment_point
    assert ap is not None
    save(user_as, spec(ap, public_port=port, bandwidth_kbit=link.bandwidth_kbit, link_id=link.pk), actor=actor)


def h_of(ap: AttachmentPoint) -> int:
    return Host.objects.get(pk=ap.host_id).config_version


def entries(ap: AttachmentPoint) -> dict[str, dict[str, Any]]:
    return generate_link_info(Host.objects.get(pk=ap.host_id))


def used_up(user_as: UserAS, ap: AttachmentPoint, owner: User) -> int:
    """The last H that the owner may cause now; the port is 50005 then."""
    for port in range(50_001, 50_006):
        set_port(user_as, port, owner)
    return h_of(ap)


def ten_minutes_pass(ap: AttachmentPoint) -> None:
    earlier = timedelta(minutes=10)
    for budget in RestartBudget.objects.all():
        RestartBudget.objects.filter(pk=budget.pk).update(full_at=budget.full_at - earlier)
    due = Host.objects.get(pk=ap.host_id).restart_due_at
    if due is not None:
        Host.objects.filter(pk=ap.host_id).update(restart_due_at=due - earlier)


def test_thirty_changes_of_a_port_restart_scion_five_times(user_as: UserAS, ap: AttachmentPoint, owner: User) -> None:
    before, own = h_of(ap), user_as.hosts.get().config_version
    for port in range(50_001, 50_031):
        set_port(user_as, port, owner)
    assert h_of(ap) == before + 5
    assert user_as.hosts.get().config_version == own + 30, "one's own host"
    assert restarts_deliver() == [], "not due"
    ten_minutes_pass(ap)
    assert restarts_deliver() == [ap.host_id]
    assert h_of(ap) == before + 6
    assert [entry["Port"] for entry in entries(ap).values()] == [50_030]
    set_port(user_as, 50_031, owner)
    assert h_of(ap) == before + 6, "the delivery was charged"


def test_switching_off_and_on_and_making_and_deleting_are_counted_together(
    user_as: UserAS, ap: AttachmentPoint, owner: User
) -> None:
    (link,) = links_of(user_as)
    before = h_of(ap)
    for number in range(4):
        link_update(link_id=link.pk, actor=owner, active=bool(number % 2))
        another = attach(owner, spec(ap, public_port=50_007))
        user_as_delete(user_as_id=another.pk, actor=owner)
    assert h_of(ap) == before + 5


def test_another_user_and_an_administrator_have_budgets_of_their_own(
    user_as: UserAS, ap: AttachmentPoint, owner: User, stranger: User, staff: User
) -> None:
    last = used_up(user_as, ap, owner)
    set_port(user_as, 50_010, owner)
    assert h_of(ap) == last
    attach(stranger, spec(ap, public_ip="198.51.100.9"))
    assert h_of(ap) == last + 1
    assert {entry["Port"] for entry in entries(ap).values()} == {50_010, 50_000}, "and takes along what waited"
    assert Host.objects.get(pk=ap.host_id).restart_due_at is None
    for port in range(50_020, 50_030):
        set_port(user_as, port, staff)
    assert h_of(ap) == last + 11


def test_the_configuration_keeps_what_the_border_router_has_and_takes_new_limits_at_once(
    user_as: UserAS, ap: AttachmentPoint, owner: User, stranger: User
) -> None:
    other = attach(stranger, spec(ap, public_ip="198.51.100.9"))
    last = used_up(user_as, ap, owner)
    (link,) = links_of(user_as)
    key = str(link.interface_a.interface_id)
    topology_before = config_for(Host.objects.get(pk=ap.host_id)).etag
    set_port(user_as, 50_010, owner)
    assert entries(ap)[key]["Port"] == 50_005, "else the old port were unlimited"
    assert config_for(Host.objects.get(pk=ap.host_id)).etag == topology_before
    link_set_bandwidth(link_id=link.pk, bandwidth_kbit=100, actor=owner)
    assert (entries(ap)[key]["Port"], entries(ap)[key]["Bandwidth"]) == (50_005, 100)
    link_set_bandwidth(link_id=links_of(other)[0].pk, bandwidth_kbit=70, actor=stranger)
    assert (h_of(ap), entries(ap)[key]["Port"]) == (last, 50_005)
    assert Link.objects.get(pk=link.pk).wanted_config_version == last + 1, "not in force before the restart"


def test_a_deleted_as_stays_limited_and_its_number_goes_to_nobody_before_it_is_gone(
    user_as: UserAS, ap: AttachmentPoint, owner: User
) -> None:
    used_up(user_as, ap, owner)
    key = str(links_of(user_as)[0].interface_a.interface_id)
    user_as_delete(user_as_id=user_as.pk, actor=owner)
    assert (entries(ap)[key]["Port"], entries(ap)[key]["Bandwidth"]) == (50_005, 800)
    AttachmentPoint.objects.filter(pk=ap.pk).update(maximum_kbit=300)
    assert entries(ap)[key]["Bandwidth"] == 300, "a lower maximum holds"
    again = attach(owner, spec(ap, public_port=50_040, bandwidth_kbit=20))
    assert [entry["Port"] for entry in entries(ap).values()] == [50_005]
    ten_minutes_pass(ap)
    restarts_deliver()
    assert [(entry["Port"], entry["Bandwidth"]) for entry in entries(ap).values()] == [(50_040, 20)]
    assert links_of(again)[0].wanted_config_version == h_of(ap)


def test_an_address_of_the_attachment_point_that_changes_takes_along_what_waits(
    user_as: UserAS, ap: AttachmentPoint, owner: User, staff: User
) -> None:
    used_up(user_as, ap, owner)
    set_port(user_as, 50_010, owner)
    host = ap.host
    host_set_addresses(
        host_id=host.pk, actor=staff, label=host.label, internal_ip=host.internal_ip, public_ipv4="192.0.2.77",
        public_ipv6=host.public_ipv6, bind_ip=None,
    )  # fmt: skip
    (entry,) = entries(ap).values()
    assert (entry["Local-IP"], entry["Port"]) == ("192.0.2.77", 50_010)


def test_the_user_and_the_operator_read_what_waits_and_why(
    user_as: UserAS, ap: AttachmentPoint, owner: User, staff: User, client: Client
) -> None:
    used_up(user_as, ap, owner)
    (link,) = links_of(user_as)
    set_port(user_as, 50_010, owner)
    why = "restarts SCION there, and there were many: further ones are delivered together"
    client.force_login(owner)
    assert why in client.get(f"/ases/{user_as.pk}/links/{link.pk}/").content.decode()
    assert why in client.get(f"/api/v1/links/{link.pk}/").content.decode()
    client.force_login(staff)
    page = client.get(f"/cockpit/aps/{ap.pk}/").content.decode()
    assert "each restarts SCION here" in page


def test_what_is_saved_meanwhile_is_told_to_count_after_the_restart(
    user_as: UserAS, ap: AttachmentPoint, owner: User, client: Client
) -> None:
    now = timezone.now()
    versions = {"generation": 1, "config_version": h_of(ap), "limits_version": 1}
    HostReceipt.objects.create(host=ap.host, **versions, observed_at=now, received_at=now)
    (link,) = links_of(user_as)
    assert takes_effect(link, now=now) == "takes effect in about a second"
    used_up(user_as, ap, owner)
    set_port(user_as, 50_010, owner)
    (link,) = links_of(user_as)
    due = Host.objects.get(pk=ap.host_id).restart_due_at
    assert due is not None
    at = f"{due.replace(microsecond=0):%Y-%m-%d %H:%M:%S} UTC".replace(":00 UTC", " UTC")
    said = f"after the next restart of SCION at the attachment point, by {at}"
    assert takes_effect(link, now=now) == f"takes effect {said}"
    client.force_login(owner)
    page = client.post(
        f"/ases/{user_as.pk}/links/{link.pk}/bandwidth/",
        {f"link-{link.pk}-bandwidth_kbit": "300", f"link-{link.pk}-from_user_kbit": ""},
        follow=True,
    )
    assert f"17-ffaa:0:1107 enforces 300\N{NO-BREAK SPACE}kbit/s {said}" in page.content.decode()
    page = client.post(f"/ases/{user_as.pk}/delete/", follow=True)
    said = f"The attachment points remove the links after the next restart of SCION there, by {at}."
    assert said in page.content.decode()


class Documents:
    """What a host had in each of its versions; a second document of a version is an error."""

    def __init__(self, ap: AttachmentPoint) -> None:
        self.ap, self.seen = ap, dict[tuple[int, int], Any]()

    def look(self) -> dict[str, Any]:
        """The only entry."""
        host, (found,) = Host.objects.get(pk=self.ap.host_id), entries(self.ap).values()
        assert self.seen.setdefault((host.config_version, host.limits_version), found) == found
        return found


def test_a_link_that_is_switched_off_and_on_meanwhile_has_one_document_for_each_version(
    user_as: UserAS, ap: AttachmentPoint, owner: User
) -> None:
    used_up(user_as, ap, owner)
    (link,) = links_of(user_as)
    documents = Documents(ap)
    timed_limit_create(link_id=link.pk, profile=outage(3600), begins_at=None, actor=owner)
    assert "Timed" in documents.look()
    link_update(link_id=link.pk, actor=owner, active=False)
    assert "Timed" not in documents.look(), "it ended with the link"
    link_set_bandwidth(link_id=link.pk, bandwidth_kbit=700, actor=owner)
    assert documents.look()["Bandwidth"] == 800
    link_update(link_id=link.pk, actor=owner, active=True)
    assert documents.look()["Bandwidth"] == 700
    link_set_bandwidth(link_id=link.pk, bandwidth_kbit=600, actor=owner)
    link_update(link_id=link.pk, actor=None, observe_only=True)
    before = documents.look()
    assert before["Bandwidth"] == 600
    user_as_delete(user_as_id=user_as.pk, actor=owner)
    assert documents.look() == before, "deleted, and observed as before until the restart"
    ap_default_set(attachment_point_id=ap.pk, default_bandwidth_kbit=300, actor=None)
    fan_out()
    assert documents.look()["Bandwidth"] == 300
