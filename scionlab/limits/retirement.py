"""Removes ended timed limits and tests from the configurations. Kernels do not change."""

from __future__ import annotations

import logging
from datetime import datetime

from django.db import models, transaction

from scionlab.platform.each import for_each
from scionlab.platform.retry import retried
from scionlab.testbed import locks
from scionlab.testbed.models import AttachmentPoint
from scionlab.testbed.versions.changes import Changes

logger = logging.getLogger(__name__)

Ended = type[models.Model]  # with `link`, `ends_at`, `cancelled_at` and `retired_at`


def retire(model: Ended, *, until: datetime, now: datetime) -> list[int]:
    """Retire those that ended at `until` or before, one attachment point per transaction; return the hosts whose L
    rose. Idempotent."""
    over = model._default_manager.filter(cancelled_at=None, retired_at=None, ends_at__lte=until)
    ap_ids = set(over.values_list("link__interface_a__AS__attachment_point", flat=True))
    return for_each(sorted(ap_ids), lambda ap_id: _retire_locked(ap_id, model, until, now))


@retried
@transaction.atomic
def _retire_locked(attachment_point_id: int, model: Ended, until: datetime, now: datetime) -> list[int]:
    locks.lock_attachment_points([attachment_point_id])
    ap = AttachmentPoint.objects.filter(pk=attachment_point_id).first()
    changes = Changes()
    if ap is not None:
        retire_at(ap, model, until=until, now=now, changes=changes)
    return sorted(changes.carry_out())


def retire_at(ap: AttachmentPoint, model: Ended, *, until: datetime, now: datetime, changes: Changes) -> None:
    """For services that hold the lock of the attachment point."""
    over = model._default_manager.filter(
        link__interface_a__host=ap.host_id, cancelled_at=None, retired_at=None, ends_at__lte=until
    )
    count = over.update(retired_at=now)
    if count:
        changes.note_documents([ap.host_id])
        logger.info("%s.retired ap=%s count=%s", model._meta.model_name, ap.pk, count)


def log_retired(what: str, host_ids: list[int]) -> None:
    if host_ids:
        logger.info("retire.done what=%s hosts=%s", what, host_ids)
