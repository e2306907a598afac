"""Deleted hosts: their polls are answered 204 for a while, so that the stock client stops SCION.

Our agent only reports a 204 and keeps its limits.
"""

from __future__ import annotations

import hashlib
import hmac
from datetime import timedelta
from typing import Final

from scionlab.platform.clock import database_now
from scionlab.platform.wake import wake_after_commit
from scionlab.testbed.models import DeletedHost, Host

KEPT_FOR: Final = timedelta(days=30)
_NOBODY: Final = "0" * 64


def hosts_bury(as_id: int) -> None:
    """Call in the transaction that deletes the AS, before the deletion."""
    now, hosts = database_now(), list(Host.objects.filter(AS=as_id))
    DeletedHost.objects.bulk_create(
        DeletedHost(
            uid=host.uid,
            secret_sha256=_hash(host.secret.encode()),
            previous_secret_sha256=_hash(host.previous_secret.encode()) if _in_grace(host) else "",
            deleted_at=now,
        )
        for host in hosts
    )
    wake_after_commit(host.pk for host in hosts)


def was_deleted(uid: str, secret: bytes) -> bool:
    """Whether these are the credentials of a host deleted less than 30 days ago; one SQL statement."""
    row = DeletedHost.objects.filter(uid=uid, deleted_at__gt=database_now() - KEPT_FOR).first()
    given = _hash(secret)
    fits = hmac.compare_digest(given, row.secret_sha256 if row else _NOBODY)
    fits_previous = hmac.compare_digest(given, (row.previous_secret_sha256 if row else "") or _NOBODY)
    return fits or fits_previous


def _in_grace(host: Host) -> bool:
    return bool(host.previous_secret) and (
        host.previous_secret_until is not None and database_now() < host.previous_secret_until
    )


def _hash(secret: bytes) -> str:
    return hashlib.sha256(secret).hexdigest()
