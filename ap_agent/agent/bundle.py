"""Checks a configuration tarball: bytes -> `Bundle`, or a `BundleError` that names the broken rule.

In memory. The rules are those of DOMAIN section 4; `archive` unpacks. `verify` checks the signature first, before
anything but the manifest is read.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from typing import Any

from ap_agent.agent.archive import DEFAULT_LIMITS, MANIFEST, Limits, unpack
from ap_agent.common.credentials import check_secret
from ap_agent.common.errors import BundleError
from ap_agent.common.files import parse_object
from ap_agent.common.settings import Settings
from ap_agent.common.text import shown
from ap_agent.document.signatures import read_signed
from ap_agent.document.signed_text import Signed, Version
from ap_agent.document.trust import Acceptance, Trust, refuse_version, verifier
from bandwidth_config import LINK_INFO_PATH, LINK_INFO_SCHEMA
from contract.link_info import LinkInfo, LinkInfoError, parse_link_info

# Limit for unverified input: JSON takes up to 25 times its size in memory (`[{},{},...]`, measured). A thousand files
# with the longest names take 0.8 MB.
MAX_MANIFEST_BYTES = 2 * 1024 * 1024

# Manifest -> its signed text, None if there is none and none is needed. Raises `BundleError`.
Verify = Callable[[Mapping[str, Any]], Signed | None]


@dataclass(frozen=True)
class Bundle:
    """A configuration that passed every check. `limits_version` is None if the manifest has none. `members` has every
    file, including the manifest with the host's secret, and `data` the tarball as it came: never log them. `signed` is
    None without a verified signature. `total_kbit` and `is_observe_only` are those of the signed text, whoever signed
    it."""

    version: str
    limits_version: int | None
    host_id: str
    links: Mapping[int, LinkInfo]
    members: Mapping[str, bytes] = field(repr=False)
    signed: Signed | None = None
    total_kbit: int | None = None
    is_observe_only: bool = False
    host_secret: str | None = field(default=None, repr=False)  # only if its hash is signed
    data: bytes = field(default=b"", repr=False, compare=False)

    @property
    def order(self) -> Version:
        generation, config_version = self.version.split(".")
        return Version(int(generation), int(config_version), self.limits_version)

    @cached_property
    def name(self) -> str:
        """Depends on the content: `1.18-7-0f3a9b2c`, marked if unsigned."""
        limits = "none" if self.limits_version is None else self.limits_version
        return f"{self.version}-{limits}-{digest(self.members)[:8]}{'' if self.signed is not None else '-unsigned'}"

    @cached_property
    def limits_digest(self) -> str:
        """SHA-256 of link_info.json, in hexadecimal: identifies the limits themselves."""
        return hashlib.sha256(self.members[LINK_INFO_PATH]).hexdigest()

    def evidence(self) -> dict[str, Any] | None:
        """The signed text and its signatures as received; None if unsigned."""
        manifest = _manifest(self.members[MANIFEST])
        return {key: manifest[key] for key in ("signed", "signatures")} if "signed" in manifest else None

    def unsigned(self) -> Bundle:
        """A copy without keys and secret: its signature was not verified."""
        return replace(self, signed=None, host_secret=None)


def digest(members: Mapping[str, bytes]) -> str:
    """SHA-256 over names and contents, independent of order and packing."""
    total = hashlib.sha256()
    for name in sorted(members):
        total.update(f"{len(name.encode())}:{name}:{len(members[name])}:".encode())
        total.update(members[name])
    return total.hexdigest()


def read_bundle(
    data: bytes, *, host_id: str | None, limits: Limits = DEFAULT_LIMITS, verify: Verify = read_signed
) -> Bundle:
    """Check a tarball completely. `host_id` is ours (None: any). Raises `BundleError` only. `verify` checks the signer;
    without it a signed text must match its bundle, but its signer is not checked."""
    return replace(check_members(unpack(data, limits), host_id=host_id, verify=verify), data=data)


def accept_bundle(
    data: bytes, settings: Settings, trust: Trust, accepted: Callable[[], Acceptance | None], now: datetime
) -> Bundle:
    """Return a bundle that may be stored and handed over. Raises `BundleError`, or its subclass `TrustError` for a
    well-formed bundle."""
    bundle = read_bundle(
        data,
        host_id=settings.host_id,
        limits=Limits(compressed_bytes=settings.max_bundle_bytes),
        verify=verifier(settings, trust, now),
    )
    if settings.allow_unsigned:  # otherwise unverified keys could be found in it when trust.json is lost
        bundle = bundle.unsigned()
    refuse_version(bundle.order, trust, accepted)
    return bundle


# --- manifest, hashes ----------------------------------------------------------------------------------------


def check_members(members: Mapping[str, bytes], *, host_id: str | None, verify: Verify = read_signed) -> Bundle:
    """Check the files of a bundle: manifest, hashes, link_info. Raises `BundleError`."""
    if MANIFEST not in members:
        raise BundleError(f"The bundle has no {MANIFEST}.", code="manifest_missing")
    if len(members[MANIFEST]) > MAX_MANIFEST_BYTES:
        raise BundleError(f"{MANIFEST} is larger than {MAX_MANIFEST_BYTES} bytes.", code="member_too_large")
    manifest = _manifest(members[MANIFEST])
    signed = verify(manifest)
    found = _required(manifest, "host_id", str, "a text")
    if host_id is not None and found != host_id:
        raise BundleError(f'The bundle is for host "{shown(found)}"; this is host "{host_id}".', code="wrong_host")
    version = _required(manifest, "version", str, "a text")
    if not re.fullmatch(r"[0-9]{1,18}\.[0-9]{1,18}", version, flags=re.ASCII):
        raise BundleError(f'The manifest has the version "{shown(version)}", not G.H.', code="manifest_invalid")
    limits_version = manifest.get("limits_version")
    if limits_version is not None and (type(limits_version) is not int or not 0 <= limits_version < 1 << 63):
        raise BundleError("The manifest's limits_version is not a version number.", code="manifest_invalid")
    if signed is not None:
        _check_is_signed(manifest, signed)
    _check_tree(members)
    _check_hashes(members, manifest, signed)
    schema = manifest.get("link_info_schema", 1)
    if type(schema) is not int or schema != LINK_INFO_SCHEMA:
        raise BundleError(
            f"The bundle has link_info schema {shown(str(schema))}, this agent knows {LINK_INFO_SCHEMA}; update the "
            "agent.",
            code="unknown_schema",
        )
    return Bundle(
        version=version,
        limits_version=limits_version,
        host_id=found,
        links=_links(members),
        members=dict(members),
        signed=signed,
        total_kbit=signed.total_kbit if signed is not None else None,
        is_observe_only=signed is not None and signed.is_observe_only,
        host_secret=manifest["host_secret"] if signed is not None else None,
    )


def _check_is_signed(manifest: Mapping[str, Any], signed: Signed) -> None:
    """Values beside the signed text are for the stock client; those that we read must match it."""
    secret = _required(manifest, "host_secret", str, "a text")
    try:
        check_secret(secret)  # it is sent in a header next; with allow_unsigned it may be anything
    except ValueError:
        raise BundleError("The manifest has no valid host_secret.", code="manifest_invalid") from None
    secret_hash = hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
    said = {
        "host_id": (manifest["host_id"], signed.host_id),
        "version": (manifest["version"], signed.version.configuration),
        "limits_version": (manifest.get("limits_version"), signed.version.limits_version),
        "link_info_schema": (manifest.get("link_info_schema"), signed.link_info_schema),
        "sha256": (manifest.get("sha256"), signed.sha256),
        "host_secret": (secret_hash, signed.host_secret_sha256),
    }
    for key, (outside, inside) in said.items():
        if outside != inside:
            raise BundleError(f"The manifest's {key} differs from what is signed.", code="manifest_invalid")


def _links(members: Mapping[str, bytes]) -> dict[int, LinkInfo]:
    if LINK_INFO_PATH not in members:
        raise BundleError(
            f"The bundle has no {LINK_INFO_PATH}: this host is not an attachment point in the service.",
            code="no_link_info",
        )
    try:
        return parse_link_info(members[LINK_INFO_PATH])
    except LinkInfoError as exc:
        raise BundleError(exc.message, code="link_info_invalid") from exc


def _manifest(data: bytes) -> dict[str, Any]:
    try:
        return parse_object(data, allows_fractions=True)  # other keys may have them
    except ValueError as exc:
        raise BundleError(f"{MANIFEST} cannot be read: {exc}.", code="manifest_invalid") from exc


def _required(manifest: Mapping[str, Any], key: str, kind: type, wanted: str) -> Any:
    if not isinstance(manifest.get(key), kind):
        raise BundleError(f'The manifest\'s "{key}" is missing or not {wanted}.', code="manifest_invalid")
    return manifest[key]


def _check_tree(members: Mapping[str, bytes]) -> None:
    """A file name cannot also be a folder: `etc/scion/a` beside `etc/scion/a/b`."""
    for name in members:
        parts = name.split("/")
        for length in range(1, len(parts)):
            if "/".join(parts[:length]) in members:
                raise BundleError(f'"{name}" is below a file.', code="member_name")


def _check_hashes(members: Mapping[str, bytes], manifest: Mapping[str, Any], signed: Signed | None) -> None:
    listed = _required(manifest, "files", dict, "an object")
    present = set(members) - {MANIFEST}
    for name in sorted(present - set(listed)):
        raise BundleError(f'"{name}" is in the bundle, but not in its manifest.', code="unlisted_member")
    for name in sorted(set(listed) - present):
        raise BundleError(f'"{shown(name)}" is in the manifest, but not in the bundle.', code="missing_member")
    _compare(members, listed, "SHA-1", lambda data: hashlib.sha1(data, usedforsecurity=False))
    if signed is not None or "sha256" in manifest:
        stronger = signed.sha256 if signed is not None else _required(manifest, "sha256", dict, "an object")
        if set(stronger) != present:
            raise BundleError("The manifest's sha256 does not name the same files as files.", code="manifest_invalid")
        _compare(members, stronger, "SHA-256", hashlib.sha256)


def _compare(
    members: Mapping[str, bytes], wanted: Mapping[str, Any], algorithm: str, new: Callable[[bytes], Any]
) -> None:
    for name in sorted(wanted):
        if not isinstance(wanted[name], str) or wanted[name].lower() != new(members[name]).hexdigest():
            raise BundleError(f'"{name}" does not match its {algorithm} in the manifest.', code="wrong_hash")
