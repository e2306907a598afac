"""`manage.py import_scionlab`: what it makes of a dump of upstream's service, and what a further run does.

The network of the dumps, with its keys, is in `tests.upstream_dump.small`.
"""

from __future__ import annotations

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from pytest_django import Settings

from bandwidth_config import Limits, generate_link_info
from scionlab.accounts.account import account_update
from scionlab.accounts.models import Mail, User
from scionlab.delivery.installed import host_set_limits_only
from scionlab.importer import import_attachment_points, importer
from scionlab.limits.profiles import outage
from scionlab.limits.timed_limit import timed_limit_create
from scionlab.limits.update import link_set_bandwidth
from scionlab.platform.notation.isd_as import parse_as_id
from scionlab.scion_config.vpn import files_for as vpn_files
from scionlab.testbed.models import (
    ISD,
    VPN,
    AttachmentPoint,
    BandwidthChange,
    DeletedHost,
    Host,
    InstalledFiles,
    Link,
    UserAS,
    VPNClient,
    VPNClientKeys,
    VPNServerKeys,
)
from scionlab.user_ases.user_as import user_as_delete
from tests.cases import table
from tests.delivery.test_beside_another_service import STOCK
from tests.factories import ASFactory, AttachmentPointFactory, HostFactory, UserFactory, attach, spec
from tests.support.counters import Counters
from tests.support.importing import counted, everything, host_of, link_at, risen, run
from tests.support.polling import config_members, credentials
from tests.upstream_dump import PASSWORD, Dump, large, small

pytestmark = pytest.mark.django_db


# --- what comes in ----------------------------------------------------------------------------------------------


def test_every_kind_comes_in() -> None:
    report = run(small())
    assert counted(report) == {
        "user": (2, 0, 0),
        "isd": (2, 0, 0),
        "as": (8, 0, 0),
        "useras": (3, 0, 0),
        "host": (8, 0, 0),
        "borderrouter": (9, 0, 0),
        "vpn": (1, 0, 0),
        "attachmentpoint": (2, 0, 0),
        "vpnclient": (1, 0, 0),
        "interface": (14, 0, 0),
        "link": (7, 0, 0),
    }
    assert report.is_stored
    assert report.merged == ["ISD 17: rows 1, 2 there are one ISD here"]
    assert {one.isd_as for one in UserAS.objects.all()} == {"17-ffaa:1:1", "17-ffaa:1:2", "19-ffaa:1:b6"}
    assert list(ISD.objects.values_list("isd_id", "label")) == [(17, "Switzerland"), (19, "Europe")]


def test_hosts_have_limits_only_keep_their_credentials_and_count_as_another_services() -> None:
    run(small())
    assert set(Host.objects.values_list("limits_only", "config_version", "limits_version")) == {(True, 1, 1)}
    assert (host_of(3).secret, host_of(3).public_ipv4, host_of(3).public_ipv6) == ("secret-3", "192.0.2.7", None)
    assert (host_of(4).public_ipv4, host_of(4).public_ipv6) == (None, "2001:db8::3")
    assert set(InstalledFiles.objects.values_list("owner", flat=True)) == {"other"}
    assert InstalledFiles.objects.count() == 8
    noted = BandwidthChange.objects.filter(kind="host_limits_only")
    assert noted.count() == 8
    assert set(noted.values_list("reason", flat=True)) == {"imported from SCIONLab's coordination service"}


def test_an_agent_there_fetches_limits_with_its_old_credentials_and_the_stock_client_is_refused() -> None:
    run(small())
    host = host_of(3)
    address = f"/api/v4/host/{host.uid}/config"
    fetched = Client().get(address, headers=credentials(host))
    assert fetched.status_code == 200
    assert set(config_members(fetched.content)) == {"scionlab-config.json", "etc/scion/link_info.json"}
    assert Client().get(address, headers={**credentials(host), **STOCK}).status_code == 503


def test_links_of_user_ases_get_the_number_and_others_are_not_limited() -> None:
    run(small())
    document = generate_link_info(host_of(3))
    assert {key: (one["ISD-AS"], one["IsUserAS"], one["Bandwidth"]) for key, one in document.items()} == {
        "1": ("17-ffaa:0:1101", False, 1_000_000),
        "2": ("17-ffaa:0:1102", False, 1_000_000),
        "3": ("17-ffaa:1:1", True, 500),
        "4": ("17-ffaa:1:2", True, 500),
    }
    assert list(Link.objects.order_by("pk").values_list("type", "active", "mtu")) == [
        ("core", True, 1472),
        ("provider", True, 1472),
        ("provider", True, 1472),
        ("peer", True, 1472),
        ("provider", True, 1472),
        ("provider", True, 1472),
        ("provider", False, 1452),
    ]
    assert link_at("ffaa:0:1107", 4).requested == Limits(500, 500)


def test_addresses_come_as_upstream_has_them_over_vpn_behind_nat_and_ipv6() -> None:
    run(small())
    vpn, nat, ipv6 = (link_at(*end) for end in (("ffaa:0:1107", 3), ("ffaa:0:1107", 4), ("ffaa:0:1303", 2)))
    assert (vpn.interface_a.public_ip, vpn.interface_b.public_ip) == ("10.10.1.1", "10.10.1.2")
    assert str(vpn.interface_b.vpn_client) == "10.10.1.2 in 10.10.1.0/24"
    far = nat.interface_b
    assert (far.public_ip, far.public_port, far.bind_ip, far.vpn_client) == ("198.51.100.2", 50_000, "10.0.2.15", None)
    assert (nat.interface_a.public_ip, nat.interface_a.border_router.number) == ("192.0.2.7", 2)
    assert (ipv6.interface_a.public_ip, ipv6.interface_b.public_ip) == ("2001:db8::3", "2001:db8:1::b6")
    assert link_at("ffaa:0:1301", 2).interface_a.public_ip == "2001:db8::2"


def test_attachment_points_begin_with_observing_on_the_host_that_has_the_links() -> None:
    run(small())
    found = {str(ap.host.public_ips[0]): (ap.observe_only, ap.maximum_kbit) for ap in AttachmentPoint.objects.all()}
    assert found == {"192.0.2.7": (True, 1000), "2001:db8::3": (True, 1000)}
    assert BandwidthChange.objects.filter(kind="ap_observe").count() == 2


def test_each_limited_link_has_a_row_in_the_record_of_changes() -> None:
    run(small())
    rows = BandwidthChange.objects.filter(kind="link").order_by("pk")
    assert list(rows.values_list("subject", "old_kbit", "new_kbit", "actor_email")) == [
        ("17-ffaa:0:1107#3 \N{RIGHTWARDS ARROW} 17-ffaa:1:1#1", None, 500, ""),
        ("17-ffaa:0:1107#4 \N{RIGHTWARDS ARROW} 17-ffaa:1:2#1", None, 500, ""),
        ("19-ffaa:0:1303#2 \N{RIGHTWARDS ARROW} 19-ffaa:1:b6#1", None, 500, ""),
    ]


def test_what_a_link_wants_is_in_the_first_version_of_its_new_host_and_nobody_is_mailed() -> None:
    run(small())
    wanted = Link.objects.values_list("wanted_config_version", "wanted_limits_version", "is_told")
    assert set(wanted) == {(1, 1, True)}
    assert not Mail.objects.exists()


def test_people_keep_their_passwords_where_they_can_be_verified_and_nobody_becomes_an_administrator(
    settings: Settings,
) -> None:
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.PBKDF2PasswordHasher"]
    report = run(small())
    anna, ben = User.objects.order_by("email")
    assert (anna.full_name, anna.is_active, anna.is_staff) == ("Anna Tester", True, False)
    assert anna.check_password(PASSWORD)
    assert (ben.email, ben.is_active, ben.is_staff, ben.is_superuser) == ("ben@example.org", False, False, False)
    assert not ben.has_usable_password()
    (note,) = [one for one in report.notes if "Ben@Example.org" in one]
    assert note.startswith("1 new accounts have no password that can be verified here")


@table("stored", ["", "md5$a$b", "pbkdf2_sha256$x$y$z", f"pbkdf2_sha256$1000${'s' * 110}$YQ=="])
def test_a_password_that_cannot_be_verified_or_stored_is_none(settings: Settings, stored: str) -> None:
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.PBKDF2PasswordHasher"]
    dump = small()
    dump["user"][1]["password"] = stored
    run(dump)
    assert not User.objects.get(email="anna@example.org").has_usable_password()


def test_an_account_that_is_here_gets_its_ases_and_stays_as_it_is() -> None:
    anna = UserFactory(email="anna@example.org", is_staff=True, full_name="Anna")
    before = User.objects.values().get(pk=anna.pk)
    dump = small()
    dump["user"][1] |= {"email": "ANNA@example.org", "is_active": False}
    report = run(dump)
    assert User.objects.values().get(pk=anna.pk) == before
    assert UserAS.objects.filter(owner=anna).count() == 2
    assert report.kept == ["user 1 (ANNA@example.org): is_active True -> False"]


def test_what_no_rule_refuses_and_people_should_know_is_told() -> None:
    dump = small()
    for number in range(6):
        dump.user_as(1, f"ffaa:1:10{number}", 1)
    notes = run(dump).notes
    assert "anna@example.org has 8 ASes, above the quota of 5: no more may be made" in notes
    assert "1 hosts have no AS there (it was deleted), and are left out" in notes
    assert "1 interfaces have no Link there, and are left out: 17-ffaa:0:1102#2" in notes
    assert any(note.startswith("6 user ASes have no attachment: 17-ffaa:1:100, ") for note in notes)


# --- again ------------------------------------------------------------------------------------------------------


def test_the_same_file_again_changes_nothing() -> None:
    run(small())
    before = everything()
    report = run(small(), kbit=800)
    assert everything() == before
    assert (report.made, report.changes) == (0, 0)
    assert (report.changed, report.kept, report.gone, report.problems) == ([], [], [], [])
    assert counted(report)["link"] == (0, 0, 7)


def test_a_limit_that_people_set_meanwhile_stays_and_so_does_what_administrators_set() -> None:
    run(small())
    link = link_at("ffaa:0:1107", 4)
    link_set_bandwidth(link_id=link.pk, bandwidth_kbit=77, actor=None)
    AttachmentPoint.objects.update(observe_only=False)
    before = everything()
    run(small())
    assert everything() == before


def test_another_address_of_a_host_raises_h_once_for_each_host_that_sees_it() -> None:
    run(small())
    dump = small()
    dump["host"][3]["public_ip"] = "192.0.2.77"
    counters = Counters()
    report = run(dump)
    assert risen(counters) == {1: (1, 0), 3: (1, 0), 5: (1, 0), 7: (1, 0)}
    assert host_of(3).public_ipv4 == "192.0.2.77"
    assert link_at("ffaa:0:1107", 4).interface_a.public_ip == "192.0.2.77"
    assert counted(report)["interface"] == (0, 3, 11)
    assert report.changed[0] == f"host 3 ({3:032x}): public_ipv4 192.0.2.7 -> 192.0.2.77"


def test_another_port_mtu_and_activity_are_taken_over_and_an_inactive_link_raises_nothing() -> None:
    run(small())
    dump = small()
    dump["link"][7]["mtu"] = 1400
    counters = Counters()
    run(dump)
    assert risen(counters) == {}
    dump["interface"][11]["public_port"] = 50_007
    dump["link"][7]["active"] = True
    dump["link"][6]["mtu"] = 1460
    report = run(dump)
    assert risen(counters) == {3: (1, 0), 7: (1, 0), 4: (1, 0), 8: (1, 0)}
    link = link_at("ffaa:0:1107", 4)
    assert (link.interface_b.public_port, link.mtu, link.wanted_config_version) == (50_007, 1460, 2)
    assert link_at("ffaa:0:1303", 2).active
    assert counted(report)["link"] == (0, 2, 5)
    assert not Mail.objects.exists()
    assert set(Link.objects.values_list("is_told", flat=True)) == {True}


def test_a_link_that_is_deactivated_there_ends_its_timed_limits() -> None:
    run(small())
    link = link_at("ffaa:0:1107", 4)
    timed = timed_limit_create(link_id=link.pk, profile=outage(600), begins_at=None, actor=None)
    dump = small()
    dump["link"][6]["active"] = False
    counters = Counters()
    run(dump)
    timed.refresh_from_db()
    assert timed.cancelled_at is not None
    assert risen(counters) == {3: (1, 0), 7: (1, 0)}


def test_links_may_exchange_their_ports_and_clients_their_addresses() -> None:
    dump = small()
    other = dump.user_as(1, "ffaa:1:3", 1)
    dump.attach_over_vpn(6, other, 1, "10.10.1.3")
    run(dump)
    for model, pks, field in (("interface", (10, 17), "public_ip"), ("vpnclient", (1, 2), "ip")):
        first, second = (dump[model][pk] for pk in pks)
        first[field], second[field] = second[field], first[field]
    ports = dump["interface"]
    ports[7]["public_port"], ports[12]["public_port"] = ports[12]["public_port"], ports[7]["public_port"]
    counters = Counters()
    report = run(dump)
    assert report.problems == []
    assert link_at("ffaa:0:1107", 3).interface_b.public_ip == "10.10.1.3"
    assert link_at("ffaa:0:1107", 2).interface_a.public_port == 50_003
    assert link_at("ffaa:0:1107", 4).interface_a.public_port == 50_001
    assert [client.ip for client in VPNClient.objects.order_by("pk")] == ["10.10.1.3", "10.10.1.2"]
    assert risen(counters) == {3: (1, 0), 5: (1, 0), 6: (1, 0), 7: (1, 0), 10: (1, 0)}
    assert (run(dump).made, run(dump).changes) == (0, 0)


def with_two_clients() -> Dump:
    """The second one is host 10."""
    dump = small()
    dump.attach_over_vpn(6, dump.user_as(1, "ffaa:1:3", 1), 1, "10.10.1.3")
    return dump


def test_an_imported_vpn_and_each_of_its_clients_get_keys() -> None:
    run(small())
    assert VPNServerKeys.objects.get().vpn == VPN.objects.get()
    run(with_two_clients())
    clients = VPNClientKeys.objects.order_by("pk").values_list("client__ip", flat=True)
    assert list(clients) == ["10.10.1.2", "10.10.1.3"]
    assert len(vpn_files(host_of(3))) == 3
    assert len(vpn_files(host_of(10))) == 1


def test_a_vpn_is_not_overfilled(monkeypatch: pytest.MonkeyPatch) -> None:
    run(small())
    monkeypatch.setattr(import_attachment_points, "MAX_CLIENTS", 1)
    report = run(with_two_clients(), skip_invalid=True)
    (problem,) = report.problems
    assert (problem.kind, problem.pk) == ("vpnclient", 2)
    assert problem.message.endswith("has 1 clients, the most. Attach the AS at another one there.")


def test_what_is_new_in_a_newer_dump_is_made_beside_what_is_here() -> None:
    run(small())
    dump = small()
    carl = dump.user("carl@example.org")
    dump.attach(6, dump.user_as(1, "ffaa:1:3", carl), "198.51.100.3")
    counters = Counters()
    report = run(dump, kbit=300)
    assert counted(report)["link"] == (1, 0, 7)
    assert risen(counters) == {3: (1, 0)}
    link = link_at("ffaa:0:1107", 5)
    assert (link.bandwidth_kbit, link.wanted_config_version, link.is_told) == (300, 2, True)
    assert link.interface_b.AS.useras.owner.email == "carl@example.org"


def test_an_attachment_point_that_is_new_at_an_as_that_is_here_raises_l_of_its_host() -> None:
    run(small())
    dump = small()
    dump.attachment_point(5)
    counters = Counters()
    run(dump)
    assert risen(counters) == {5: (0, 1)}


def test_another_isd_of_a_user_as_and_another_core_as_are_told_to_whoever_names_them() -> None:
    dump = small()
    dump.remove_link(7)
    run(dump)
    dump["as"][8]["isd"] = 1
    dump["as"][5]["is_core"] = True
    counters = Counters()
    report = run(dump)
    assert risen(counters) == {8: (1, 0), 5: (1, 0)}
    assert counted(report)["as"] == (0, 2, 6)
    assert UserAS.objects.get(as_id=parse_as_id("ffaa:1:b6")).isd_as == "17-ffaa:1:b6"


def test_an_as_that_moves_with_its_link_is_told_to_both_ends() -> None:
    run(small())
    dump = small()
    dump["isd"][3]["isd_id"] = 20
    counters = Counters()
    run(dump)
    assert risen(counters) == {1: (1, 0), 2: (1, 0), 4: (1, 0), 8: (1, 0)}
    assert generate_link_info(host_of(1))["1"]["ISD-AS"] == "20-ffaa:0:1301"


def test_another_internal_address_raises_h_of_the_hosts_as() -> None:
    run(small())
    dump = small()
    dump["host"][5]["internal_ip"] = "10.0.0.5"
    counters = Counters()
    run(dump)
    assert risen(counters) == {5: (1, 0)}


def without_user_as(dump: Dump, as_pk: int, host: int, link: int) -> Dump:
    dump.remove_link(link)
    for model in ("service", "borderrouter", "vpnclient"):
        dump.tables[model] = {pk: one for pk, one in dump[model].items() if one["host"] != host}
    for model, pk in (("useras", as_pk), ("as", as_pk), ("host", host)):
        del dump[model][pk]
    return dump


def test_what_is_gone_there_is_reported_and_stays() -> None:
    run(small())
    before = everything()
    dump = without_user_as(small(), 8, 8, 7)
    del dump["attachmentpoint"][2]
    report = run(dump)
    assert everything() == before
    assert report.gone == [
        "Link 19-ffaa:0:1303#2 \N{RIGHTWARDS ARROW} 19-ffaa:1:b6#1",
        "AS 19-ffaa:1:b6",
        f"host id {8:032x} (host of 19-ffaa:1:b6)",
        "attachment point 19-ffaa:0:1303",
    ]
    assert (report.made, report.changes) == (0, 0)


def test_a_run_that_fails_in_the_end_stores_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: object) -> None:
        raise RuntimeError("power cut")

    monkeypatch.setattr(importer, "note_gone", fails)
    before = everything()
    with pytest.raises(RuntimeError, match="power cut"):
        run(small())
    assert everything() == before


def test_the_number_of_statements_depends_on_the_number_of_user_ases_alone() -> None:
    def statements(user_ases: int) -> int:
        with CaptureQueriesContext(connection) as queries:
            run(large(user_ases), dry_run=True)
        return len(queries)

    statements(1)
    assert statements(60) - statements(30) == 30  # Django makes rows of `UserAS` one by one


# --- beside what was made here ----------------------------------------------------------------------------------


def test_an_as_of_the_same_number_that_was_made_here_is_named() -> None:
    ap = AttachmentPointFactory(AS__as_id=parse_as_id("ffaa:0:2001"), host__public_ipv4="192.0.2.200")
    attach(UserFactory(), spec(ap, public_ip="198.51.100.50"))
    report = run(small())
    assert [str(one) for one in report.problems] == [
        "as 6 (17-ffaa:1:1): 17-ffaa:1:1 already exists here with other hosts, or is of another kind. Delete one of "
        "them."
    ]
    assert report.is_refused


def test_a_host_that_is_no_longer_limits_only_is_left_alone() -> None:
    run(small())
    host_set_limits_only(host_id=host_of(7).pk, limits_only=False, actor=None)
    dump = small()
    dump["interface"][11]["public_port"] = 50_007
    dump["host"][7] |= {"internal_ip": "10.0.0.7", "secret": "another"}
    before = everything()
    report = run(dump)
    assert everything() == before
    assert report.kept == [
        f"host 7 ({7:032x}): the secret is another one here",
        f"host 7 ({7:032x}): internal_ip 127.0.0.1 -> 10.0.0.7",
        "link 6 (17-ffaa:0:1107#4 - 17-ffaa:1:2#1): b.public_port 50000 -> 50007",
    ]
    assert not host_of(7).limits_only


def test_a_new_link_at_a_host_that_is_coordinated_here_is_refused() -> None:
    run(small())
    host_set_limits_only(host_id=host_of(3).pk, limits_only=False, actor=None)
    dump = small()
    dump.attach(6, dump.user_as(1, "ffaa:1:3", 1), "198.51.100.3")
    assert [str(one) for one in run(dump).problems] == [
        "link 8 (17-ffaa:0:1107#5 - 17-ffaa:1:3#1): One of its hosts is not limits only: this service manages it. "
        "Create the Link here."
    ]


def test_an_interface_id_that_upstream_gave_out_again_waits_for_the_old_link_to_be_removed_here() -> None:
    run(small())
    dump = without_user_as(small(), 7, 7, 6)
    dump.attach(6, dump.user_as(1, "ffaa:1:3", 1), "198.51.100.3")
    report = run(dump)
    assert [str(one) for one in report.problems] == [
        "link 8 (17-ffaa:0:1107#4 - 17-ffaa:1:3#1): An interface of it belongs to another Link here, 17-ffaa:0:1107#4 "
        "\N{RIGHTWARDS ARROW} 17-ffaa:1:2#1. Remove that one here first."
    ]
    user_as_delete(user_as_id=UserAS.objects.get(as_id=parse_as_id("ffaa:1:2")).pk, actor=None)
    assert counted(run(dump))["link"] == (1, 0, 6)


def test_a_socket_that_another_link_keeps_here_is_refused() -> None:
    run(small())
    dump = without_user_as(small(), 7, 7, 6)
    number = dump.attach(6, dump.user_as(1, "ffaa:1:3", 1), "198.51.100.2")
    dump["interface"][dump["link"][number]["interfaceA"]] |= {"interface_id": 9, "public_port": 50_009}
    assert [str(one) for one in run(dump).problems] == [
        "link 8 (17-ffaa:0:1107#9 - 17-ffaa:1:3#1): An address and port of it belong to another Link here, which is "
        "not in the file. Remove that one."
    ]


def test_an_address_of_a_host_that_is_only_here_is_not_a_user_ases() -> None:
    HostFactory(AS=ASFactory(as_id=parse_as_id("ffaa:0:2001")), public_ipv4="198.51.100.2")
    (problem,) = run(small()).problems
    assert "198.51.100.2 is the address of a host of 17-ffaa:0:2001." in problem.message


def test_a_host_that_was_deleted_here_comes_again_and_can_be_deleted_again() -> None:
    run(small())
    user_as = UserAS.objects.get(as_id=parse_as_id("ffaa:1:2"))
    user_as_delete(user_as_id=user_as.pk, actor=None)
    assert DeletedHost.objects.count() == 1
    assert counted(run(small()))["useras"] == (1, 0, 2)
    assert not DeletedHost.objects.exists()
    user_as_delete(user_as_id=UserAS.objects.get(as_id=parse_as_id("ffaa:1:2")).pk, actor=None)


def test_an_account_that_administrators_switched_off_stays_off() -> None:
    run(small())
    anna = User.objects.get(email="anna@example.org")
    account_update(user_id=anna.pk, values={"is_active": False})
    report = run(small())
    anna.refresh_from_db()
    assert not anna.is_active
    assert report.kept == ["user 1 (anna@example.org): is_active False -> True"]
