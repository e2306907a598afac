"""Private keys of the testbed and the two symmetric master keys of an AS, as file contents."""

from __future__ import annotations

import base64
import secrets

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

from bandwidth_config import RuleError

MASTER_KEY_BYTES = 16  # AES-128; scionproto/scion doc/manuals/router.rst, "keys"


def new_key() -> ec.EllipticCurvePrivateKey:
    """P-256, one of the three curves of certificates.rst ("Signature")."""
    return ec.generate_private_key(ec.SECP256R1())


def key_to_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """PKCS#8, unencrypted: for cp-as.key, cp-ca.key and the voters' files."""
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def key_from_pem(pem: bytes) -> ec.EllipticCurvePrivateKey:
    """Raises `RuleError` (`pki_key_invalid`)."""
    try:
        key = load_pem_private_key(pem, password=None)
    except (ValueError, TypeError) as exc:
        raise RuleError("pki_key_invalid", f"This is not an unencrypted private key in PEM: {exc}") from exc
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise RuleError("pki_key_invalid", "SCION takes keys of an elliptic curve only (certificates.rst, Signature).")
    return key


def new_master_key() -> bytes:
    """Content of keys/master0.key or master1.key: base64 of 16 random bytes. Hop authenticators derive from them, so
    all routers and control services of one AS share them."""
    return base64.b64encode(secrets.token_bytes(MASTER_KEY_BYTES))
