"""Host -> configuration tarball: the files a host pulls, with a manifest, as deterministic bytes (DOMAIN section 4).

The same configuration gives the same bytes, so that a hash identifies it: names and JSON keys are sorted, times, owners
and modes fixed. Reads plain attributes of hosts; no Django, no I/O.

    scionlab-config.json        manifest: credentials, version G.H, L, hashes of every file, signatures, systemd units
    etc/scion/topology.json     the AS in SCION's own format
    etc/scion/*.toml            settings of the SCION programs that run on the host (`scion_files`)
    etc/scion/staticInfoConfig.json    path metadata, for the control service of an attachment point
    etc/scion/certs, crypto, keys, etc/openvpn    made elsewhere and passed in
    etc/scion/link_info.json    for the host of an attachment point: the limits (DOMAIN section 3)

A host with "limits only" has the manifest and link_info.json, and no units.

An agent trusts one text in the manifest, by signatures over exactly its bytes (docs/adr/0010), which needs no canonical
JSON. Ed25519 is deterministic.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from bandwidth_config import LINK_INFO_PATH, LINK_INFO_SCHEMA, RuleError, generate_link_info, time_text
from contract import scion_files
from contract.scion_files import HostSnapshot

MANIFEST_NAME = "scionlab-config.json"

SIGNED_TYPE = "scionlab-bandwidth-config"
SIGNED_SCHEMA = 1
CONTEXT = b"scionlab-bandwidth-config/1\n"  # domain separation: a signature made for something else never matches

_NO_FILES: Mapping[str, bytes] = {}
_CA_FOLDER = "etc/scion/crypto/ca/"

SUFFIX = ".tar.gz"
_MTIME = 946_684_800  # 2000-01-01: GNU tar warns of files from 1970
_MODE = 0o644
_SECRET_MODE = 0o600  # files with the host's secret or a private key


class ConfigHost(Protocol):
    """A host of an AS. With an `attachment_point` it gets link_info.json, limited by its `total_kbit` (None: no total)
    and `observe_only`; `publishes_limits` and `metadata_entries` are for SCION's path metadata. With `limits_only` it
    gets nothing else: another service manages its SCION files. `scion_packages` is one of `scion_files.PACKAGES`."""

    @property
    def uid(self) -> str: ...
    @property
    def secret(self) -> str: ...
    @property
    def config_version(self) -> int: ...
    @property
    def limits_version(self) -> int: ...
    @property
    def internal_ip(self) -> str: ...
    @property
    def scion_packages(self) -> str: ...
    @property
    def AS(self) -> scion_files.ConfigAS | None: ...  # noqa: N802  the model's name; Django forbids `as_`
    @property
    def link_ends(self) -> Iterable[scion_files.ConfigLinkEnd]: ...


def snapshot(host: ConfigHost) -> HostSnapshot:
    """Raises `RuleError` (`host_without_as`)."""
    if host.AS is None:
        raise RuleError("host_without_as", f"Host {host.uid} belongs to no AS, so there is no configuration for it.")
    ap = getattr(host, "attachment_point", None)
    return HostSnapshot(
        uid=host.uid,
        secret=host.secret,
        config_version=host.config_version,
        limits_version=host.limits_version,
        internal_ip=host.internal_ip,
        scion_packages=host.scion_packages,
        AS=host.AS,
        link_ends=tuple(sorted(host.link_ends, key=lambda end: end.interface_id)),
        is_attachment_point=ap is not None,
        total_kbit=getattr(ap, "total_kbit", None),
        observe_only=getattr(ap, "observe_only", False),
        publishes_limits=getattr(ap, "publishes_limits", False),
        metadata_entries=getattr(ap, "metadata_entries", {}),
        limits_only=getattr(host, "limits_only", False),
    )


# --- the keys that vouch for it -------------------------------------------------------------------------------


def key_id_of(public_key: bytes) -> str:
    """The first 32 hexadecimal digits of SHA-256 of the 32 raw bytes."""
    return hashlib.sha256(public_key).hexdigest()[:32]


@dataclass(frozen=True)
class Signer:
    """A signing key. `public_key` is 32 raw bytes, `not_after` is aware; `sign` returns 64 bytes."""

    public_key: bytes
    not_after: datetime
    sign: Callable[[bytes], bytes] = field(repr=False, compare=False)

    @property
    def key_id(self) -> str:
        return key_id_of(self.public_key)

    @property
    def entry(self) -> dict[str, str]:
        """The key as announced to agents, in signed texts and at enrolment."""
        return {
            "key_id": self.key_id,
            "public_key": base64.b64encode(self.public_key).decode("ascii"),
            "not_after": time_text(self.not_after),
        }


@dataclass(frozen=True)
class KeyRing:
    """The valid signing keys of the service, all of which sign, and the ids of revoked ones. Sorted, whatever the order
    of the arguments. Raises `ValueError` without a key: nothing is delivered unsigned."""

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
        """Changes whenever a signed text or its signatures would change because of the keys."""
        return hashlib.sha256(_compact({"keys": self.entries, "revoked": self.revoked}).encode()).hexdigest()


# --- the files ----------------------------------------------------------------------------------------------


def format_version(generation: int, config_version: int) -> str:
    """`G.H`, as in the manifest and in the query of a poll."""
    return f"{generation}.{config_version}"


def host_tar_name(host: ConfigHost) -> str:
    """`scionlab_17-ffaa_0_1107_v18.tar.gz`, with H."""
    return download_name(host).removesuffix(SUFFIX) + f"_v{host.config_version}{SUFFIX}"


def download_name(host: ConfigHost) -> str:
    """`scionlab_17-ffaa_1_b6.tar.gz`; with the host's id if it has no AS."""
    name = host.uid if host.AS is None else host.AS.isd_as.replace(":", "_")
    return f"scionlab_{name}{SUFFIX}"


def host_members(
    host: ConfigHost,
    *,
    generation: int,
    site_url: str,
    keys: KeyRing,
    as_hosts: Iterable[ConfigHost] | None = None,
    added_files: Mapping[str, bytes] = _NO_FILES,
) -> dict[str, bytes]:
    """Return name -> content of the host's files, signed by all `keys`. `as_hosts` are all hosts of its AS, the one
    with the control service first; None: only this one. `added_files` (keys, certificates, TRCs, OpenVPN's) are those
    of this host, by path. Raises `RuleError` (`host_without_as`, `border_router_twice`)."""
    own = snapshot(host)
    # The host itself replaces its row in `as_hosts`, so that all files have one version.
    hosts = [own if one.uid == own.uid else snapshot(one) for one in as_hosts] if as_hosts is not None else [own]
    runs_control_service = hosts[0].uid == own.uid
    files: dict[str, bytes] = {}
    units: list[str] = []
    if not own.limits_only:
        mtu_bytes = scion_files.as_mtu_bytes(hosts)
        files[scion_files.TOPOLOGY_PATH] = to_json(scion_files.build_topology(own.AS, hosts, mtu_bytes=mtu_bytes))
        is_ca = any(path.startswith(_CA_FOLDER) for path in added_files)
        texts = scion_files.settings_files(own, runs_control_service=runs_control_service, is_ca=is_ca)
        files |= {path: text.encode("ascii") for path, text in texts.items()}
        files |= added_files
        if runs_control_service and (metadata := _path_metadata(hosts)) is not None:
            files[scion_files.PATH_METADATA_PATH] = to_json(metadata)
        units = scion_files.systemd_units(own, runs_control_service=runs_control_service)
    if own.is_attachment_point:
        files[LINK_INFO_PATH] = to_json(generate_link_info(own))
    manifest = _manifest(own, files, units=units, generation=generation, site_url=site_url, keys=keys)
    return {MANIFEST_NAME: manifest, **files}


def _path_metadata(hosts: Iterable[HostSnapshot]) -> dict[str, Any] | None:
    """Path metadata of these hosts' AS; None if it is not an attachment point, or has none."""
    ap = next((one for one in hosts if one.is_attachment_point), None)
    if ap is None or not (ap.publishes_limits or ap.metadata_entries):
        return None
    ends = [end for host in hosts for end in host.link_ends]
    limits = scion_files.published_limits(ends, observe_only=ap.observe_only) if ap.publishes_limits else {}
    return scion_files.build_path_metadata(ap.metadata_entries, limits)


def full_paths(host: HostSnapshot, *, runs_control_service: bool, further: Iterable[str] = ()) -> set[str]:
    """Paths that the host would have without "limits only", except the manifest. `further` are the paths of its
    `added_files` and path metadata."""
    paths = {scion_files.TOPOLOGY_PATH, *scion_files.settings_files(host, runs_control_service=runs_control_service)}
    paths |= set(further)
    return paths | {LINK_INFO_PATH} if host.is_attachment_point else paths


def _manifest(
    host: HostSnapshot,
    files: Mapping[str, bytes],
    *,
    units: list[str],
    generation: int,
    site_url: str,
    keys: KeyRing,
) -> bytes:
    """scionlab-config.json. The stock client reads sha1; our agent uses what `_signed_part` adds."""
    schema = {"link_info_schema": LINK_INFO_SCHEMA} if LINK_INFO_PATH in files else {}
    return to_json(
        {
            "host_id": host.uid,
            "host_secret": host.secret,
            "url": site_url,
            "version": format_version(generation, host.config_version),
            "limits_version": host.limits_version,
            "files": {path: hashlib.sha1(text, usedforsecurity=False).hexdigest() for path, text in files.items()},
            "systemd_units": units,
            **schema,
            **_signed_part(host, files, schema=schema, generation=generation, keys=keys),
        }
    )


def _signed_part(
    host: HostSnapshot, files: Mapping[str, bytes], *, schema: Mapping[str, int], generation: int, keys: KeyRing
) -> dict[str, Any]:
    """The manifest's `sha256`, `signed` and `signatures`. The text has only a hash of the secret, so that it does not
    reveal the host's credentials."""
    hashes = {path: hashlib.sha256(content).hexdigest() for path, content in files.items()}
    statement: dict[str, Any] = {
        "type": SIGNED_TYPE,
        "schema": SIGNED_SCHEMA,
        "host_id": host.uid,
        "generation": generation,
        "config_version": host.config_version,
        "limits_version": host.limits_version,
        "sha256": hashes,
        "host_secret_sha256": hashlib.sha256(host.secret.encode()).hexdigest(),
        "keys": keys.entries,
        "revoked": list(keys.revoked),
        **schema,
    }
    if host.total_kbit is not None:
        statement["total_kbit"] = host.total_kbit
    if host.observe_only:
        statement["observe_only"] = True
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


# --- bytes --------------------------------------------------------------------------------------------------


def to_json(document: Mapping[str, Any]) -> bytes:
    """Canonical JSON: sorted keys, ASCII, a final newline."""
    return (json.dumps(document, indent=2, sort_keys=True) + "\n").encode("ascii")


def pack(members: Mapping[str, bytes]) -> bytes:
    """Return a deterministic tar.gz of plain files, sorted by name, without directory entries."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name in sorted(members):
            member = tarfile.TarInfo(name)
            member.size = len(members[name])
            member.mtime = _MTIME
            member.mode = _SECRET_MODE if _is_secret(name) else _MODE
            tar.addfile(member, io.BytesIO(members[name]))
    # Level 9 takes six times as long for the 4000 links of a large attachment point, and saves 4 % (bench service).
    return gzip.compress(raw.getvalue(), compresslevel=6, mtime=0)


def _is_secret(name: str) -> bool:
    """True for files with the host's secret or a private key. The stock client gives every file to SCION's user;
    OpenVPN reads its settings as root, and the folder ccd as nobody."""
    return name.endswith((MANIFEST_NAME, "README.md", "Vagrantfile", ".key")) or (
        "etc/openvpn/" in name and name.endswith(".conf")
    )
