"""Verification of signatures with a keyring of the service's public keys (docs/adr/0010). Pure.

One valid signature by a pinned key that is neither expired nor revoked suffices. An additional wrong one is ignored:
the valid one covers the same bytes, and otherwise a single damaged key of the service could make every bundle
unacceptable and cut off all attachment points.

A signed text is used only after verification. `signed_text` parses it, `bundle` checks files and hashes, `store` stores
them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from ap_agent.common.errors import BundleError, TrustError
from ap_agent.common.keys import TrustedKey
from ap_agent.common.times import time_text
from ap_agent.document.signed_text import SIGNED_PREFIX, Signed, evidence_of, read_text


@dataclass(frozen=True)
class Keyring:
    """Trusted keys by key id, and the ids of revoked ones."""

    keys: Mapping[str, TrustedKey] = field(default_factory=dict)
    revoked: frozenset[str] = frozenset()

    @classmethod
    def of(cls, keys: Iterable[TrustedKey], revoked: Iterable[str] = ()) -> Keyring:
        """Build a keyring without the revoked keys, whatever their source."""
        gone = frozenset(revoked)
        return cls(
            {one.key_id: one for one in sorted(keys, key=lambda key: key.key_id) if one.key_id not in gone}, gone
        )

    def follow(self, signed: Signed) -> Keyring:
        """The keyring after a verified bundle: its keys; revoked ids accumulate."""
        return Keyring.of(signed.keys, self.revoked | signed.revoked)

    def to_json(self) -> dict[str, Any]:
        return {"keys": [one.to_json() for one in self.keys.values()], "revoked": sorted(self.revoked)}


def verify(manifest: Mapping[str, Any], keyring: Keyring, now: datetime) -> Signed:
    """Return the manifest's signed text if a trusted key signed it. Raises `TrustError` (`not_enrolled`, `not_signed`,
    `wrong_signature`, `unknown_key`, `key_expired`, `key_revoked`) and `BundleError` (`manifest_invalid`,
    `unknown_schema`). `now` is this host's clock."""
    if not keyring.keys:
        raise TrustError(
            "No key of the service is pinned here, so its configurations cannot be verified. Enrol this "
            "host: `scionlab-bw-agent enrol URL`, with a token from the host's page in the admin.",
            code="not_enrolled",
        )
    evidence = evidence_of(manifest)
    if evidence is None:
        raise TrustError("The configuration is not signed; this host accepts only signed ones.", code="not_signed")
    _require_right_signature(*evidence, keyring, now)
    signed = read_text(evidence.text)
    # Otherwise this bundle could not be accepted again after a crash, and perhaps no later one either.
    if not _right(*evidence, keyring.follow(signed), now):
        raise BundleError(
            "The configuration is not signed by any of the keys that it announces.", code="manifest_invalid"
        )
    return signed


def read_signed(manifest: Mapping[str, Any]) -> Signed | None:
    """Parse the signed text without verification: for a bundle that was verified on arrival, and for operators who
    accept unsigned ones. None without a signed text. Raises `BundleError`."""
    evidence = evidence_of(manifest)
    return read_text(evidence.text) if evidence is not None else None


def read_stored(manifest: Mapping[str, Any]) -> Signed | None:
    """As `read_signed`, for stored bundles: checks the signature by a key that the text itself names, expired or not,
    to detect damage."""
    evidence = evidence_of(manifest)
    if evidence is None:
        return None
    signed = read_text(evidence.text)
    if not _right(*evidence, Keyring.of(signed.keys, signed.revoked), None):
        raise BundleError("The stored document differs from the accepted one.", code="wrong_signature")
    return signed


def _require_right_signature(text: str, signatures: Mapping[str, bytes], keyring: Keyring, now: datetime) -> None:
    if _right(text, signatures, keyring, now):
        return
    expired = _right(text, signatures, keyring, None)
    if expired:
        key = keyring.keys[expired[0]]
        raise TrustError(
            f"The configuration is signed with the key {key.key_id}, which expired at {time_text(key.not_after)}; this "
            f"host's clock says {time_text(now)}. Correct the clock if it is wrong; otherwise enrol this host again.",
            code="key_expired",
        )
    known = sorted(signatures.keys() & keyring.keys.keys())
    if known:
        raise TrustError(
            f"The signature of the configuration by the key {known[0]} is wrong: it was changed in transit, or "
            "the service is broken.",
            code="wrong_signature",
        )
    revoked = sorted(signatures.keys() & keyring.revoked)
    if revoked:
        raise TrustError(
            f"The configuration is signed with the key {revoked[0]}, which the service revoked. A key was stolen, "
            "or the service was restored from a backup: `manage.py signing_key list` there shows its keys.",
            code="key_revoked",
        )
    raise TrustError(
        f"The configuration is signed with the key {_some(signatures)}; this host trusts {_some(keyring.keys)}. "
        "If the service was reinstalled, enrol this host again.",
        code="unknown_key",
    )


def _right(text: str, signatures: Mapping[str, bytes], keyring: Keyring, now: datetime | None) -> list[str]:
    """Ids of keys with a valid signature; with `now` None including expired ones."""
    data = SIGNED_PREFIX + text.encode()
    found = []
    for key_id, signature in sorted(signatures.items()):
        key = keyring.keys.get(key_id)
        if key is None or (now is not None and now >= key.not_after):
            continue
        try:
            Ed25519PublicKey.from_public_bytes(key.public_key).verify(signature, data)
        except InvalidSignature:
            continue
        found.append(key_id)
    return found


def _some(ids: Iterable[str]) -> str:
    listed = sorted(ids)
    more = f" and {len(listed) - 3} more" if len(listed) > 3 else ""
    return ", ".join(listed[:3]) + more if listed else "(none)"
