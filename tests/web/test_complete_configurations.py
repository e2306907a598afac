"""Complete configurations: who gets one and when, what raises H, what an upgrade leaves as it is; MTUs; packages."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.conf import settings
from django.db import connection
from django.test import Client
from django.utils import timezone
from scionlab.scion_config.complete import ALL_WITHIN, completing_set, host_complete, hosts_complete_share

from bandwidth_config import Limits, RuleError
from scion_files import COMPLETE, TOPOLOGY_ONLY
from scionlab.accounts.models import User
from scionlab.delivery.installed import full_configuration, host_set_limits_only
from scionlab.delivery.render import config_for
from scionlab.limits.update import link_update
from scionlab.platform.field_errors import FieldRuleError
from scionlab.site import tasks
from scionlab.testbed.host import host_set_addresses
from scionlab.testbed.infrastructure_links import infrastructure_link_create
from scionlab.testbed.models import AttachmentPoint, BandwidthChange, Host, Link, ServiceState, UserAS
from scionlab.testbed.versions.counters import hosts_bump
from scionlab.user_ases.attachments import AttachmentSpec
from scionlab.user_ases.user_as import user_as_update
from tests.admin_pages import CHANGE, page
from tests.cases import table
from tests.factories import ASFactory, HostFactory, attach, spec
from tests.web.counters import Counters
from tests.web.polling import config_members

pytestmark = pytest.mark.django_db

CONFIG, LIMITS = (1, 0), (0, 1)


@pytest.fixture
def user_host(user_as: UserAS) -> Host:
    """Of a user AS from before there was more than topology.json."""
    Host.objects.update(configuration_format=TOPOLOGY_ONLY)
    return Host.objects.get(AS=user_as.pk)


def members(host: Host) -> dict[str, bytes]:
    return config_members(config_for(Host.objects.get(pk=host.pk)).content)


def units(host: Host) -> list[str]:
    found: list[str] = json.loads(members(host)["scionlab-config.json"])["systemd_units"]
    return found


def formats() -> dict[int, int]:
    return dict(Host.objects.values_list("pk", "configuration_format"))


def addresses(host: Host, **changed: Any) -> dict[str, Any]:
    names = ("public_ipv4", "public_ipv6", "bind_ip", "internal_ip", "label")
    return {name: getattr(host, name) for name in names} | changed


# --- an upgrade ------------------------------------------------------------------------------------------------------


def test_new_hosts_are_complete(user_as: UserAS) -> None:
    assert set(formats().values()) == {COMPLETE}


def test_rows_that_do_not_say_it_keep_topology_alone(user_as: UserAS) -> None:
    """Those from before the column, and those that the version before inserts while both run."""
    host = Host.objects.get(AS=user_as.pk)
    columns = [one.column for one in Host._meta.concrete_fields if one.column not in {"id", "uid"}]
    known = [one for one in columns if one not in {"configuration_format", "scion_packages"}]
    with connection.cursor() as cursor:
        names = ", ".join(f'"{one}"' for one in known)
        cursor.execute(
            f"INSERT INTO testbed_host (uid, {names}) SELECT 'old', {names} FROM testbed_host WHERE id = %s",  # noqa: S608
            [host.pk],
        )
    old = Host.objects.get(uid="old")
    assert (old.configuration_format, old.scion_packages) == (TOPOLOGY_ONLY, "scionlab")


def test_a_host_from_before_gets_what_it_got(user_host: Host) -> None:
    assert sorted(members(user_host)) == ["etc/scion/topology.json", "scionlab-config.json"]
    assert units(user_host) == [
        "scion-border-router@br-1.service",
        "scion-control-service@cs-1.service",
        "scion-daemon.service",
    ]


# --- what lifts a host -----------------------------------------------------------------------------------------------


def test_a_rise_of_h_brings_the_rest_to_all_hosts_of_the_as(user_host: Host, host_a: Host) -> None:
    sibling, other = HostFactory(AS=host_a.AS), HostFactory()
    Host.objects.update(configuration_format=TOPOLOGY_ONLY)
    hosts_bump(config_ids=[host_a.pk])
    assert formats() == {
        user_host.pk: TOPOLOGY_ONLY,
        host_a.pk: COMPLETE,
        sibling.pk: COMPLETE,
        other.pk: TOPOLOGY_ONLY,
    }


def test_a_changed_limit_brings_nothing_and_restarts_nobody(user_host: Host, link: Link, host_a: Host) -> None:
    counters = Counters()
    link_update(link_id=link.pk, actor=None, limits=Limits.both(123))
    assert counters.risen() == {host_a: LIMITS}
    assert set(formats().values()) == {TOPOLOGY_ONLY}


def test_a_change_of_the_user_brings_the_rest(user_host: Host, link: Link) -> None:
    link_update(link_id=link.pk, actor=None, active=False)
    link_update(link_id=link.pk, actor=None, active=True)
    assert sorted(members(user_host)) == [
        "etc/scion/br-1.toml",
        "etc/scion/cs-1.toml",
        "etc/scion/disp.toml",
        "etc/scion/keys/master0.key",
        "etc/scion/keys/master1.key",
        "etc/scion/sd.toml",
        "etc/scion/topology.json",
        "scionlab-config.json",
    ]
    assert "scion-dispatcher.service" in units(user_host)


@table("configuration_format", [TOPOLOGY_ONLY, COMPLETE])
def test_the_files_that_pages_name_are_those_of_the_complete_tarball(link: Link, configuration_format: int) -> None:
    Host.objects.update(configuration_format=configuration_format)
    named = {host: full_configuration(host) for host in Host.objects.all()}
    Host.objects.update(configuration_format=COMPLETE)
    for host, found in named.items():
        assert found == (members(host).keys() - {"scionlab-config.json"}, units(host))


# --- the buttons -----------------------------------------------------------------------------------------------------


def test_an_administrator_completes_one_host(door: Client, staff: User, user_host: Host) -> None:
    shown = door.get(f"/admin/testbed/host/{user_host.pk}/files/").content.decode()
    assert "This is not a complete SCION configuration" in shown
    counters = Counters()
    url = f"/admin/testbed/host/{user_host.pk}/files/change/"
    shown = door.post(url, {"do": "complete", "reason": "asked for"}, follow=True).content.decode()
    assert counters.risen() == {user_host: CONFIG}
    assert "This is not a complete SCION configuration" not in shown
    assert "<code>/etc/scion/br-1.toml</code>" in shown
    row = BandwidthChange.objects.get(kind="host_complete")
    assert (row.actor, row.text, row.reason) == (staff, "Complete configuration", "asked for")


def test_a_complete_host_is_left_alone(user_as: UserAS, staff: User) -> None:
    counters = Counters()
    assert host_complete(host_id=Host.objects.get(AS=user_as.pk).pk, actor=staff) == []
    assert counters.risen() == {}
    assert not BandwidthChange.objects.filter(kind="host_complete").exists()


def test_limits_only_has_nothing_to_complete(user_host: Host, staff: User) -> None:
    host_set_limits_only(host_id=user_host.pk, limits_only=True, actor=staff)
    with pytest.raises(RuleError) as refused:
        host_complete(host_id=user_host.pk, actor=staff)
    assert refused.value.code == "limits_only"


def test_the_owner_s_page_says_what_is_not_delivered_yet(client: Client, owner: User, user_host: Host) -> None:
    client.force_login(owner)
    words = "not the other files that SCION needs"
    assert words in client.get(f"/ases/{user_host.AS_id}/").content.decode()
    host_complete(host_id=user_host.pk, actor=None)
    assert words not in client.get(f"/ases/{user_host.AS_id}/").content.decode()


# --- all hosts, over weeks -------------------------------------------------------------------------------------------


@pytest.fixture
def thirty(db: None) -> list[Host]:
    found = [HostFactory() for _ in range(30)]
    Host.objects.update(configuration_format=TOPOLOGY_ONLY)
    return found


def left() -> int:
    return Host.objects.filter(configuration_format=TOPOLOGY_ONLY).count()


def run(now: datetime) -> int:
    return len(hosts_complete_share(now=now))


def test_nobody_is_completed_before_an_administrator_asks(thirty: list[Host]) -> None:
    counters = Counters()
    tasks.complete_configurations()
    assert counters.risen() == {}


def test_all_are_completed_within_four_weeks_a_share_each_day(thirty: list[Host], staff: User) -> None:
    completing_set(wanted=True, actor=staff)
    since = timezone.now()
    done = [run(since + timedelta(days=day, hours=1)) for day in range(ALL_WITHIN.days)]
    assert sum(done) == 30
    assert max(done) == 2  # never many SCIONs at once
    assert left() == 0
    run(since + timedelta(days=ALL_WITHIN.days))
    assert ServiceState.objects.get().completing_since is None
    assert {host.config_version for host in Host.objects.all()} == {2}


def test_days_on_which_nothing_ran_are_made_up_for(thirty: list[Host], staff: User) -> None:
    completing_set(wanted=True, actor=staff)
    assert run(timezone.now() + timedelta(days=27, hours=1)) == 30


def test_hosts_of_one_as_come_together_and_rise_once(staff: User) -> None:
    as_ = ASFactory()
    hosts = [HostFactory(AS=as_) for _ in range(3)]
    Host.objects.update(configuration_format=TOPOLOGY_ONLY)
    completing_set(wanted=True, actor=staff)
    counters = Counters()
    run(timezone.now() + ALL_WITHIN)
    assert counters.risen() == dict.fromkeys(hosts, CONFIG)


def test_who_has_limits_only_or_no_as_is_left_out(thirty: list[Host], staff: User) -> None:
    Host.objects.filter(pk=thirty[0].pk).update(limits_only=True)
    Host.objects.filter(pk=thirty[1].pk).update(AS=None)
    completing_set(wanted=True, actor=staff)
    assert run(timezone.now() + ALL_WITHIN) == 28


def test_administrators_start_and_stop_it_on_a_page(door: Client, staff: User, thirty: list[Host]) -> None:
    url = "/admin/testbed/host/complete/"
    assert url in door.get("/admin/testbed/host/").content.decode()
    assert "30 hosts to complete" in door.get(url).content.decode()
    assert "All will be completed within 28 days from" in door.post(url, {"do": "start"}, follow=True).content.decode()
    assert run(timezone.now() + timedelta(hours=1)) == 2
    shown = door.post(url, {"do": "stop"}, follow=True).content.decode()
    assert "28 hosts to complete" in shown
    assert run(timezone.now() + timedelta(days=2)) == 0
    rows = BandwidthChange.objects.filter(kind="host_complete", subject="all hosts").order_by("pk")
    assert [(row.actor, row.text) for row in rows] == [
        (staff, "All will be completed within 28 days"),
        (staff, "Automatic completion is off"),
    ]


def test_the_share_is_done_daily() -> None:
    entry = settings.CELERY_BEAT_SCHEDULE["complete_configurations"]
    assert (entry["task"], entry["schedule"]) == (tasks.complete_configurations.name, 86_400.0)


# --- packages --------------------------------------------------------------------------------------------------------


def test_other_packages_raise_h_once_and_the_same_ones_do_not(door: Client, user_as: UserAS) -> None:
    host = Host.objects.get(AS=user_as.pk)
    values = {name: value or "" for name, value in addresses(host).items()}
    counters = Counters()
    assert door.post(page(Host, CHANGE, host.pk), values | {"scion_packages": "scionlab"}).status_code == 302
    assert counters.risen() == {}
    assert door.post(page(Host, CHANGE, host.pk), values | {"scion_packages": "upstream"}).status_code == 302
    assert counters.risen() == {host: CONFIG}
    assert units(host) == [
        "scion-control@cs-1.service",
        "scion-daemon.service",
        "scion-dispatcher.service",
        "scion-router@br-1.service",
    ]
    assert {"etc/scion/daemon.toml", "etc/scion/dispatcher.toml"} <= members(host).keys()


def test_packages_that_nobody_knows_are_refused(user_as: UserAS, staff: User) -> None:
    host = Host.objects.get(AS=user_as.pk)
    with pytest.raises(FieldRuleError) as refused:
        host_set_addresses(host_id=host.pk, actor=staff, **addresses(host), scion_packages="nix")
    assert (refused.value.code, refused.value.field) == ("scion_packages_unknown", "scion_packages")
    assert refused.value.message == '"nix" is not a set of SCION packages. Choose one of: scionlab, upstream.'


# --- MTUs ------------------------------------------------------------------------------------------------------------


def over_ipv6(ap: AttachmentPoint, **values: Any) -> AttachmentSpec:
    return spec(ap, **{"public_ip": "2001:db8::7", **values})


def save(user_as: UserAS, one: AttachmentSpec) -> None:
    user_as_update(
        user_as_id=user_as.pk,
        actor=None,
        label=user_as.label,
        installation_type=user_as.installation_type,
        attachments=[one],
    )


def mtu_of(link: Link) -> int:
    return Link.objects.values_list("mtu", flat=True).get(pk=link.pk)


def test_new_links_have_an_mtu_that_fits_their_underlay(owner: User, ap: AttachmentPoint) -> None:
    made = attach(owner, spec(ap), over_ipv6(ap))
    links = Link.objects.filter(interface_b__AS=made.pk).order_by("pk")
    assert list(links.values_list("mtu", flat=True)) == [1472, 1452]


def test_new_links_between_infrastructure_ases_too(ap: AttachmentPoint) -> None:
    core = ASFactory()
    HostFactory(AS=core, public_ipv4=None, public_ipv6="2001:db8::11")
    assert infrastructure_link_create(a=core, b=ap.AS, type=Link.Type.PROVIDER).mtu == 1452


def test_a_link_from_before_keeps_its_mtu_until_something_else_of_it_changes(owner: User, ap: AttachmentPoint) -> None:
    user_as = attach(owner, over_ipv6(ap))
    link = Link.objects.get(interface_b__AS=user_as.pk)
    Link.objects.update(mtu=1472)
    host = Host.objects.get(AS=user_as.pk)
    counters = Counters()
    save(user_as, over_ipv6(ap, link_id=link.pk))
    assert (mtu_of(link), counters.risen()) == (1472, {})
    save(user_as, over_ipv6(ap, link_id=link.pk, bandwidth_kbit=77))
    assert (mtu_of(link), counters.risen()) == (1472, {ap.host: LIMITS})
    save(user_as, over_ipv6(ap, link_id=link.pk, bandwidth_kbit=77, public_port=50_009))
    assert mtu_of(link) == 1452
    assert counters.risen() == {ap.host: (1, 1), host: CONFIG}
    for one in (host, ap.host):
        topology = json.loads(members(one)["etc/scion/topology.json"])
        (interface,) = topology["border_routers"]["br-1"]["interfaces"].values()
        assert (interface["mtu"], topology["mtu"]) == (1452, 1472)


def test_a_link_that_goes_back_to_ipv4_has_room_again(owner: User, ap: AttachmentPoint) -> None:
    user_as = attach(owner, over_ipv6(ap))
    link = Link.objects.get(interface_b__AS=user_as.pk)
    save(user_as, spec(ap, link_id=link.pk))
    assert mtu_of(link) == 1472


def test_an_mtu_that_somebody_chose_is_only_lowered(owner: User, ap: AttachmentPoint) -> None:
    user_as = attach(owner, spec(ap))
    link = Link.objects.get(interface_b__AS=user_as.pk)
    Link.objects.update(mtu=1400)
    save(user_as, spec(ap, link_id=link.pk, public_port=50_009))
    assert mtu_of(link) == 1400
    Link.objects.update(mtu=1460)
    save(user_as, over_ipv6(ap, link_id=link.pk))
    assert mtu_of(link) == 1452
