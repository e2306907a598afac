"""The service's signing keys: made once, encrypted, renewed in time, revoked with care; every one of them signs."""

from __future__ import annotations

import base64
import json
import logging
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from django.contrib.admin.models import LogEntry
from django.core.cache import cache
from django.core.management import CommandError, call_command
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from bandwidth_config import RuleError
from scionlab.accounts.models import User
from scionlab.delivery import signing
from scionlab.delivery.models import SigningKey
from scionlab.delivery.render import config_for
from scionlab.delivery.signing import (
    key_ring,
    signing_key_ensure,
    signing_key_revoke,
    signing_key_rotate,
    signing_key_rotate_if_due,
    signing_keys_rewrap,
)
from scionlab.delivery.tasks import rotate_signing_keys
from scionlab.testbed.models import Host, Link
from tests.cases import table
from tests.delivery.test_host_api import poll
from tests.support.counters import Counters
from tests.support.polling import config_members

pytestmark = pytest.mark.django_db

LIMITS = (0, 1)  # L rises, H does not


@pytest.fixture
def host(link: Link) -> Host:
    return link.interface_a.host


def manifest(tarball: bytes) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(config_members(tarball)["scionlab-config.json"])
    return found


def signers(tarball: bytes) -> list[str]:
    """Ids of the keys that signed; each signature is checked against the public key in the database."""
    document = manifest(tarball)
    for one in document["signatures"]:
        raw = base64.b64decode(SigningKey.objects.get(key_id=one["key_id"]).public_key)
        message = b"scionlab-bandwidth-config/1\n" + document["signed"].encode()
        Ed25519PublicKey.from_public_bytes(raw).verify(base64.b64decode(one["signature"]), message)
    return [one["key_id"] for one in document["signatures"]]


def told(tarball: bytes) -> tuple[list[str], list[str]]:
    signed = json.loads(manifest(tarball)["signed"])
    return [one["key_id"] for one in signed["keys"]], signed["revoked"]


def rotated(days: int, settings: Any) -> SigningKey:
    settings.SIGNING_KEY_DAYS = days
    return signing_key_rotate(actor=None)


# --- the first key ------------------------------------------------------------------------------------------


def test_first_configuration_makes_the_first_key_and_is_signed_with_it(host: Host) -> None:
    assert not SigningKey.objects.exists()
    counters = Counters()
    tarball = poll(host).content
    signing_key_ensure()
    assert counters.risen() == {}
    key = SigningKey.objects.get()
    assert signers(tarball) == [key.key_id]
    assert told(tarball) == ([key.key_id], [])
    assert timedelta(days=729) < key.not_after - timezone.now() <= timedelta(days=730)


def test_what_an_attachment_points_and_a_users_host_get_is_signed(host: Host, host_b: Host, link: Link) -> None:
    user_host = link.interface_b.host
    assert [signers(poll(one).content) for one in (host, host_b, user_host)] == [[SigningKey.objects.get().key_id]] * 3


def test_same_configuration_and_keys_give_the_same_bytes(host: Host, settings: Any) -> None:
    first = config_for(host)
    cache.clear()  # rendered anew, not fetched
    assert config_for(host).content == first.content
    rotated(100, settings)
    assert config_for(host).content != first.content


def test_key_that_ended_signs_no_more_though_a_tarball_with_it_is_cached(host: Host, settings: Any) -> None:
    """The ring is part of the cache's key: nobody has to wait until the cached one falls out."""
    lasting = rotated(100, settings)
    other = rotated(50, settings)
    assert sorted(signers(config_for(host).content)) == sorted([lasting.key_id, other.key_id])
    SigningKey.objects.filter(pk=other.pk).update(not_after=timezone.now())
    assert signers(config_for(host).content) == [lasting.key_id]


# --- rotation and revocation --------------------------------------------------------------------------------


def test_new_key_signs_at_once_beside_the_old_one_and_only_agents_are_called(
    host: Host, host_b: Host, link: Link, settings: Any, staff: User
) -> None:
    key_ring()
    old = SigningKey.objects.get()
    counters = Counters()
    new = signing_key_rotate(actor=staff)
    assert counters.risen() == {host: LIMITS, host_b: LIMITS}
    both = sorted([old.key_id, new.key_id])
    tarball = poll(host).content
    assert signers(tarball) == both
    assert told(tarball) == (both, [])


def test_revoked_key_signs_no_more_and_is_told_for_ever(host: Host, settings: Any) -> None:
    first = rotated(100, settings)
    second = rotated(200, settings)
    counters = Counters()
    signing_key_revoke(key_id=first.key_id, actor=None)
    assert counters.risen() == {host: LIMITS}
    signing_key_revoke(key_id=first.key_id, actor=None)
    assert counters.risen() == {host: LIMITS}, "a second time changes nothing"
    tarball = poll(host).content
    assert signers(tarball) == [second.key_id]
    assert told(tarball) == ([second.key_id], [first.key_id])
    SigningKey.objects.filter(pk=first.pk).update(not_after=timezone.now() - timedelta(days=1000))
    assert told(config_for(host).content) == ([second.key_id], [first.key_id])


def test_only_valid_key_is_not_revoked(host: Host, settings: Any) -> None:
    only = rotated(100, settings)
    ended = rotated(50, settings)
    SigningKey.objects.filter(pk=ended.pk).update(not_after=timezone.now())
    with pytest.raises(RuleError) as refused:
        signing_key_revoke(key_id=only.key_id, actor=None)
    assert refused.value.code == "signing_key_last"
    assert signers(poll(host).content) == [only.key_id]
    with pytest.raises(RuleError) as refused:
        signing_key_revoke(key_id="f" * 32, actor=None)
    assert refused.value.code == "signing_key_unknown"
    signing_key_revoke(key_id=ended.key_id, actor=None)  # an ended one may be: agents' clocks may be behind
    assert told(poll(host).content) == ([only.key_id], [ended.key_id])


def test_more_keys_than_agents_take_are_not_made(settings: Any) -> None:
    for _ in range(signing.MAX_VALID_KEYS):
        signing_key_rotate(actor=None)
    with pytest.raises(RuleError) as refused:
        signing_key_rotate(actor=None)
    assert refused.value.code == "signing_keys_many"


@table(("days_left", "made"), [(181, 0), (179, 1)])
def test_successor_is_made_in_time(days_left: int, made: int, settings: Any) -> None:
    key_ring()
    end = timezone.now() + timedelta(days=days_left)
    SigningKey.objects.update(not_after=end)
    rotate_signing_keys()
    assert SigningKey.objects.count() == 1 + made
    rotate_signing_keys()
    assert SigningKey.objects.count() == 1 + made


def test_service_without_configurations_needs_no_key() -> None:
    rotate_signing_keys()
    assert not SigningKey.objects.exists()


def test_short_lived_keys_are_not_replaced_at_every_look(settings: Any) -> None:
    settings.SIGNING_KEY_DAYS, settings.SIGNING_KEY_ROTATE_DAYS = 100, 180
    key_ring()
    assert [signing_key_rotate_if_due() for _ in range(3)] == [None] * 3


def test_rotation_by_hand_alone_warns_in_the_log_and_to_administrators(
    door: Client, settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    settings.SIGNING_KEY_ROTATE_DAYS = 0
    key_ring()
    page = reverse("cockpit")

    def warned() -> list[bool]:
        caplog.clear()
        assert signing_key_rotate_if_due() is None
        on_page = "The last signing key expires on" in door.get(page).content.decode()
        return [on_page, "WARNING: the last valid key expires" in run("list"), "signing_key.ends_soon" in caplog.text]

    SigningKey.objects.update(not_after=timezone.now() + timedelta(days=91))
    assert warned() == [False] * 3
    SigningKey.objects.update(not_after=timezone.now() + timedelta(days=89))
    assert warned() == [True] * 3
    assert SigningKey.objects.count() == 1


def test_service_whose_keys_all_ended_goes_on_with_a_new_one_and_says_so(
    host: Host, caplog: pytest.LogCaptureFixture
) -> None:
    key_ring()
    SigningKey.objects.update(not_after=timezone.now())
    new = signers(poll(host).content)
    assert new == [SigningKey.objects.last().key_id]  # type: ignore[union-attr]
    assert [r.levelname for r in caplog.records if "signing_key.all_ended" in r.getMessage()] == ["ERROR"]


# --- private parts ------------------------------------------------------------------------------------------


def private_part(key: SigningKey) -> bytes:
    return signing._private_bytes(key)


def test_database_alone_gives_nobody_the_key(settings: Any) -> None:
    key_ring()
    key = SigningKey.objects.get()
    raw = private_part(key)
    stored = str(SigningKey.objects.values_list())
    for written in (raw.hex(), base64.b64encode(raw).decode(), base64.urlsafe_b64encode(raw).decode(), str(raw)):
        assert written not in stored
    settings.SIGNING_SECRET = "another one, of thirty-two characters or more"
    with pytest.raises(RuleError) as refused:
        private_part(key)
    assert refused.value.code == "signing_key_unreadable"
    assert "SIGNING_SECRET" in refused.value.message


def test_nothing_is_signed_and_no_key_made_with_a_wrong_secret(
    door: Client, host: Host, link: Link, settings: Any
) -> None:
    """A new key would be one that no agent trusts."""
    key_ring()
    settings.SIGNING_SECRET = "another one, of thirty-two characters or more"
    with pytest.raises(RuleError) as refused:
        config_for(host)
    assert refused.value.code == "signing_key_unreadable"
    answer = poll(host)
    assert (answer.status_code, answer["Retry-After"], answer.json()["code"]) == (503, "60", "signing_key_unreadable")
    assert SigningKey.objects.count() == 1
    assert "cannot be decrypted" in door.get(reverse("cockpit")).content.decode()
    downloaded = door.get(reverse("admin:testbed_host_config", args=[host.pk]), follow=True)
    assert "another SIGNING_SECRET" in downloaded.content.decode()
    owner = Client()
    owner.force_login(link.interface_b.AS.useras.owner)
    told_to_owner = owner.get(reverse("user_as_download", args=[link.interface_b.AS_id]), follow=True).content.decode()
    assert "an administrator has to resolve a problem" in told_to_owner


def test_lost_secret_costs_the_keys_and_not_the_service(host: Host, settings: Any) -> None:
    """The way out that docs/operations.md gives: another key, then each that cannot be decrypted is revoked."""
    key_ring()
    lost = SigningKey.objects.get()
    settings.SIGNING_SECRET = "another one, of thirty-two characters or more"
    new = signing_key_rotate(actor=None)
    assert poll(host).status_code == 503
    signing_key_revoke(key_id=lost.key_id, actor=None)
    tarball = poll(host).content
    assert signers(tarball) == [new.key_id]
    assert told(tarball) == ([new.key_id], [lost.key_id])


def test_secret_is_changed_by_way_of_a_fallback(host: Host, settings: Any) -> None:
    key_ring()
    raw = private_part(SigningKey.objects.get())
    old, new = settings.SIGNING_SECRET, "a new one, of thirty-two characters or more"
    settings.SIGNING_SECRET, settings.SIGNING_SECRET_FALLBACKS = new, [old]
    assert private_part(SigningKey.objects.get()) == raw
    assert signing_keys_rewrap() == 3  # two master keys of the user AS
    settings.SIGNING_SECRET_FALLBACKS = []
    assert private_part(SigningKey.objects.get()) == raw
    assert len(signers(poll(host).content)) == 1


def test_private_part_is_on_no_page_and_in_no_log(
    door: Client, staff: User, caplog: pytest.LogCaptureFixture, settings: Any
) -> None:
    caplog.set_level(logging.DEBUG)
    door.post(reverse("admin:delivery_signingkey_rotate"))
    door.post(reverse("admin:delivery_signingkey_rotate"))
    key = SigningKey.objects.first()
    assert key is not None
    urls = [reverse("admin:delivery_signingkey_changelist")]
    urls += [reverse(f"admin:delivery_signingkey_{name}", args=[key.pk]) for name in ("change", "revoke")]
    pages = [door.get(url).content.decode() for url in urls]
    assert key.public_key in pages[1]
    shown = [*pages, run("list"), caplog.text, str(LogEntry.objects.values_list("object_repr", "change_message"))]
    for secret in (key.private_encrypted, private_part(key).hex(), base64.b64encode(private_part(key)).decode()):
        assert secret not in "".join(shown)


# --- the two doors ------------------------------------------------------------------------------------------


def test_administrator_asks_first_then_makes_and_revokes(door: Client, staff: User, host: Host) -> None:
    key_ring()
    old = SigningKey.objects.get()
    rotate = reverse("admin:delivery_signingkey_rotate")
    revoke = reverse("admin:delivery_signingkey_revoke", args=[old.pk])
    assert door.get(rotate).status_code == 200
    assert SigningKey.objects.count() == 1
    assert "is the only valid signing key" in door.post(revoke, follow=True).content.decode()
    door.post(rotate)
    assert SigningKey.objects.count() == 2
    assert door.get(revoke).status_code == 200
    assert SigningKey.objects.get(pk=old.pk).revoked_at is None
    door.post(revoke)
    assert signers(poll(host).content) == [SigningKey.objects.last().key_id]  # type: ignore[union-attr]
    assert list(LogEntry.objects.values_list("user", flat=True)) == [staff.pk] * 2
    for what in ("change", "delete"):  # by hand
        url = reverse(f"admin:delivery_signingkey_{what}", args=[old.pk])
        assert door.post(url, {"post": "yes"}).status_code == 403


def run(*arguments: str) -> str:
    out = StringIO()
    call_command("signing_key", *arguments, stdout=out)
    return out.getvalue()


def test_command_lists_makes_and_revokes(host: Host) -> None:
    run("list")
    first = SigningKey.objects.get()
    assert f'service_keys: "{first.public_key} {first.not_after:%Y-%m-%dT%H:%M:%SZ}"' in run("list")
    with pytest.raises(CommandError, match="only valid signing key"):
        run("revoke", first.key_id)
    run("rotate", "--dry-run")
    assert SigningKey.objects.count() == 1
    run("rotate")
    run("revoke", first.key_id, "--dry-run")
    assert [line.split()[1] for line in run("list").splitlines() if "until" in line] == ["signs", "signs"]
    run("revoke", first.key_id)
    assert [line.split()[1] for line in run("list").splitlines() if "until" in line] == ["revoked", "signs"]
    assert "4 private parts" in run("rewrap")  # with the user AS's master keys
