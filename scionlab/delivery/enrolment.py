"""Enrolment: a one-time token for a host's credentials and this service's keys.

The token is `slbw1.<random>.<key id>`: the random part is a one-time secret; with the key id the agent verifies the
keys that it receives.
"""

from __future__ import annotations

import hashlib
import logging
import secrets
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction
from django.views.decorators.debug import sensitive_variables

from bandwidth_config import RuleError
from scionlab.accounts.models import User
from scionlab.delivery.models import EnrolmentToken
from scionlab.delivery.signing import key_ring, valid_keys
from scionlab.platform.clock import database_now
from scionlab.testbed import audit, locks
from scionlab.testbed.models import BandwidthChange, Host

logger = logging.getLogger(__name__)

TOKEN_PREFIX = "slbw1"  # noqa: S105  names the format of a token
LIFETIME = timedelta(hours=24)
_RANDOM_BYTES = 32


@dataclass(frozen=True)
class IssuedToken:
    """A token, to be shown once: it is not stored."""

    text: str = field(repr=False)
    expires_at: datetime


@dataclass(frozen=True)
class Enrolment:
    """The response to the agent."""

    host_id: str
    host_secret: str = field(repr=False)
    url: str
    keys: list[dict[str, str]]
    revoked: list[str]


def enrol_command() -> str:
    """The command for the host. It prompts for the token: a command line is visible to every user of the host."""
    return f"sudo scionlab-bw-agent enrol {settings.SITE_URL}"


@transaction.atomic
@sensitive_variables("random", "text")
def enrolment_token_create(*, host_id: int, actor: User | None, reason: str = "") -> IssuedToken:
    """Create a token for the host; revokes an unused older one. Raises `RuleError` (`host_without_as`),
    `Host.DoesNotExist`."""
    key_ring()  # creates the first key of a new service
    locks.lock_hosts([host_id])
    host = Host.objects.get(pk=host_id)
    if host.AS_id is None:
        raise RuleError("host_without_as", f"{host} belongs to no AS and cannot be enrolled.")
    now = database_now()
    EnrolmentToken.objects.filter(host=host, used_at=None, voided_at=None).update(voided_at=now)
    random = secrets.token_urlsafe(_RANDOM_BYTES)
    longest = valid_keys().order_by("not_after", "pk").last()
    assert longest is not None  # noqa: S101  key_ring() saw to it
    text = f"{TOKEN_PREFIX}.{random}.{longest.key_id}"
    token = EnrolmentToken.objects.create(
        token_sha256=_hash(random), host=host, created_by=actor, created_at=now, expires_at=now + LIFETIME
    )
    kind = BandwidthChange.Kind.HOST_SETTINGS
    audit.note(host, kind=kind, actor=actor, detail="Enrolment token created", reason=reason)
    name = "command line" if actor is None else actor.pk
    logger.info("enrolment.token_made token=%s host=%s actor=%s", token.pk, host_id, name)
    return IssuedToken(text=text, expires_at=token.expires_at)


@transaction.atomic
@sensitive_variables("random")
def host_enrol(*, random: str, address: str | None) -> Enrolment | None:
    """Use a token. Returns None if it is unknown, used, expired or revoked, or its host has no AS. `random` is the
    random part. One statement checks and uses it: of two concurrent uses the second finds it used."""
    keys = key_ring()
    now = database_now()
    usable = EnrolmentToken.objects.filter(token_sha256=_hash(random), used_at=None, voided_at=None, expires_at__gt=now)
    if usable.update(used_at=now, used_from=address) != 1:
        logger.warning("enrolment.refused address=%s", address)
        return None
    token = EnrolmentToken.objects.select_related("host").get(token_sha256=_hash(random))
    host = token.host
    if host.AS_id is None:
        logger.warning("enrolment.refused token=%s host=%s without AS address=%s", token.pk, host.pk, address)
        return None
    logger.info("enrolment.done token=%s host=%s address=%s", token.pk, host.pk, address)
    return Enrolment(
        host_id=host.uid,
        host_secret=host.secret,
        url=settings.SITE_URL,
        keys=keys.entries,
        revoked=list(keys.revoked),
    )


@sensitive_variables("random")
def _hash(random: str) -> str:
    """No salt and no slow hash: 256 random bits cannot be guessed."""
    return hashlib.sha256(random.encode("utf-8", "surrogatepass")).hexdigest()
