"""What a manifest says so that an agent may believe it: a text, and signatures over exactly its bytes (docs/adr/0010).

The text is carried as one string, so nobody ever has to agree on a canonical form of JSON: what was signed is what is
read. Keys are values here; where they are kept and which are valid is `scionlab.services.signing`. Nothing here knows
Django, the clock or how a signature is computed. Ed25519 is deterministic: the same keys give the same bytes.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

SIGNED_TYPE = "scionlab-bandwidth-config"
SIGNED_SCHEMA = 1
CONTEXT = b"scionlab-bandwidth-config/1\n"  # before the text: a signature for something else never fits here

_KEY_ID_DIGITS = 32


def key_id_of(public_key: bytes) -> str:
    """The first 32 hexadecimal digits of SHA-256 of the 32 raw bytes: what people compare and tokens carry."""
    return hashlib.sha256(public_key).hexdigest()[:_KEY_ID_DIGITS]


@dataclass(frozen=True)
class Signer:
    """A key that signs. `public_key` is 32 raw bytes, `not_after` is aware; `sign` gives 64 bytes."""

    public_key: bytes
    not_after: datetime
    sign: Callable[[bytes], bytes] = field(repr=False, compare=False)

    @property
    def key_id(self) -> str:
        return key_id_of(self.public_key)

    @property
    def entry(self) -> dict[str, str]:
        """As agents are told of it, in a signed text and at enrolment."""
        return {
            "key_id": self.key_id,
            "public_key": base64.b64encode(self.public_key).decode("ascii"),
            "not_after": self.not_after.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        }


@dataclass(frozen=True)
class KeyRing:
    """The keys of the service that are valid, each of which signs, and the ids of those that never will be again.

    Sorted, whatever the order they are given in. Raises `ValueError` without a key: nothing is handed out unsigned.
    """

    signers: tuple[Signer, ...]
    revoked: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.signers:
            raise ValueError("A key ring needs at least one valid key.")
        object.__setattr__(self, "signers", tuple(sorted(self.signers, key=lambda one: one.key_id)))
        object.__setattr__(self, "revoked", tuple(sorted(set(self.revoked))))

    @property
    def entries(self) -> list[dict[str, str]]:
        return [one.entry for one in self.signers]

    @property
    def fingerprint(self) -> str:
        """Another one whenever a signed text or its signatures would differ by the keys."""
        return hashlib.sha256(_compact({"keys": self.entries, "revoked": self.revoked}).encode()).hexdigest()


def signed_part(
    *,
    host_id: str,
    host_secret: str,
    generation: int,
    config_version: int,
    limits_version: int,
    link_info_schema: int | None,
    files: Mapping[str, bytes],
    keys: KeyRing,
) -> dict[str, Any]:
    """The manifest's `sha256`, `signed` and `signatures`; `files` are all members but the manifest itself.

    The secret itself is not in the text, only its hash: the text alone gives nobody the host's credentials.
    """
    hashes = {path: hashlib.sha256(content).hexdigest() for path, content in files.items()}
    statement: dict[str, Any] = {
        "type": SIGNED_TYPE,
        "schema": SIGNED_SCHEMA,
        "host_id": host_id,
        "generation": generation,
        "config_version": config_version,
        "limits_version": limits_version,
        "sha256": hashes,
        "host_secret_sha256": hashlib.sha256(host_secret.encode()).hexdigest(),
        "keys": keys.entries,
        "revoked": list(keys.revoked),
    }
    if link_info_schema is not None:
        statement["link_info_schema"] = link_info_schema
    text = _compact(statement)
    return {
        "sha256": hashes,
        "signed": text,
        "signatures": [
            {"key_id": one.key_id, "signature": base64.b64encode(one.sign(CONTEXT + text.encode())).decode("ascii")}
            for one in keys.signers
        ],
    }


def _compact(document: Mapping[str, Any]) -> str:
    return json.dumps(document, sort_keys=True, separators=(",", ":"))
