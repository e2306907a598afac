"""OpenVPN between an attachment point and its user ASes: certificates and configurations, as pure functions.

    CA       one per VPN server; signs the two others, and its key is on no host
    server   the attachment point's host
    client   a user AS's host, admitted while the server has a file for its common name (`ccd-exclusive`)

P-256 with SHA-256. All certificates of a VPN expire together, after `LIFETIME`: files and not expiry decide whom the
server admits, so an early expiry would only interrupt tunnels.

Directives are those of OpenVPN 2.6 (its manual: server, client, link, tls and vpn-network options); Debian's unit
`openvpn@NAME` runs NAME.conf within /etc/openvpn.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from scionlab.scion_config.pki.certificates import Credential, Validity, certificate_builder, key_usage
from scionlab.scion_config.pki.keys import new_key

LIFETIME: Final = timedelta(days=30 * 365)
SERVER: Final = ExtendedKeyUsageOID.SERVER_AUTH
CLIENT: Final = ExtendedKeyUsageOID.CLIENT_AUTH


# --- certificates -----------------------------------------------------------------------------------------------------


def new_ca(name: str, *, now: datetime) -> Credential:
    """A self-signed CA; `name` is its common name."""
    key, subject = new_key(), _name(name)
    builder = certificate_builder(subject, subject, Validity.starting(now, LIFETIME), key.public_key())
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(key_usage(signs_certificates=True, signs_crls=True), critical=True)
    return Credential(builder.sign(key, SHA256()), key)


def issue(ca: Credential, common_name: str, purpose: x509.ObjectIdentifier, *, now: datetime) -> Credential:
    """A certificate (`purpose` SERVER or CLIENT) with a new key; it expires with the CA."""
    key, issuer = new_key(), ca.certificate
    validity = Validity(Validity.starting(now, LIFETIME).not_before, issuer.not_valid_after_utc)
    key_id = issuer.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    authority = x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(key_id)
    builder = (
        certificate_builder(_name(common_name), issuer.subject, validity, key.public_key())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(key_usage(signs_certificates=False), critical=True)  # required by `remote-cert-tls`
        .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
        .add_extension(authority, critical=False)
    )
    return Credential(builder.sign(ca.key, SHA256()), key)


def certificate_to_pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(Encoding.PEM).decode("ascii")


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


# --- configurations ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Identity:
    """One end's certificate, key and CA, in PEM."""

    ca: str
    certificate: str
    key: str = field(repr=False)


@dataclass(frozen=True)
class Server:
    """Public address and UDP port of the server, its address in the VPN and the VPN's netmask."""

    public_ip: str
    port: int
    vpn_ip: str
    netmask: str

    @property
    def proto(self) -> str:
        return "udp6" if ":" in self.public_ip else "udp"


_BOTH = """\
dev tun
proto {proto}
data-ciphers AES-256-GCM:AES-128-GCM:CHACHA20-POLY1305
tls-version-min 1.2
user nobody
group nogroup
persist-key
persist-tun
"""
_SERVER = """\
mode server
tls-server
port {port}
topology subnet
push "topology subnet"
ifconfig {vpn_ip} {netmask}
client-config-dir ccd
ccd-exclusive
keepalive 10 60
dh none
remote-cert-tls client
"""
# The server assigns an address, but no routes or name servers: a compromised server gets no other traffic.
_CLIENT = """\
client
remote {public_ip} {port}
nobind
route-nopull
remote-cert-tls server
"""
_INLINE = "<{name}>\n{pem}</{name}>\n"


def server_conf(server: Server, identity: Identity) -> bytes:
    """server.conf. Clients cannot reach each other through OpenVPN."""
    own = _SERVER.format(port=server.port, vpn_ip=server.vpn_ip, netmask=server.netmask)
    return _conf(own, server, identity)


def client_conf(server: Server, identity: Identity) -> bytes:
    """client-scionlab-<ISD-AS>.conf."""
    return _conf(_CLIENT.format(public_ip=server.public_ip, port=server.port), server, identity)


def client_address(ip: str, netmask: str) -> bytes:
    """ccd/<common name>: admits the client and assigns its address."""
    return f"ifconfig-push {ip} {netmask}\n".encode("ascii")


def _conf(own: str, server: Server, identity: Identity) -> bytes:
    inline = {"ca": identity.ca, "cert": identity.certificate, "key": identity.key}
    blocks = "".join(_INLINE.format(name=name, pem=pem) for name, pem in inline.items())
    return (own + _BOTH.format(proto=server.proto) + blocks).encode("ascii")
