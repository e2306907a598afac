"""Nothing that is not signed is believed, whatever is changed; and trust converges, whichever file is lost."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from ap_agent.agent.bundle import Bundle, read_bundle
from ap_agent.common.errors import BundleError
from ap_agent.common.files import parse_json
from ap_agent.common.settings import Settings
from ap_agent.document.signatures import verify
from ap_agent.document.signed_text import Signed, Version
from ap_agent.document.trust import Trust, trust_now
from tests.agent_bundles import HOST_ID, KEYRING, SigningKey, bundle_bytes, entry, files_of, signed_manifest

NOW = datetime(2026, 11, 21, tzinfo=UTC)
GOOD = signed_manifest(files_of({"1": entry(500)}))
TEXT = GOOD["signed"].encode()
SIGNATURE = base64.b64decode(GOOD["signatures"][0]["signature"])


def believed(manifest: dict[str, Any]) -> Signed | None:
    try:
        return verify(manifest, KEYRING, NOW)
    except BundleError:
        return None


def test_the_unchanged_one_is_believed() -> None:
    assert believed(GOOD) is not None


def test_any_bit_of_the_signed_text_flipped_is_refused() -> None:
    for at in range(len(TEXT)):
        changed = bytearray(TEXT)
        changed[at] ^= 1 << at % 7  # stays ASCII
        assert believed({**GOOD, "signed": changed.decode()}) is None, at


def test_any_bit_of_the_signature_flipped_is_refused() -> None:
    for bit in range(8 * len(SIGNATURE)):
        changed = bytearray(SIGNATURE)
        changed[bit // 8] ^= 1 << bit % 8
        signatures = [{**GOOD["signatures"][0], "signature": base64.b64encode(changed).decode()}]
        assert believed({**GOOD, "signatures": signatures}) is None, bit


@given(at=st.integers(0, len(TEXT)), removed=st.integers(0, 5), put=st.text(max_size=5))
def test_text_that_was_cut_or_filled_is_refused(at: int, removed: int, put: str) -> None:
    text = GOOD["signed"][:at] + put + GOOD["signed"][at + removed :]

    assert text == GOOD["signed"] or believed({**GOOD, "signed": text}) is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=10,
)


@given(signed=JSON, signatures=JSON)
def test_any_values_in_their_place_give_the_typed_error(signed: Any, signatures: Any) -> None:
    assert believed({**GOOD, "signed": signed}) is None
    assert believed({**GOOD, "signatures": signatures}) is None
    assert believed({"signed": signed, "signatures": signatures}) is None


@settings(max_examples=200)
@given(text=st.text(max_size=200) | JSON.map(json.dumps))
def test_strict_json_gives_a_value_or_says_why_not(text: str) -> None:
    try:
        parse_json(text)
    except ValueError:
        return


# --- what counts, after whatever was lost -----------------------------------------------------------------------------

KEYS = [SigningKey(seed) for seed in range(1, 5)]
SETTINGS = Settings(url="https://service.example", host_id=HOST_ID, service_keys=(KEYS[0].public,))


@st.composite
def histories(draw: st.DrawFn) -> list[bytes]:
    """Bundles of a service that rotates: each is signed by a key that was named before, revoked ones are named."""
    named, revoked, bundles = {0}, set[int](), []
    for limits in range(draw(st.integers(1, 4))):
        after = draw(st.sets(st.integers(0, 3), min_size=1)) - revoked
        if not after & named:
            after = after | {min(named)}
        gone = draw(st.sets(st.sampled_from(sorted(after | named)))) if len(after & named) > 1 else set()
        if after - gone and (after - gone) & named:
            after, revoked = after - gone, revoked | gone
        signers = [KEYS[one] for one in sorted(after)]
        ids = [KEYS[one].key_id for one in revoked]
        bundles.append(bundle_bytes({"1": entry(limits)}, limits_version=limits, signers=signers, revoked=ids))
        named = after
    return bundles


def taken(trust: Trust, data: bytes) -> tuple[Trust, Bundle]:
    bundle = read_bundle(data, host_id=HOST_ID, verify=lambda manifest: verify(manifest, trust.keyring, NOW))
    return trust.after(bundle), bundle


@given(history=histories(), data=st.data())
def test_next_bundle_is_taken_whatever_a_crash_or_a_restored_file_left(
    history: list[bytes], data: st.DataObject
) -> None:
    trusts, bundles = [trust_now(SETTINGS, None, None)], list[Bundle]()
    for one in history:
        trust, bundle = taken(trusts[-1], one)
        trusts.append(trust)
        bundles.append(bundle)
    at = data.draw(st.integers(0, len(history) - 1), label="bundle that is installed")
    stored = data.draw(
        st.sampled_from([trusts[at + 1], trusts[at], *trusts[at + 2 : at + 3], None]), label="trust.json"
    )

    now = trust_now(SETTINGS, stored, bundles[at])

    for one in history[at + 1 :]:  # what the service would send next, or again
        now, _ = taken(now, one)
    assert now.newest is not None
    assert not now.newest.is_older_than(bundles[-1].order)
    left = (stored.keyring.revoked if stored is not None else frozenset()) | (bundles[at].signed or _none()).revoked
    assert left <= now.keyring.revoked
    assert not now.keyring.revoked & now.keyring.keys.keys()


def _none() -> Signed:
    raise AssertionError("every bundle here is signed")


VERSIONS = st.builds(Version, st.integers(0, 2), st.integers(0, 3), st.integers(0, 3) | st.none())


@given(one=VERSIONS, other=VERSIONS)
def test_join_is_older_than_neither_of_two_versions(one: Version, other: Version) -> None:
    joined = one.joined(other)

    assert not joined.is_older_than(one)
    assert not joined.is_older_than(other)
    assert one.joined(one) == one
