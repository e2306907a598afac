"""`lab.seed`: what it makes, that a second run makes nothing, who may; and the functions that make a network."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from bandwidth_config import RuleError, generate_link_info
from lab import seed
from scionlab.accounts.models import User
from scionlab.testbed.infrastructure import attachment_point_create, infrastructure_as_create
from scionlab.testbed.infrastructure_links import infrastructure_link_create
from scionlab.testbed.models import AS, ISD, AttachmentPoint, BandwidthChange, Host, Interface, Link, UserAS
from tests.cases import table

pytestmark = pytest.mark.django_db


def everything() -> list[Any]:
    """The rows of the network, with all their columns."""
    models = (ISD, AS, UserAS, Host, Interface, Link, AttachmentPoint, BandwidthChange, User)
    return [list(model._default_manager.order_by("pk").values()) for model in models]


# --- seed_demo ----------------------------------------------------------------------------------------------


def the_demo_is_a_small_scionlab() -> None:
    assert [isd.isd_id for isd in ISD.objects.all()] == [17, 19]
    assert sorted(str(ap) for ap in AttachmentPoint.objects.all()) == [
        "17-ffaa:0:1107 (ETHZ-AP)",
        "17-ffaa:0:1108 (Lugano AP)",
        "19-ffaa:0:1303 (Magdeburg AP)",
    ]
    assert UserAS.objects.count() == 6


def infrastructure_links_are_in_the_documents_and_not_limited() -> None:
    document = generate_link_info(AttachmentPoint.objects.get(AS__label="ETHZ-AP").host)
    uplink = document["1"]
    assert (uplink["ISD-AS"], uplink["IsUserAS"], uplink["Bandwidth"]) == ("17-ffaa:0:1101", False, 1_000_000)
    limited = [entry for entry in document.values() if entry["IsUserAS"]]
    assert [entry["Bandwidth"] for entry in limited] == [500, 1000, 1000]


def a_second_run_changes_nothing() -> None:
    seed.seed_states()
    before = everything()
    seed.seed_demo()
    seed.seed_states()
    assert everything() == before


def test_settings_that_may_be_production_are_refused(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.SETTINGS_MODULE = "scionlab.settings.prod"
    monkeypatch.setattr("sys.argv", ["lab.seed"])
    with pytest.raises(SystemExit, match="this may be production"):
        seed.main()
    assert not User.objects.exists()


def test_each_attachment_point_gets_a_token_but_for_those_that_are_enrolled(demo: None) -> None:
    seed.seed_states()
    found = seed.points(["17-ffaa_0_1107"])
    assert [(one["token"] is None, one["is_silent"]) for one in found] == [
        (True, False), (False, False), (False, False), (False, True),
    ]  # fmt: skip
    assert found[0]["failing"] == ["17-ffaa:1:fa"]


# --- the functions that laboratories build their networks from --------------------------------------------------


def make(as_text: str, **values: Any) -> AS:
    return infrastructure_as_create(**{"isd": 17, "as_text": as_text, "label": "", "is_core": False, **values})


def test_an_infrastructure_as_comes_with_host_and_border_router() -> None:
    as_ = make("FFAA:0:0b6", label="Ours", public_ipv4="10.7.0.1", public_ipv6="fd00::1", bind_ip="10.8.0.1")
    assert str(as_) == "17-ffaa:0:b6 (Ours)"
    host = as_.hosts.get()
    assert (host.public_ipv4, host.public_ipv6, host.bind_ip) == ("10.7.0.1", "fd00::1", "10.8.0.1")
    assert [router.number for router in host.border_routers.all()] == [1]


@table(
    ("as_text", "values", "code"),
    [
        ("ffaa:0:1107", {}, "as_id_taken"),
        ("ffaa:0:2", {"isd": 65_536}, "isd_range"),
        ("ffaa:0:2", {"isd": 0}, "isd_range"),
        ("0:0:0", {}, "as_id_zero"),
        ("ffaa:0:2", {"public_ipv4": None}, "address_required"),
    ],
)
def test_an_infrastructure_as_that_breaks_a_rule_is_not_made(as_text: str, values: dict[str, Any], code: str) -> None:
    make("ffaa:0:1107", public_ipv4="192.0.2.1")
    with pytest.raises(RuleError) as caught:
        make(as_text, **{"public_ipv4": "192.0.2.2", **values})
    assert caught.value.code == code
    assert (AS.objects.count(), ISD.objects.count(), Host.objects.count()) == (1, 1, 1)


def test_an_attachment_point_gives_its_default_from_the_start() -> None:
    as_ = make("ffaa:0:1", public_ipv4="192.0.2.1")
    ap = attachment_point_create(as_=as_, default_bandwidth_kbit=0, vpn_subnet="10.10.3.0/24")
    assert (ap.maximum_kbit, ap.host.vpn.server_ip) == (0, "10.10.3.1")
    with pytest.raises(RuleError, match="is already an attachment point"):
        attachment_point_create(as_=as_)


def test_an_infrastructure_link_gives_both_hosts_a_new_configuration_once() -> None:
    a, b, other = (make(f"ffaa:0:{n}", is_core=True, public_ipv4=f"192.0.2.{n}") for n in (1, 2, 3))
    link = infrastructure_link_create(a=a, b=b, type=Link.Type.CORE)
    found = {as_.pk: (as_.hosts.get().config_version, as_.hosts.get().limits_version) for as_ in (a, b, other)}
    assert found == {a.pk: (2, 1), b.pk: (2, 1), other.pk: (1, 1)}
    assert (link.interface_a.interface_id, link.interface_a.public_port) == (1, 50_000)
    second = infrastructure_link_create(a=a, b=other, type=Link.Type.PROVIDER)
    assert (second.interface_a.interface_id, second.interface_a.public_port) == (2, 50_001)


def test_a_user_as_has_no_infrastructure_link() -> None:
    seed.seed_demo()
    ap, user_as = AS.objects.get(label="ETHZ-AP"), AS.objects.get(label="Home lab")
    count = Link.objects.count()
    with pytest.raises(RuleError) as caught:
        infrastructure_link_create(a=ap, b=user_as, type=Link.Type.PROVIDER)
    assert (caught.value.code, Link.objects.count()) == ("link_of_user_as", count)


def test_an_infrastructure_link_uses_the_family_that_both_have() -> None:
    a = make("ffaa:0:1", public_ipv4="192.0.2.1", public_ipv6="2001:db8::1", bind_ip="10.0.0.1")
    b = make("ffaa:0:2", public_ipv6="2001:db8::2")
    link = infrastructure_link_create(a=a, b=b, type=Link.Type.PROVIDER)
    ends = (link.interface_a.public_ip, link.interface_a.bind_ip, link.interface_b.public_ip)
    assert ends == ("2001:db8::1", None, "2001:db8::2")


# --- all that is seen of one demo -------------------------------------------------------------------------------

OF_THE_DEMO = [
    the_demo_is_a_small_scionlab,
    infrastructure_links_are_in_the_documents_and_not_limited,
    a_second_run_changes_nothing,
]


@pytest.fixture
def demo(db: None) -> None:
    seed.seed_demo()


@table("check", OF_THE_DEMO, ids=lambda check: check.__name__)
def test_of_the_demo(check: Callable[[], None], demo: None) -> None:
    check()
