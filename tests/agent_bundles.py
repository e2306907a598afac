"""Configuration tarballs for the agent's tests: good ones, and bad ones that no producer would make.

The archive is written here header by header, because most of the bad ones cannot be made with a tar library.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from ap_agent.agent.archive import MANIFEST
from ap_agent.common.keys import TrustedKey
from ap_agent.document.signatures import Keyring
from ap_agent.document.signed_text import SIGNED_PREFIX
from bandwidth_config import LINK_INFO_PATH

HOST_ID = "4f1c0d2e"
SECRET = "s3cret-of-the-host"
FAR = datetime(2099, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class SigningKey:
    """A key of the service that every run of the tests has alike."""

    seed: int
    not_after: datetime = FAR

    @property
    def private(self) -> Ed25519PrivateKey:
        return Ed25519PrivateKey.from_private_bytes(bytes([self.seed]) * 32)

    @property
    def public(self) -> TrustedKey:
        return TrustedKey(self.private.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw), self.not_after)

    @property
    def key_id(self) -> str:
        return self.public.key_id

    @property
    def by_hand(self) -> str:
        """As an operator writes it into agent.toml."""
        entry = self.public.to_json()
        return f"{entry['public_key']} {entry['not_after']}"

    def sign(self, text: str) -> str:
        return base64.b64encode(self.private.sign(SIGNED_PREFIX + text.encode())).decode()


KEY = SigningKey(1)  # signs wherever a test says nothing else
OTHER_KEY = SigningKey(2)
KEYRING = Keyring.of([KEY.public])
SERVICE_KEYS = (KEY.public,)  # for `Settings`: the host is enrolled
PINNED = f'service_keys = ["{KEY.by_hand}"]\n'  # the same as a line of agent.toml


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


def sha256_of(files: Mapping[str, bytes]) -> dict[str, str]:
    return {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}


def signed_text_of(
    manifest: Mapping[str, Any],
    files: Mapping[str, bytes],
    *,
    keys: Sequence[SigningKey] = (KEY,),
    revoked: Iterable[str] = (),
    **changes: Any,
) -> dict[str, Any]:
    """What a good service says of a manifest and its files. A change to None takes the key out."""
    generation, config_version = map(int, manifest["version"].split("."))
    document = {
        "type": "scionlab-bandwidth-config",
        "schema": 1,
        "host_id": manifest["host_id"],
        "generation": generation,
        "config_version": config_version,
        "limits_version": manifest["limits_version"],
        "link_info_schema": manifest.get("link_info_schema"),
        "sha256": sha256_of(files),
        "host_secret_sha256": hashlib.sha256(manifest["host_secret"].encode()).hexdigest(),
        "keys": [one.public.to_json() for one in keys],
        "revoked": sorted(revoked),
        **changes,
    }
    return {key: value for key, value in document.items() if value is not None}


def signed_manifest(
    files: Mapping[str, bytes],
    /,
    *,
    signers: Sequence[SigningKey] = (KEY,),
    keys: Sequence[SigningKey] | None = None,
    revoked: Iterable[str] = (),
    text: Mapping[str, Any] | None = None,
    **changes: Any,
) -> dict[str, Any]:
    """A manifest with its signed text. `keys` are those that it names for the future (by default the signers);
    `text` changes the text and nothing beside it."""
    manifest = manifest_of(files, **{"sha256": sha256_of(files), **changes})
    document = signed_text_of(manifest, files, keys=signers if keys is None else keys, revoked=revoked, **(text or {}))
    return with_signatures(manifest, json.dumps(document, sort_keys=True), signers)


def with_signatures(manifest: Mapping[str, Any], text: str, signers: Iterable[SigningKey] = (KEY,)) -> dict[str, Any]:
    """The manifest with this text, whatever it says, and right signatures over it."""
    signatures = [{"key_id": one.key_id, "signature": one.sign(text)} for one in signers]
    return {**manifest, "signed": text, "signatures": sorted(signatures, key=lambda one: one["key_id"])}


def bundle_bytes(links: Mapping[str, Any] | None = None, *, is_signed: bool = True, **changes: Any) -> bytes:
    """A good tarball with these links (by default one at 500 kbit/s), its manifest with `changes`.

    Signed as by the service, unless a change leaves nothing that could be signed. `changes` also holds what
    `signed_manifest` takes.
    """
    files = files_of({"1": entry(500)} if links is None else links)
    manifest = signed_manifest(files, **changes) if is_signed else manifest_of(files, **changes)
    return with_manifest(manifest, files)


def with_manifest(manifest: Mapping[str, Any], files: Mapping[str, bytes]) -> bytes:
    """A tarball of these files under this manifest."""
    return packed([(MANIFEST, json.dumps(manifest).encode()), *files.items()])


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
