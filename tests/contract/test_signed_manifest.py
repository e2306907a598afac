"""The signed text of a manifest: exactly what it says, whose signatures it carries, the same bytes every time."""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from config_tar import MANIFEST_NAME, KeyRing
from tests.cases import table
from tests.contract.config_samples import AP_HOST, HOSTS, KEYS, SampleHost, members_of, sample_signer, tar_of

ONE, TWO = sample_signer(1), sample_signer(2, not_after=datetime(2030, 1, 1, tzinfo=UTC))


def manifest_of(host: SampleHost, keys: KeyRing = KEYS) -> dict[str, Any]:
    manifest: dict[str, Any] = json.loads(members_of(host, keys=keys)[MANIFEST_NAME])
    return manifest


def is_signed_by(public_key: bytes, manifest: dict[str, Any], index: int = 0) -> bool:
    signature = base64.b64decode(manifest["signatures"][index]["signature"], validate=True)
    message = b"scionlab-bandwidth-config/1\n" + manifest["signed"].encode()
    try:
        Ed25519PublicKey.from_public_bytes(public_key).verify(signature, message)
    except InvalidSignature:
        return False
    return True


@dataclass(frozen=True)
class Limiting:
    """An attachment point with what its host's signed text says of it."""

    total_kbit: int | None = None
    observe_only: bool = False


def signed_text_of(ap: Limiting) -> dict[str, Any]:
    text: dict[str, Any] = json.loads(manifest_of(replace(AP_HOST, attachment_point=ap))["signed"])
    return text


def test_a_total_and_observing_are_signed_where_there_are_such() -> None:
    plain = json.loads(manifest_of(AP_HOST)["signed"])
    assert signed_text_of(Limiting()) == plain
    assert signed_text_of(Limiting(total_kbit=5000)) == {**plain, "total_kbit": 5000}
    assert signed_text_of(Limiting(observe_only=True)) == {**plain, "observe_only": True}


def test_signed_text_of_an_attachment_point_says_exactly_this() -> None:
    files = members_of(AP_HOST)
    manifest = json.loads(files.pop(MANIFEST_NAME))
    assert json.loads(manifest["signed"]) == {
        "type": "scionlab-bandwidth-config",
        "schema": 1,
        "host_id": "a0000000000000000000000000001107",
        "generation": 1,
        "config_version": 18,
        "limits_version": 7,
        "link_info_schema": 1,
        "sha256": {name: hashlib.sha256(content).hexdigest() for name, content in files.items()},
        "host_secret_sha256": hashlib.sha256(b"5ec4e700000000000000000000000000").hexdigest(),
        "keys": [
            {
                "key_id": "34750f98bd59fcfc946da45aaabe933b",
                "public_key": "iojj3XQJ8ZX9UtstPLpdcspnCb8dlBIb83SIAbQPb1w=",
                "not_after": "2028-11-21T00:00:00Z",
            }
        ],
        "revoked": [],
    }
    assert {"etc/scion/br-1.toml", "etc/scion/link_info.json", "etc/scion/topology.json"} <= set(files)


@table("name", HOSTS)
def test_outer_manifest_agrees_with_the_signed_text(name: str) -> None:
    """The stock client reads the outer keys, our agent refuses a manifest that says one thing and signs another."""
    manifest = manifest_of(HOSTS[name])
    signed = json.loads(manifest["signed"])
    assert manifest["host_id"] == signed["host_id"]
    assert manifest["version"] == f"{signed['generation']}.{signed['config_version']}"
    assert manifest["limits_version"] == signed["limits_version"]
    assert manifest.get("link_info_schema") == signed.get("link_info_schema")
    assert manifest["sha256"] == signed["sha256"]
    assert manifest["files"].keys() == signed["sha256"].keys()
    assert hashlib.sha256(manifest["host_secret"].encode()).hexdigest() == signed["host_secret_sha256"]


@table("name", HOSTS)
def test_signature_is_that_of_the_key_over_the_context_and_the_text(name: str) -> None:
    manifest = manifest_of(HOSTS[name])
    assert [one["key_id"] for one in manifest["signatures"]] == [ONE.key_id]
    assert is_signed_by(ONE.public_key, manifest)
    assert not is_signed_by(TWO.public_key, manifest)
    assert not is_signed_by(ONE.public_key, {**manifest, "signed": manifest["signed"] + " "})


def test_every_valid_key_signs_in_the_order_of_key_ids() -> None:
    manifest = manifest_of(AP_HOST, KeyRing((TWO, ONE), revoked=("f" * 32, "0" * 32)))
    ids = sorted([ONE.key_id, TWO.key_id])
    public = {one.key_id: one.public_key for one in (ONE, TWO)}
    assert [one["key_id"] for one in manifest["signatures"]] == ids
    assert all(is_signed_by(public[key_id], manifest, index) for index, key_id in enumerate(ids))
    signed = json.loads(manifest["signed"])
    assert [one["key_id"] for one in signed["keys"]] == ids
    assert signed["revoked"] == ["0" * 32, "f" * 32]


def test_same_configuration_and_keys_give_the_same_bytes_in_any_order() -> None:
    one, other = KeyRing((ONE, TWO), ("b", "a")), KeyRing((TWO, ONE), ("a", "b", "a"))
    assert tar_of(AP_HOST, keys=one) == tar_of(AP_HOST, keys=other)


@table(
    "change",
    [{"uid": "b" * 32}, {"secret": "5" * 32}, {"config_version": 19}, {"limits_version": 8}, {"link_ends": ()}],
    ids=lambda change: next(iter(change)),
)
def test_whatever_the_agent_believes_changes_the_signature(change: dict[str, Any]) -> None:
    before, after = manifest_of(AP_HOST), manifest_of(replace(AP_HOST, **change))
    assert before["signed"] != after["signed"]
    assert before["signatures"] != after["signatures"]


def test_fingerprint_differs_with_a_key_its_end_and_a_revocation() -> None:
    later = replace(ONE, not_after=ONE.not_after + timedelta(seconds=1))
    rings = [KeyRing((ONE,)), KeyRing((ONE, TWO)), KeyRing((TWO,)), KeyRing((later,)), KeyRing((ONE,), ("a",))]
    assert len({ring.fingerprint for ring in rings}) == len(rings)


def test_end_of_a_key_is_told_in_utc() -> None:
    east = timezone(timedelta(hours=2))
    assert replace(ONE, not_after=datetime(2028, 11, 21, 2, tzinfo=east)).entry["not_after"] == "2028-11-21T00:00:00Z"


def test_nothing_is_handed_out_unsigned() -> None:
    with pytest.raises(ValueError, match="at least one valid key"):
        KeyRing(())


def test_ring_does_not_show_how_it_signs() -> None:
    assert "sign=" not in repr(KEYS)
