"""OpenVPN's keys and files: who has which key, what each file says, and that OpenSSL believes the certificates.

test_vpn_openvpn.py runs OpenVPN itself on these files.
"""

from __future__ import annotations

import io
import logging
import re
import subprocess
import tarfile
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from cryptography.x509.oid import NameOID
from django.contrib.admin.models import LogEntry
from django.core.management import call_command
from django.test import Client
from pytest_django import Settings

from bandwidth_config import RuleError
from scionlab.accounts.models import User
from scionlab.delivery.render import config_for
from scionlab.limits.update import link_update
from scionlab.scion_config import openvpn
from scionlab.scion_config.vpn import files_for, vpn_keys_renew
from scionlab.testbed.host import host_set_addresses
from scionlab.testbed.infrastructure import vpn_create
from scionlab.testbed.models import VPN, AttachmentPoint, Host, Link, UserAS, VPNClientKeys, VPNServerKeys
from scionlab.testbed.selectors import links_of
from scionlab.user_ases.attachments import spec_of
from scionlab.user_ases.user_as import user_as_delete, user_as_update
from tests.admin_pages import CHANGE, LIST, page
from tests.cases import table
from tests.factories import AttachmentPointFactory, attach, spec
from tests.support.counters import Counters

pytestmark = pytest.mark.django_db

CONFIG = (1, 0)
NOW = datetime(2026, 11, 23, 12, 0, tzinfo=UTC)
SERVER_CONF = "etc/openvpn/server.conf"
CLIENT_CONF = "etc/openvpn/client-scionlab-17-ffaa_0_1107.conf"
CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----\n.*?-----END CERTIFICATE-----\n", re.DOTALL)
PRIVATE_KEY = re.compile(r"-----BEGIN PRIVATE KEY-----\n.*?-----END PRIVATE KEY-----\n", re.DOTALL)


@pytest.fixture
def vpn(ap: AttachmentPoint) -> VPN:
    """Of `ap` (192.0.2.1 and 2001:db8::1)."""
    return vpn_create(host=ap.host, subnet="10.10.5.0/24")


@pytest.fixture
def inside(owner: User, ap: AttachmentPoint, vpn: VPN) -> UserAS:
    """17-ffaa:1:1 with one Link, over the VPN of `ap`, where it is 10.10.5.2."""
    return attach(owner, spec(ap, use_vpn=True))


def files_of(thing: UserAS | AttachmentPoint | Host) -> dict[str, str]:
    host = thing.hosts.get() if isinstance(thing, UserAS) else getattr(thing, "host", thing)
    return {name: content.decode("ascii") for name, content in files_for(Host.objects.get(pk=host.pk)).items()}


def head(text: str) -> list[str]:
    """The lines before the keys."""
    return text.partition("<ca>")[0].splitlines()


def certificates(text: str) -> list[x509.Certificate]:
    """The CA's and the host's own."""
    return [x509.load_pem_x509_certificate(one.encode("ascii")) for one in CERTIFICATE.findall(text)]


def common_name(text: str) -> str:
    return str(certificates(text)[1].subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value)


def save(user_as: UserAS, *specs: Any) -> None:
    user_as_update(user_as_id=user_as.pk, actor=None, label="", installation_type="dedicated", attachments=specs)


BOTH = [
    "dev tun",
    "proto udp",
    "data-ciphers AES-256-GCM:AES-128-GCM:CHACHA20-POLY1305",
    "tls-version-min 1.2",
    "user nobody",
    "group nogroup",
    "persist-key",
    "persist-tun",
]


# --- what the files say -----------------------------------------------------------------------------------------------


def test_a_vpn_in_which_nobody_is_has_keys_and_no_files(ap: AttachmentPoint, vpn: VPN) -> None:
    assert VPNServerKeys.objects.get().vpn == vpn
    assert files_of(ap) == {}


def test_the_server_gets_its_configuration_and_a_file_for_each_client(inside: UserAS, ap: AttachmentPoint) -> None:
    files = files_of(ap)
    client = VPNClientKeys.objects.get().common_name
    assert re.fullmatch(r"17-ffaa_1_1-[0-9a-f]{16}", client)
    assert list(files) == [SERVER_CONF, f"etc/openvpn/ccd/{client}"]
    assert files[f"etc/openvpn/ccd/{client}"] == "ifconfig-push 10.10.5.2 255.255.255.0\n"
    assert head(files[SERVER_CONF]) == [
        "mode server",
        "tls-server",
        "port 1194",
        "topology subnet",
        'push "topology subnet"',
        "ifconfig 10.10.5.1 255.255.255.0",
        "client-config-dir ccd",
        "ccd-exclusive",
        "keepalive 10 60",
        "dh none",
        "remote-cert-tls client",
        *BOTH,
    ]


def test_the_client_gets_one_file_named_as_its_unit(inside: UserAS) -> None:
    files = files_of(inside)
    assert list(files) == [CLIENT_CONF]
    assert head(files[CLIENT_CONF]) == [
        "client",
        "remote 192.0.2.1 1194",
        "nobind",
        "route-nopull",
        "remote-cert-tls server",
        *BOTH,
    ]


def test_over_ipv6_alone_both_ends_say_so(owner: User) -> None:
    there = AttachmentPointFactory(host__public_ipv4=None, host__public_ipv6="2001:db8::6")
    vpn_create(host=there.host, subnet="10.10.6.0/28", server_port=1195)
    made = attach(owner, spec(there, use_vpn=True))
    (client,) = files_of(made).values()
    assert "remote 2001:db8::6 1195" in head(client)
    assert "proto udp6" in head(client)
    server = files_of(there)[SERVER_CONF]
    assert {"proto udp6", "port 1195", "ifconfig 10.10.6.1 255.255.255.240"} <= set(head(server))


# --- who is in it -----------------------------------------------------------------------------------------------------


def test_an_inactive_link_takes_its_files_along_when_h_rises(inside: UserAS, ap: AttachmentPoint) -> None:
    host = inside.hosts.get()
    before = files_of(ap), files_of(inside)
    counters = Counters()
    link_update(link_id=links_of(inside)[0].pk, actor=None, active=False)
    assert counters.risen() == {ap.host: CONFIG, host: CONFIG}
    assert (files_of(ap), files_of(inside)) == ({}, {})
    link_update(link_id=links_of(inside)[0].pk, actor=None, active=True)
    assert (files_of(ap), files_of(inside)) == before


def test_a_client_that_leaves_is_not_admitted_any_more_and_comes_back_as_another(
    inside: UserAS, ap: AttachmentPoint
) -> None:
    first = files_of(inside)[CLIENT_CONF]
    (link,) = links_of(inside)
    save(inside, replace(spec_of(link, "dedicated"), use_vpn=False, public_ip="198.51.100.7"))
    assert (files_of(ap), files_of(inside), VPNClientKeys.objects.count()) == ({}, {}, 0)
    save(inside, replace(spec_of(links_of(inside)[0], "dedicated"), use_vpn=True))
    again = files_of(inside)[CLIENT_CONF]
    assert common_name(again) != common_name(first)
    assert PRIVATE_KEY.findall(again) != PRIVATE_KEY.findall(first)
    assert list(files_of(ap)) == [SERVER_CONF, f"etc/openvpn/ccd/{common_name(again)}"]


def test_whoever_gets_the_id_of_a_deleted_as_is_not_admitted_by_its_former_key(
    inside: UserAS, teammate: User, ap: AttachmentPoint
) -> None:
    former = common_name(files_of(inside)[CLIENT_CONF])
    user_as_delete(user_as_id=inside.pk, actor=None)
    heir = attach(teammate, spec(ap, use_vpn=True))
    assert heir.isd_as == "17-ffaa:1:1"
    assert f"etc/openvpn/ccd/{former}" not in files_of(ap)
    assert files_of(ap)[f"etc/openvpn/ccd/{common_name(files_of(heir)[CLIENT_CONF])}"].startswith("ifconfig-push")


def test_two_links_over_one_tun_have_one_key(owner: User, ap: AttachmentPoint, vpn: VPN) -> None:
    made = attach(owner, spec(ap, use_vpn=True), spec(ap, use_vpn=True, public_port=50001))
    assert list(files_of(made)) == [CLIENT_CONF]
    assert VPNClientKeys.objects.count() == 1


def test_clients_are_told_where_the_server_moves_to(inside: UserAS, ap: AttachmentPoint, staff: User) -> None:
    host, counters = inside.hosts.get(), Counters()
    host_set_addresses(host_id=ap.host_id, actor=staff, public_ipv4="192.0.2.9", public_ipv6=None, bind_ip=None)
    assert "remote 192.0.2.9 1194" in head(files_of(inside)[CLIENT_CONF])
    assert counters.risen() == {Host.objects.get(pk=ap.host_id): CONFIG, host: CONFIG}
    counters = Counters()
    host_set_addresses(
        host_id=ap.host_id, actor=staff, public_ipv4="192.0.2.9", public_ipv6="2001:db8::9", bind_ip=None
    )
    assert counters.risen() == {}, "they connect over IPv4"


@table("subnet", ["10.10.5.0/24", "10.10.5.128/25", "10.10.0.0/16"])
def test_subnets_of_two_vpns_do_not_overlap(subnet: str, vpn: VPN, ap_other: AttachmentPoint) -> None:
    """A host in both would send to the one server what is for the other."""
    with pytest.raises(RuleError) as refused:
        vpn_create(host=ap_other.host, subnet=subnet)
    assert refused.value.code == "subnet_taken"
    assert f"{subnet} overlaps {vpn}" in refused.value.message
    assert "Choose another subnet, like 10.10.7.0/24." in refused.value.message


# --- certificates -----------------------------------------------------------------------------------------------------


def openssl_verifies(folder: Path, ca: str, certificate: str, purpose: str) -> bool:
    (folder / "ca.pem").write_text(ca)
    (folder / "own.pem").write_text(certificate)
    command = ["openssl", "verify", "-x509_strict", "-CAfile", "ca.pem", "-purpose", purpose, "own.pem"]
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=30)
    assert ended.returncode in {0, 2}, ended.stderr
    return ended.stdout == "own.pem: OK\n"


def test_openssl_believes_each_certificate_for_its_purpose_alone(
    inside: UserAS, ap: AttachmentPoint, tmp_path: Path
) -> None:
    ca, server = CERTIFICATE.findall(files_of(ap)[SERVER_CONF])
    same_ca, client = CERTIFICATE.findall(files_of(inside)[CLIENT_CONF])
    assert same_ca == ca
    verdicts = [
        openssl_verifies(tmp_path, ca, certificate, purpose)
        for certificate in (server, client)
        for purpose in ("sslserver", "sslclient")
    ]
    assert verdicts == [True, False, False, True]


def test_all_certificates_of_a_vpn_end_on_one_day_in_thirty_years() -> None:
    ca = openvpn.new_ca("VPN of 17-ffaa:0:1107", now=NOW)
    later = openvpn.issue(ca, "17-ffaa_1_1-00", openvpn.CLIENT, now=NOW + timedelta(days=3650))
    ends = [one.certificate.not_valid_after_utc for one in (ca, later)]
    assert ends == [NOW + timedelta(days=30 * 365)] * 2
    later.certificate.verify_directly_issued_by(ca.certificate)


def test_a_client_cannot_issue_certificates() -> None:
    ca = openvpn.new_ca("VPN", now=NOW)
    own = openvpn.issue(ca, "client", openvpn.CLIENT, now=NOW).certificate
    assert own.extensions.get_extension_for_class(x509.BasicConstraints).value.ca is False
    assert own.extensions.get_extension_for_class(x509.KeyUsage).value.key_cert_sign is False
    assert ca.certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.path_length == 0


# --- whose key is where -----------------------------------------------------------------------------------------------


@pytest.fixture
def everybody(inside: UserAS, owner: User, teammate: User, ap: AttachmentPoint, ap_b: AttachmentPoint) -> list[Host]:
    """Three ASes in two VPNs, one of them in both; and one in none."""
    VPN.objects.filter(host=ap_b.host).delete()
    vpn_create(host=ap_b.host, subnet="10.10.6.0/24")
    attach(teammate, spec(ap, use_vpn=True), spec(ap_b, use_vpn=True, public_port=50001))
    attach(teammate, spec(ap_b, use_vpn=True))
    attach(owner, spec(ap))
    return list(Host.objects.order_by("pk"))


def all_that_it_gets(host: Host) -> str:
    """Its tarball and, beside, its files of OpenVPN."""
    with tarfile.open(fileobj=io.BytesIO(config_for(host).content)) as tar:
        packed = [tar.extractfile(member) for member in tar.getmembers()]
        contents = [one.read() for one in packed if one is not None]
    return b"\n".join([*contents, *files_for(host).values()]).decode("utf-8")


def test_a_private_key_is_in_the_files_of_one_host_and_that_of_a_ca_in_none(everybody: list[Host]) -> None:
    found = {host.pk: set(PRIVATE_KEY.findall(all_that_it_gets(host))) for host in everybody}
    assert sorted(len(keys) for keys in found.values()) == [0, 1, 1, 1, 1, 2]
    every = [key for keys in found.values() for key in keys]
    assert len(set(every)) == len(every) == 6
    stored = VPNServerKeys.objects.values_list("ca_certificate", flat=True)
    public = [x509.load_pem_x509_certificate(one.encode("ascii")).public_key() for one in stored]
    private = [load_pem_private_key(key.encode("ascii"), password=None).public_key() for key in every]
    assert len(public) == 2
    assert not [one for one in private if one in public]


def test_a_client_learns_nothing_of_the_others(everybody: list[Host], inside: UserAS) -> None:
    own = VPNClientKeys.objects.get(client__host__AS=inside.pk)
    text = all_that_it_gets(inside.hosts.get())
    for other in VPNClientKeys.objects.exclude(pk=own.pk):
        assert other.common_name not in text
        assert other.certificate not in text


def test_the_database_has_no_key_that_could_be_read_without_the_services_secret(everybody: list[Host]) -> None:
    rows = [*VPNServerKeys.objects.values(), *VPNClientKeys.objects.values()]
    assert len(rows) == 2 + 4
    assert "PRIVATE" not in repr(rows)
    for name in ("ca_key_encrypted", "key_encrypted"):
        assert all(row[name].startswith("gAAAA") for row in rows if name in row), "Fernet"


def test_no_key_is_logged_or_shown_by_a_repr(
    ap: AttachmentPoint, owner: User, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    made = vpn_create(host=ap.host, subnet="10.10.5.0/24")
    attach(owner, spec(ap, use_vpn=True))
    vpn_keys_renew(vpn_id=made.pk, actor=None)
    files_for(ap.host)
    shown = repr(openvpn.Identity("ca", "certificate", "the key")) + repr(openvpn.new_ca("VPN", now=NOW))
    assert "PRIVATE" not in caplog.text
    assert "the key" not in shown
    assert "vpn.keys_renewed" in caplog.text


# --- the secret of the service ----------------------------------------------------------------------------------------


def test_keys_move_to_another_secret_and_stay_the_same(inside: UserAS, ap: AttachmentPoint, settings: Settings) -> None:
    before = files_of(ap), files_of(inside)
    settings.SIGNING_SECRET_FALLBACKS = [settings.SIGNING_SECRET]
    settings.SIGNING_SECRET = "another secret of the service, long enough"
    assert (files_of(ap), files_of(inside)) == before
    call_command("signing_key", "rewrap")
    settings.SIGNING_SECRET_FALLBACKS = []
    assert (files_of(ap), files_of(inside)) == before


def test_without_its_secret_the_service_says_what_to_do(inside: UserAS, vpn: VPN, settings: Settings) -> None:
    settings.SIGNING_SECRET, settings.SIGNING_SECRET_FALLBACKS = "a secret that is not the one", []
    with pytest.raises(RuleError) as refused:
        files_of(inside)
    assert refused.value.code == "secret_unreadable"
    assert f"A key of {vpn} cannot be decrypted" in refused.value.message
    vpn_keys_renew(vpn_id=vpn.pk, actor=None)
    assert list(files_of(inside)) == [CLIENT_CONF]


# --- new keys -------------------------------------------------------------------------------------------------------


def test_new_keys_reach_the_server_and_all_clients_at_once_and_nobody_else(
    inside: UserAS, ap: AttachmentPoint, vpn: VPN, stranger: User, teammate: User
) -> None:
    idle = attach(teammate, spec(ap, use_vpn=True, active=False))
    before = dict(VPNClientKeys.objects.values_list("client__host__AS", "common_name"))
    counters = Counters()
    vpn_keys_renew(vpn_id=vpn.pk, actor=stranger)
    assert counters.risen() == {ap.host: CONFIG, inside.hosts.get(): CONFIG}
    assert len(files_of(ap)) == 2
    assert len(files_of(inside)) == 1
    after = dict(VPNClientKeys.objects.values_list("client__host__AS", "common_name"))
    assert set(after) == set(before) == {inside.pk, idle.pk}, "also for when it is activated"
    assert not set(after.values()) & set(before.values())


def test_an_administrator_makes_new_keys_and_it_is_on_record(
    inside: UserAS, vpn: VPN, door: Client, staff: User
) -> None:
    before = VPNServerKeys.objects.get()
    door.post(page(VPN, LIST), {"action": "make_keys", "_selected_action": [vpn.pk]})
    keys = VPNServerKeys.objects.get()
    assert keys.certificate != before.certificate
    entry = LogEntry.objects.get()
    assert (entry.user, entry.object_id, entry.change_message) == (staff, str(vpn.pk), "Created new keys.")
    for url in (page(VPN, LIST), page(VPN, CHANGE, vpn.pk)):
        text = door.get(url).content.decode()
        assert "BEGIN" not in text
        assert keys.key_encrypted not in text


def test_an_attachment_point_that_nobody_finds_has_no_files(owner: User) -> None:
    hidden = AttachmentPointFactory(host__public_ipv4=None)
    vpn_create(host=hidden.host, subnet="10.10.6.0/24")
    made = attach(owner, spec(hidden, use_vpn=True))
    assert (files_of(hidden), files_of(made)) == ({}, {})
    assert Link.objects.get().active
