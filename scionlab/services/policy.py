"""The defaults that administrators set, and how they reach the attachment points.

A default is stored at once and carried out right after, by a task: `AttachmentPoint.maximum_kbit` follows the default
in force there, and only then do configurations clamp to it. So a configuration is a function of its versions, and an
administrator's page does not wait for every attachment point.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from django.db import transaction
from django.db.models import Exists, OuterRef, Q
from django.db.models.functions import Coalesce

from bandwidth_config import RuleError, check_bandwidth
from scionlab import selectors
from scionlab.models import AttachmentPoint, BandwidthChange, Link, TimedLimit, User
from scionlab.retry import retried
from scionlab.services import allocation, audit
from scionlab.services.changes import Changes
from scionlab.services.each import for_each
from scionlab.services.errors import FieldRuleError
from scionlab.services.queue import FAN_OUT_DEFAULTS, queue_after_commit
from scionlab.services.stale import Values, last_bandwidth_change, refuse_stale

logger = logging.getLogger(__name__)


@transaction.atomic
def site_default_set(
    *, default_bandwidth_kbit: int, actor: User | None, reason: str = "", shown: Values | None = None
) -> None:
    """Set x of every attachment point that has no default of its own. Nothing happens for the value that is stored.

    `shown`: the default that the page showed, see `services.stale`.
    Raises `FieldRuleError` (`bandwidth_negative`, `bandwidth_too_high`), `StalePageError`.
    """
    _check(default_bandwidth_kbit)
    policy = allocation.lock_policy()
    allocation.lock_attachment_points()  # nobody is in the middle of checking a number against the old default
    old = policy.default_bandwidth_kbit
    _refuse_stale(shown, old, default_bandwidth_kbit, kind=BandwidthChange.Kind.SITE_DEFAULT)
    if old == default_bandwidth_kbit:
        return
    policy.default_bandwidth_kbit = default_bandwidth_kbit
    policy.save(update_fields=["default_bandwidth_kbit"])
    audit.note_default(None, actor=actor, old=old, new=default_bandwidth_kbit, reason=reason)
    queue_after_commit(FAN_OUT_DEFAULTS)
    logger.info("policy.site_default old=%s new=%s", old, default_bandwidth_kbit)


@transaction.atomic
def ap_default_set(
    *,
    attachment_point_id: int,
    default_bandwidth_kbit: int | None,
    actor: User | None,
    reason: str = "",
    shown: Values | None = None,
) -> None:
    """Set x of one attachment point; None: the site default counts there again. `shown` as above.

    Raises `FieldRuleError` (`bandwidth_negative`, `bandwidth_too_high`), `StalePageError`,
    `AttachmentPoint.DoesNotExist`.
    """
    if default_bandwidth_kbit is not None:
        _check(default_bandwidth_kbit)
    allocation.lock_attachment_points([attachment_point_id])
    ap = AttachmentPoint.objects.select_related("AS__isd").get(pk=attachment_point_id)
    old = ap.default_bandwidth_kbit
    _refuse_stale(
        shown, old, default_bandwidth_kbit, kind=BandwidthChange.Kind.AP_DEFAULT, attachment_point=attachment_point_id
    )
    if old != default_bandwidth_kbit:
        _store(ap, default_bandwidth_kbit, actor=actor, reason=reason)
        queue_after_commit(FAN_OUT_DEFAULTS)


@transaction.atomic
def ap_defaults_set(*, defaults: Mapping[int, int | None], actor: User | None, reason: str) -> None:
    """The same of many attachment points, by key; to be called with their rows locked.

    Raises `FieldRuleError` (`bandwidth_negative`, `bandwidth_too_high`).
    """
    for ap in AttachmentPoint.objects.select_related("AS__isd").filter(pk__in=defaults).order_by("pk"):
        wanted = defaults[ap.pk]
        if wanted is not None:
            _check(wanted)
        if wanted != ap.default_bandwidth_kbit:
            _store(ap, wanted, actor=actor, reason=reason)
    queue_after_commit(FAN_OUT_DEFAULTS)


def _store(ap: AttachmentPoint, wanted_kbit: int | None, *, actor: User | None, reason: str) -> None:
    old = ap.default_bandwidth_kbit
    ap.default_bandwidth_kbit = wanted_kbit
    ap.save(update_fields=["default_bandwidth_kbit"])
    audit.note_default(ap, actor=actor, old=old, new=wanted_kbit, reason=reason)
    logger.info("policy.ap_default ap=%s old=%s new=%s", ap.pk, old, wanted_kbit)


def _refuse_stale(shown: Values | None, stored: int | None, wanted: int | None, **which: object) -> None:
    name = "default_bandwidth_kbit"
    refuse_stale(shown=shown, stored={name: stored}, wanted={name: wanted}, last=lambda: last_bandwidth_change(**which))


def _check(default_bandwidth_kbit: int) -> None:
    try:
        check_bandwidth(default_bandwidth_kbit)
    except RuleError as exc:
        raise FieldRuleError.of(exc, "default_bandwidth_kbit") from exc


def fan_out() -> list[int]:
    """Carry changed defaults out, one attachment point per transaction; returns the hosts whose L rose.

    Level-triggered and idempotent: it compares what is carried out with what is in force, whoever changed it, so it may
    run at any time and any number of times. A host's L rises once, and only when a limit there really changes. An
    attachment point that fails keeps no other from it.
    """
    return for_each(unsettled_attachment_points(), carry_out_default)


def unsettled_attachment_points() -> list[int]:
    """Where the maximum is not the default in force. Two statements."""
    in_force = Coalesce("default_bandwidth_kbit", selectors.policy().default_bandwidth_kbit)
    return list(AttachmentPoint.objects.exclude(maximum_kbit=in_force).order_by("pk").values_list("pk", flat=True))


@retried
@transaction.atomic
def carry_out_default(attachment_point_id: int) -> list[int]:
    """The same for one attachment point, e.g. one that was just made."""
    allocation.lock_attachment_points([attachment_point_id])
    changes = Changes()
    settle_default(attachment_point_id, changes)
    return sorted(changes.carry_out())


def _stated_above(kbit: int) -> Q:
    """Links whose entry has a higher number, in any direction at any time: min(b, old) != min(b, new) holds for exactly
    the numbers above the lower of the two."""
    timed = TimedLimit.objects.filter(link=OuterRef("pk"), cancelled_at=None, retired_at=None, highest_kbit__gt=kbit)
    return Q(bandwidth_kbit__gt=kbit) | Q(from_user_kbit__gt=kbit) | Q(Exists(timed))


def settle_default(attachment_point_id: int, changes: Changes) -> None:
    """Make the maximum what the default in force is, and note the Links whose limit changes; the row is locked.

    Services that touch an attachment point begin with this, so that nothing new is clamped to an outdated maximum.
    """
    ap = AttachmentPoint.objects.filter(pk=attachment_point_id).first()
    if ap is None:  # deleted meanwhile
        return
    old, new = ap.maximum_kbit, ap.default_in_force(selectors.policy())
    if old == new:
        return
    provided = Link.objects.filter(type=Link.Type.PROVIDER, interface_a__AS=ap.AS_id, active=True)
    affected = provided.filter(_stated_above(min(old, new)), interface_b__AS__useras__isnull=False)
    provider_host_of = dict(affected.values_list("pk", "interface_a__host_id"))
    allocation.lock_links(provider_host_of)
    AttachmentPoint.objects.filter(pk=ap.pk).update(maximum_kbit=new)
    changes.note_limits(provider_host_of)
    logger.info("policy.carried_out ap=%s old=%s new=%s links=%s", ap.pk, old, new, len(provider_host_of))
