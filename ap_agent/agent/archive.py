"""Unpacks a tarball in memory, or raises a `BundleError` that names the limit or rule.

Nothing is allocated on the sender's word: unpacked size, number and size of members and length of names are checked
first. The tar reader only knows regular files of the ustar format: links, devices, sparse files and extension headers,
which configurations do not need, are ways to write elsewhere or to exhaust memory or stack.
"""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass

from ap_agent.common.errors import BundleError
from ap_agent.common.text import shown

MANIFEST = "scionlab-config.json"
ALLOWED_FOLDERS = ("etc/scion/", "etc/openvpn/")
_BLOCK_BYTES = 512
_MIB = 1024 * 1024


@dataclass(frozen=True)
class Limits:
    """Limits of a bundle. The defaults leave ample room for 4094 links."""

    compressed_bytes: int = 8 * _MIB
    unpacked_bytes: int = 32 * _MIB  # unpacking briefly needs twice as much (zlib's buffers, and the bytes)
    members: int = 1000
    member_bytes: int = 16 * _MIB
    name_chars: int = 200
    # deflate reaches 1032:1 on zeros; link_info.json with 4094 links stays below 30:1 (tests/agent)
    ratio: int = 200
    ratio_applies_above_bytes: int = _MIB  # a small tarball is mostly padding


DEFAULT_LIMITS = Limits()


def unpack(data: bytes, limits: Limits = DEFAULT_LIMITS) -> dict[str, bytes]:
    """Return name -> content. Raises `BundleError` only."""
    if len(data) > limits.compressed_bytes:
        text = f"The bundle has {len(data)} bytes, more than {limits.compressed_bytes}."
        raise BundleError(text, code="bundle_too_large")
    return _members(_unzip(data, limits), limits)


def check_name(name: str, limits: Limits = DEFAULT_LIMITS) -> None:
    """Allow only the manifest and plain files below etc/scion/ or etc/openvpn/. Raises `BundleError`."""
    what = shown(name)
    if len(name) > limits.name_chars:
        raise BundleError(f'The name "{what}" is longer than {limits.name_chars} characters.', code="member_name")
    if not name or not name.isprintable() or "\\" in name:
        raise BundleError(f'The name "{what}" contains characters that are not allowed.', code="member_name")
    if name.startswith("/") or any(part in {"", ".", ".."} for part in name.split("/")):
        raise BundleError(f'The name "{what}" points outside of its folder.', code="member_name")
    if name != MANIFEST and not name.startswith(ALLOWED_FOLDERS):
        raise BundleError(
            f'"{what}" lies outside of {" and ".join(ALLOWED_FOLDERS)}; it cannot be installed on an AP.',
            code="member_name",
        )


def _unzip(data: bytes, limits: Limits) -> bytes:
    stream = zlib.decompressobj(wbits=31)  # 16 + 15: gzip framing, its checksum is verified
    fair_bytes = max(limits.ratio_applies_above_bytes, limits.ratio * len(data))
    allowed_bytes = min(limits.unpacked_bytes, fair_bytes)
    try:
        unpacked = stream.decompress(data, allowed_bytes + 1)  # stop a small bomb before it grows
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
    **dict.fromkeys((b"x", b"g", b"L", b"K"), "an extension header"),
    b"S": "a sparse file",
}


def _header(block: bytes, limits: Limits) -> tuple[str, int]:
    """Parse a ustar header (POSIX.1-1988) of a regular file; return name and size."""
    if block[257:262] != b"ustar":
        raise BundleError("The bundle does not contain a ustar archive.", code="not_tar")
    checksum = sum(block[:148]) + sum(block[156:]) + 8 * ord(" ")  # the checksum field itself counts as spaces
    if _octal(block[148:156]) != checksum:
        raise BundleError("A header of the archive has a wrong checksum.", code="not_tar")
    name = _name(block)
    kind = block[156:157]
    if kind not in {b"0", b"\0"}:
        what = _KINDS.get(kind, "of an unknown type")
        raise BundleError(f'"{shown(name)}" is {what}; only plain files are allowed.', code="member_kind")
    check_name(name, limits)
    size = _octal(block[124:136])
    if size is None or size > limits.member_bytes:
        raise BundleError(f'"{name}" is larger than {limits.member_bytes} bytes.', code="member_too_large")
    return name, size


def _name(block: bytes) -> str:
    name, prefix = block[0:100].split(b"\0")[0], block[345:500].split(b"\0")[0]
    if block[257:265] != b"ustar\x0000":  # GNU's format has other fields in place of the prefix
        prefix = b""
    try:
        return (prefix + b"/" + name if prefix else name).decode("utf-8")
    except UnicodeDecodeError as exc:
        raise BundleError("A name in the archive is not UTF-8.", code="member_name") from exc


def _octal(digits: bytes) -> int | None:
    text = digits.rstrip(b"\0 ").lstrip(b" ")
    return int(text, 8) if re.fullmatch(rb"[0-7]{1,12}", text) else None
