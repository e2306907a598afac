"""Configuration tarballs for the agent's tests: good ones, and bad ones that no producer would make.

The archive is written here header by header, because most of the bad ones cannot be made with a tar library.
"""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

from ap_agent.bundle import MANIFEST
from bandwidth_config import LINK_INFO_PATH

HOST_ID = "4f1c0d2e"
SECRET = "s3cret-of-the-host"


def entry(kbit: int, ip: str = "192.0.2.11", port: int | None = 50000, *, is_user_as: bool = True) -> dict[str, Any]:
    """One value of link_info.json."""
    document: dict[str, Any] = {
        "AS_ID": 182,
        "IsUserAS": is_user_as,
        "Bandwidth": kbit,
        "IP-Address": ip,
        "ISD-AS": "17-ffaa:1:b6",
        "VPN": False,
    }
    return document if port is None else {**document, "Port": port}


def files_of(links: Mapping[str, Any] | None) -> dict[str, bytes]:
    """The files of an AP's host; without link_info.json for None."""
    files = {"etc/scion/topology.json": b'{"isd_as": "17-ffaa:0:1107"}\n'}
    if links is not None:
        files[LINK_INFO_PATH] = json.dumps(links).encode()
    return files


def manifest_of(files: Mapping[str, bytes], /, **changes: Any) -> dict[str, Any]:
    """A manifest that fits. A change to None takes the key out."""
    manifest: dict[str, Any] = {
        "host_id": HOST_ID,
        "host_secret": SECRET,
        "url": "https://service.example",
        "version": "1.18",
        "limits_version": 7,
        "files": {name: hashlib.sha1(data).hexdigest() for name, data in files.items()},  # noqa: S324  # the field's
        "systemd_units": [],
        **changes,
    }
    return {key: value for key, value in manifest.items() if value is not None}


def bundle_bytes(links: Mapping[str, Any] | None = None, **changes: Any) -> bytes:
    """A good tarball with these links (by default one at 500 kbit/s), its manifest with `changes`."""
    files = files_of({"1": entry(500)} if links is None else links)
    return packed([(MANIFEST, json.dumps(manifest_of(files, **changes)).encode()), *files.items()])


def packed(members: Iterable[tuple[str, bytes]]) -> bytes:
    """Plain files in this order, whatever they are called, as .tar.gz."""
    return zipped(b"".join(member(name, data) for name, data in members) + bytes(1024))


def zipped(archive: bytes) -> bytes:
    return gzip.compress(archive, mtime=0)


def member(
    name: str | bytes,
    data: bytes = b"",
    *,
    kind: bytes = b"0",
    target: bytes = b"",
    size: int | None = None,
    magic: bytes = b"ustar\x0000",
    prefix: bytes = b"",
    checksum_off_by: int = 0,
) -> bytes:
    """One ustar header with its data and padding (POSIX.1-1988)."""
    raw = name if isinstance(name, bytes) else name.encode()
    header = bytearray(512)
    header[0:100] = raw[:100].ljust(100, b"\0")
    header[100:124] = b"0000644\0" + b"0000000\0" + b"0000000\0"
    header[124:136] = f"{len(data) if size is None else size:011o}\0".encode()
    header[136:148] = b"00000000000\0"
    header[148:156] = b" " * 8
    header[156:157] = kind
    header[157:257] = target.ljust(100, b"\0")
    header[257:265] = magic
    header[345:500] = prefix.ljust(155, b"\0")
    header[148:156] = f"{sum(header) + checksum_off_by:06o}\0 ".encode()
    return bytes(header) + data + bytes(-len(data) % 512)
