"""How an administrator builds the testbed: further hosts, border routers, Links between infrastructure ASes, addresses.

The network of these tests: core (17-ffaa:0:1101) and `ap`, linked by nobody; `bystander` has no part in anything.
"""

from __future__ import annotations

import io
import tarfile
from typing import Any

import pytest
from django.test import Client

from bandwidth_config import LINK_INFO_PATH
from config_tar import snapshot
from contract.scion_files import build_topology
from scionlab.accounts.models import User
from scionlab.limits.update import link_update
from scionlab.platform.notation.isd_as import parse_as_id
from scionlab.testbed.host import border_router_create
from scionlab.testbed.infrastructure import infrastructure_as_create
from scionlab.testbed.infrastructure_links import infrastructure_link_create
from scionlab.testbed.models import AS, AttachmentPoint, BorderRouter, Host, Interface, Link, UserAS
from tests.admin_pages import ADD, CHANGE, page
from tests.cases import table
from tests.factories import AttachmentPointFactory, HostFactory, attach, spec
from tests.site.test_admin import field_errors
from tests.support.counters import Counters

pytestmark = pytest.mark.django_db

CONFIG, LIMITS = (1, 0), (0, 1)


@pytest.fixture
def core(db: None) -> Host:
    as_ = infrastructure_as_create(
        isd=17, as_text="ffaa:0:1101", label="Core", is_core=True, public_ipv4="192.0.2.11", public_ipv6="2001:db8::11"
    )
    return as_.hosts.get()


@pytest.fixture(autouse=True)
def bystander(db: None) -> Host:
    found: Host = AttachmentPointFactory(AS__as_id=parse_as_id("ffaa:0:1999"), host__public_ipv4="192.0.2.19").host
    return found


def addresses(host: Host, **changed: str) -> dict[str, str]:
    names = ("label", "public_ipv4", "public_ipv6", "bind_ip", "internal_ip", "scion_packages")
    values = {name: getattr(host, name) or "" for name in names}
    return {**values, **changed}


def router_of(host: Host) -> BorderRouter:
    return host.border_routers.get()


def new_link(a: BorderRouter, b: BorderRouter, link_type: str = "provider", **values: str) -> dict[str, str]:
    return {"type": link_type, "router_a": str(a.pk), "router_b": str(b.pk), "bandwidth_kbit": "1000000", **values}


def new_host(as_: AS, **values: str) -> dict[str, str]:
    return {"AS": str(as_.pk), "label": "rack 7", "public_ipv4": "192.0.2.77", "internal_ip": "10.0.0.7", **values}


def refused(response: Any, field: str) -> list[str]:
    """The codes beside the field; there is no other error on the page."""
    found = field_errors(response)
    assert found.keys() == {field}
    return [code for code, _ in found[field]]


# --- Links ------------------------------------------------------------------------------------------------------


@table("link_type", ["provider", "peer"])
def test_a_link_is_added_and_both_hosts_told_once(door: Client, core: Host, host_a: Host, link_type: str) -> None:
    counters = Counters()
    response = door.post(page(Link, ADD), new_link(router_of(core), router_of(host_a), link_type), follow=True)
    assert counters.risen() == {core: CONFIG, host_a: CONFIG}
    made = Link.objects.get()
    assert (made.type, made.bandwidth_kbit, made.active, made.is_limited) == (link_type, 1_000_000, True, False)
    ends = [(end.AS.isd_as, end.host, end.public_ip, end.public_port) for end in (made.interface_a, made.interface_b)]
    assert ends == [("17-ffaa:0:1101", core, "192.0.2.11", 50000), ("17-ffaa:0:1107", host_a, "192.0.2.1", 50000)]
    assert list(response.context["cl"].result_list) == [made]  # the list that follows shows it


def test_a_core_link_is_between_core_ases(door: Client, core: Host, host_a: Host) -> None:
    values = new_link(router_of(core), router_of(host_a), "core")
    assert refused(door.post(page(Link, ADD), values), "type") == ["core_link_needs_core_ases"]
    AS.objects.filter(pk=host_a.AS_id).update(is_core=True)
    assert door.post(page(Link, ADD), values).status_code == 302
    assert Link.objects.get().type == Link.Type.CORE


@table(
    ("values", "field", "code"),
    [
        ({"bandwidth_kbit": "0"}, "bandwidth_kbit", "infrastructure_bandwidth"),
        ({"bandwidth_kbit": "1e3"}, "bandwidth_kbit", "bandwidth_invalid"),
        ({"bandwidth_kbit": "100000001"}, "bandwidth_kbit", "bandwidth_too_high"),
    ],
)
def test_a_link_that_breaks_a_rule_is_refused_beside_its_field(
    door: Client, core: Host, host_a: Host, values: dict[str, str], field: str, code: str
) -> None:
    counters = Counters()
    response = door.post(page(Link, ADD), new_link(router_of(core), router_of(host_a), **values))
    assert refused(response, field) == [code]
    assert not Link.objects.exists()
    assert not Interface.objects.exists()
    assert counters.risen() == {}


def test_ends_without_a_common_family_are_refused(door: Client, core: Host, host_a: Host) -> None:
    itself = door.post(page(Link, ADD), new_link(router_of(core), router_of(core)))
    assert refused(itself, "router_b") == ["link_to_itself"]
    Host.objects.filter(pk=core.pk).update(public_ipv4=None)
    Host.objects.filter(pk=host_a.pk).update(public_ipv6=None)
    response = door.post(page(Link, ADD), new_link(router_of(core), router_of(host_a)))
    assert refused(response, "router_b") == ["address_family"]
    assert not Interface.objects.exists()


def test_user_ases_are_not_offered_as_ends(door: Client, core: Host, user_as: UserAS) -> None:
    theirs = router_of(user_as.hosts.get())
    assert f'value="{theirs.pk}"' not in door.get(page(Link, ADD)).content.decode()
    assert refused(door.post(page(Link, ADD), new_link(router_of(core), theirs)), "router_b") == ["invalid_choice"]


# --- hosts and border routers -----------------------------------------------------------------------------------


@pytest.fixture
def second(door: Client, core: Host) -> Host:
    """A further host of the core AS, added by the administrator."""
    Host.objects.filter(pk=core.pk).update(internal_ip="10.0.0.1")
    assert door.post(page(Host, ADD), new_host(core.AS)).status_code == 302
    return Host.objects.get(label="rack 7")


def test_a_further_host_comes_with_a_border_router_and_tells_nobody(door: Client, core: Host) -> None:
    Host.objects.filter(pk=core.pk).update(internal_ip="10.0.0.1")
    counters = Counters()
    assert door.post(page(Host, ADD), new_host(core.AS)).status_code == 302
    assert counters.risen() == {}
    made = Host.objects.get(label="rack 7")
    assert (made.AS, made.public_ipv4, made.internal_ip) == (core.AS, "192.0.2.77", "10.0.0.7")
    assert (router_of(core).number, router_of(made).number) == (1, 2)
    assert made.secret != core.secret


def test_a_further_host_waits_until_the_first_one_is_reached(door: Client, core: Host) -> None:
    assert refused(door.post(page(Host, ADD), new_host(core.AS)), "AS") == ["internal_ip_of_other"]
    assert door.post(page(Host, CHANGE, core.pk), addresses(core, internal_ip="10.0.0.1")).status_code == 302
    assert door.post(page(Host, ADD), new_host(core.AS)).status_code == 302
    assert core.AS.hosts.count() == 2


@table(
    ("values", "field", "code"),
    [
        ({"public_ipv4": ""}, "public_ipv4", "address_required"),
        ({"public_ipv6": "192.0.2.9"}, "public_ipv6", "address_family"),
        ({"bind_ip": "10.0.0"}, "bind_ip", "address_invalid"),
        ({"internal_ip": "127.0.0.1"}, "internal_ip", "address_refused"),
        ({"internal_ip": "10.0.0.1"}, "internal_ip", "internal_ip_taken"),
    ],
)
def test_a_hosts_addresses_are_judged_beside_their_fields(
    door: Client, core: Host, values: dict[str, str], field: str, code: str
) -> None:
    Host.objects.filter(pk=core.pk).update(internal_ip="10.0.0.1")
    assert refused(door.post(page(Host, ADD), new_host(core.AS, **values)), field) == [code]
    assert core.AS.hosts.count() == 1


def test_user_ases_get_no_further_hosts_or_routers(door: Client, user_as: UserAS) -> None:
    assert refused(door.post(page(Host, ADD), new_host(user_as)), "AS") == ["invalid_choice"]
    host = user_as.hosts.get()
    assert refused(door.post(page(BorderRouter, ADD), {"host": host.pk}), "host") == ["invalid_choice"]
    assert (user_as.hosts.count(), host.border_routers.count()) == (1, 1)


def test_a_further_router_has_a_number_of_its_own_in_its_as(door: Client, core: Host, second: Host) -> None:
    counters = Counters()
    assert door.post(page(BorderRouter, ADD), {"host": core.pk}).status_code == 302
    assert counters.risen() == {}
    assert list(core.border_routers.values_list("number", flat=True)) == [1, 3]  # 2 is on the other host


def test_no_router_gets_the_control_services_port(door: Client, core: Host) -> None:
    BorderRouter.objects.bulk_create(BorderRouter(host=core, number=number) for number in range(2, 254))
    assert refused(door.post(page(BorderRouter, ADD), {"host": core.pk}), "host") == ["border_routers_exhausted"]
    assert max(router.internal_port for router in core.border_routers.all()) == 30_253


def test_a_link_ends_on_the_router_that_was_chosen(door: Client, core: Host, second: Host, host_a: Host) -> None:
    """Every host of the AS has all its border routers in its topology, so every one is told, once."""
    counters = Counters()
    assert door.post(page(Link, ADD), new_link(router_of(second), router_of(host_a))).status_code == 302
    assert counters.risen() == {core: CONFIG, second: CONFIG, host_a: CONFIG}
    end = Link.objects.get().interface_a
    assert (end.host, end.public_ip, end.border_router.number) == (second, "192.0.2.77", 2)
    hosts = [snapshot(host) for host in core.AS.hosts.order_by("pk")]
    routers = build_topology(core.AS, hosts)["border_routers"]
    assert {name: router["internal_addr"] for name, router in routers.items()} == {"br-2": "10.0.0.7:30002"}


def test_a_user_as_that_attaches_is_told_to_every_host_of_the_attachment_points_as(
    door: Client, owner: User, ap: AttachmentPoint, host_a: Host
) -> None:
    Host.objects.filter(pk=host_a.pk).update(internal_ip="10.0.0.1")
    door.post(page(Host, ADD), new_host(ap.AS))
    second = Host.objects.get(label="rack 7")
    counters = Counters()
    attach(owner, spec(ap))
    assert counters.risen() == {host_a: CONFIG, second: CONFIG}


def test_a_router_of_another_as_is_refused_by_the_service(core: Host, host_a: Host, bystander: Host) -> None:
    with pytest.raises(ValueError, match="is not in 17-ffaa:0:1107"):
        infrastructure_link_create(a=core.AS, b=host_a.AS, type=Link.Type.PROVIDER, router_b=router_of(bystander))
    assert not Interface.objects.exists()


def test_an_attachment_point_made_or_unmade_changes_what_its_agent_fetches(
    door: Client, core: Host, backbone: Link
) -> None:
    """link_info.json comes and goes; SCION's own files stay, so nobody restarts anything."""

    def fetched() -> bool:
        return LINK_INFO_PATH in tar_names(door.get(page(Host, "config", core.pk)))

    assert not fetched()  # and it is in the cache now
    counters = Counters()
    assert door.post(page(AttachmentPoint, ADD), {"AS": core.AS_id, "default_bandwidth_kbit": ""}).status_code == 302
    assert counters.risen() == {core: LIMITS}
    assert fetched()
    made = AttachmentPoint.objects.get(AS=core.AS_id)
    assert door.post(page(AttachmentPoint, "delete", made.pk), {"post": "yes"}).status_code == 302
    assert counters.risen() == {core: (0, 2)}
    assert not fetched()


def tar_names(response: Any) -> list[str]:
    with tarfile.open(fileobj=io.BytesIO(response.content)) as tar:
        return tar.getnames()


# --- addresses --------------------------------------------------------------------------------------------------


@pytest.fixture
def backbone(core: Host, host_a: Host) -> Link:
    """core is the provider of `ap`."""
    return infrastructure_link_create(a=core.AS, b=host_a.AS, type=Link.Type.PROVIDER)


def test_a_moved_host_tells_both_ends_of_its_active_links_once(
    door: Client, core: Host, host_a: Host, backbone: Link
) -> None:
    counters = Counters()
    values = addresses(core, public_ipv4="192.0.2.12", bind_ip="10.0.0.12")
    assert door.post(page(Host, CHANGE, core.pk), values).status_code == 302
    assert counters.risen() == {core: CONFIG, host_a: CONFIG}
    end = Interface.objects.get(pk=backbone.interface_a_id)
    assert (end.public_ip, end.bind_ip) == ("192.0.2.12", "10.0.0.12")


def test_an_address_that_no_active_link_uses_tells_nobody(
    door: Client, core: Host, backbone: Link, staff: User
) -> None:
    counters = Counters()
    assert door.post(page(Host, CHANGE, core.pk), addresses(core, public_ipv6="2001:db8::12")).status_code == 302
    assert counters.risen() == {}
    link_update(link_id=backbone.pk, actor=staff, active=False)
    counters = Counters()
    core.refresh_from_db()
    assert door.post(page(Host, CHANGE, core.pk), addresses(core, public_ipv4="192.0.2.12")).status_code == 302
    assert counters.risen() == {}
    assert Interface.objects.get(pk=backbone.interface_a_id).public_ip == "192.0.2.12"


def test_an_internal_address_is_told_to_the_hosts_of_the_as_once(
    door: Client, core: Host, second: Host, host_a: Host, backbone: Link
) -> None:
    """The first host's always, because the control service is there; another one's when a Link ends on it."""
    counters = Counters()
    core.refresh_from_db()
    door.post(page(Host, CHANGE, second.pk), addresses(second, internal_ip="10.0.0.8"))
    assert counters.risen() == {}
    door.post(page(Host, CHANGE, core.pk), addresses(core, internal_ip="10.0.0.2"))
    assert counters.risen() == {core: CONFIG, second: CONFIG}
    infrastructure_link_create(a=core.AS, b=host_a.AS, type=Link.Type.PROVIDER, router_a=router_of(second))
    counters = Counters()
    second.refresh_from_db()
    door.post(page(Host, CHANGE, second.pk), addresses(second, internal_ip="10.0.0.9"))
    assert counters.risen() == {core: CONFIG, second: CONFIG}
    door.post(page(Host, CHANGE, second.pk), addresses(Host.objects.get(pk=second.pk)))
    assert counters.risen() == {core: CONFIG, second: CONFIG}, "unchanged values raise nothing"


def test_a_user_ass_host_needs_no_address_of_its_own(door: Client, user_as: UserAS) -> None:
    host = user_as.hosts.get()
    assert door.post(page(Host, CHANGE, host.pk), addresses(host, label="at home")).status_code == 302
    assert Host.objects.get(pk=host.pk).label == "at home"


@table(("field", "private"), [("public_ipv4", "10.1.2.3"), ("public_ipv6", "fd00::1")])
def test_in_production_hosts_have_addresses_that_the_internet_reaches(
    door: Client, core: Host, second: Host, settings: Any, field: str, private: str
) -> None:
    settings.UNDERLAY_GLOBAL_ONLY = True
    core.refresh_from_db()
    public = {"public_ipv4": "8.8.8.8", "public_ipv6": "2620:fe::fe"}
    counters, values = Counters(), {**public, field: private}
    changed = door.post(page(Host, CHANGE, core.pk), addresses(core, **values))
    added = door.post(page(Host, ADD), new_host(core.AS, **values, internal_ip="10.0.0.9"))
    assert refused(changed, field) == refused(added, field) == ["address_not_global"]
    assert counters.risen() == {}
    assert door.post(page(Host, CHANGE, core.pk), addresses(core, **public)).status_code == 302


def test_a_host_without_an_as_has_no_routers(staff: User) -> None:
    host = HostFactory(AS=None)
    with pytest.raises(ValueError, match="belongs to no AS"):
        border_router_create(host=host, actor=staff)
    assert not host.border_routers.exists()
