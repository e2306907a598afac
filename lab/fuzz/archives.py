"""A configuration tarball in parts that can be bent one by one, and put together with as much of it repaired as wanted.

Unlike the agent's reader this one takes apart whatever it can, and what it writes may be wrong in every way.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from ap_agent.agent.archive import MANIFEST
from ap_agent.common.keys import TrustedKey
from ap_agent.document.signatures import Keyring
from ap_agent.document.signed_text import SIGNED_PREFIX
from bandwidth_config import LINK_INFO_PATH

HOST_ID = "4f1c0d2e"
SECRET = "fuzz-secret"  # noqa: S105  # of nobody
_BLOCK = 512
_FAR = datetime(2099, 1, 1, tzinfo=UTC)
_PRIVATE = Ed25519PrivateKey.from_private_bytes(b"\x07" * 32)
_PUBLIC = TrustedKey(_PRIVATE.public_key().public_bytes_raw(), _FAR)
KEYRING = Keyring.of([_PUBLIC])


@dataclass
class Member:
    """`header` is 512 bytes with name, kind and size in their places (POSIX.1-1988)."""

    header: bytearray
    data: bytes

    @classmethod
    def of(cls, name: bytes, data: bytes) -> Member:
        header = bytearray(_BLOCK)
        header[100:124] = b"0000600\0" + b"0000000\0" + b"0000000\0"
        header[136:148] = b"00000000000\0"
        header[156:157] = b"0"
        header[257:265] = b"ustar\x0000"
        made = cls(header, data)
        made.rename(name)
        made.resize()
        return made

    @property
    def name(self) -> str:
        return bytes(self.header[:100]).split(b"\0")[0].decode("utf-8", "replace")

    def rename(self, name: bytes) -> None:
        self.header[0:100] = name[:100].ljust(100, b"\0")

    def resize(self, size: bytes | None = None) -> None:
        self.header[124:136] = (size or f"{len(self.data):011o}\0".encode())[:12].ljust(12, b"\0")

    def packed(self, *, is_sound: bool) -> bytes:
        """With the right checksum if it shall be sound."""
        if is_sound:
            self.header[148:156] = b" " * 8
            self.header[148:156] = f"{sum(self.header):06o}\0 ".encode()
        return bytes(self.header) + self.data + bytes(-len(self.data) % _BLOCK)


@dataclass
class Archive:
    """Members in order, and what follows them."""

    members: list[Member]
    tail: bytes = field(default=bytes(2 * _BLOCK))

    def find(self, name: str) -> Member | None:
        return next((one for one in self.members if one.name == name), None)

    def files(self) -> dict[str, bytes]:
        return {one.name: one.data for one in self.members if one.name != MANIFEST}

    def packed(self, *, is_sound: bool = True, level: int = 1) -> bytes:
        plain = b"".join(one.packed(is_sound=is_sound) for one in self.members) + self.tail
        return gzip.compress(plain, level, mtime=0)


def take_apart(data: bytes, max_bytes: int = 4 << 20) -> Archive | None:
    """None for what is no archive at all."""
    try:
        plain = zlib.decompressobj(wbits=31).decompress(data, max_bytes)
    except zlib.error:
        return None
    members, at = [], 0
    while len(header := plain[at : at + _BLOCK]) == _BLOCK and any(header):
        digits = header[124:136].split(b"\0")[0].strip()
        size = int(digits, 8) if digits.isdigit() and not set(digits) & set(b"89") else 0
        at += _BLOCK
        members.append(Member(bytearray(header), plain[at : at + size]))
        at += -(-size // _BLOCK) * _BLOCK
    return Archive(members, plain[at:]) if members else None


# --- manifest and signature -------------------------------------------------------------------------------------------


def manifest_of(files: Mapping[str, bytes]) -> dict[str, Any]:
    """As a good service writes it, signed by the key of `KEYRING`."""
    text = {
        "type": "scionlab-bandwidth-config",
        "schema": 1,
        "host_id": HOST_ID,
        "generation": 1,
        "config_version": 18,
        "limits_version": 7,
        "link_info_schema": 1,
        "host_secret_sha256": hashlib.sha256(SECRET.encode()).hexdigest(),
        "keys": [_PUBLIC.to_json()],
        "revoked": [],
    }
    manifest = {
        "host_id": HOST_ID,
        "host_secret": SECRET,
        "url": "https://service.example",
        "version": "1.18",
        "limits_version": 7,
        "link_info_schema": 1,
        "systemd_units": [],
        "signed": json.dumps(text),
    }
    repair(manifest, files)
    return manifest


def repair(manifest: dict[str, Any], files: Mapping[str, bytes]) -> None:
    """Right hashes in the manifest and its signed text, and a right signature over the text, whatever else it says."""
    hashes = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    manifest["files"] = {name: hashlib.sha1(data, usedforsecurity=False).hexdigest() for name, data in files.items()}
    manifest["sha256"] = hashes
    text = manifest.get("signed")
    try:
        document = json.loads(text) if isinstance(text, str) else None
        if isinstance(document, dict):
            document["sha256"] = hashes
            manifest["signed"] = json.dumps(document)
    except (ValueError, RecursionError):
        pass  # stays as it was bent
    sign(manifest)


def sign(manifest: dict[str, Any]) -> None:
    """A right signature over whatever text there is."""
    text = manifest.get("signed")
    if isinstance(text, str):
        signature = _PRIVATE.sign(SIGNED_PREFIX + text.encode("utf-8", "surrogatepass"))
        entry = {"key_id": _PUBLIC.key_id, "signature": base64.b64encode(signature).decode("ascii")}
        manifest["signatures"] = [entry]


def archive_of(files: Mapping[str, bytes]) -> Archive:
    manifest = json.dumps(manifest_of(files)).encode()
    return Archive([Member.of(name.encode(), data) for name, data in {MANIFEST: manifest, **files}.items()])


def link_info_of(kbits: Mapping[int, int]) -> bytes:
    """Every key that a link can have, over both families."""
    return json.dumps(
        {
            str(number): {
                "AS_ID": 182,
                "IsUserAS": number != 9,
                "Bandwidth": kbit,
                "IP-Address": f"192.0.2.{number}" if number % 2 else f"2001:db8::{number:x}",
                "ISD-AS": "17-ffaa:1:b6",
                "Port": 50_000 + number,
                "Local-IP": "192.0.2.1" if number % 2 else "2001:db8::1",
                "Local-Port": 50_000,
                "VPN": number == 3,
                **_limits_of(number, kbit),
            }
            for number, kbit in kbits.items()
        }
    ).encode()


def _limits_of(number: int, kbit: int) -> dict[str, object]:
    """Of every third link one for each direction, and two for a time."""
    if number % 3:
        return {}
    wave = [[0, kbit, 0], [60, 0, kbit], [61, kbit, kbit]]
    return {
        "Bandwidth-To-User": kbit,
        "Bandwidth-From-User": kbit + 1,
        "Timed": [
            {"From": "2026-11-21T23:00:00Z", "Until": "2026-11-21T23:02:00Z", "Steps": wave},
            {"From": "2026-11-21T23:02:00Z", "Until": "2026-12-21T23:02:00Z", "Steps": [[0, 0, 0]]},
        ],
    }


def seeds() -> list[bytes]:
    """Good bundles: the smallest one, one with everything, one with more files."""
    topology = b'{"isd_as": "17-ffaa:0:1107"}\n'
    four_keys = b'{"1": {"AS_ID": 1, "IsUserAS": true, "Bandwidth": 0, "IP-Address": "192.0.2.7"}}'
    every_key = link_info_of({1: 500, 2: 0, 3: 1000, 9: 10})
    more = {f"etc/scion/keys/master{number}.key": bytes([number]) * 32 for number in range(3)}
    trees = [
        {LINK_INFO_PATH: four_keys},
        {LINK_INFO_PATH: every_key, "etc/scion/topology.json": topology},
        {
            LINK_INFO_PATH: link_info_of(dict.fromkeys(range(1, 9), 800)),
            "etc/openvpn/client.conf": b"remote 192.0.2.1\n",
            **more,
        },
    ]
    return [archive_of(files).packed() for files in trees]
