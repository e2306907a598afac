"""The document that the agent hands to the limiter: one file, accepted whole or not at all.

    <state_dir>/document.json, mode 0640, group of the limiter
    {"schema": 1, "signed": text, "signatures": [...], "link_info": text}
    {"schema": 1, "unsigned": {"host_id", "generation", "config_version", "limits_version"}, "link_info": text}

The limiter does not trust the agent: it verifies signature, host, version and the hash of `link_info` with its own
keyring. An unsigned document requires `allow_unsigned`; it may have `total_kbit` and `observe_only` like a signed text.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ap_agent.common.errors import BundleError, TrustError
from ap_agent.common.files import parse_json, write_atomically
from ap_agent.document.signed_text import Signed, Version, observe_only_of, total_of
from bandwidth_config import LINK_INFO_PATH, LINK_INFO_SCHEMA
from link_info import KnownEntries, LinkInfo, LinkInfoError, parse_link_info

FILE_NAME = "document.json"
SCHEMA = 1
MAX_BYTES = 24 * 1024 * 1024


@dataclass(frozen=True)
class Configuration:
    """Content of a valid document. `total_kbit` caps all limited links of each direction together. `limits_digest` is
    the SHA-256 of link_info.json, in hexadecimal."""

    host_id: str
    order: Version
    limits_digest: str
    links: Mapping[int, LinkInfo]
    total_kbit: int | None = None
    is_observe_only: bool = False


@dataclass(frozen=True)
class Document:
    """A document and its bytes. `signed` is None if unsigned."""

    configuration: Configuration
    signed: Signed | None
    data: bytes = field(repr=False)

    @property
    def host_id(self) -> str:
        return self.configuration.host_id

    @property
    def order(self) -> Version:
        return self.configuration.order

    def unsigned(self) -> Document:
        """A copy without keys, also in its bytes: its signature was not verified."""
        if self.signed is None:
            return self
        said = self.configuration
        data = document_bytes(
            None,
            said.host_id,
            said.order,
            json.loads(self.data)["link_info"].encode(),
            total_kbit=said.total_kbit,
            is_observe_only=said.is_observe_only,
        )
        return Document(said, None, data)


# A document's object -> its signed text, None if there is none and none is needed. Raises `BundleError`.
Verify = Callable[[Mapping[str, Any]], Signed | None]


def document_bytes(
    evidence: Mapping[str, Any] | None,
    host_id: str,
    order: Version,
    link_info: bytes,
    *,
    total_kbit: int | None = None,
    is_observe_only: bool = False,
) -> bytes:
    """The document's bytes. `evidence` has the signed text and its signatures as received; None: unsigned."""
    said: dict[str, Any] = {"host_id": host_id, **order._asdict(), "observe_only": is_observe_only}
    if total_kbit is not None:
        said["total_kbit"] = total_kbit
    document = {"schema": SCHEMA, **(evidence if evidence is not None else {"unsigned": said})}
    return json.dumps({**document, "link_info": link_info.decode()}, ensure_ascii=False).encode()


def write_document(path: Path, data: bytes) -> None:
    """Raises `OSError`. The folder's group may read it."""
    write_atomically(path, data, mode=0o640)


def read_document(
    data: bytes,
    *,
    host_id: str | None,
    verify: Verify,
    allow_unsigned: bool = False,
    known: KnownEntries | None = None,
) -> Document:
    """Check a document completely. `host_id` is ours (None: any); `known` as in `parse_link_info`. Raises `BundleError`
    only, or its subclass `TrustError` for a well-formed document."""
    if len(data) > MAX_BYTES:
        raise _invalid(f"has more than {MAX_BYTES} bytes")
    try:
        document = parse_json(data)
    except ValueError as exc:
        raise _invalid(f"cannot be read: {exc}") from exc
    if not isinstance(document, dict):
        raise _invalid("is not an object")
    if document.get("schema") != SCHEMA or type(document["schema"]) is not int:
        raise _invalid(f"has another schema than {SCHEMA}; install agent and limiter of one version")
    if not isinstance(document.get("link_info"), str):
        raise _invalid('has no text "link_info"')
    signed = verify(document)
    named = _named(document, allow_unsigned=allow_unsigned) if signed is None else signed
    if host_id is not None and named.host_id != host_id:
        raise BundleError(
            f'The document is for host "{named.host_id[:80]}"; this host is "{host_id}".', code="wrong_host"
        )
    if named.link_info_schema not in {None, LINK_INFO_SCHEMA}:
        raise BundleError(
            f"The document has link_info schema {named.link_info_schema}, the limiter knows {LINK_INFO_SCHEMA}; update "
            "it.",
            code="unknown_schema",
        )
    link_info = document["link_info"].encode("utf-8", "surrogatepass")
    digest = hashlib.sha256(link_info).hexdigest()
    if signed is not None and signed.sha256.get(LINK_INFO_PATH) != digest:
        raise BundleError("The document's link_info does not match the SHA-256 in the signed text.", code="wrong_hash")
    try:
        links = parse_link_info(link_info, known=known)
    except LinkInfoError as exc:
        raise BundleError(exc.message, code="link_info_invalid") from exc
    configuration = Configuration(named.host_id, named.version, digest, links, named.total_kbit, named.is_observe_only)
    return Document(configuration, signed, data)


def _named(document: Mapping[str, Any], *, allow_unsigned: bool) -> Signed:
    """Content of an unsigned document, without hashes and keys."""
    if not allow_unsigned:
        raise TrustError("The document is not signed; this host accepts only signed ones.", code="not_signed")
    said = document.get("unsigned")
    if not isinstance(said, dict) or not isinstance(said.get("host_id"), str):
        raise _invalid('has neither "signed" nor a valid "unsigned"')
    try:
        version = Version.of(said)
    except ValueError as exc:
        raise _invalid(f"names no version: {exc}") from exc
    return Signed(said["host_id"], version, None, {}, "", (), frozenset(), total_of(said), observe_only_of(said))


def _invalid(what: str) -> BundleError:
    return BundleError(f"The document handed over {what}.", code="document_invalid")
