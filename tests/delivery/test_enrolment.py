"""Enrolment: one token, once, for one host, and nobody learns why another one was refused."""

from __future__ import annotations

import base64
import hashlib
import json
import logging
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.cache import cache
from django.core.management import CommandError, call_command
from django.http import HttpResponse
from django.test import Client
from django.utils import timezone

from bandwidth_config import RuleError
from config_tar import key_id_of
from scionlab.accounts.models import User
from scionlab.delivery.enrolment import enrolment_token_create
from scionlab.delivery.models import EnrolmentToken, SigningKey
from scionlab.delivery.signing import key_ring, signing_key_revoke, signing_key_rotate
from scionlab.testbed.models import Host
from tests.cases import table

pytestmark = pytest.mark.django_db

URL = "/api/v4/enrol"


@pytest.fixture(autouse=True)
def _nobody_was_counted() -> None:
    cache.clear()


def parts(host: Host, actor: User | None = None) -> tuple[str, str]:
    """Random part and key id of a new token."""
    prefix, random, key_id = enrolment_token_create(host_id=host.pk, actor=actor).text.split(".")
    assert prefix == "slbw1"
    return random, key_id


def enrol(token: object, **extra: Any) -> HttpResponse:
    return post(json.dumps({"token": token}), **extra)


def post(content: str | bytes, **extra: Any) -> HttpResponse:
    response: HttpResponse = Client(enforce_csrf_checks=True).post(
        URL, content, content_type="application/json", **extra
    )
    return response


def test_token_is_answered_with_everything_that_the_agent_needs(host_a: Host) -> None:
    random, key_id = parts(host_a)
    answer = enrol(random)
    assert answer.status_code == 200
    assert answer["Cache-Control"] == "no-store"
    key = SigningKey.objects.get()
    assert answer.json() == {
        "host_id": host_a.uid,
        "host_secret": host_a.secret,
        "url": "http://127.0.0.1:8000",
        "keys": [
            {"key_id": key_id, "public_key": key.public_key, "not_after": f"{key.not_after:%Y-%m-%dT%H:%M:%SZ}"},
        ],
        "revoked": [],
    }


def test_token_has_256_random_bits_and_only_its_hash_is_kept(host_a: Host, staff: User) -> None:
    before = timezone.now()
    issued = enrolment_token_create(host_id=host_a.pk, actor=staff)
    assert issued.text not in repr(issued)
    random = issued.text.split(".")[1]
    assert len(random) == 43  # base64url of 32 bytes
    token = EnrolmentToken.objects.get()
    assert token.token_sha256 == hashlib.sha256(random.encode()).hexdigest()
    assert random not in str(EnrolmentToken.objects.values_list())
    assert (token.host, token.created_by, token.used_at, token.used_from) == (host_a, staff, None, None)
    assert timedelta(hours=24) <= token.expires_at - before < timedelta(hours=24, minutes=1)


def test_token_names_the_key_that_lasts_longest(host_a: Host, settings: Any) -> None:
    settings.SIGNING_KEY_DAYS = 10
    key_ring()
    settings.SIGNING_KEY_DAYS = 20
    newest = signing_key_rotate(actor=None)
    random, key_id = parts(host_a)
    assert key_id == newest.key_id
    assert len(enrol(random).json()["keys"]) == 2


# --- what is refused ----------------------------------------------------------------------------------------


def refusal(answer: HttpResponse) -> tuple[int, bytes, list[str]]:
    return answer.status_code, answer.content, sorted(answer.headers)


def test_one_and_the_same_answer_for_unknown_used_expired_void_and_orphaned_tokens(
    host_a: Host, host_b: Host, ap_other: Any
) -> None:
    used, _ = parts(host_a)
    enrol(used)
    expired, _ = parts(host_a)
    EnrolmentToken.objects.filter(used_at=None).update(expires_at=timezone.now())
    void, _ = parts(host_b)
    parts(host_b)
    orphaned, _ = parts(ap_other.host)
    Host.objects.filter(pk=ap_other.host.pk).update(AS=None)
    tokens = ["", "0" * 43, "\ud800", "x" * 3000, used, expired, void, orphaned]
    answers = [refusal(enrol(token)) for token in tokens]
    assert answers[0][0] == 403
    assert json.loads(answers[0][1])["code"] == "token_invalid"
    assert [answer for answer in answers if answer != answers[0]] == []


def test_used_token_tells_when_and_from_where(host_a: Host) -> None:
    random, _ = parts(host_a)
    assert enrol(random, REMOTE_ADDR="203.0.113.9").status_code == 200
    assert enrol(random, REMOTE_ADDR="203.0.113.66").status_code == 403
    token = EnrolmentToken.objects.get()
    assert token.used_at is not None
    assert timezone.now() - token.used_at < timedelta(minutes=1)
    assert token.used_from == "203.0.113.9"


def test_new_token_voids_the_hosts_unused_one_and_no_other_hosts(host_a: Host, host_b: Host) -> None:
    old, _ = parts(host_a)
    others, _ = parts(host_b)
    new, _ = parts(host_a)
    assert [enrol(one).status_code for one in (old, new, others)] == [403, 200, 200]


def test_revoked_key_voids_unused_tokens_because_they_may_name_it(host_a: Host) -> None:
    random, key_id = parts(host_a)
    signing_key_rotate(actor=None)
    signing_key_revoke(key_id=key_id, actor=None)
    assert enrol(random).status_code == 403
    new, new_key_id = parts(host_a)
    answer = enrol(new).json()
    assert ([one["key_id"] for one in answer["keys"]], answer["revoked"]) == ([new_key_id], [key_id])


def test_host_without_as_gets_no_token() -> None:
    host = Host.objects.create(label="spare")
    with pytest.raises(RuleError) as refused:
        enrolment_token_create(host_id=host.pk, actor=None)
    assert refused.value.code == "host_without_as"


@table(
    "content",
    [b"", b"[]", b'{"token": 1}', b'{"tokens": "a"}', b"\xff", b"[" * 3000],
)
def test_what_is_no_request_is_said_to_be_none(content: bytes) -> None:
    answer = post(content)
    assert (answer.status_code, answer.json()["code"]) == (400, "request_invalid")


def test_body_is_not_read_beyond_its_limit() -> None:
    assert post(b" " * 4097).status_code == 413
    assert post(b" " * 4096).status_code == 400


def test_tries_are_counted_per_address_whatever_they_say(host_a: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scionlab.platform.throttles.EnrolThrottle.rate", "3/min", raising=False)
    random, _ = parts(host_a)
    tries = [enrol("wrong"), post(b"{"), enrol("wrong"), enrol(random)]
    assert [one.status_code for one in tries] == [403, 400, 403, 429]
    assert 1 <= int(tries[-1]["Retry-After"]) <= 60
    assert tries[-1].json()["code"] == "throttled"
    assert enrol(random, REMOTE_ADDR="203.0.113.9").status_code == 200


# --- where the token and the secret are not -----------------------------------------------------------------


def test_log_has_who_and_from_where_and_no_secret(host_a: Host, staff: User, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    random, _ = parts(host_a, staff)
    enrol("0" * 43, REMOTE_ADDR="203.0.113.66")
    enrol(random, REMOTE_ADDR="203.0.113.9")
    lines = [record.getMessage() for record in caplog.records if record.name == "scionlab.delivery.enrolment"]
    pk = EnrolmentToken.objects.get().pk
    assert lines == [
        f"enrolment.token_made token={pk} host={host_a.pk} actor={staff.pk}",
        "enrolment.refused address=203.0.113.66",
        f"enrolment.done token={pk} host={host_a.pk} address=203.0.113.9",
    ]
    assert random not in caplog.text
    assert host_a.secret not in caplog.text


def command(host: str) -> str:
    out = StringIO()
    call_command("enrol_token", host, stdout=out)
    return out.getvalue()


@table("name", ["pk", "uid", "as"])
def test_command_gives_a_token_that_works(host_a: Host, name: str) -> None:
    written = {"pk": str(host_a.pk), "uid": host_a.uid, "as": "17-ffaa:0:1107"}[name]
    said = command(written)
    (token,) = [word for word in said.split() if word.startswith("slbw1.")]
    assert "sudo scionlab-bw-agent enrol http://127.0.0.1:8000\n" in said
    _, random, key_id = token.split(".")
    assert enrol(random).json()["host_id"] == host_a.uid
    assert [key_id_of(base64.b64decode(one["public_key"])) for one in key_ring().entries] == [key_id]


@table("written", ["0", "17-ffaa:0:9999", "", "9" * 30])
def test_command_names_a_host_that_is_not_there(host_a: Host, written: str) -> None:
    with pytest.raises(CommandError, match="No unique host"):
        command(written)
    assert not EnrolmentToken.objects.exists()
