"""A configuration tarball: bytes -> a `Bundle` that may be enforced, or a `BundleError` that names the rule broken.

Everything happens in memory, and nothing is allocated on the word of the sender: the unpacked size, the number and
size of members and the length of names have limits that are checked before the bytes are taken. The tar reader is our
own and knows regular files of the ustar format only. A general one also knows links, devices, sparse files and
chained extension headers, each a way to write elsewhere, to fill memory or to exhaust the stack; no configuration
needs them.

The rules are those of DOMAIN section 4. Who signed it is asked through `verify`, before anything but the manifest is
looked at.
"""

from __future__ import annotations

import hashlib
import re
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from typing import Any

from ap_agent.common.credentials import check_secret
from ap_agent.common.errors import BundleError
from ap_agent.common.files import parse_json
from ap_agent.common.settings import Settings
from ap_agent.document.signatures import read_signed
from ap_agent.document.signed_text import Signed, Version
from ap_agent.document.trust import Acceptance, Trust, refuse_older, verifier
from bandwidth_config import LINK_INFO_PATH, LINK_INFO_SCHEMA
from link_info import LinkInfo, LinkInfoError, parse_link_info

MANIFEST = "scionlab-config.json"
UNSIGNED = "-unsigned"
ALLOWED_FOLDERS = ("etc/scion/", "etc/openvpn/")
_BLOCK_BYTES = 512
_MIB = 1024 * 1024


@dataclass(frozen=True)
class Limits:
    """How much of a bundle is read at all. The defaults hold 4094 links several times over."""

    compressed_bytes: int = 8 * _MIB
    unpacked_bytes: int = 32 * _MIB  # unpacking needs twice as much for a moment (zlib's buffers, and the bytes)
    members: int = 1000
    member_bytes: int = 16 * _MIB
    name_chars: int = 200
    # deflate reaches 1032:1 on zeros; link_info.json with 4094 links stays below 30:1 (tests/unit/test_agent_bundle.py)
    ratio: int = 200
    ratio_applies_above_bytes: int = _MIB  # a small tarball is mostly padding


DEFAULT_LIMITS = Limits()
# It is read before anybody's signature is verified, and JSON grows to 25 times its size in memory (`[{},{},...]`,
# measured). A thousand files with the longest names take 0.8 MB of it.
MAX_MANIFEST_BYTES = 2 * _MIB

# Manifest -> what its signed text says, None where it has none and need not. Raises `BundleError`.
Verify = Callable[[Mapping[str, Any]], Signed | None]


@dataclass(frozen=True)
class Bundle:
    """A configuration that passed every check. `limits_version` is None where the manifest has none.

    `members` holds every file with its bytes, the manifest included (it has the host's secret: never log it). `signed`
    is None where nothing was signed.
    """

    version: str
    limits_version: int | None
    host_id: str
    links: Mapping[int, LinkInfo]
    members: Mapping[str, bytes] = field(repr=False)
    signed: Signed | None = None
    host_secret: str | None = field(default=None, repr=False)  # only where its hash is signed

    @property
    def order(self) -> Version:
        """What decides which of two bundles is older."""
        generation, config_version = self.version.split(".")
        return Version(int(generation), int(config_version), self.limits_version)

    @cached_property
    def name(self) -> str:
        """A folder name that differs whenever the content does: `1.18-7-0f3a9b2c`, marked if nobody vouched for it."""
        limits = "none" if self.limits_version is None else self.limits_version
        return f"{self.version}-{limits}-{digest(self.members)[:8]}{'' if self.signed is not None else UNSIGNED}"

    @cached_property
    def limits_digest(self) -> str:
        """SHA-256 of link_info.json, in hexadecimal: names the limits themselves, as a counter cannot."""
        return hashlib.sha256(self.members[LINK_INFO_PATH]).hexdigest()

    def evidence(self) -> dict[str, Any] | None:
        """The signed text and its signatures as they came; None where there are none."""
        manifest = _manifest(self.members[MANIFEST])
        return {key: manifest[key] for key in ("signed", "signatures")} if "signed" in manifest else None

    def unsigned(self) -> Bundle:
        """The same without what is said of keys and secret: nobody's signature over it was asked for."""
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
    """Check a tarball from end to end. `host_id` is who we are (None: whoever it is for). Raises `BundleError` only.

    `verify` decides whom to believe; without it a signed text must fit its bundle, but anybody may have signed it.
    """
    if len(data) > limits.compressed_bytes:
        raise BundleError(
            f"The bundle has {len(data)} bytes, more than {limits.compressed_bytes}.", code="bundle_too_large"
        )
    return check_members(_members(_unzip(data, limits), limits), host_id=host_id, verify=verify)


def accept_bundle(
    data: bytes, settings: Settings, trust: Trust, accepted: Callable[[], Acceptance | None], now: datetime
) -> Bundle:
    """A bundle that may be stored and handed over. Raises `BundleError`, which is a `TrustError` where the bundle is
    well made."""
    bundle = read_bundle(
        data,
        host_id=settings.host_id,
        limits=Limits(compressed_bytes=settings.max_bundle_bytes),
        verify=verifier(settings, trust, now),
    )
    if settings.allow_unsigned:  # else keys that nobody vouched for could be found in it when trust.json is lost
        bundle = bundle.unsigned()
    refuse_older(bundle.order, trust, accepted)
    return bundle


# --- gzip and tar ---------------------------------------------------------------------------------------------------


def _unzip(data: bytes, limits: Limits) -> bytes:
    stream = zlib.decompressobj(wbits=31)  # 16 + 15: gzip framing, its checksum is verified
    fair_bytes = max(limits.ratio_applies_above_bytes, limits.ratio * len(data))
    allowed_bytes = min(limits.unpacked_bytes, fair_bytes)
    try:
        unpacked = stream.decompress(data, allowed_bytes + 1)  # a small bomb is stopped before it is a large one
    except zlib.error as exc:
        if data[:2] != b"\x1f\x8b":
            raise BundleError("The bundle is not gzip.", code="not_gzip") from exc
        raise BundleError("The bundle's gzip stream is damaged.", code="damaged_gzip") from exc
    if len(unpacked) > limits.unpacked_bytes:
        raise BundleError(f"The bundle unpacks to more than {limits.unpacked_bytes} bytes.", code="unpacked_too_large")
    if len(unpacked) > fair_bytes:
        raise BundleError(f"The bundle unpacks to more than {limits.ratio} times its size.", code="ratio")
    if not stream.eof:
        raise BundleError(f"The bundle is truncated after {len(data)} bytes.", code="truncated")
    if stream.unused_data:
        raise BundleError(f"The bundle has {len(stream.unused_data)} bytes after its end.", code="trailing_garbage")
    return unpacked


def _members(archive: bytes, limits: Limits) -> dict[str, bytes]:
    members: dict[str, bytes] = {}
    at = 0
    while True:
        header = archive[at : at + _BLOCK_BYTES]
        if len(header) < _BLOCK_BYTES:
            raise BundleError("The archive is truncated in a header.", code="truncated")
        if not any(header):
            break
        name, size = _header(header, limits)
        at += _BLOCK_BYTES
        if name in members:
            raise BundleError(f'"{name}" is in the archive twice.', code="duplicate_member")
        if len(members) >= limits.members:
            raise BundleError(f"The archive has more than {limits.members} members.", code="too_many_members")
        if at + size > len(archive):
            raise BundleError(f'The archive is truncated in "{name}".', code="truncated")
        members[name] = archive[at : at + size]
        at += -(-size // _BLOCK_BYTES) * _BLOCK_BYTES
    if archive.count(0, at) != len(archive) - at:
        raise BundleError("The archive has data after its end mark.", code="trailing_garbage")
    if len(archive) - at < 2 * _BLOCK_BYTES:
        raise BundleError("The archive lacks its end mark of two empty blocks.", code="truncated")
    return members


_KINDS = {
    b"1": "a hard link",
    b"2": "a symbolic link",
    b"3": "a character device",
    b"4": "a block device",
    b"5": "a directory",
    b"6": "a named pipe",
    b"x": "an extension header",
    b"g": "an extension header",
    b"L": "an extension header",
    b"K": "an extension header",
    b"S": "a sparse file",
}


def _header(block: bytes, limits: Limits) -> tuple[str, int]:
    """A ustar header (POSIX.1-1988; offsets as in the standard) -> name and size of a regular file."""
    if block[257:262] != b"ustar":
        raise BundleError("The bundle does not hold a ustar archive.", code="not_tar")
    checksum = sum(block[:148]) + sum(block[156:]) + 8 * ord(" ")  # the checksum's own field counts as spaces
    if _octal(block[148:156]) != checksum:
        raise BundleError("A header of the archive has a wrong checksum.", code="not_tar")
    name = _name(block)
    kind = block[156:157]
    if kind not in {b"0", b"\0"}:
        what = _KINDS.get(kind, "of an unknown type")
        raise BundleError(f'"{_shown(name)}" is {what}; only plain files are allowed.', code="member_kind")
    check_name(name, limits)
    size = _octal(block[124:136])
    if size is None or size > limits.member_bytes:
        raise BundleError(f'"{name}" is larger than {limits.member_bytes} bytes.', code="member_too_large")
    return name, size


def _name(block: bytes) -> str:
    name, prefix = block[0:100].split(b"\0")[0], block[345:500].split(b"\0")[0]
    if block[257:265] != b"ustar\x0000":  # GNU's own format keeps other things where the prefix would be
        prefix = b""
    try:
        return (prefix + b"/" + name if prefix else name).decode("utf-8")
    except UnicodeDecodeError as exc:
        raise BundleError("A name in the archive is not UTF-8.", code="member_name") from exc


def _octal(digits: bytes) -> int | None:
    text = digits.rstrip(b"\0 ").lstrip(b" ")
    return int(text, 8) if re.fullmatch(rb"[0-7]{1,12}", text) else None


# --- names, manifest, hashes ----------------------------------------------------------------------------------------


def check_name(name: str, limits: Limits = DEFAULT_LIMITS) -> None:
    """A member is the manifest or a plain file below etc/scion/ or etc/openvpn/. Raises `BundleError`."""
    shown = _shown(name)
    if len(name) > limits.name_chars:
        raise BundleError(f'The name "{shown}" is longer than {limits.name_chars} characters.', code="member_name")
    if not name or not name.isprintable() or "\\" in name:
        raise BundleError(f'The name "{shown}" contains characters that are not allowed.', code="member_name")
    if name.startswith("/") or any(part in {"", ".", ".."} for part in name.split("/")):
        raise BundleError(f'The name "{shown}" points outside of its folder.', code="member_name")
    if name != MANIFEST and not name.startswith(ALLOWED_FOLDERS):
        raise BundleError(
            f'"{shown}" lies outside of {" and ".join(ALLOWED_FOLDERS)}; it cannot be installed on an AP.',
            code="member_name",
        )


def check_members(members: Mapping[str, bytes], *, host_id: str | None, verify: Verify = read_signed) -> Bundle:
    """The files of a bundle, from an archive or from disk: manifest, hashes, link_info. Raises `BundleError`."""
    if MANIFEST not in members:
        raise BundleError(f"The bundle has no {MANIFEST}.", code="manifest_missing")
    if len(members[MANIFEST]) > MAX_MANIFEST_BYTES:
        raise BundleError(f"{MANIFEST} is larger than {MAX_MANIFEST_BYTES} bytes.", code="member_too_large")
    manifest = _manifest(members[MANIFEST])
    signed = verify(manifest)
    found = _required(manifest, "host_id", str, "a text")
    if host_id is not None and found != host_id:
        raise BundleError(f'The bundle is for host "{_shown(found)}"; this is host "{host_id}".', code="wrong_host")
    version = _required(manifest, "version", str, "a text")
    if not re.fullmatch(r"[0-9]{1,18}\.[0-9]{1,18}", version, flags=re.ASCII):
        raise BundleError(f'The manifest has the version "{_shown(version)}", not G.H.', code="manifest_invalid")
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
            f"The bundle has link_info schema {_shown(str(schema))}, this agent knows {LINK_INFO_SCHEMA}; update the "
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
        host_secret=manifest["host_secret"] if signed is not None else None,
    )


def _check_is_signed(manifest: Mapping[str, Any], signed: Signed) -> None:
    """What stands beside the signed text is for the stock client; where we read it, it must say the same."""
    secret = _required(manifest, "host_secret", str, "a text")
    try:
        check_secret(secret)  # it is sent in a header next; with allow_unsigned anybody may have written it
    except ValueError:
        raise BundleError("The manifest has no valid host_secret.", code="manifest_invalid") from None
    secret_hash = hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
    generation, config_version, limits_version = signed.version
    said = {
        "host_id": (manifest["host_id"], signed.host_id),
        "version": (manifest["version"], f"{generation}.{config_version}"),
        "limits_version": (manifest.get("limits_version"), limits_version),
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
        manifest = parse_json(data, allows_fractions=True)  # other keys than ours may have them
    except ValueError as exc:
        raise BundleError(f"{MANIFEST} cannot be read: {exc}.", code="manifest_invalid") from exc
    if not isinstance(manifest, dict):
        raise BundleError(f"{MANIFEST} is not an object.", code="manifest_invalid")
    return manifest


def _required(manifest: Mapping[str, Any], key: str, kind: type, wanted: str) -> Any:
    if not isinstance(manifest.get(key), kind):
        raise BundleError(f'The manifest\'s "{key}" is missing or not {wanted}.', code="manifest_invalid")
    return manifest[key]


def _check_tree(members: Mapping[str, bytes]) -> None:
    """A name that is a file cannot be a folder too: `etc/scion/a` beside `etc/scion/a/b`."""
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
        raise BundleError(f'"{_shown(name)}" is in the manifest, but not in the bundle.', code="missing_member")
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


def _shown(text: str) -> str:
    clean = "".join(char if char.isprintable() else "?" for char in text)
    return clean if len(clean) <= 80 else clean[:77] + "..."
