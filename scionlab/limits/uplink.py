"""Capacity and cost of attachment points' uplinks, set by administrators.

They limit nothing, so no host gets a new configuration.
"""

from __future__ import annotations

import logging
from decimal import Decimal

from django.contrib.admin.models import CHANGE, LogEntry
from django.db import transaction

from scionlab.accounts.models import User
from scionlab.testbed import locks
from scionlab.testbed.models import AttachmentPoint, BandwidthPolicy

logger = logging.getLogger(__name__)


@transaction.atomic
def uplink_set(
    *, attachment_point_id: int, uplink_kbit: int | None, cost_per_gb: Decimal | None, actor: User
) -> AttachmentPoint:
    """None: unknown; for the cost: the site's applies. Raises `ValidationError`, `AttachmentPoint.DoesNotExist`."""
    ap = AttachmentPoint.objects.select_for_update(of=("self",), no_key=True).get(pk=attachment_point_id)
    if (ap.uplink_kbit, ap.cost_per_gb) != (uplink_kbit, cost_per_gb):
        ap.uplink_kbit, ap.cost_per_gb = uplink_kbit, cost_per_gb
        ap.clean_fields(exclude=["default_bandwidth_kbit"])
        ap.save(update_fields=["uplink_kbit", "cost_per_gb"])
        _note(ap, actor, f"Uplink {uplink_kbit} kbit/s, cost per GB {cost_per_gb}.")
    return ap


@transaction.atomic
def site_cost_set(*, cost_per_gb: Decimal | None, currency: str, actor: User) -> BandwidthPolicy:
    """Set the cost for attachment points without their own. Raises `ValidationError`."""
    policy = locks.lock_policy()
    if (policy.cost_per_gb, policy.currency) != (cost_per_gb, currency):
        policy.cost_per_gb, policy.currency = cost_per_gb, currency
        policy.clean_fields(exclude=["default_bandwidth_kbit"])
        policy.save(update_fields=["cost_per_gb", "currency"])
        _note(policy, actor, f"Cost per GB {cost_per_gb} {currency}.")
    return policy


def _note(obj: AttachmentPoint | BandwidthPolicy, actor: User, message: str) -> None:
    LogEntry.objects.log_actions(actor.pk, [obj], CHANGE, message)
    logger.info("uplink.set object=%s message=%r actor=%s", obj.pk, message, actor.pk)
