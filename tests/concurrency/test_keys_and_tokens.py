"""Keys and tokens with two at once: one first key, one use of a token, never the last two keys revoked."""

from __future__ import annotations

from typing import Any

import pytest

from bandwidth_config import RuleError
from scionlab.delivery import signing
from scionlab.delivery.enrolment import Enrolment, enrolment_token_create, host_enrol
from scionlab.delivery.models import SigningKey
from scionlab.delivery.signing import key_ring, signing_key_revoke, signing_key_rotate
from scionlab.testbed.models import AttachmentPoint
from tests.concurrency.conftest import AtOnce, failures


@pytest.fixture
def token(ap: AttachmentPoint) -> str:
    """The random part of a fresh token."""
    return enrolment_token_create(host_id=ap.host.pk, actor=None).text.split(".")[1]


def uses(at_once: AtOnce, token: str, count: int) -> int:
    answers = at_once(*[lambda: host_enrol(random=token, address="192.0.2.9")] * count)
    assert failures(answers) == []
    return sum(isinstance(one, Enrolment) for one in answers)


def test_token_works_for_exactly_one_of_many_at_once(at_once: AtOnce, token: str) -> None:
    assert uses(at_once, token, 6) == 1
    assert uses(at_once, token, 2) == 0


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


def test_with_it_the_second_is_refused(at_once: AtOnce, meet_in: Any) -> None:
    meet_in(signing, "_is_last")
    assert two_revoke(at_once) == (1, ["signing_key_last"])
