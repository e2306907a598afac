"""The X.509 profile of SCION; whether SCION takes it is asked in tests/scion."""

from __future__ import annotations

import hashlib
from datetime import datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ed25519
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from bandwidth_config import RuleError
from scionlab.scion_config.pki.certificates import Credential, Kind, Validity, isd_as_of, issue, kind_of, self_signed
from scionlab.scion_config.pki.keys import key_from_pem, new_key
from scionlab.scion_config.pki.lifetimes import LIFETIME, RENEWED_WITH_LEFT, TRC_LIFETIME, needs_renewal
from tests.pki_testbed import CORE, NOW, credential, isd_keys

USER = "17-ffaa:1:b6"
PURPOSES = {
    Kind.SENSITIVE: ["1.3.6.1.4.1.55324.1.3.1", "1.3.6.1.5.5.7.3.8"],
    Kind.REGULAR: ["1.3.6.1.4.1.55324.1.3.2", "1.3.6.1.5.5.7.3.8"],
    Kind.ROOT: ["1.3.6.1.4.1.55324.1.3.3", "1.3.6.1.5.5.7.3.8"],
    Kind.AS: ["1.3.6.1.5.5.7.3.1", "1.3.6.1.5.5.7.3.2", "1.3.6.1.5.5.7.3.8"],
}


def one_of_each() -> dict[Kind, x509.Certificate]:
    keys = isd_keys()
    made = {Kind.SENSITIVE: keys.sensitive[0], Kind.REGULAR: keys.regular[0], Kind.ROOT: keys.roots[0]}
    made |= {Kind.CA: keys.ca, Kind.AS: keys.chain(USER)}
    return {kind: one.certificate for kind, one in made.items()}


def code_of(raised: pytest.ExceptionInfo[RuleError]) -> str:
    return raised.value.code


def test_each_kind_has_exactly_its_extensions() -> None:
    for kind, certificate in one_of_each().items():
        found = {type(one.value): (one.critical, one.value) for one in certificate.extensions}
        expected: set[type] = {x509.SubjectKeyIdentifier}
        if kind in PURPOSES:
            expected.add(x509.ExtendedKeyUsage)
            critical, purposes = found[x509.ExtendedKeyUsage]
            assert not critical
            assert [one.dotted_string for one in purposes] == PURPOSES[kind]  # type: ignore[attr-defined]  # by its key
        if kind in {Kind.ROOT, Kind.CA}:
            expected.add(x509.BasicConstraints)
            length = 1 if kind is Kind.ROOT else 0
            assert found[x509.BasicConstraints] == (True, x509.BasicConstraints(ca=True, path_length=length))
        if kind in {Kind.ROOT, Kind.CA, Kind.AS}:
            expected.add(x509.KeyUsage)
            critical, usage = found[x509.KeyUsage]
            assert isinstance(usage, x509.KeyUsage)
            assert critical
            assert (usage.digital_signature, usage.key_cert_sign) == (kind is Kind.AS, kind is not Kind.AS)
        if kind in {Kind.CA, Kind.AS}:
            expected.add(x509.AuthorityKeyIdentifier)
        assert set(found) == expected, kind
        assert kind_of(certificate) is kind
        assert isd_as_of(certificate) == (USER if kind is Kind.AS else CORE)
        assert isinstance(certificate.signature_hash_algorithm, SHA256)


def test_subject_key_id_is_the_hash_of_the_point_by_which_scion_finds_the_signer() -> None:
    certificate = one_of_each()[Kind.AS]
    point = certificate.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
    key_id = certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value.digest
    assert key_id == hashlib.sha1(point).digest()  # noqa: S324  RFC 5280, 4.2.1.2


@pytest.mark.parametrize(
    ("begins", "lasts"),
    [(NOW, LIFETIME[Kind.CA] + timedelta(seconds=1)), (NOW - timedelta(seconds=1), timedelta(days=1))],
    ids=["too long", "too early"],
)
def test_a_chain_lies_within_the_validity_of_its_ca(begins: datetime, lasts: timedelta) -> None:
    with pytest.raises(RuleError) as raised:
        issue(Kind.AS, USER, Validity.starting(begins, lasts), new_key().public_key(), isd_keys().ca)
    assert code_of(raised) == "pki_outlives_issuer"


@pytest.mark.parametrize(("kind", "by"), [(Kind.AS, Kind.ROOT), (Kind.CA, Kind.REGULAR), (Kind.ROOT, Kind.ROOT)])
def test_only_a_root_issues_cas_and_only_a_ca_issues_ases(kind: Kind, by: Kind) -> None:
    with pytest.raises(RuleError) as raised:
        issue(kind, USER, Validity.starting(NOW, timedelta(days=1)), new_key().public_key(), credential(by))
    assert code_of(raised) == "pki_wrong_issuer"


def test_what_is_issued_cannot_sign_itself() -> None:
    with pytest.raises(ValueError, match="cp-as certificates are issued"):
        self_signed(Kind.AS, USER, Validity.starting(NOW, timedelta(days=1)), new_key())


def test_validity_begins_an_hour_before_and_has_whole_seconds() -> None:
    found = Validity.starting(NOW + timedelta(microseconds=7), timedelta(days=1))
    assert found == Validity(NOW - timedelta(hours=1), NOW + timedelta(days=1))
    assert Validity.of(self_signed(Kind.ROOT, CORE, found, new_key()).certificate) == found


@pytest.mark.parametrize("kind", list(Kind))
def test_a_certificate_is_renewed_when_less_than_that_is_left(kind: Kind) -> None:
    certificate = one_of_each()[kind]
    last = certificate.not_valid_after_utc - RENEWED_WITH_LEFT[kind]
    assert not needs_renewal(certificate, last)
    assert needs_renewal(certificate, last + timedelta(seconds=1))


def test_whatever_needs_no_renewal_still_covers_what_is_made_below_it() -> None:
    assert RENEWED_WITH_LEFT[Kind.CA] >= LIFETIME[Kind.AS]
    assert RENEWED_WITH_LEFT[Kind.ROOT] >= max(LIFETIME[Kind.CA], TRC_LIFETIME)
    assert min(RENEWED_WITH_LEFT[Kind.SENSITIVE], RENEWED_WITH_LEFT[Kind.REGULAR]) >= TRC_LIFETIME
    assert all(RENEWED_WITH_LEFT[kind] < LIFETIME[kind] for kind in Kind)


def test_a_certificate_of_the_web_is_not_of_scion() -> None:
    key = new_key()
    name = x509.Name([])
    builder = x509.CertificateBuilder(name, name, key.public_key(), 1, NOW, NOW + timedelta(days=1))
    certificate = builder.sign(key, SHA256())
    for reader in (kind_of, isd_as_of):
        with pytest.raises(RuleError) as raised:
            reader(certificate)
        assert code_of(raised) == "pki_not_scion"


# --- keys -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pem", [b"", b"no key", "ed25519"])
def test_what_is_no_key_of_a_curve_is_refused(pem: bytes | str) -> None:
    if pem == "ed25519":
        other = ed25519.Ed25519PrivateKey.generate()
        pem = other.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    with pytest.raises(RuleError) as raised:
        key_from_pem(pem)  # type: ignore[arg-type]  # bytes by now
    assert code_of(raised) == "pki_key_invalid"


def test_a_credential_never_shows_its_key() -> None:
    assert "key" not in repr(Credential(one_of_each()[Kind.AS], new_key()))
