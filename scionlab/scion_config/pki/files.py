"""File paths below etc/scion, as expected by SCION v0.15.1."""

from __future__ import annotations

from collections.abc import Iterable

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from scionlab.platform.notation.isd_as import file_name_part
from scionlab.scion_config.pki import trc as trcs
from scionlab.scion_config.pki.certificates import Credential, isd_as_of
from scionlab.scion_config.pki.keys import key_to_pem


def trc_files(signed: Iterable[bytes]) -> dict[str, bytes]:
    """certs/ISD17-B1-S1.trc: every host needs all TRCs since the base of every ISD it should reach. Raises `RuleError`
    (`trc_unreadable`)."""
    return {f"certs/{trcs.read(one).id}.trc": one for one in signed}


def chain_files(own: Credential, ca_certificate: x509.Certificate) -> dict[str, bytes]:
    """crypto/as/: the chain (AS certificate, then its CA's) and its key; for hosts with a control service. A running
    control service reloads both within seconds. Install the key first, each atomically."""
    chain = own.certificate.public_bytes(Encoding.PEM) + ca_certificate.public_bytes(Encoding.PEM)
    return {f"crypto/as/{_name(own.certificate)}.pem": chain, "crypto/as/cp-as.key": key_to_pem(own.key)}


def ca_files(ca: Credential) -> dict[str, bytes]:
    """crypto/ca/: for a core AS whose control service renews chains itself (`[ca] mode = "in-process"`)."""
    certificate = ca.certificate.public_bytes(Encoding.PEM)
    return {f"crypto/ca/{_name(ca.certificate)}.ca.crt": certificate, "crypto/ca/cp-ca.key": key_to_pem(ca.key)}


def voting_files(sensitive: Credential, regular: Credential) -> dict[str, bytes]:
    """crypto/voting/: the two voters of a core AS, named as by `scion-pki`."""
    name = _name(sensitive.certificate)
    return {
        f"crypto/voting/{name}.sensitive.crt": sensitive.certificate.public_bytes(Encoding.PEM),
        "crypto/voting/sensitive-voting.key": key_to_pem(sensitive.key),
        f"crypto/voting/{name}.regular.crt": regular.certificate.public_bytes(Encoding.PEM),
        "crypto/voting/regular-voting.key": key_to_pem(regular.key),
    }


def master_key_files(first: bytes, second: bytes) -> dict[str, bytes]:
    """keys/: from `new_master_key`, the same two on all hosts of an AS."""
    return {"keys/master0.key": first, "keys/master1.key": second}


def _name(certificate: x509.Certificate) -> str:
    """`ISD17-ASffaa_1_b6`"""
    isd, _, as_part = file_name_part(isd_as_of(certificate)).partition("-")
    return f"ISD{isd}-AS{as_part}"
