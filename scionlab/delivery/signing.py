"""Signing keys of configurations: creation, rotation, revocation.

Every valid key signs every configuration, so an agent that was offline during a rotation still knows one of them.
Writes lock the row of `ServiceState`: concurrent ones cannot create two first keys or revoke the last two.
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from django.conf import settings
from django.db import transaction
from django.db.models import Q, QuerySet

from bandwidth_config import RuleError
from config_tar import CONTEXT, KeyRing, Signer, key_id_of
from scionlab.accounts.models import User
from scionlab.delivery.models import EnrolmentToken, SigningKey
from scionlab.platform import secrets_box
from scionlab.platform.clock import database_now
from scionlab.platform.retry import retried
from scionlab.testbed.models import Host, ServiceState
from scionlab.testbed.versions.counters import hosts_bump

logger = logging.getLogger(__name__)

MAX_VALID_KEYS = 8  # all sign every configuration, and agents accept at most 32
WARN_DAYS = 90  # before the end of the last valid key; automatic rotation is earlier


def key_ring() -> KeyRing:
    """All valid keys and revoked ids; creates the first key of a new service. Otherwise one SQL statement. Private
    parts are decrypted when signing, which raises `RuleError` (`signing_key_unreadable`) on failure."""
    found = _key_ring()
    if found is not None:
        return found
    signing_key_ensure()
    found = _key_ring()
    if found is None:  # revoked meanwhile, without a successor
        raise RuleError("signing_key_missing", "There is no valid signing key. Run manage.py signing_key rotate.")
    return found


def _key_ring() -> KeyRing | None:
    now = database_now()
    keys = list(SigningKey.objects.filter(Q(revoked_at__isnull=False) | Q(not_after__gt=now)))
    valid = [key for key in keys if key.revoked_at is None]
    if not valid:
        return None
    return KeyRing(
        signers=tuple(_signer(key) for key in valid),
        revoked=tuple(key.key_id for key in keys if key.revoked_at is not None),
    )


def valid_keys() -> QuerySet[SigningKey]:
    """In order of creation."""
    return SigningKey.objects.filter(revoked_at=None, not_after__gt=database_now())


def end_of_last_key() -> datetime | None:
    """End of the last valid key; None without any (a new service creates one at its first rendering)."""
    newest = valid_keys().order_by("not_after").last()
    return None if newest is None else newest.not_after


def near_end(end: datetime | None) -> datetime | None:
    """`end`, if it is near."""
    days = min(WARN_DAYS, settings.SIGNING_KEY_DAYS // 4)
    return end if end is not None and end - database_now() < timedelta(days=days) else None


def unreadable_keys(valid: Iterable[SigningKey] | None = None) -> list[SigningKey]:
    """Valid keys whose private part cannot be decrypted: then nothing can be signed. `valid`: all valid ones, if
    already read."""
    return [key for key in (valid_keys() if valid is None else valid) if not _is_readable(key)]


def is_signed_here(text: str, signatures: Mapping[str, bytes]) -> bool:
    """Whether a signature (by key id) is valid and by a key of this service that is not revoked; it may have
    expired."""
    message = CONTEXT + text.encode()
    for key in SigningKey.objects.filter(key_id__in=signatures, revoked_at=None):
        try:
            Ed25519PublicKey.from_public_bytes(base64.b64decode(key.public_key)).verify(signatures[key.key_id], message)
        except InvalidSignature:
            continue
        return True
    return False


def service_key_line(key: SigningKey) -> str:
    """The line for `service_keys` of a manually configured agent."""
    return f"{key.public_key} {key.not_after:%Y-%m-%dT%H:%M:%SZ}"


# --- writes -------------------------------------------------------------------------------------------------


@transaction.atomic
def signing_key_ensure() -> None:
    """Create a key if there is no valid one. Agents are not notified: none trusts a key yet."""
    _lock()
    if valid_keys().exists():
        return
    if SigningKey.objects.exists():
        logger.error("signing_key.all_ended: agents accept no configuration until they are enrolled again")
    _make(actor=None)


@transaction.atomic
def signing_key_rotate(*, actor: User | None) -> SigningKey:
    """Create another key. It signs and is announced immediately; older ones keep signing until they expire. Raises
    `RuleError` (`signing_keys_many`)."""
    _lock()
    count = valid_keys().count()
    if count >= MAX_VALID_KEYS:
        raise RuleError(
            "signing_keys_many", f"There are {count} valid signing keys, which is the maximum. Revoke one first."
        )
    key = _make(actor)
    _announce()
    return key


@retried
@transaction.atomic
def signing_key_rotate_if_due() -> SigningKey | None:
    """Create the next key when the last valid one has fewer than SIGNING_KEY_ROTATE_DAYS left (0: never)."""
    days = min(settings.SIGNING_KEY_ROTATE_DAYS, settings.SIGNING_KEY_DAYS // 2)  # or a new one would be due at once
    if not SigningKey.objects.exists():
        return None
    _lock()
    end = end_of_last_key()
    if days and (end is None or end - database_now() < timedelta(days=days)):
        return signing_key_rotate(actor=None)
    if end is None or near_end(end) is not None:
        logger.warning('signing_key.ends_soon until=%s remedy="manage.py signing_key rotate"', end)
    return None


@transaction.atomic
def signing_key_revoke(*, key_id: str, actor: User | None) -> None:
    """Stop signing with the key, and announce that it is revoked. The announcement must be signed by another key, so
    the only valid key cannot be revoked. Idempotent. Raises `RuleError` (`signing_key_unknown`, `signing_key_last`)."""
    _lock()
    key = SigningKey.objects.filter(key_id=key_id).first()
    if key is None:
        raise RuleError("signing_key_unknown", f"Signing key {key_id} does not exist. See manage.py signing_key list.")
    if key.revoked_at is not None:
        return
    if _is_last(key):
        raise RuleError(
            "signing_key_last",
            f"{key_id} is the only valid signing key: without it agents accept no configuration. Create its "
            "successor first (rotate), wait until the agents have fetched it, then revoke this one.",
        )
    now = database_now()
    SigningKey.objects.filter(pk=key.pk).update(revoked_at=now)
    _announce()  # before the tokens: creating one locks its host first, too
    # They may name this key; an agent that requires it would use its token in vain.
    EnrolmentToken.objects.filter(used_at=None, voided_at=None).update(voided_at=now)
    logger.warning("signing_key.revoked key_id=%s actor=%s", key_id, _name(actor))


@retried
@transaction.atomic
def signing_keys_rewrap() -> int:
    """Encrypt every secret of the service and the testbed with the newest SIGNING_SECRET. Returns their number. Raises
    `RuleError` (`secret_unreadable`)."""
    _lock()
    return secrets_box.rewrap()


def _is_last(key: SigningKey) -> bool:
    return key.is_valid() and not valid_keys().exclude(pk=key.pk).exists()


def _lock() -> None:
    ServiceState.objects.get_or_create(pk=1)
    ServiceState.objects.select_for_update(no_key=True).get(pk=1)


def _make(actor: User | None) -> SigningKey:
    private = Ed25519PrivateKey.generate()
    public = private.public_key().public_bytes_raw()
    now = database_now()
    end = (now + timedelta(days=settings.SIGNING_KEY_DAYS)).replace(microsecond=0)  # announced in whole seconds
    key = SigningKey.objects.create(
        key_id=key_id_of(public),
        public_key=base64.b64encode(public).decode("ascii"),
        private_encrypted=secrets_box.sealed(private.private_bytes_raw()),
        created_at=now,
        not_after=end,
    )
    logger.info("signing_key.made key_id=%s until=%s actor=%s", key.key_id, end, _name(actor))
    return key


def _announce() -> None:
    """Raise L of hosts of attachment points, so that our agents, which alone check signatures, fetch. Not H, which
    makes stock clients restart SCION; not the hosts of user ASes, which have no agent."""
    hosts_bump(limits_ids=Host.objects.filter(attachment_point__isnull=False).values_list("pk", flat=True))


def _name(actor: User | None) -> object:
    return "service" if actor is None else actor.pk


# --- private parts ------------------------------------------------------------------------------------------


def _signer(key: SigningKey) -> Signer:
    def sign(message: bytes) -> bytes:
        return Ed25519PrivateKey.from_private_bytes(_private_bytes(key)).sign(message)

    return Signer(public_key=base64.b64decode(key.public_key), not_after=key.not_after, sign=sign)


def _private_bytes(key: SigningKey) -> bytes:
    try:
        return secrets_box.opened(key.private_encrypted, f"The signing key {key.key_id}")
    except RuleError as exc:
        raise RuleError("signing_key_unreadable", exc.message) from exc


def _is_readable(key: SigningKey) -> bool:
    try:
        _private_bytes(key)
    except RuleError:
        return False
    return True
