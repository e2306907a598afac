"""Keys and files of OpenVPN: created with a VPN server and each client, renewed by administrators."""

from __future__ import annotations

import ipaddress
import logging
import secrets
from collections.abc import Iterable

from cryptography import x509
from django.db import transaction
from django.db.models import Exists, OuterRef, QuerySet

from scionlab.accounts.models import User
from scionlab.platform.clock import database_now
from scionlab.platform.secrets_box import opened, sealed
from scionlab.scion_config.openvpn import (
    CLIENT,
    SERVER,
    Identity,
    Server,
    certificate_to_pem,
    client_address,
    client_conf,
    issue,
    new_ca,
    server_conf,
)
from scionlab.scion_config.pki.certificates import Credential
from scionlab.scion_config.pki.keys import key_from_pem, key_to_pem
from scionlab.testbed import audit, locks, selectors
from scionlab.testbed.models import VPN, BandwidthChange, Host, Interface, VPNClient, VPNClientKeys, VPNServerKeys
from scionlab.testbed.versions.counters import hosts_bump

logger = logging.getLogger(__name__)

FOLDER = "etc/openvpn"


# --- files ------------------------------------------------------------------------------------------------------------


def files_for(host: Host) -> dict[str, bytes]:
    """OpenVPN's files of the host by path in the tarball, if an active Link needs them. Their content changes with H of
    the host. Raises `RuleError` (`secret_unreadable`)."""
    return {f"{FOLDER}/{name}": content for name, content in (_server_files(host) | _client_files(host)).items()}


def _server_files(host: Host) -> dict[str, bytes]:
    keys = VPNServerKeys.objects.filter(vpn__host=host).select_related("vpn__host__AS__isd").first()
    clients = [] if keys is None else list(_in_use().filter(client__vpn=keys.vpn_id).select_related("client"))
    server = None if keys is None else _server_of(keys.vpn)
    if keys is None or server is None or not clients:
        return {}
    admitted = {f"ccd/{one.common_name}": client_address(one.client.ip, server.netmask) for one in clients}
    identity = Identity(keys.ca_certificate, keys.certificate, _decrypted(keys.vpn, keys.key_encrypted))
    return {"server.conf": server_conf(server, identity), **admitted}


def _client_files(host: Host) -> dict[str, bytes]:
    files = {}
    related = ("client__vpn__host__AS__isd", "client__vpn__keys")
    for own in _in_use().filter(client__host=host).select_related(*related):
        vpn = own.client.vpn
        server = _server_of(vpn)
        if server is not None and vpn.host.AS is not None:
            name = f"client-scionlab-{vpn.host.AS.isd_as.replace(':', '_')}.conf"
            identity = Identity(vpn.keys.ca_certificate, own.certificate, _decrypted(vpn, own.key_encrypted))
            files[name] = client_conf(server, identity)
    return files


def _in_use() -> QuerySet[VPNClientKeys]:
    active = Interface.objects.filter(vpn_client=OuterRef("client"), link_as_b__active=True)
    return VPNClientKeys.objects.filter(Exists(active)).order_by("pk")


def _server_of(vpn: VPN) -> Server | None:
    """None for a host without a public address, which clients cannot reach."""
    public_ip = vpn.host.public_ipv4 or vpn.host.public_ipv6
    if public_ip is None:
        return None
    return Server(public_ip, vpn.server_port, vpn.server_ip, str(ipaddress.ip_network(vpn.subnet).netmask))


# --- keys -------------------------------------------------------------------------------------------------------------


def vpn_clients_admit(clients: Iterable[VPNClient]) -> None:
    """Create keys for new clients."""
    by_vpn: dict[int, list[VPNClient]] = {}
    for client in clients:
        by_vpn.setdefault(client.vpn_id, []).append(client)
    for keys in VPNServerKeys.objects.filter(vpn__in=by_vpn).select_related("vpn").order_by("pk"):
        _admit(by_vpn[keys.vpn_id], _ca_of(keys))


def vpn_keys_make(vpn: VPN) -> None:
    """Create CA and server key of a VPN without, and keys of its clients. Call it in the transaction that creates the
    VPN, or with the attachment point's row locked."""
    now = database_now()
    name = str(vpn.host.AS.isd_as if vpn.host.AS else vpn.host.uid)
    ca = new_ca(f"VPN of {name}", now=now)
    server = issue(ca, "server", SERVER, now=now)
    VPNServerKeys.objects.create(
        vpn=vpn,
        ca_certificate=certificate_to_pem(ca.certificate),
        ca_key_encrypted=_encrypted(ca),
        certificate=certificate_to_pem(server.certificate),
        key_encrypted=_encrypted(server),
        made_at=now,
    )
    _admit(vpn.clients.select_related("host__AS__isd").order_by("pk"), ca)


@transaction.atomic
def vpn_keys_renew(*, vpn_id: int, actor: User | None, reason: str = "") -> None:
    """Create new keys for the server and all clients; the previous ones stop working. H rises once for the hosts with
    these files, and the whole VPN is down until they have installed them. Raises `VPN.DoesNotExist`."""
    vpn = VPN.objects.select_related("host__AS__isd").get(pk=vpn_id)
    locks.lock_attachment_points_of_hosts([vpn.host_id])
    VPNClientKeys.objects.filter(client__vpn=vpn).delete()
    VPNServerKeys.objects.filter(vpn=vpn).delete()
    vpn_keys_make(vpn)
    hosts = selectors.hosts_of_vpn_clients(vpn.host_id)
    hosts_bump(config_ids=(hosts | {vpn.host_id}) if hosts else ())
    kind = BandwidthChange.Kind.HOST_SETTINGS
    audit.note(vpn.host, kind=kind, actor=actor, detail=f"New keys for VPN {vpn.subnet}", reason=reason)
    logger.info("vpn.keys_renewed vpn=%s clients=%s actor=%s", vpn.pk, vpn.clients.count(), actor and actor.pk)


def _admit(clients: Iterable[VPNClient], ca: Credential) -> None:
    """Create keys for clients without. Common names have 64 random bits: AS ids are reused, and a previous owner's key
    must not match."""
    now, made = database_now(), []
    for client in clients:
        name = client.host.AS.isd_as.replace(":", "_") if client.host.AS else client.host.uid
        common_name = f"{name}-{secrets.token_hex(8)}"
        own = issue(ca, common_name, CLIENT, now=now)
        values = {"certificate": certificate_to_pem(own.certificate), "key_encrypted": _encrypted(own)}
        made.append(VPNClientKeys(client=client, common_name=common_name, **values))
    VPNClientKeys.objects.bulk_create(made)


def _ca_of(keys: VPNServerKeys) -> Credential:
    certificate = x509.load_pem_x509_certificate(keys.ca_certificate.encode("ascii"))
    return Credential(certificate, key_from_pem(_decrypted(keys.vpn, keys.ca_key_encrypted).encode("ascii")))


def _encrypted(credential: Credential) -> str:
    return sealed(key_to_pem(credential.key))


def _decrypted(vpn: VPN, text: str) -> str:
    """PEM. Raises `RuleError` (`secret_unreadable`)."""
    return opened(text, f"A key of {vpn}").decode("ascii")
