"""The X.509 profile of SCION; whether SCION takes it is asked in tests/scion."""

from __future__ import annotations

import base64
import hashlib
from datetime import timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ed25519
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from bandwidth_config import RuleError
from scionlab.scion_config.pki.certificates import Credential, Kind, Validity, isd_as_of, issue, kind_of, self_signed
from scionlab.scion_config.pki.files import ca_files, chain_files, master_key_files
from scionlab.scion_config.pki.keys import key_from_pem, key_to_pem, new_key, new_master_key
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


def values(certificate: x509.Certificate) -> dict[type, tuple[bool, x509.ExtensionType]]:
    return {type(one.value): (one.critical, one.value) for one in certificate.extensions}


def code_of(raised: pytest.ExceptionInfo[RuleError]) -> str:
    return raised.value.code


def test_each_kind_has_exactly_its_extensions() -> None:
    for kind, certificate in one_of_each().items():
        found = values(certificate)
        expected: set[type] = {x509.SubjectKeyIdentifier}
        if kind in PURPOSES:
            expected.add(x509.ExtendedKeyUsage)
            critical, purposes = found[x509.ExtendedKeyUsage]
            assert not critical
            assert [one.dotted_string for one in purposes] == PURPOSES[kind]  # type: ignore[attr-defined]  # by its key
        if kind in {Kind.ROOT, Kind.CA}:
            expected |= {x509.BasicConstraints, x509.KeyUsage}
            length = 1 if kind is Kind.ROOT else 0
            assert found[x509.BasicConstraints] == (True, x509.BasicConstraints(ca=True, path_length=length))
        if kind is Kind.AS:
            expected.add(x509.KeyUsage)
        if kind in {Kind.CA, Kind.AS}:
            expected.add(x509.AuthorityKeyIdentifier)
        assert set(found) == expected, kind
        assert kind_of(certificate) is kind


def test_only_an_as_may_sign_messages_and_only_roots_and_cas_sign_certificates() -> None:
    for kind, certificate in one_of_each().items():
        if kind in {Kind.SENSITIVE, Kind.REGULAR}:
            continue
        usage = certificate.extensions.get_extension_for_class(x509.KeyUsage)
        assert usage.critical
        assert usage.value.digital_signature is (kind is Kind.AS)
        assert usage.value.key_cert_sign is (kind is not Kind.AS)


def test_names_say_isd_as_and_kind_and_stay_the_same_when_renewed() -> None:
    made = one_of_each()
    assert [isd_as_of(one) for one in made.values()] == [CORE, CORE, CORE, CORE, USER]
    assert made[Kind.AS].subject.rfc4514_string() == "1.3.6.1.4.1.55324.1.2.1=17-ffaa:1:b6,CN=17-ffaa:1:b6 cp-as"
    assert made[Kind.AS].issuer == made[Kind.CA].subject
    assert made[Kind.CA].issuer == made[Kind.ROOT].subject
    assert {kind: one.subject for kind, one in one_of_each().items()} == {k: one.subject for k, one in made.items()}


def test_subject_key_id_is_the_hash_of_the_point_by_which_scion_finds_the_signer() -> None:
    certificate = one_of_each()[Kind.AS]
    point = certificate.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
    key_id = certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value.digest
    assert key_id == hashlib.sha1(point).digest()  # noqa: S324  RFC 5280, 4.2.1.2


def test_all_are_signed_with_sha256_and_by_whom_they_name() -> None:
    made = one_of_each()
    for kind, certificate in made.items():
        issuer = {Kind.CA: made[Kind.ROOT], Kind.AS: made[Kind.CA]}.get(kind, certificate)
        certificate.verify_directly_issued_by(issuer)
        assert isinstance(certificate.signature_hash_algorithm, SHA256)


def test_a_chain_cannot_outlive_its_ca() -> None:
    keys = isd_keys()
    too_long = Validity.starting(NOW, LIFETIME[Kind.CA] + timedelta(seconds=1))
    with pytest.raises(RuleError) as raised:
        issue(Kind.AS, USER, too_long, new_key().public_key(), keys.ca)
    assert code_of(raised) == "pki_outlives_issuer"
    assert "Renew the cp-ca certificate first." in str(raised.value)


def test_a_chain_cannot_begin_before_its_ca() -> None:
    keys = isd_keys()
    too_early = Validity.starting(NOW - timedelta(seconds=1), timedelta(days=1))
    with pytest.raises(RuleError) as raised:
        issue(Kind.AS, USER, too_early, new_key().public_key(), keys.ca)
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


# --- keys and files -------------------------------------------------------------------------------------------


def test_a_key_is_an_unencrypted_pkcs8_file_and_comes_back() -> None:
    key = new_key()
    assert key_to_pem(key).startswith(b"-----BEGIN PRIVATE KEY-----\n")
    assert key_from_pem(key_to_pem(key)).private_numbers() == key.private_numbers()


@pytest.mark.parametrize("pem", [b"", b"no key", "ed25519"])
def test_what_is_no_key_of_a_curve_is_refused(pem: bytes | str) -> None:
    if pem == "ed25519":
        other = ed25519.Ed25519PrivateKey.generate()
        pem = other.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    with pytest.raises(RuleError) as raised:
        key_from_pem(pem)  # type: ignore[arg-type]  # bytes by now
    assert code_of(raised) == "pki_key_invalid"


def test_master_keys_are_base64_of_16_bytes_and_never_the_same() -> None:
    first, second = new_master_key(), new_master_key()
    assert [len(base64.b64decode(one, validate=True)) for one in (first, second)] == [16, 16]
    assert first != second
    assert master_key_files(first, second) == {"keys/master0.key": first, "keys/master1.key": second}


def test_files_of_a_chain_and_of_a_ca_have_the_names_that_scion_reads() -> None:
    keys = isd_keys()
    own = keys.chain(USER)
    files = chain_files(own, keys.ca.certificate)
    assert sorted(files) == ["crypto/as/ISD17-ASffaa_1_b6.pem", "crypto/as/cp-as.key"]
    chain = x509.load_pem_x509_certificates(files["crypto/as/ISD17-ASffaa_1_b6.pem"])
    assert chain == [own.certificate, keys.ca.certificate]
    assert sorted(ca_files(keys.ca)) == ["crypto/ca/ISD17-ASffaa_0_1107.ca.crt", "crypto/ca/cp-ca.key"]


def test_a_credential_never_shows_its_key() -> None:
    assert "key" not in repr(Credential(one_of_each()[Kind.AS], new_key()))
