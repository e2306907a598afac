"""Keys and tokens with two at once: one first key, one use of a token, never the last two keys revoked."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from django.db.models import QuerySet

from bandwidth_config import RuleError
from scionlab.accounts.models import User
from scionlab.delivery import signing
from scionlab.delivery.enrolment import Enrolment, enrolment_token_create, host_enrol
from scionlab.delivery.models import EnrolmentToken, SigningKey
from scionlab.delivery.signing import key_ring, signing_key_revoke, signing_key_rotate
from scionlab.enforcement.generation import generation_raise
from scionlab.testbed import locks
from scionlab.testbed.host import host_rotate_secret
from scionlab.testbed.models import AttachmentPoint
from scionlab.testbed.versions.counters import hosts_bump

DEADLINE_S = 20.0
AtOnce = Callable[..., list[Any]]


@pytest.fixture
def token(ap: AttachmentPoint) -> str:
    """The random part of a fresh token."""
    return enrolment_token_create(host_id=ap.host.pk, actor=None).text.split(".")[1]


def uses(at_once: AtOnce, token: str, count: int) -> int:
    answers = at_once(*[lambda: host_enrol(random=token, address="192.0.2.9")] * count)
    assert [one for one in answers if isinstance(one, Exception)] == []
    return sum(isinstance(one, Enrolment) for one in answers)


def test_looked_up_and_then_written_a_token_works_twice(
    at_once: AtOnce, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the one conditional statement prevents."""
    both_looked, update = threading.Barrier(2), QuerySet.update

    def look_then_write(rows: Any, **changes: Any) -> int:
        found = list(rows.values_list("pk", flat=True))
        both_looked.wait(timeout=DEADLINE_S)
        return update(EnrolmentToken.objects.filter(pk__in=found), **changes)

    monkeypatch.setattr(QuerySet, "update", look_then_write)
    assert uses(at_once, token, 2) == 2


def test_token_works_for_exactly_one_of_many_at_once(at_once: AtOnce, token: str) -> None:
    assert uses(at_once, token, 6) == 1
    assert uses(at_once, token, 2) == 0


def test_of_two_new_tokens_at_once_one_is_void(at_once: AtOnce, ap: AttachmentPoint) -> None:
    made = at_once(*[lambda: enrolment_token_create(host_id=ap.host.pk, actor=None)] * 4)
    assert EnrolmentToken.objects.filter(voided_at=None).count() == 1
    randoms = [one.text.split(".")[1] for one in made]
    assert sum(host_enrol(random=one, address=None) is not None for one in randoms) == 1


def test_without_the_lock_a_new_service_makes_two_keys(
    at_once: AtOnce, without_lock: Callable[[Any, str], None], meet_in: Any
) -> None:
    without_lock(signing, "_lock")
    meet_in(signing, "_make")
    at_once(key_ring, key_ring)
    assert SigningKey.objects.count() == 2


def test_with_it_all_of_them_share_one(at_once: AtOnce, meet_in: Any) -> None:
    meet_in(signing, "_make")
    rings = at_once(*[key_ring] * 4)
    assert len({ring.fingerprint for ring in rings}) == 1
    assert SigningKey.objects.count() == 1


def two_revoke(at_once: AtOnce) -> tuple[int, list[str]]:
    """Each of two people revokes another one of the two keys: how many are valid then, and what was refused."""
    key_ring()
    signing_key_rotate(actor=None)
    first, second = SigningKey.objects.values_list("key_id", flat=True)
    answers = at_once(
        lambda: signing_key_revoke(key_id=first, actor=None), lambda: signing_key_revoke(key_id=second, actor=None)
    )
    refused = [one.code for one in answers if isinstance(one, RuleError)]
    return SigningKey.objects.filter(revoked_at=None).count(), refused


def test_without_the_lock_the_last_two_keys_are_revoked(
    at_once: AtOnce, without_lock: Callable[[Any, str], None], meet_in: Any
) -> None:
    without_lock(signing, "_lock")
    meet_in(signing, "_is_last")
    assert two_revoke(at_once) == (0, [])


def test_with_it_the_second_is_refused(at_once: AtOnce, meet_in: Any) -> None:
    meet_in(signing, "_is_last")
    assert two_revoke(at_once) == (1, ["signing_key_last"])


def test_keys_generation_and_saves_at_once_end_in_no_deadlock(
    at_once: AtOnce, ap: AttachmentPoint, owner: User
) -> None:
    key_ring()
    answers = at_once(
        *[lambda: signing_key_rotate(actor=None)] * 2,
        *[generation_raise] * 2,
        *[lambda: host_rotate_secret(host_id=ap.host.pk, actor=owner)] * 2,
        *[lambda: hosts_bump(config_ids=[ap.host.pk])] * 2,
    )
    assert [one for one in answers if isinstance(one, Exception)] == []


def test_tokens_made_while_a_key_is_revoked_end_in_no_deadlock(
    at_once: AtOnce, ap: AttachmentPoint, meet_in: Any
) -> None:
    """Both lock the host and its unused tokens; who took them the other way round would wait for the other for ever."""
    key_ring()
    signing_key_rotate(actor=None)
    enrolment_token_create(host_id=ap.host.pk, actor=None)
    first = SigningKey.objects.order_by("pk")[0].key_id
    meet_in(locks, "lock_hosts")
    answers = at_once(
        lambda: signing_key_revoke(key_id=first, actor=None),
        lambda: enrolment_token_create(host_id=ap.host.pk, actor=None),
    )
    assert [one for one in answers if isinstance(one, Exception)] == []
