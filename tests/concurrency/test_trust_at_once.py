"""The keys of the testbed by two at once: TRCs follow each other, and a renewal is done by one."""

from __future__ import annotations

from datetime import timedelta
from functools import partial

import pytest
from cryptography import x509
from django.utils import timezone

from scionlab.delivery import signing
from scionlab.delivery.models import SigningKey
from scionlab.platform import secrets_box
from scionlab.scion_config import isd, renewal
from scionlab.scion_config.models import TRC, ASKeys, Certificate
from scionlab.scion_config.pki.keys import key_from_pem
from scionlab.scion_config.pki.updates import verify
from scionlab.testbed import infrastructure
from scionlab.testbed.models import AS
from tests.concurrency.conftest import AtOnce, MeetIn


def make(number: int, *, is_core: bool) -> AS:
    return infrastructure.infrastructure_as_create(
        isd=17, as_text=f"ffaa:0:11{number:02}", label="", is_core=is_core, public_ipv4=f"192.0.2.{number}"
    )


def verified() -> list[str]:
    """The TRCs in their order; each was made after the one before."""
    before, names = None, []
    for one in TRC.objects.all():
        before = verify(bytes(one.content), before)
        names.append(str(before.id))
    return names


@pytest.fixture
def candidates(transactional_db: None) -> list[AS]:
    """A core AS is there, and two more are to become some."""
    make(1, is_core=True)
    return [make(number, is_core=False) for number in (2, 3)]


def test_two_ases_that_become_core_at_once_make_two_trcs(
    candidates: list[AS], at_once: AtOnce, meet_in: MeetIn
) -> None:
    meeting = meet_in(isd, "newest_trc")
    promote = partial(infrastructure.infrastructure_as_update, label="", is_core=True)
    promoted = at_once(*(partial(promote, as_id=one.pk) for one in candidates))
    assert [type(one) for one in promoted] == [AS, AS]
    assert not meeting.met
    assert verified() == ["ISD17-B1-S1", "ISD17-B1-S2", "ISD17-B1-S3"]


def test_a_key_that_is_renewed_while_all_are_encrypted_anew_stays_that_of_its_certificate(
    candidates: list[AS], at_once: AtOnce, meet_in: MeetIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that encrypts has read the former key, and waits; the other one would replace it meanwhile."""
    for other in (SigningKey, Certificate):
        monkeypatch.delitem(secrets_box._COLUMNS, other)
    meet_in(secrets_box, "opened")
    renew = partial(renewal.keys_renew, now=timezone.now() + timedelta(days=60))
    answers = at_once(renew, signing.signing_keys_rewrap)
    assert [type(one) for one in answers] == [int, int]
    for keys in ASKeys.objects.all():
        key = key_from_pem(secrets_box.opened(keys.private_encrypted, "a key"))
        assert key.public_key() == x509.load_der_x509_certificate(bytes(keys.content)).public_key()
