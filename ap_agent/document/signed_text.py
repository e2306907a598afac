"""The signed text in a manifest, parsed strictly, sizes first (docs/adr/0010). Pure.

    manifest  "signed": "<text>"                              exactly these bytes are signed, no canonicalisation
              "signatures": [{"key_id", "signature"}]         Ed25519 over b"scionlab-bandwidth-config/1\\n" + text
    text      host, version, SHA-256 of every file, trusted keys from now on, revoked keys

No duplicate keys, no numbers beyond 18 digits, no fractions, canonical keys and signatures. `trust` decides whose
signature counts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn

from ap_agent.common.errors import BundleError
from ap_agent.common.files import parse_json
from ap_agent.common.keys import MAX_KEYS, TrustedKey, decoded, parse_keys

SIGNED_TYPE = "scionlab-bandwidth-config"
SIGNED_SCHEMA = 1
SIGNED_PREFIX = b"scionlab-bandwidth-config/1\n"  # domain separation: a signature made for something else never matches
MAX_SIGNED_CHARS = 1024 * 1024  # a thousand files with the longest names stay below 300 kB
MAX_REVOKED = 1000
MAX_TOTAL_KBIT = 100_000_000  # 100 Gbit/s, the maximum bandwidth of a link
_SIGNATURE_BYTES = 64
_MAX_FILES = 1000
_HEX_32 = re.compile(r"[0-9a-f]{32}", re.ASCII)
_HEX_64 = re.compile(r"[0-9a-f]{64}", re.ASCII)


class Version(NamedTuple):
    """Generation G, counter of the configuration H, counter of the limits L (None: not in the manifest)."""

    generation: int
    config_version: int
    limits_version: int | None

    @property
    def configuration(self) -> str:
        """G.H."""
        return f"{self.generation}.{self.config_version}"

    def trace(self, host_id: str) -> str:
        """Identifier of this version in the logs of service, agent and limiter."""
        return f"{host_id[:8]}.{self.config_version}.{self.limits_version}"

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Version:
        """The counters in it. Raises `ValueError`."""
        found = cls._make(document.get(name) for name in cls._fields)
        for name, value in found._asdict().items():
            is_missing = value is None and name == "limits_version"
            if not is_missing and (type(value) is not int or value < 0):
                raise ValueError(f"it has no {name}")
        return found

    def is_older_than(self, other: Version) -> bool:
        """A lower G; or the same G with a lower H or L. A restored service must raise G to be followed."""
        if self.generation != other.generation:
            return self.generation < other.generation
        if self.limits_version is None or other.limits_version is None:
            return self.config_version < other.config_version
        return self.config_version < other.config_version or self.limits_version < other.limits_version

    def joined(self, other: Version) -> Version:
        """The smallest version that is older than neither."""
        if self.generation != other.generation:
            return max(self, other, key=lambda one: one.generation)
        limits = [one for one in (self.limits_version, other.limits_version) if one is not None]
        higher = max(self.config_version, other.config_version)
        return Version(self.generation, higher, max(limits, default=None))

    def __str__(self) -> str:
        limits = f" with limits {self.limits_version}" if self.limits_version is not None else ""
        return f"{self.configuration}{limits}"


@dataclass(frozen=True)
class Signed:
    """Content of a signed text. `total_kbit` caps all limited links of each direction together; None: no cap."""

    host_id: str
    version: Version
    link_info_schema: int | None
    sha256: Mapping[str, str]
    host_secret_sha256: str
    keys: tuple[TrustedKey, ...]
    revoked: frozenset[str]
    total_kbit: int | None = None
    is_observe_only: bool = False


# --- reading strictly -----------------------------------------------------------------------------------------------


def _invalid(what: str) -> NoReturn:
    raise BundleError(f"The manifest's {what}.", code="manifest_invalid")


class Evidence(NamedTuple):
    """A signed text as in a manifest, and by key id unverified signatures of 64 bytes."""

    text: str
    signatures: Mapping[str, bytes]


def evidence_of(manifest: Mapping[str, Any]) -> Evidence | None:
    """None if unsigned. Raises `BundleError`."""
    if "signed" not in manifest and "signatures" not in manifest:
        return None
    text, listed = manifest.get("signed"), manifest.get("signatures")
    if not isinstance(text, str):
        _invalid('"signed" is missing or not a text')
    if len(text) > MAX_SIGNED_CHARS:
        _invalid(f'"signed" is longer than {MAX_SIGNED_CHARS} characters')
    try:
        text.encode()
    except UnicodeEncodeError:  # a lone surrogate, which JSON's escapes can spell
        _invalid('"signed" has characters that cannot be encoded')
    if not isinstance(listed, list) or not 1 <= len(listed) <= MAX_KEYS:
        _invalid(f'"signatures" are missing, or not a list of 1 to {MAX_KEYS}')
    found: dict[str, bytes] = {}
    for one in listed:
        key_id = one.get("key_id") if isinstance(one, dict) else None
        signature = decoded(one.get("signature"), _SIGNATURE_BYTES) if isinstance(one, dict) else None
        if not isinstance(key_id, str) or not _HEX_32.fullmatch(key_id) or signature is None:
            _invalid('"signatures" contain an invalid entry')
        if key_id in found:
            _invalid(f'"signatures" contain two by the key {key_id}')
        found[key_id] = signature
    return Evidence(text, found)


def read_text(text: str) -> Signed:
    """Parse it. Raises `BundleError` (`manifest_invalid`, `unknown_schema`)."""
    try:
        document = parse_json(text)
    except ValueError as exc:
        raise BundleError(f"The manifest's signed text cannot be read: {exc}.", code="manifest_invalid") from exc
    if not isinstance(document, dict) or document.get("type") != SIGNED_TYPE:
        _invalid(f'signed text is not of type "{SIGNED_TYPE}"')
    schema = document.get("schema")
    if type(schema) is not int:
        _invalid("signed text has no schema")
    if schema != SIGNED_SCHEMA:
        raise BundleError(
            f"The manifest's signed text has schema {schema}, this agent knows {SIGNED_SCHEMA}; update the agent.",
            code="unknown_schema",
        )
    if document.get("limits_version") is None:
        _invalid("signed text has no limits_version")
    host_id, secret_hash = document.get("host_id"), document.get("host_secret_sha256")
    if not isinstance(host_id, str):
        _invalid("signed text names no host_id")
    if not isinstance(secret_hash, str) or not _HEX_64.fullmatch(secret_hash):
        _invalid("signed text has no host_secret_sha256")
    link_info_schema = document.get("link_info_schema")
    if link_info_schema is not None and type(link_info_schema) is not int:
        _invalid("signed text has a link_info_schema that is not a number")
    try:
        version = Version.of(document)
        keys, revoked = parse_keys(document.get("keys")), parse_revoked(document.get("revoked"))
    except ValueError as exc:
        _invalid(f"signed text: {exc}")
    return Signed(
        host_id=host_id,
        version=version,
        link_info_schema=link_info_schema,
        sha256=_hashes(document.get("sha256")),
        host_secret_sha256=secret_hash,
        keys=keys,
        revoked=revoked,
        total_kbit=total_of(document),
        is_observe_only=observe_only_of(document),
    )


def total_of(document: Mapping[str, Any]) -> int | None:
    """Its `total_kbit`; None if absent. Raises `BundleError`."""
    total_kbit = document.get("total_kbit")
    if total_kbit is not None and (type(total_kbit) is not int or not 1 <= total_kbit <= MAX_TOTAL_KBIT):
        _invalid(f"signed text has a total_kbit that is not a number from 1 to {MAX_TOTAL_KBIT}")
    return total_kbit


def observe_only_of(document: Mapping[str, Any]) -> bool:
    """Its `observe_only`; false if absent. Raises `BundleError`."""
    observe_only = document.get("observe_only", False)
    if not isinstance(observe_only, bool):
        _invalid("signed text has an observe_only that is neither true nor false")
    return observe_only


def _hashes(listed: object) -> dict[str, str]:
    if not isinstance(listed, dict) or len(listed) > _MAX_FILES:
        _invalid(f"signed text has no sha256, or more than {_MAX_FILES}")
    if not all(isinstance(value, str) and _HEX_64.fullmatch(value) for value in listed.values()):
        _invalid("signed text has an invalid sha256")
    return listed


def parse_revoked(listed: object) -> frozenset[str]:
    """A list of key ids. Raises `ValueError` with the reason."""
    if not isinstance(listed, list) or len(listed) > MAX_REVOKED:
        raise ValueError(f'"revoked" is missing, or not a list of at most {MAX_REVOKED}')
    if not all(isinstance(one, str) and _HEX_32.fullmatch(one) for one in listed):
        raise ValueError('"revoked" contains an invalid key_id')
    return frozenset(listed)
