"""Whom the agent believes: which signatures count, which texts are read, and what each refusal is called."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from ap_agent.agent.archive import MANIFEST
from ap_agent.agent.bundle import read_bundle
from ap_agent.common.errors import BundleError, TrustError
from ap_agent.common.keys import MAX_KEYS
from ap_agent.document.signatures import Keyring, read_stored, verify
from ap_agent.document.signed_text import MAX_REVOKED, MAX_SIGNED_CHARS, Signed, Version
from bandwidth_config import LINK_INFO_PATH
from tests.agent_bundles import (
    HOST_ID,
    KEY,
    KEYRING,
    OTHER_KEY,
    SigningKey,
    bundle_bytes,
    entry,
    files_of,
    packed,
    signed_manifest,
    with_manifest,
    with_signatures,
)

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
FILES = files_of({"1": entry(500)})
STRANGE_KEY = SigningKey(9)
KEY_ID = "34750f98bd59fcfc946da45aaabe933b"  # computed with sha256sum


def checked(manifest: dict[str, Any], keyring: Keyring = KEYRING, now: datetime = NOW) -> Signed:
    return verify(manifest, keyring, now)


def refusal(manifest: dict[str, Any], keyring: Keyring = KEYRING, now: datetime = NOW) -> BundleError:
    with pytest.raises(BundleError) as refused:
        verify(manifest, keyring, now)
    return refused.value


def signed_as(document: object, signers: tuple[SigningKey, ...] = (KEY,)) -> dict[str, Any]:
    """A manifest whose text is whatever is given, with right signatures."""
    text = document if isinstance(document, str) else json.dumps(document)
    return with_signatures(signed_manifest(FILES), text, signers)


def text_of(manifest: dict[str, Any]) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(manifest["signed"])
    return document


def with_text(**changes: Any) -> dict[str, Any]:
    return signed_as({**text_of(signed_manifest(FILES)), **changes})


# --- whose signature counts -----------------------------------------------------------------------------------------


def test_pinned_key_vouches_for_everything_that_the_text_says() -> None:
    signed = checked(signed_manifest(FILES))

    assert (signed.host_id, signed.version, signed.link_info_schema) == (HOST_ID, Version(1, 18, 7), None)
    assert set(signed.sha256) == set(FILES)
    assert [one.key_id for one in signed.keys] == [KEY.key_id]


def test_key_id_is_half_of_the_keys_sha256() -> None:
    assert KEY.key_id == KEY_ID


def test_one_right_signature_suffices() -> None:
    both = signed_manifest(FILES, signers=[KEY, OTHER_KEY])

    assert checked(both, Keyring.of([KEY.public])).host_id == HOST_ID
    assert checked(both, Keyring.of([OTHER_KEY.public])).host_id == HOST_ID


def test_wrong_signature_of_a_pinned_key_beside_a_right_one_does_no_harm() -> None:
    both = signed_manifest(FILES, signers=[KEY, OTHER_KEY])
    damaged = [
        {**one, "signature": OTHER_KEY.sign("something else")} if one["key_id"] == KEY.key_id else one
        for one in both["signatures"]
    ]

    assert checked({**both, "signatures": damaged}, Keyring.of([KEY.public, OTHER_KEY.public])).host_id == HOST_ID
    assert refusal({**both, "signatures": damaged}, Keyring.of([KEY.public])).code == "wrong_signature"


ENDED = replace(KEY, not_after=NOW - timedelta(days=1))


@pytest.mark.parametrize(
    ("code", "manifest", "keyring", "words"),
    [
        ("not_enrolled", signed_manifest(FILES), Keyring(), "`scionlab-bw-agent enrol URL`"),
        ("not_enrolled", signed_manifest(FILES), Keyring.of([KEY.public], [KEY.key_id]), "enrol URL"),
        ("not_signed", {"host_id": HOST_ID}, KEYRING, "this host accepts only signed ones"),
        ("unknown_key", signed_manifest(FILES, signers=[STRANGE_KEY]), KEYRING, "enrol this host again"),
        ("wrong_signature", {**signed_manifest(FILES), "signed": "{}"}, KEYRING, f"by the key {KEY_ID} is wrong"),
        (
            "key_expired",
            signed_manifest(FILES),
            Keyring.of([ENDED.public]),
            "expired at 2026-11-20T12:00:00Z; this host's clock says 2026-11-21T12:00:00Z. Correct the clock",
        ),
        ("key_revoked", signed_manifest(FILES), Keyring.of([OTHER_KEY.public], [KEY.key_id]), "signing_key list"),
        ("manifest_invalid", {"signed": "{}"}, KEYRING, "signatures"),
        ("manifest_invalid", {"signatures": []}, KEYRING, "signed"),
    ],
)
def test_refusal_says_which_rule_and_what_to_do(
    code: str, manifest: dict[str, Any], keyring: Keyring, words: str
) -> None:
    error = refusal(manifest, keyring)

    assert error.code == code
    assert words in error.message
    assert isinstance(error, TrustError) is (code != "manifest_invalid")


def test_signature_for_another_purpose_is_none_for_a_configuration() -> None:
    manifest = signed_manifest(FILES)
    bare = KEY.private.sign(manifest["signed"].encode())  # without the prefix
    other = [{"key_id": KEY.key_id, "signature": base64.b64encode(bare).decode()}]
    assert refusal({**manifest, "signatures": other}).code == "wrong_signature"


def test_key_counts_until_its_end_and_not_at_it() -> None:
    key = replace(KEY, not_after=NOW)
    keyring = Keyring.of([key.public])
    manifest = signed_manifest(FILES, keys=[KEY])

    assert checked(manifest, keyring, NOW - timedelta(seconds=1)).host_id == HOST_ID
    assert refusal(manifest, keyring, NOW).code == "key_expired"


# --- keys of the future ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "manifest",
    [
        signed_manifest(FILES, signers=[KEY], keys=[OTHER_KEY]),
        signed_manifest(FILES, signers=[KEY], keys=[KEY, OTHER_KEY], revoked=[KEY.key_id]),
        signed_manifest(FILES, signers=[KEY], keys=[ENDED]),
    ],
    ids=["named are others", "the signer is revoked", "the named end is past"],
)
def test_bundle_that_its_own_keys_do_not_vouch_for_is_refused(manifest: dict[str, Any]) -> None:
    """The agent would follow, and never be able to take this bundle again."""
    assert refusal(manifest).code == "manifest_invalid"


# --- reading strictly -----------------------------------------------------------------------------------------------

BAD_TEXTS: dict[str, object] = {
    "no JSON": "x",
    "nested without end": "[" * 100_000,
    "a number of 5000 digits": '{"generation": ' + "1" * 5000 + "}",
    "a fraction": '{"generation": 1.0}',
    "a key twice": signed_manifest(FILES)["signed"].replace('{"', '{"host_id": "another", "', 1),
    "no schema": {**text_of(signed_manifest(FILES)), "schema": None},
    "other type": {**text_of(signed_manifest(FILES)), "type": "x"},
}


@pytest.mark.parametrize("case", BAD_TEXTS)
def test_text_that_cannot_be_read_is_refused_although_it_is_signed(case: str) -> None:
    assert refusal(signed_as(BAD_TEXTS[case])).code == "manifest_invalid"


@pytest.mark.parametrize(
    "change",
    [
        {"host_id": 5},
        {"generation": -1},
        {"limits_version": None},
        {"link_info_schema": "1"},
        {"sha256": {"etc/scion/topology.json": "A" * 64}},
        {"sha256": {str(number): "0" * 64 for number in range(1001)}},
        {"host_secret_sha256": ""},
        {"keys": []},
        {"keys": [KEY.public.to_json()] * 2},
        {"keys": [{**KEY.public.to_json(), "key_id": OTHER_KEY.key_id}]},
        {"keys": [{**KEY.public.to_json(), "public_key": "AAAA"}]},
        {"keys": [{**KEY.public.to_json(), "not_after": "2028-02-30T00:00:00Z"}]},
        {"keys": [{**KEY.public.to_json(), "not_after": "2028-11-21"}]},
        {"keys": [SigningKey(seed).public.to_json() for seed in range(1, MAX_KEYS + 2)]},
        {"revoked": ["x"]},
        {"revoked": [f"{number:032x}" for number in range(MAX_REVOKED + 1)]},
    ],
    ids=lambda change: str(change)[:40],
)
def test_text_with_a_wrong_value_is_refused_although_it_is_signed(change: dict[str, Any]) -> None:
    assert refusal(with_text(**change)).code == "manifest_invalid"


def test_schema_of_tomorrow_asks_for_an_update() -> None:
    error = refusal(with_text(schema=2))

    assert (error.code, "update the agent" in error.message) == ("unknown_schema", True)


def test_limits_are_where_they_are_said_to_be() -> None:
    revoked = [f"{number:032x}" for number in range(MAX_REVOKED)]
    keys = [SigningKey(seed) for seed in range(1, MAX_KEYS + 1)]
    assert len(checked(signed_manifest(FILES, signers=keys, revoked=revoked)).keys) == MAX_KEYS
    padding = MAX_SIGNED_CHARS - len(with_text(x="")["signed"])
    assert checked(with_text(x="y" * padding)).host_id == HOST_ID
    assert refusal(with_text(x="y" * (padding + 1))).code == "manifest_invalid"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("signed", 5),
        ("signed", "\ud800"),
        ("signatures", None),
        ("signatures", []),
        ("signatures", [{"key_id": "x", "signature": "A" * 86 + "=="}]),
        ("signatures", [{"key_id": KEY.key_id, "signature": "A" * 85 + "B=="}]),  # another spelling of the same bytes
        ("signatures", [{"key_id": KEY.key_id, "signature": "A" * 86 + "=="}] * 2),
        (
            "signatures",
            [{"key_id": f"{number:032x}", "signature": "A" * 86 + "=="} for number in range(MAX_KEYS + 1)],
        ),
    ],
    ids=lambda one: ascii(one)[:40],
)
def test_text_or_signatures_that_are_none_are_refused(key: str, value: object) -> None:
    assert refusal({**signed_manifest(FILES), key: value}).code == "manifest_invalid"


# --- what stands beside the text ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        {"version": "1.19"},
        {"limits_version": 8},
        {"limits_version": None},
        {"link_info_schema": 1},
        {"host_secret": "another"},
        {"sha256": {**dict.fromkeys(FILES, "0" * 64)}},
    ],
    ids=str,
)
def test_manifest_that_says_something_else_beside_its_text_is_refused(change: dict[str, Any]) -> None:
    manifest = {key: value for key, value in {**signed_manifest(FILES), **change}.items() if value is not None}

    with pytest.raises(BundleError) as refused:
        read_bundle(with_manifest(manifest, FILES), host_id=HOST_ID)
    assert refused.value.code == "manifest_invalid"


def test_text_for_another_host_is_refused_whatever_stands_beside_it() -> None:
    manifest = signed_manifest(FILES, text={"host_id": "another"})

    with pytest.raises(BundleError, match="host_id differs from what is signed"):
        read_bundle(with_manifest(manifest, FILES), host_id=HOST_ID)


def test_file_whose_sha1_fits_and_sha256_does_not_is_refused() -> None:
    """SHA-1 is there for the stock client: two files of one SHA-1 can be made."""
    manifest = signed_manifest(
        FILES, text={"sha256": dict.fromkeys(FILES, "0" * 64)}, sha256=dict.fromkeys(FILES, "0" * 64)
    )

    with pytest.raises(BundleError) as refused:
        read_bundle(with_manifest(manifest, FILES), host_id=HOST_ID)
    assert refused.value.code == "wrong_hash"


def test_file_that_the_text_does_not_name_is_refused() -> None:
    manifest = signed_manifest({"etc/scion/topology.json": FILES["etc/scion/topology.json"]})
    full = signed_manifest(FILES)
    members = [(MANIFEST, json.dumps({**manifest, "files": full["files"]}).encode()), *FILES.items()]

    with pytest.raises(BundleError, match="sha256 does not name the same files"):
        read_bundle(packed(members), host_id=HOST_ID)


def test_signature_is_asked_for_before_any_file_is_looked_at() -> None:
    """Whoever cannot sign reaches none of the code that reads files."""
    manifest = signed_manifest(FILES, signers=[STRANGE_KEY])
    poisoned = {**FILES, LINK_INFO_PATH: b"\xff" * 100}

    def check(_manifest: Any) -> Signed:
        return verify(_manifest, KEYRING, NOW)

    with pytest.raises(TrustError) as refused:
        read_bundle(with_manifest(manifest, poisoned), host_id=HOST_ID, verify=check)
    assert refused.value.code == "unknown_key"


def test_secret_is_taken_out_of_a_signed_bundle_alone() -> None:
    assert read_bundle(bundle_bytes(), host_id=HOST_ID).host_secret == "s3cret-of-the-host"
    assert read_bundle(bundle_bytes(is_signed=False), host_id=HOST_ID).host_secret is None
    assert "s3cret" not in repr(read_bundle(bundle_bytes(), host_id=HOST_ID))


# --- versions -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other", "is_older"),
    [
        ((1, 18, 7), (1, 18, 7), False),
        ((1, 17, 7), (1, 18, 7), True),
        ((1, 18, 6), (1, 18, 7), True),
        ((1, 19, 6), (1, 18, 7), True),
        ((2, 0, 0), (1, 18, 7), False),
        ((1, 18, None), (1, 18, 7), False),
        ((1, 17, None), (1, 18, 7), True),
    ],
)
def test_what_is_older(one: tuple[int, int, int], other: tuple[int, int, int], is_older: bool) -> None:
    assert Version(*one).is_older_than(Version(*other)) is is_older


def test_stored_text_that_was_damaged_is_named() -> None:
    manifest = signed_manifest(FILES)
    read = read_stored(manifest)
    assert (read and read.host_id, read_stored({"host_id": HOST_ID})) == (HOST_ID, None)
    damaged = {**manifest, "signed": manifest["signed"].replace(HOST_ID, "4f1c0d2f")}
    with pytest.raises(BundleError) as refused:
        read_stored(damaged)
    told = "The stored document differs from the accepted one."
    assert (refused.value.code, refused.value.message) == ("wrong_signature", told)


def test_a_keyring_knows_what_was_revoked_and_keeps_none_of_it() -> None:
    ring = Keyring.of([KEY.public, OTHER_KEY.public], [KEY.key_id])
    assert (list(ring.keys), ring.revoked) == ([OTHER_KEY.key_id], {KEY.key_id})
    assert refusal(signed_manifest(FILES), ring).code == "key_revoked"
