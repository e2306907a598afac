"""What the agent reads from the network, each as a function of bytes with everything that must hold whatever they are.

- Only the typed error of the reader comes out.
- What is accepted was signed by the key that is trusted, every byte of it; is stored and read back equal; and can be
  carried out: the limits are in their bounds.
- Nothing outside of the state directory is touched (`fence`).
- Memory is bounded by the reader's limits, time by `SLOWEST_S`.
"""

from __future__ import annotations

import base64
import hashlib
import json
import time
import tracemalloc
import zlib
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from ap_agent.agent import bundle as reader
from ap_agent.agent.archive import MANIFEST, Limits
from ap_agent.agent.bundle import Bundle
from ap_agent.agent.store import Store
from ap_agent.common.errors import BundleError
from ap_agent.document.signatures import verify
from ap_agent.document.signed_text import SIGNED_PREFIX
from bandwidth_config import LINK_INFO_PATH, MAX_BANDWIDTH_KBIT
from contract.link_info import LinkInfo, LinkInfoError, parse_link_info
from contract.link_rules import MAX_STEPS, MAX_TIMED_PER_LINK
from lab.fuzz import archives, mutators
from lab.fuzz.archives import HOST_ID, KEYRING
from lab.fuzz.fence import Fence, picture
from lab.fuzz.mutators import BytesMutator, Mutator

# Small ones, so that inputs get to all of them; the defaults have the same code.
LIMITS = Limits(
    compressed_bytes=256 * 1024,
    unpacked_bytes=256 * 1024,
    members=30,
    member_bytes=32 * 1024,
    ratio_applies_above_bytes=16 * 1024,
)
MAX_INPUT_BYTES = 64 * 1024
SLOWEST_S = 2.0  # of processor time; some 2000 times of what an input takes
# The archive, its members cut out of it, and the objects that JSON makes of 32 kB: a list in a list, 60 bytes for 2.
MEMORY_BYTES = 3 * LIMITS.unpacked_bytes + 64 * LIMITS.member_bytes
MEASURED_IN = 256  # one of so many inputs is measured by tracemalloc, which slows everything down
_NOW = datetime(2026, 11, 21, tzinfo=UTC)
_FILES = {LINK_INFO_PATH: archives.link_info_of({1: 500, 2: 0}), "etc/scion/topology.json": b"{}"}


class BrokenPromiseError(Exception):
    """An input for which something does not hold that must."""


class Target:
    """One reader: `try_input` raises whatever must not be; `ends` counts "accepted" and the codes of errors."""

    def __init__(self, name: str, folder: Path) -> None:
        """`folder` is made and filled; it lies on a fast disk where there is one, for stored bundles are synced."""
        self.name = name
        self.ends: Counter[str] = Counter()
        self._folder = folder
        state = folder / "state"
        (folder / "etc/scion").mkdir(parents=True)
        (folder / "etc/scion/link_info.json").write_text("not ours")
        self._store = Store(state)
        self._state = state
        self._fence = Fence(state)
        self._around = picture(folder, state)
        self._end = _ENDS[name]

    def try_input(self, data: bytes) -> None:
        is_measured = zlib.crc32(data) % MEASURED_IN == 0
        if is_measured:
            tracemalloc.start()
        began = time.process_time()
        try:
            end = self._end(self, data)
        finally:
            took_s = time.process_time() - began
            if is_measured:
                peak = tracemalloc.get_traced_memory()[1]
                tracemalloc.stop()
        if is_measured and peak > MEMORY_BYTES:
            raise BrokenPromiseError(f"an input of {len(data)} bytes took {peak} bytes of memory")
        if not is_measured and took_s > SLOWEST_S:
            raise BrokenPromiseError(f"an input of {len(data)} bytes took {took_s:.1f} s")
        self.ends[end] += 1

    # --- the readers; each returns "accepted" or the code of its error ------------------------------------------------

    def link_info(self, data: bytes) -> str:
        with self._fence.closed():
            try:
                links = parse_link_info(data, max_bytes=LIMITS.member_bytes)
            except LinkInfoError as exc:
                return exc.code
        _check_links(links)
        return "accepted"

    def manifest(self, data: bytes) -> str:
        members = {MANIFEST: data, **_FILES}
        with self._fence.closed():
            try:
                bundle = reader.check_members(members, host_id=HOST_ID, verify=_verify)
            except BundleError as exc:
                return exc.code
        _check_signed(bundle)
        return "accepted"

    def bundle(self, data: bytes) -> str:
        with self._fence.closed():
            try:
                bundle = reader.read_bundle(data, host_id=HOST_ID, limits=LIMITS, verify=_verify)
            except BundleError as exc:
                return exc.code
            self._store.save(bundle)
            found = self._store.load(host_id=HOST_ID)
        if found is None or (found.version, found.links, found.members) != (
            bundle.version,
            bundle.links,
            bundle.members,
        ):
            raise BrokenPromiseError("what was stored is not what is read back")
        if picture(self._folder, self._state) != self._around:
            raise BrokenPromiseError("something outside of the state directory changed")
        _check_signed(bundle)
        _check_links(dict(bundle.links))
        return "accepted"


_verify = partial(verify, keyring=KEYRING, now=_NOW)


def _check_links(links: dict[int, LinkInfo]) -> None:
    for number, link in links.items():
        if not (1 <= number <= 4094 and number == link.interface_id and 0 <= link.bandwidth_kbit <= MAX_BANDWIDTH_KBIT):
            raise BrokenPromiseError(f"link {number} is accepted with {link}")
        _check_times(link)
        if link.is_user_as and (link.remote_ip.is_multicast or link.remote_ip.is_loopback):
            raise BrokenPromiseError(f"link {number} would limit {link.remote_ip}")


def _check_times(link: LinkInfo) -> None:
    """The clock leads through all steps and comes to an end, and at each of them the limits are some that exist."""
    moment: datetime | None = datetime(1970, 1, 1, tzinfo=UTC)
    for _ in range(MAX_TIMED_PER_LINK * (MAX_STEPS + 1) + 1):
        if moment is None:
            return
        if not all(0 <= one <= MAX_BANDWIDTH_KBIT for one in link.limits_at(moment)):
            raise BrokenPromiseError(f"link {link.interface_id} has {link.limits_at(moment)} at {moment}")
        moment = link.next_change(moment)
    raise BrokenPromiseError(f"the steps of link {link.interface_id} have no end")


def _check_signed(bundle: Bundle) -> None:
    """Every byte that is enforced is vouched for; looked at with the library, and nothing of the agent's."""
    manifest = json.loads(bundle.members[MANIFEST])
    key = next(iter(KEYRING.keys.values()))
    try:
        text = manifest["signed"]
        right = {one["key_id"]: base64.b64decode(one["signature"]) for one in manifest["signatures"]}
        Ed25519PublicKey.from_public_bytes(key.public_key).verify(right[key.key_id], SIGNED_PREFIX + text.encode())
    except (KeyError, TypeError, InvalidSignature) as exc:
        raise BrokenPromiseError("a bundle is accepted that nobody signed whom we trust") from exc
    said = json.loads(text)
    hashes = {name: hashlib.sha256(data).hexdigest() for name, data in bundle.members.items() if name != MANIFEST}
    found = f"{said['generation']}.{said['config_version']}", said["limits_version"], said["host_id"], said["sha256"]
    if found != (bundle.version, bundle.limits_version, bundle.host_id, hashes):
        raise BrokenPromiseError("a bundle is accepted that differs from what is signed")


_ENDS: dict[str, Callable[[Target, bytes], str]] = {
    "bundle": Target.bundle,
    "manifest": Target.manifest,
    "link_info": Target.link_info,
}
TARGETS = tuple(_ENDS)


def seeds(name: str) -> list[bytes]:
    """Inputs to begin with, all accepted."""
    if name == "bundle":
        return archives.seeds()
    if name == "manifest":
        return [json.dumps(archives.manifest_of(_FILES)).encode()]
    four_keys = b'{"1": {"AS_ID": 1, "IsUserAS": true, "Bandwidth": 0, "IP-Address": "192.0.2.7"}}'
    return [b"{}", four_keys, archives.link_info_of({1: 500, 2: 0, 3: 1000, 9: 10})]


def mutator(name: str, bend: BytesMutator) -> Mutator:
    """How inputs of this target are changed. `bend` changes bytes without knowing what they mean."""
    if name == "bundle":
        return mutators.bundle_mutator(bend)
    if name == "manifest":
        return mutators.manifest_mutator(bend, _FILES)
    return mutators.link_info_mutator(bend)
