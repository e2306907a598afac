"""Evidence of a restored backup: a text that this service signed, and nothing else (docs/adr/0023)."""

from __future__ import annotations

import base64
import json
from itertools import count
from typing import Any

import pytest

from bandwidth_config import LINK_INFO_PATH
from scionlab.delivery.models import IssuedLimits, SigningKey
from scionlab.delivery.signing import signing_key_revoke, signing_key_rotate
from scionlab.enforcement.generation import generation_raise
from scionlab.testbed import selectors
from scionlab.testbed.models import Host, Link, ServiceState
from tests.cases import table
from tests.delivery.test_host_api import poll
from tests.enforcement.test_receipt import document, post
from tests.support.polling import config_members

pytestmark = pytest.mark.django_db
RECEIPT_NUMBERS = count(1)

MANIFEST = "scionlab-config.json"


@pytest.fixture
def host(link: Link) -> Host:
    """The attachment point's host, at 1.18 limits 7."""
    Host.objects.filter(pk=link.interface_a.host_id).update(config_version=18, limits_version=7)
    return Host.objects.get(pk=link.interface_a.host_id)


def signed(host: Host) -> dict[str, Any]:
    manifest: dict[str, Any] = json.loads(config_members(poll(host).content)[MANIFEST])
    return manifest


def lost(host: Host, generation: int, config_version: int, limits_version: int) -> dict[str, Any]:
    """The manifest of a version that was handed out after the backup was made, of which the database knows nothing."""
    known = (host.config_version, host.limits_version)
    selectors.generation()
    ServiceState.objects.update(generation=generation)
    Host.objects.filter(pk=host.pk).update(config_version=config_version, limits_version=limits_version)
    Link.objects.filter(interface_a__host=host).update(bandwidth_kbit=123)
    manifest = signed(host)
    ServiceState.objects.update(generation=1)
    Host.objects.filter(pk=host.pk).update(config_version=known[0], limits_version=known[1])
    Link.objects.filter(interface_a__host=host).update(bandwidth_kbit=1000)
    IssuedLimits.objects.filter(digest=manifest["sha256"][LINK_INFO_PATH]).delete()
    return manifest


def told(host: Host, manifest: dict[str, Any], *, evidence: dict[str, Any] | None = None, **values: Any) -> Any:
    """The answer to a receipt about the configuration of the manifest, with evidence of it or other."""
    shown = {name: manifest[name] for name in ("signed", "signatures")} if evidence is None else evidence
    named = {"version": manifest["version"], "limits_version": manifest["limits_version"]}
    digest = manifest["sha256"][LINK_INFO_PATH]
    number = next(RECEIPT_NUMBERS)
    body = document(host, {}, **named, limits_digest=digest, run="a" * 32, number=number, evidence=shown, **values)
    response = post(host, body)
    assert response.status_code == 200, response.content
    return json.loads(response.content)


def noted(host: Host) -> tuple[int | None, int | None, int | None]:
    host.refresh_from_db()
    return host.ahead_generation, host.ahead_config_version, host.ahead_limits_version


@table(
    "query",
    ["?version=900.1", "?version=1.19", "?version=1.18&limits=8", f"?version=1.18&limits=7&digest={'a' * 64}"],
)
def test_poll_is_evidence_of_nothing(host: Host, query: str) -> None:
    before = Host.objects.filter(pk=host.pk).values().get()
    assert poll(host, query).status_code == 200
    delivered = {"delivered_config_version": 18, "delivered_limits_version": 7, "delivered_at": None}
    assert Host.objects.filter(pk=host.pk).values().get() | {"delivered_at": None} == before | delivered
    assert not selectors.hosts_ahead().exists()


@table("version", [(1, 19, 7), (1, 18, 8), (1, 17, 8), (2, 1, 1), (900, 18, 7)])
def test_signed_text_of_a_version_that_the_database_does_not_know_is_evidence(
    host: Host, version: tuple[int, int, int]
) -> None:
    manifest = lost(host, *version)
    assert told(host, manifest, evidence={"signed": "x", "signatures": manifest["signatures"]}) == {"stored": True}
    assert noted(host) == (None, None, None)
    assert told(host, manifest) == {"stored": True}
    assert noted(host) == version
    assert list(selectors.hosts_ahead()) == [host]
    assert generation_raise().new == version[0] + 1
    assert not selectors.hosts_ahead().exists()


def test_other_content_of_our_own_version_is_evidence(host: Host) -> None:
    manifest = lost(host, 1, 18, 7)
    assert signed(host)["sha256"] != manifest["sha256"]
    told(host, manifest)
    assert noted(host) == (1, 18, 7)
    assert list(selectors.hosts_ahead()) == [host]
    assert generation_raise().new == 2


@table("version", [(1, 17, 7), (1, 18, 6), (0, 900, 900)])
def test_older_text_is_evidence_of_nothing(host: Host, version: tuple[int, int, int]) -> None:
    assert told(host, lost(host, *version)) == {"stored": True}
    assert noted(host) == (None, None, None)


def changed(manifest: dict[str, Any], **values: Any) -> str:
    return json.dumps({**json.loads(manifest["signed"]), **values}, sort_keys=True, separators=(",", ":"))


def test_what_we_did_not_sign_is_evidence_of_nothing(host: Host, host_b: Host) -> None:
    Host.objects.filter(pk=host_b.pk).update(config_version=18, limits_version=7)
    manifest = lost(host, 1, 19, 8)
    own, others = manifest["signatures"], lost(host_b, 1, 19, 8)
    wrong = base64.b64encode(bytes(64)).decode()
    for evidence in (
        {"signed": changed(manifest, generation=900), "signatures": own},
        {"signed": manifest["signed"] + " ", "signatures": own},
        {"signed": manifest["signed"], "signatures": [{"key_id": own[0]["key_id"], "signature": wrong}]},
        {"signed": manifest["signed"], "signatures": [{"key_id": "a" * 32, "signature": own[0]["signature"]}]},
        {"signed": others["signed"], "signatures": others["signatures"]},  # of another host
    ):
        assert told(host, manifest, evidence=evidence) == {"stored": True}
        assert noted(host) == (None, None, None)


def test_key_that_ended_is_believed_and_one_that_was_revoked_is_not(host: Host) -> None:
    manifest = lost(host, 1, 19, 8)
    (first,) = SigningKey.objects.all()
    signing_key_rotate(actor=None)
    Host.objects.filter(pk=host.pk).update(limits_version=7)
    signing_key_revoke(key_id=first.key_id, actor=None)
    Host.objects.filter(pk=host.pk).update(limits_version=7)
    told(host, manifest)
    assert noted(host) == (None, None, None)
    SigningKey.objects.filter(pk=first.pk).update(revoked_at=None, not_after=first.created_at)
    told(host, manifest)
    assert noted(host) == (1, 19, 8)


def test_one_signature_that_is_right_suffices(host: Host) -> None:
    manifest = lost(host, 1, 19, 8)
    unknown = {"key_id": "0" * 32, "signature": base64.b64encode(bytes(64)).decode()}
    shown = {"signed": manifest["signed"], "signatures": [unknown, *manifest["signatures"]]}
    told(host, manifest, evidence=shown)
    assert noted(host) == (1, 19, 8)


def test_newest_evidence_of_a_host_stays(host: Host) -> None:
    newer, older = lost(host, 2, 1, 1), lost(host, 1, 19, 8)
    told(host, newer)
    told(host, older)
    assert noted(host) == (2, 1, 1)


def test_evidence_is_asked_for_until_it_is_there(host: Host) -> None:
    manifest = lost(host, 1, 19, 8)

    def without() -> Any:
        named = {"version": "1.19", "limits_version": 8, "limits_digest": manifest["sha256"][LINK_INFO_PATH]}
        body = document(host, {}, **named, run="a" * 32, number=next(RECEIPT_NUMBERS))
        return json.loads(post(host, body).content)

    assert without() == {"stored": True, "evidence_wanted": True}
    assert without() == {"stored": True, "evidence_wanted": True}
    assert told(host, manifest) == {"stored": True}
    assert without() == {"stored": True}
