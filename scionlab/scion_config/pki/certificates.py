"""The X.509 profile of SCION: five kinds of certificates.

    kind               issued by   key usage          extended key usage               basic constraints
    sensitive-voting   itself      -                  id-kp-sensitive, timeStamping    -
    regular-voting     itself      -                  id-kp-regular, timeStamping      -
    cp-root            itself      keyCertSign        id-kp-root, timeStamping         CA, path length 1
    cp-ca              a root      keyCertSign        -                                CA, path length 0
    cp-as              a CA        digitalSignature   server, client, timeStamping     -

All of them: P-256 with SHA-256, subject = common name and ISD-AS number, subject key id = SHA-1 of the public point, no
subjectAltName. Source: certificates.rst of SCION v0.15.1; voters: trc.rst, "Voting Certificate".
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from bandwidth_config import RuleError

_SCION = "1.3.6.1.4.1.55324.1"  # id-ana 55324, id-cppki 1
ISD_AS_NUMBER = x509.ObjectIdentifier(f"{_SCION}.2.1")  # id-at-ia


class Kind(enum.Enum):
    """As `scion-pki certificate inspect` calls it."""

    SENSITIVE = "sensitive-voting"
    REGULAR = "regular-voting"
    ROOT = "cp-root"
    CA = "cp-ca"
    AS = "cp-as"


_PURPOSE = {
    Kind.SENSITIVE: x509.ObjectIdentifier(f"{_SCION}.3.1"),
    Kind.REGULAR: x509.ObjectIdentifier(f"{_SCION}.3.2"),
    Kind.ROOT: x509.ObjectIdentifier(f"{_SCION}.3.3"),
}
_PATH_LENGTH = {Kind.ROOT: 1, Kind.CA: 0}
ISSUER_OF = {Kind.CA: Kind.ROOT, Kind.AS: Kind.CA}  # all others are self-signed

BACKDATED = timedelta(hours=1)  # for hosts with slow clocks


@dataclass(frozen=True)
class Validity:
    """Both aware, whole seconds (X.509 has no fractions), inclusive."""

    not_before: datetime
    not_after: datetime

    @classmethod
    def starting(cls, now: datetime, lifetime: timedelta) -> Validity:
        """From an hour before `now` until `lifetime` after it."""
        second = now.astimezone(UTC).replace(microsecond=0)
        return cls(second - BACKDATED, second + lifetime)

    @classmethod
    def of(cls, certificate: x509.Certificate) -> Validity:
        return cls(certificate.not_valid_before_utc, certificate.not_valid_after_utc)

    def covers(self, other: Validity) -> bool:
        return self.not_before <= other.not_before and other.not_after <= self.not_after

    def __str__(self) -> str:
        return f"{self.not_before:%Y-%m-%dT%H:%M:%SZ} to {self.not_after:%Y-%m-%dT%H:%M:%SZ}"


@dataclass(frozen=True)
class Credential:
    """A certificate with its private key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey = field(repr=False)


def self_signed(kind: Kind, isd_as: str, validity: Validity, key: ec.EllipticCurvePrivateKey) -> Credential:
    """A voter or a root. `isd_as` as text, `17-ffaa:0:1107`. The subject depends only on `kind` and `isd_as`: TRC
    updates recognise a certificate's successor by it."""
    if kind in ISSUER_OF:
        raise ValueError(f"{kind.value} certificates are issued, not self-signed")
    name = _name(kind, isd_as)
    return Credential(_builder(kind, name, name, validity, key.public_key()).sign(key, SHA256()), key)


def issue(
    kind: Kind, isd_as: str, validity: Validity, public_key: ec.EllipticCurvePublicKey, issuer: Credential
) -> x509.Certificate:
    """A CA certificate issued by a root, or an AS certificate issued by a CA. Raises `RuleError`: `pki_wrong_issuer`;
    `pki_outlives_issuer`, as SCION rejects a chain whose CA does not cover it."""
    if kind_of(issuer.certificate) is not ISSUER_OF.get(kind):
        raise RuleError(
            "pki_wrong_issuer", f"A {kind_of(issuer.certificate).value} certificate cannot issue one of {kind.value}."
        )
    covering = Validity.of(issuer.certificate)
    if not covering.covers(validity):
        raise RuleError(
            "pki_outlives_issuer",
            f"The {kind.value} certificate of {isd_as} would be valid {validity}, its issuer is {covering}. "
            f"Renew the {ISSUER_OF[kind].value} certificate first.",
        )
    builder = _builder(kind, _name(kind, isd_as), issuer.certificate.subject, validity, public_key)
    key_id = issuer.certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    authority = x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(key_id)
    return builder.add_extension(authority, critical=False).sign(issuer.key, SHA256())


def _name(kind: Kind, isd_as: str) -> x509.Name:
    return x509.Name(
        [
            x509.NameAttribute(NameOID.COMMON_NAME, f"{isd_as} {kind.value}"),
            x509.NameAttribute(ISD_AS_NUMBER, isd_as),
        ]
    )


def certificate_builder(
    subject: x509.Name, issuer: x509.Name, validity: Validity, public_key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    """Common to all certificates."""
    return x509.CertificateBuilder(
        issuer_name=issuer,
        subject_name=subject,
        public_key=public_key,
        serial_number=x509.random_serial_number(),
        not_valid_before=validity.not_before,
        not_valid_after=validity.not_after,
    ).add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)


def _builder(
    kind: Kind, subject: x509.Name, issuer: x509.Name, validity: Validity, public_key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    """Everything but the authority key id, which self-signed certificates do not need."""
    builder = certificate_builder(subject, issuer, validity, public_key)
    if kind in _PATH_LENGTH:
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=_PATH_LENGTH[kind]), critical=True)
    if kind in _PATH_LENGTH or kind is Kind.AS:
        builder = builder.add_extension(key_usage(signs_certificates=kind is not Kind.AS), critical=True)
    purposes = _purposes(kind)
    return builder.add_extension(x509.ExtendedKeyUsage(purposes), critical=False) if purposes else builder


def _purposes(kind: Kind) -> list[x509.ObjectIdentifier]:
    if kind is Kind.CA:
        return []
    if kind is Kind.AS:
        # All three, as control services are server and client of each other. A root's own list leaves timeStamping of
        # them: a verifier that intersects purposes along the chain needs one in common.
        return [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.TIME_STAMPING]
    return [_PURPOSE[kind], ExtendedKeyUsageOID.TIME_STAMPING]


def key_usage(*, signs_certificates: bool, signs_crls: bool = False) -> x509.KeyUsage:
    """digitalSignature means "may sign control-plane messages" in SCION, so no CA has it (certificates.rst)."""
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        crl_sign=signs_crls,
        encipher_only=False,
        decipher_only=False,
    )


# --- reading --------------------------------------------------------------------------------------------------


def kind_of(certificate: x509.Certificate) -> Kind:
    """By purpose, then by key usage, as SCION classifies (pkg/scrypto/cppki/certs.go). Raises `RuleError`
    (`pki_not_scion`)."""
    extensions = {extension.oid: extension.value for extension in certificate.extensions}
    purposes = extensions.get(x509.ExtendedKeyUsage.oid)
    if isinstance(purposes, x509.ExtendedKeyUsage):
        for kind, oid in _PURPOSE.items():
            if oid in purposes:
                return kind
    usage = extensions.get(x509.KeyUsage.oid)
    if isinstance(usage, x509.KeyUsage):
        if usage.key_cert_sign:
            return Kind.CA
        if usage.digital_signature:
            return Kind.AS
    raise RuleError("pki_not_scion", f"{certificate.subject.rfc4514_string()} is not a SCION certificate.")


def isd_as_of(certificate: x509.Certificate) -> str:
    """The ISD-AS number in its subject. Raises `RuleError` (`pki_not_scion`)."""
    found = certificate.subject.get_attributes_for_oid(ISD_AS_NUMBER)
    if len(found) != 1:
        shown = certificate.subject.rfc4514_string()
        raise RuleError("pki_not_scion", f"{shown} has {len(found)} ISD-AS numbers; SCION's certificates have one.")
    return str(found[0].value)
