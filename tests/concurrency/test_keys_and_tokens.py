"""Keys and tokens with two at once: one first key, one use of a token, never the last two keys revoked."""

from __future__ import annotations

from functools import partial

import pytest

from bandwidth_config import RuleError
from scionlab.delivery import signing
from scionlab.delivery.enrolment import Enrolment, enrolment_token_create, host_enrol
from scionlab.delivery.models import SigningKey
from scionlab.delivery.signing import key_ring, signing_key_revoke, signing_key_rotate
from scionlab.testbed.models import AttachmentPoint
from tests.concurrency.conftest import AtOnce, MeetIn, failures


@pytest.fixture
def token(ap: AttachmentPoint) -> str:
    """The random part of a fresh token."""
    return enrolment_token_create(host_id=ap.host.pk, actor=None).text.split(".")[1]


def test_token_works_for_exactly_one_of_many_at_once(at_once: AtOnce, token: str) -> None:
    for count, enrolled in ((6, 1), (2, 0)):
        answers = at_once(*[partial(host_enrol, random=token, address="192.0.2.9")] * count)
        assert failures(answers) == []
        assert sum(isinstance(one, Enrolment) for one in answers) == enrolled


def test_all_who_ask_for_the_first_key_share_one(at_once: AtOnce, meet_in: MeetIn) -> None:
    meet_in(signing, "_make")
    rings = at_once(*[key_ring] * 4)
    assert len({ring.fingerprint for ring in rings}) == 1
    assert SigningKey.objects.count() == 1


def test_of_two_who_revoke_the_last_two_keys_the_second_is_refused(at_once: AtOnce, meet_in: MeetIn) -> None:
    key_ring()
    signing_key_rotate(actor=None)
    meet_in(signing, "_is_last")
    answers = at_once(*(partial(signing_key_revoke, key_id=key.key_id, actor=None) for key in SigningKey.objects.all()))
    assert [one.code for one in answers if isinstance(one, RuleError)] == ["signing_key_last"], answers
    assert SigningKey.objects.filter(revoked_at=None).count() == 1
