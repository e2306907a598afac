"""The CMS message of a .trc file: a payload with signatures (RFC 5652; trc.rst, "Signed TRC Format").
`scionlab.scion_config.pki.trc` handles the payload."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat import asn1
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256, SHA384, SHA512, Hash, HashAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.hazmat.primitives.serialization.pkcs7 import PKCS7Options, PKCS7SignatureBuilder
from cryptography.x509.oid import SignatureAlgorithmOID

from scionlab.scion_config.pki.certificates import Credential

_MESSAGE_DIGEST = x509.ObjectIdentifier("1.2.840.113549.1.9.4")  # RFC 5652, 11.2
_HASH: dict[x509.ObjectIdentifier, HashAlgorithm] = {
    SignatureAlgorithmOID.ECDSA_WITH_SHA256: SHA256(),
    SignatureAlgorithmOID.ECDSA_WITH_SHA384: SHA384(),
    SignatureAlgorithmOID.ECDSA_WITH_SHA512: SHA512(),
}


@asn1.sequence
class _Attribute:
    type: x509.ObjectIdentifier
    values: asn1.SetOf[asn1.TLV]


@asn1.sequence
class _Attributes:
    """Encoded for signing (RFC 5652, 5.4): as a SET, not under its tag in the message."""

    attributes: asn1.SetOf[_Attribute]


@asn1.sequence
class _IssuerAndSerial:
    issuer: asn1.TLV
    serial: int


@asn1.sequence
class _Algorithm:
    oid: x509.ObjectIdentifier


@asn1.sequence
class _SignerInfo:
    version: int
    signer: _IssuerAndSerial
    digest_algorithm: asn1.TLV
    attributes: Annotated[asn1.SetOf[_Attribute], asn1.Implicit(0)]
    algorithm: _Algorithm
    signature: bytes


@asn1.sequence
class _EncapsulatedContent:
    type: x509.ObjectIdentifier
    content: Annotated[bytes, asn1.Explicit(0)]


@asn1.sequence
class _SignedData:
    version: int
    digest_algorithms: asn1.SetOf[asn1.TLV]
    content: _EncapsulatedContent
    signers: asn1.SetOf[_SignerInfo]


@asn1.sequence
class _ContentInfo:
    type: x509.ObjectIdentifier
    content: Annotated[_SignedData, asn1.Explicit(0)]


def make(payload: bytes, signers: Iterable[Credential]) -> bytes:
    """Build the message with one signature per signer. Not deterministic."""
    builder = PKCS7SignatureBuilder().set_data(payload)
    for signer in signers:
        builder = builder.add_signer(signer.certificate, signer.key, SHA256())
    # Without certificates: verifiers have those of the predecessor.
    return builder.sign(Encoding.DER, [PKCS7Options.Binary, PKCS7Options.NoCerts, PKCS7Options.NoCapabilities])


@dataclass(frozen=True)
class Message:
    """A parsed message. Nothing is verified before `is_signed_by`."""

    payload: bytes
    signers: tuple[_SignerInfo, ...]

    @classmethod
    def read(cls, data: bytes) -> Message:
        """Raises `ValueError`."""
        signed = asn1.decode_der(_ContentInfo, data).content
        return cls(signed.content.content, tuple(signed.signers.as_list()))

    def is_signed_by(self, certificate: x509.Certificate) -> bool:
        """Whether a signature over this payload is by this certificate's key."""
        return any(_verifies(one, certificate, self.payload) for one in self.signers)


def _verifies(info: _SignerInfo, certificate: x509.Certificate, payload: bytes) -> bool:
    key, algorithm = certificate.public_key(), _HASH.get(info.algorithm.oid)
    if info.signer.serial != certificate.serial_number or algorithm is None:
        return False
    if not isinstance(key, ec.EllipticCurvePublicKey):
        return False
    digest = Hash(algorithm)
    digest.update(payload)
    stated = [one.values.as_list() for one in info.attributes.as_list() if one.type == _MESSAGE_DIGEST]
    if len(stated) != 1 or [bytes(one.data) for one in stated[0]] != [digest.finalize()]:
        return False
    as_set = asn1.decode_der(asn1.TLV, asn1.encode_der(_Attributes(attributes=info.attributes))).data
    try:
        key.verify(info.signature, bytes(as_set), ec.ECDSA(algorithm))
    except InvalidSignature:
        return False
    return True
