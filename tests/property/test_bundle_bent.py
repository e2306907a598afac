"""Good bundles, bent in one place and repaired around it, so that they get far in the agent.

Only the typed error comes out. What is accepted was signed by the key that is trusted, every byte of it; its limits are
in their bounds; it is stored and read back equal; and nothing outside of the state directory changes.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from ap_agent.agent.archive import MANIFEST, Limits
from ap_agent.agent.bundle import Bundle, read_bundle
from ap_agent.agent.store import Store
from ap_agent.common.errors import BundleError
from ap_agent.document import signatures
from bandwidth_config import LINK_INFO_PATH
from tests.agent_bundles import (
    HOST_ID,
    KEY,
    KEYRING,
    OTHER_KEY,
    entry,
    files_of,
    member,
    signed_manifest,
    with_signatures,
    zipped,
)

NOW = datetime(2026, 11, 21, tzinfo=UTC)
LIMITS = Limits(unpacked_bytes=256 * 1024, members=30, member_bytes=32 * 1024)
OUTSIDE = "etc/scion/../../../../../outside"
NAMES = [
    OUTSIDE,
    "etc/scion/a",
    "etc/scion/a/b",
    "etc/scion//b",
    "etc/openvpn/x",
    "/etc/scion/x",
    "etc/passwd",
    "x" * 90,
]
TEXTS = [
    "",
    "0",
    "1.18",
    "9" * 18 + ".1",
    "1.\u0661",
    "..",
    "a\0b",
    "\u202e",
    "192.0.2.1",
    "::ffff:192.0.2.1",
    "fe80::1",
]
TEXTS += ["224.0.0.1", "255.255.255.255", "2028-02-30T00:00:00Z", "0001-01-01T00:00:00Z", MANIFEST, LINK_INFO_PATH]
FIELDS = """
    AS_ID IsUserAS Bandwidth IP-Address Port Local-IP VPN Bandwidth-To-User Timed host_id version limits_version files
    sha256 signed signatures keys revoked generation config_version schema 1 4094 4095 01
"""
KEYS = FIELDS.split()
NUMBERS = [0, 1, -1, 4094, 65_536, 100_000_000, 100_000_001, 2**63, 10**400]

values = st.recursive(
    st.sampled_from([None, True, False, 1.5, *NUMBERS, *TEXTS]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=2),
    max_leaves=4,
)


@st.composite
def bent(draw: st.DrawFn, document: Any) -> Any:
    """The document as it is, or with up to three places changed: a value, a key, an item less."""
    for _ in range(draw(st.sampled_from([0, 0, 1, 3]))):
        places = [(one, key) for one in containers(document) for key in keys_of(one)]
        if not places:
            break
        container, key = draw(st.sampled_from(places))
        what = draw(st.sampled_from(["out", "other", "moved", "more"]))
        if what == "out":
            del container[key]
        elif what == "other" or isinstance(container, list):
            container[key] = draw(values)
        elif what == "moved":
            container[draw(st.sampled_from(KEYS))] = container.pop(key)
        else:
            container[draw(st.sampled_from(KEYS))] = draw(values)
    return document


def keys_of(one: Any) -> list[Any]:
    return list(one) if isinstance(one, dict) else list(range(len(one)))


def containers(document: Any) -> list[Any]:
    """The document and all that is below it, dictionaries and lists."""
    if not isinstance(document, dict | list):
        return []
    return [document, *(deeper for key in keys_of(document) for deeper in containers(document[key]))]


entries = st.builds(
    lambda kbit, address, *, is_vpn: {**entry(kbit, address), "VPN": is_vpn},
    st.integers(0, 100_000_000),
    st.sampled_from(["192.0.2.11", "2001:db8::7"]),
    is_vpn=st.booleans(),
)


@st.composite
def bundles(draw: st.DrawFn) -> bytes:
    links = draw(bent(draw(st.dictionaries(st.integers(1, 4094).map(str), entries, max_size=3))))
    files = files_of(links) | draw(st.dictionaries(st.sampled_from(NAMES), st.binary(max_size=20), max_size=2))
    manifest = signed_manifest(files, signers=draw(st.sampled_from([(KEY,), (KEY,), (OTHER_KEY,)])))
    text = draw(bent(json.loads(manifest["signed"])))
    manifest = draw(bent(with_signatures(manifest, json.dumps(text)) if draw(st.booleans()) else manifest))
    members = [member(MANIFEST, json.dumps(manifest).encode()), *(member(name, data) for name, data in files.items())]
    if draw(st.booleans()):
        header: dict[str, Any] = {
            "kind": draw(st.sampled_from([b"0", b"\0", b"1", b"2", b"5", b"L", b"x"])),
            "size": draw(st.sampled_from([None, 0, 8**11 - 1])),
            "prefix": draw(st.sampled_from([b"", b"etc", b"etc/scion"])),
            "checksum_off_by": draw(st.sampled_from([0, 0, 1])),
        }
        members.append(member(draw(st.sampled_from(NAMES)), draw(st.binary(max_size=600)), **header))
    tail = draw(st.sampled_from([bytes(1024), bytes(512), b"", b"x" * 1024, bytes(1 << 18)]))
    made = zipped(b"".join(members) + tail)
    return made[: draw(st.integers(0, len(made)))] if draw(st.sampled_from([0, 0, 0, 0, 1])) else made


class Host:
    """Takes bundles as the agent does."""

    def __init__(self, folder: Path) -> None:
        self.accepted = 0
        self._state, self._folder = folder / "state", folder
        (folder / "link_info.json").write_text("not ours")
        self._store = Store(self._state)
        self._around = self._picture()

    def take(self, data: bytes) -> None:
        try:
            found = read_bundle(data, host_id=HOST_ID, limits=LIMITS, verify=verified)
        except BundleError:
            return
        self._store.save(found)
        assert self._picture() == self._around, "something outside of the state directory changed"
        again = self._store.load(host_id=HOST_ID)
        assert again is not None
        assert (again.version, again.links, again.members) == (found.version, found.links, found.members)
        assert_signed(found)
        for number, link in found.links.items():
            assert 1 <= number <= 4094
            assert all(0 <= kbit <= 100_000_000 for kbit in link.limits_at(NOW))
            assert not (link.is_user_as and (link.remote_ip.is_multicast or link.remote_ip.is_loopback))
        self.accepted += 1

    def _picture(self) -> dict[str, bytes]:
        paths = [one for one in self._folder.rglob("*") if self._state not in [one, *one.parents]]
        return {str(one): one.read_bytes() for one in paths if one.is_file()}


def verified(manifest: Mapping[str, Any], **how: Any) -> Any:
    return signatures.verify(manifest, keyring=KEYRING, now=NOW, **how)


def assert_signed(found: Bundle) -> None:
    """Every byte that is enforced is vouched for; looked at with the library, and nothing of the agent's."""
    manifest = json.loads(found.members[MANIFEST])
    text = manifest["signed"]
    right = {one["key_id"]: base64.b64decode(one["signature"]) for one in manifest["signatures"]}
    key = Ed25519PublicKey.from_public_bytes(KEY.public.public_key)
    key.verify(right[KEY.key_id], b"scionlab-bandwidth-config/1\n" + text.encode())
    said = json.loads(text)
    hashes = {name: hashlib.sha256(data).hexdigest() for name, data in found.members.items() if name != MANIFEST}
    assert said["sha256"] == hashes
    assert (f"{said['generation']}.{said['config_version']}", said["host_id"]) == (found.version, HOST_ID)
    assert (said["limits_version"], said["host_id"]) == (found.limits_version, found.host_id)


def try_many(host: Host, number: int) -> None:
    @settings(max_examples=number, phases=[Phase.generate], report_multiple_bugs=False, derandomize=True)
    @given(bundles())
    def tried(data: bytes) -> None:
        host.take(data)

    tried()


def test_bent_bundles_break_no_promise(tmp_path: Path) -> None:
    host = Host(tmp_path)
    try_many(host, 250)
    assert host.accepted >= 15, "too few get through to the store"
