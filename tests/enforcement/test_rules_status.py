"""From requested to enforced: what is said of a Link, and when it may be said. And what hosts may note."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import AnonymousUser
from django.http import Http404
from django.test import Client
from pytest_django import DjangoAssertNumQueries

from scionlab.accounts.models import User
from scionlab.enforcement.models import LinkEnforcement
from scionlab.enforcement.status import LinkStatus, link_status
from scionlab.limits.update import link_set_bandwidth
from scionlab.platform.field_errors import FieldRuleError
from scionlab.testbed import selectors
from scionlab.testbed.host import host_rotate_secret, host_set_addresses
from scionlab.testbed.models import AttachmentPoint, Host, Interface, Link, ServiceState, UserAS
from scionlab.testbed.selectors import links_of, user_as_of, user_ases_of
from scionlab.testbed.versions.counters import host_note_delivered, host_set_deployed_version
from tests.cases import table
from tests.factories import HostReceiptFactory, LinkEnforcementFactory, LinkFactory, attach, spec

NOW = datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC)


def status(user_as: UserAS, *, now: datetime = NOW) -> LinkStatus:
    (link,) = links_of(user_as)
    return link_status(link, now=now)


def deliver(link: Link) -> None:
    host = Host.objects.get(pk=link.interface_a.host_id)
    host_note_delivered(host_id=host.pk, config_version=host.config_version, limits_version=host.limits_version)


def receipt(link: Link, *, ago_s: int = 1, since_s: int | None = None, **values: Any) -> LinkEnforcement:
    """The agent's newest receipt: what its kernel has of the Link, at the host's versions of now."""
    fresh = Link.objects.get(pk=link.pk)
    at = NOW - timedelta(seconds=ago_s)
    host_receipt = HostReceiptFactory(host=fresh.interface_a.host, received_at=at)
    values = {"kbit": fresh.enforced_kbit, **values}
    return LinkEnforcementFactory(
        link=fresh,
        received_at=host_receipt.received_at,
        since=at if since_s is None else NOW - timedelta(seconds=since_s),
        **values,
    )


def test_waiting_then_delivered_then_enforced(link: Link, user_as: UserAS) -> None:
    found = status(user_as)
    assert (found.stage, found.enforced_kbit, found.delivered_at) == ("waiting", None, None)
    deliver(link)
    found = status(user_as)
    assert (found.stage, found.enforced_kbit) == ("delivered", None)
    assert found.delivered_at is not None
    receipt(link, since_s=60)
    found = status(user_as)
    assert (found.stage, found.enforced_kbit, found.wanted_kbit) == ("enforced", 1000, 1000)
    assert found.since == NOW - timedelta(seconds=60)
    assert found.text == "Enforced in both directions since 2026-11-21 11:59:00 UTC."


def test_while_a_change_is_under_way_the_old_limit_is_what_is_enforced(link: Link, user_as: UserAS) -> None:
    deliver(link)
    receipt(link)
    link_set_bandwidth(link_id=link.pk, bandwidth_kbit=300, actor=None)
    found = status(user_as)
    assert (found.stage, found.requested_kbit, found.wanted_kbit, found.enforced_kbit) == ("waiting", 300, 300, 1000)
    assert found.delivered_at is None
    deliver(link)
    assert status(user_as).stage == "delivered"


def test_the_same_number_at_an_older_version_is_not_this_wish(link: Link, user_as: UserAS) -> None:
    """300 -> 1000 -> 300: the kernel's 300 of the first time proves nothing about the third."""
    receipt(link)
    link_set_bandwidth(link_id=link.pk, bandwidth_kbit=300, actor=None)
    link_set_bandwidth(link_id=link.pk, bandwidth_kbit=1000, actor=None)
    assert status(user_as).stage == "waiting"


@table("maximum", [400, 0])
def test_a_clamped_choice_is_shown_with_both_numbers(
    link: Link, user_as: UserAS, ap: AttachmentPoint, maximum: int
) -> None:
    AttachmentPoint.objects.filter(pk=ap.pk).update(default_bandwidth_kbit=maximum, maximum_kbit=maximum)
    receipt(link)
    found = status(user_as)
    figures = (found.requested_kbit, found.maximum_kbit, found.wanted_kbit, found.enforced_kbit)
    assert figures == (1000, maximum, maximum, maximum)
    assert found.stage == "enforced"


def test_a_silent_agent_proves_nothing(link: Link, user_as: UserAS) -> None:
    receipt(link, ago_s=180)
    assert status(user_as).stage == "enforced"
    found = status(user_as, now=NOW + timedelta(seconds=1))
    assert (found.stage, found.enforced_kbit) == ("silent", None)
    assert found.since == NOW - timedelta(seconds=180)
    assert found.last_known == (1000, 1000)
    text = found.text.replace("\N{NO-BREAK SPACE}", " ")
    assert text == "No report since 2026-11-21 11:57:00 UTC. Last known limit: 1 000 kbit/s."


def test_an_infrastructure_link_is_not_limited(db: None) -> None:
    found = link_status(LinkFactory(), now=NOW)
    assert (found.stage, found.enforced_kbit, found.wanted_kbit) == ("inactive", None, 1_000_000)
    assert found.text == "Not limited: this is not the link of a user AS to an attachment point."


# --- reads --------------------------------------------------------------------------------------------------------


def test_a_list_costs_three_statements_at_any_number_and_judging_none(
    owner: User, ap: AttachmentPoint, ap_b: AttachmentPoint, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    for number in range(4):
        made = attach(owner, spec(ap, public_port=50_000 + number), spec(ap_b, use_vpn=True, public_port=50_001))
    receipt(links_of(made)[0])
    with django_assert_num_queries(3):
        ases = user_ases_of(owner)
        stages = [
            (str(as_), link.is_limited, link_status(link, now=NOW).stage, str(link.interface_b.vpn_client))
            for as_ in ases
            for link in links_of(as_)
        ]
    assert len(stages) == 8


def test_the_links_of_one_as_cost_two_statements(
    user_as: UserAS, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    with django_assert_num_queries(2):
        assert [link_status(link, now=NOW).stage for link in links_of(user_as)] == ["waiting"]


def test_links_of_looks_again(user_as: UserAS, link: Link) -> None:
    assert links_of(user_as)[0].bandwidth_kbit == 1000
    link_set_bandwidth(link_id=link.pk, bandwidth_kbit=300, actor=None)
    assert links_of(user_as)[0].bandwidth_kbit == 300


def test_links_of_an_as_are_in_the_order_of_their_interface_ids(
    owner: User, ap: AttachmentPoint, ap_b: AttachmentPoint
) -> None:
    made = attach(owner, spec(ap), spec(ap_b, public_ip="198.51.100.8"))
    first, second = links_of(made)
    Interface.objects.filter(pk=first.interface_b_id).update(interface_id=9)
    assert links_of(made) == [second, first]


def test_generation_is_known_beside_each_link(link: Link) -> None:
    ServiceState.objects.update_or_create(pk=1, defaults={"generation": 7})
    for one in (Link.objects.get(pk=link.pk), selectors.with_relations(Link.objects.all()).get()):
        assert selectors.generation_beside(one) == 7


def test_a_host_limits_the_links_of_user_ases_at_it_alone(
    owner: User, ap: AttachmentPoint, ap_b: AttachmentPoint, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    made = attach(owner, *(spec(ap, public_port=50_001 + n) for n in range(3)), spec(ap_b, public_ip="198.51.100.8"))
    Link.objects.filter(pk=links_of(made)[2].pk).update(type=Link.Type.CORE)
    with django_assert_num_queries(2):
        found = [
            (link.interface_a.AS.isd_as, link.interface_b.AS.isd_as, link.interface_b.AS.useras.owner)
            for link in selectors.limited_links(ap.host_id).values()
        ]
    assert found == [("17-ffaa:0:1107", "17-ffaa:1:1", owner)] * 2


def test_the_attachment_points_cost_one_statement(
    ap: AttachmentPoint,
    ap_b: AttachmentPoint,
    ap_other: AttachmentPoint,
    django_assert_num_queries: DjangoAssertNumQueries,
) -> None:
    policy = selectors.policy()
    with django_assert_num_queries(1):
        found = [
            (one.AS.isd_as, one.default_in_force(policy), hasattr(one.host, "vpn"))
            for one in selectors.open_attachment_points()
        ]
    assert found == [
        ("17-ffaa:0:1107", 1000, False),
        ("17-ffaa:0:1108", 1000, True),
        ("19-ffaa:0:1303", 1000, False),
    ]


def test_an_as_is_its_owners_and_the_administrators(
    user_as: UserAS, owner: User, teammate: User, stranger: User, staff: User
) -> None:
    assert user_as_of(owner, user_as.pk) == user_as
    assert user_as_of(staff, user_as.pk) == user_as
    for other in (teammate, stranger, AnonymousUser()):
        with pytest.raises(Http404):
            user_as_of(other, user_as.pk)
    with pytest.raises(Http404):
        user_as_of(owner, 4711)
    assert user_ases_of(teammate) == []
    assert user_ases_of(staff) == []


def test_a_link_at_an_attachment_point_is_its_owners_and_the_administrators(
    link: Link, ap: AttachmentPoint, ap_b: AttachmentPoint, owner: User, stranger: User, staff: User
) -> None:
    for person, found in ((owner, link), (staff, link), (stranger, None)):
        assert selectors.link_at(person, str(link.pk), str(ap.pk)) == found
        assert selectors.link_at(person, link.pk, ap_b.pk) is None
    arabic = "".join(chr(0x660 + int(digit)) for digit in str(link.pk))
    for no_key in ("", "x", "-1", "\N{SUPERSCRIPT TWO}", arabic, f" {link.pk}", None):
        assert selectors.link_at(owner, no_key, ap.pk) is None
        assert selectors.link_at(owner, link.pk, no_key) is None


def test_what_is_a_strangers_does_not_exist_for_anybody_s_browser(
    user_as: UserAS, link: Link, teammate: User, stranger: User
) -> None:
    before = list(Link.objects.values())
    for person in (teammate, stranger):
        browser = Client()
        browser.force_login(person)
        for url in (f"/ases/{user_as.pk}/edit/", f"/ases/{user_as.pk}/links/{link.pk}/bandwidth/"):
            assert browser.post(url, {f"link-{link.pk}-bandwidth_kbit": "1", "save": "1"}).status_code == 404
        patch = browser.patch(f"/api/v1/links/{link.pk}/", {"bandwidth_kbit": 1}, content_type="application/json")
        assert patch.status_code == 404
    assert list(Link.objects.values()) == before


# --- what hosts note ----------------------------------------------------------------------------------------------


def test_delivered_versions_only_rise(host_a: Host) -> None:
    def noted() -> tuple[int, int]:
        found = Host.objects.get(pk=host_a.pk)
        return found.delivered_config_version, found.delivered_limits_version

    host_note_delivered(host_id=host_a.pk, config_version=3, limits_version=5)
    first = Host.objects.get(pk=host_a.pk).delivered_at
    for config, limits in ((3, 5), (2, 5), (3, 4), (0, 0)):
        host_note_delivered(host_id=host_a.pk, config_version=config, limits_version=limits)
        assert noted() == (3, 5)
    assert Host.objects.get(pk=host_a.pk).delivered_at == first, "nothing new, nothing written"
    host_note_delivered(host_id=host_a.pk, config_version=2, limits_version=6)
    assert noted() == (3, 6)
    host_note_delivered(host_id=host_a.pk, config_version=4, limits_version=2)
    assert noted() == (4, 6)


def test_a_deployed_version_lies_between_the_last_one_and_the_hosts_own(host_a: Host, host_b: Host) -> None:
    Host.objects.update(config_version=5)
    reported = [
        (version, host_set_deployed_version(host_id=host_a.pk, config_version=version))
        for version in (3, 3, 2, 5, 6, 4)
    ]
    assert reported == [(3, True), (3, True), (2, False), (5, True), (6, False), (4, False)]
    assert Host.objects.get(pk=host_a.pk).config_version_deployed == 5
    assert Host.objects.get(pk=host_b.pk).config_version_deployed == 0


def test_a_new_secret_is_another_one(host_a: Host, host_b: Host, staff: User) -> None:
    old, other = host_a.secret, host_b.secret
    host_rotate_secret(host_id=host_a.pk, actor=staff)
    host_a.refresh_from_db()
    host_b.refresh_from_db()
    assert host_a.secret != old
    assert len(host_a.secret) == 32
    assert host_b.secret == other


# --- addresses of a host --------------------------------------------------------------------------------------------


def test_a_host_that_moves_takes_its_interfaces_along(
    owner: User, ap: AttachmentPoint, host_a: Host, staff: User
) -> None:
    made = attach(owner, spec(ap), spec(ap, public_ip="2001:db8::77"))
    host_set_addresses(
        host_id=host_a.pk, actor=staff, public_ipv4="192.0.2.99", public_ipv6="2001:DB8::99", bind_ip="10.0.0.1"
    )
    ends = [
        (link.interface_a.public_ip, link.interface_a.public_port, link.interface_a.bind_ip) for link in links_of(made)
    ]
    assert ends == [("192.0.2.99", 50000, "10.0.0.1"), ("2001:db8::99", 50000, None)]
    host_a.refresh_from_db()
    assert (host_a.public_ipv4, host_a.public_ipv6, host_a.bind_ip) == ("192.0.2.99", "2001:db8::99", "10.0.0.1")


def test_an_address_in_use_is_not_taken_away(link: Link, host_a: Host, staff: User) -> None:
    with pytest.raises(FieldRuleError) as refused:
        host_set_addresses(host_id=host_a.pk, actor=staff, public_ipv4=None, public_ipv6="2001:db8::1", bind_ip=None)
    assert (refused.value.code, refused.value.field) == ("address_in_use", "public_ipv4")
    assert "192.0.2.1 is the address of interface 1" in refused.value.message
    host_a.refresh_from_db()
    assert host_a.public_ipv4 == "192.0.2.1"
    host_set_addresses(host_id=host_a.pk, actor=staff, public_ipv4="192.0.2.1", public_ipv6=None, bind_ip=None)
    host_a.refresh_from_db()
    assert host_a.public_ips == ["192.0.2.1"]


@table(
    ("values", "field", "code"),
    [
        ({"public_ipv4": "127.0.0.1"}, "public_ipv4", "address_refused"),
        ({"public_ipv4": "2001:db8::9"}, "public_ipv4", "address_family"),
        ({"public_ipv4": "host"}, "public_ipv4", "address_invalid"),
        ({"public_ipv6": "ff02::1"}, "public_ipv6", "address_refused"),
        ({"public_ipv6": "192.0.2.9"}, "public_ipv6", "address_family"),
        ({"bind_ip": "0.0.0.0"}, "bind_ip", "address_refused"),
        ({"public_ipv4": "198.51.100.7", "public_ipv6": "2001:db8::1"}, "public_ipv4", "address_own"),  # of its user AS
    ],
)
def test_addresses_of_hosts_have_rules(
    values: dict[str, str], field: str, code: str, link: Link, host_a: Host, staff: User
) -> None:
    wanted: dict[str, Any] = {"public_ipv4": "192.0.2.1", "public_ipv6": None, "bind_ip": None, **values}
    with pytest.raises(FieldRuleError) as refused:
        host_set_addresses(host_id=host_a.pk, actor=staff, **wanted)
    assert (refused.value.field, refused.value.code) == (field, code)
