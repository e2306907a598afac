"""The document that the agent hands to the limiter: one file, accepted whole or not at all.

    <state_dir>/document.json, mode 0640, group of the limiter
    line 1, the head  {"schema": 1, "signed": text, "signatures": [...]}
                      {"schema": 1, "unsigned": {"host_id", "generation", "config_version", "limits_version", "sha256"}}
    the rest          link_info.json, byte for byte

The limiter does not trust the agent: with its own keyring it verifies signature, host and version of the head, which is
small, and then the hash of the rest. Only what the service signed is parsed. An unsigned document requires
`allow_unsigned`; it may have `total_kbit` and `observe_only` like a signed text.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ap_agent.common.errors import BundleError, TrustError
from ap_agent.common.files import parse_object, write_atomically
from ap_agent.document.signed_text import Signed, Version, observe_only_of, total_of
from bandwidth_config import LINK_INFO_PATH, LINK_INFO_SCHEMA
from contract.link_info import KnownEntries, LinkInfo, LinkInfoError, parse_link_info

FILE_NAME = "document.json"
SCHEMA = 1
MAX_HEAD_BYTES = 512 * 1024  # a signed text of a thousand files with the longest names stays below 300 kB
MAX_BYTES = MAX_HEAD_BYTES + 16 * 1024 * 1024  # link_info.json as `parse_link_info` takes it


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
            self.data.partition(b"\n")[2],
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
    said["sha256"] = hashlib.sha256(link_info).hexdigest()
    if total_kbit is not None:
        said["total_kbit"] = total_kbit
    head = {"schema": SCHEMA, **(evidence if evidence is not None else {"unsigned": said})}
    return json.dumps(head, ensure_ascii=False).encode() + b"\n" + link_info


def write_document(path: Path, data: bytes) -> None:
    """Raises `OSError`. The folder's group may read it."""
    write_atomically(path, data, mode=0o640)


@dataclass(frozen=True)
class Head:
    """A verified head, and its line. `named` is what it says, `signed` None if it is unsigned."""

    named: Signed
    signed: Signed | None
    line: bytes


def read_head(line: bytes, *, host_id: str | None, verify: Verify, allow_unsigned: bool = False) -> Head:
    """Check the first line, with its end. `host_id` is ours (None: any). Raises `BundleError` only, or its subclass
    `TrustError` for a well-formed head."""
    if len(line) > MAX_HEAD_BYTES or not line.endswith(b"\n"):
        raise _invalid(f"does not begin with a line of at most {MAX_HEAD_BYTES} bytes")
    try:
        head = parse_object(line)
    except ValueError as exc:
        raise _invalid(f"cannot be read: {exc}") from exc
    if head.get("schema") != SCHEMA or type(head["schema"]) is not int:
        raise _invalid(f"has another schema than {SCHEMA}; install agent and limiter of one version")
    signed = verify(head)
    named = _named(head, allow_unsigned=allow_unsigned) if signed is None else signed
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
    return Head(named, signed, line)


def read_links(head: Head, link_info: bytes, *, known: KnownEntries | None = None) -> Document:
    """The document of a head and the rest of its file. `known` as in `parse_link_info`. Raises `BundleError`."""
    digest = check_hash(head, link_info)
    try:
        links = parse_link_info(link_info, known=known)
    except LinkInfoError as exc:
        raise BundleError(exc.message, code="link_info_invalid") from exc
    said = head.named
    configuration = Configuration(said.host_id, said.version, digest, links, said.total_kbit, said.is_observe_only)
    return Document(configuration, head.signed, head.line + link_info)


def check_hash(head: Head, link_info: bytes) -> str:
    """The hash of the rest, in hexadecimal. Raises `BundleError` unless it is the head's."""
    digest = hashlib.sha256(link_info).hexdigest()
    if head.named.sha256.get(LINK_INFO_PATH) != digest:
        raise BundleError("The document's link_info does not match the SHA-256 in its head.", code="wrong_hash")
    return digest


def read_document(
    data: bytes,
    *,
    host_id: str | None,
    verify: Verify,
    allow_unsigned: bool = False,
    known: KnownEntries | None = None,
) -> Document:
    """Check a document completely. Raises as `read_head` and `read_links`."""
    if len(data) > MAX_BYTES:
        raise _invalid(f"has more than {MAX_BYTES} bytes")
    line, end, link_info = data.partition(b"\n")
    head = read_head(line + end, host_id=host_id, verify=verify, allow_unsigned=allow_unsigned)
    return read_links(head, link_info, known=known)


def _named(document: Mapping[str, Any], *, allow_unsigned: bool) -> Signed:
    """Content of an unsigned head, without keys."""
    if not allow_unsigned:
        raise TrustError("The document is not signed; this host accepts only signed ones.", code="not_signed")
    said = document.get("unsigned")
    if (
        not isinstance(said, dict)
        or not isinstance(said.get("host_id"), str)
        or not isinstance(said.get("sha256"), str)
    ):
        raise _invalid('has neither "signed" nor a valid "unsigned"')
    try:
        version = Version.of(said)
    except ValueError as exc:
        raise _invalid(f"names no version: {exc}") from exc
    hashes = {LINK_INFO_PATH: said["sha256"]}
    return Signed(said["host_id"], version, None, hashes, "", (), frozenset(), total_of(said), observe_only_of(said))


def _invalid(what: str) -> BundleError:
    return BundleError(f"The document handed over {what}.", code="document_invalid")
