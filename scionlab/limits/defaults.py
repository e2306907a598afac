"""Defaults set by administrators and their application at attachment points; also totals, observe only, and path
metadata.

A default is stored immediately and applied by a task: `AttachmentPoint.maximum_kbit` follows the default in force, and
configurations clamp to it. So a configuration is a function of its versions, and the administrator's page does not wait
for all attachment points.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from typing import Any

from django.db import transaction
from django.db.models import Exists, F, OuterRef, Q, QuerySet, Value
from django.db.models.functions import Coalesce, Greatest

from bandwidth_config import check_bandwidth, check_total
from contract.link_rules import with_exception
from scionlab.accounts.models import User
from scionlab.limits.ap_settings import AP_SETTINGS
from scionlab.limits.exceptions_in_force import links_with_other_exception
from scionlab.platform.clock import database_now
from scionlab.platform.each import for_each
from scionlab.platform.field_errors import at_field
from scionlab.platform.queue import FAN_OUT_DEFAULTS, queue_after_commit
from scionlab.platform.retry import retried
from scionlab.testbed import audit, locks, selectors
from scionlab.testbed.last_changes import last_bandwidth_change
from scionlab.testbed.models import AttachmentPoint, BandwidthChange, BandwidthPolicy, HeldLinkEnd, Link, TimedLimit
from scionlab.testbed.versions.changes import Changes
from scionlab.web.pages.stale_pages import Values, refuse_stale, values_of

logger = logging.getLogger(__name__)

_Kinds = BandwidthChange.Kind
_AP_KINDS = [_Kinds.AP_DEFAULT, _Kinds.AP_TOTAL, _Kinds.AP_OBSERVE, _Kinds.AP_METADATA]


def refuse_older_page(*, attachment_point_id: int | None, values: Values, shown: Values | None) -> None:
    """Compare the values that a page showed of an attachment point (None: the site) with stored ones. The lock is kept
    until the transaction ends; `shown` as in `web.pages.stale_pages`. Raises `StalePageError`,
    `AttachmentPoint.DoesNotExist`."""
    row: AttachmentPoint | BandwidthPolicy
    newest: dict[str, object] = {"kind": _Kinds.SITE_DEFAULT}
    if attachment_point_id is None:
        row = locks.lock_policy()
    else:
        locks.lock_attachment_points([attachment_point_id])
        row = AttachmentPoint.objects.get(pk=attachment_point_id)
        newest = {"kind__in": _AP_KINDS, "attachment_point": attachment_point_id}
    stored = values_of(row, tuple(values))
    refuse_stale(shown=shown, stored=stored, wanted=values, last=lambda: last_bandwidth_change(**newest))


@transaction.atomic
def site_default_set(*, default_bandwidth_kbit: int, actor: User | None, reason: str = "") -> None:
    """Set the default of every attachment point without its own. Does nothing if unchanged. Raises `FieldRuleError`
    (`bandwidth_negative`, `bandwidth_too_high`)."""
    _check(default_bandwidth_kbit)
    policy = locks.lock_policy()
    locks.lock_attachment_points()  # so that no number is being checked against the old default
    old = policy.default_bandwidth_kbit
    if old == default_bandwidth_kbit:
        return
    policy.default_bandwidth_kbit = default_bandwidth_kbit
    policy.save(update_fields=["default_bandwidth_kbit"])
    audit.note(
        "site default", kind=audit.Kind.SITE_DEFAULT, actor=actor, old=old, new=default_bandwidth_kbit, reason=reason
    )
    queue_after_commit(FAN_OUT_DEFAULTS)
    logger.info("policy.site_default old=%s new=%s", old, default_bandwidth_kbit)


def ap_default_set(
    *, attachment_point_id: int, default_bandwidth_kbit: int | None, actor: User | None, reason: str = ""
) -> None:
    """`ap_update` of the default only."""
    values: Values = {"default_bandwidth_kbit": default_bandwidth_kbit}
    ap_update(attachment_point_id=attachment_point_id, values=values, actor=actor, reason=reason)


@transaction.atomic
def ap_update(*, attachment_point_id: int, values: Values, actor: User | None, reason: str = "") -> None:
    """Store settings of an attachment point; those missing in `values` are kept.

    `default_bandwidth_kbit`: None follows the site; `total_kbit`: maximum of all Links together in each direction,
    None: no total; `observe_only`: all Links are measured only. The last two raise L of the host once, in the same
    transaction, which then also applies a pending default. Those of `AP_SETTINGS`
    do what their app says. Raises `FieldRuleError` (`bandwidth_negative`, `bandwidth_too_high`, `total_range`,
    those of `AP_SETTINGS`), `AttachmentPoint.DoesNotExist`.
    """
    values = _checked_ap(values)
    locks.lock_attachment_points([attachment_point_id])
    ap = AttachmentPoint.objects.select_related("AS__isd").get(pk=attachment_point_id)
    new = {name: value for name, value in values.items() if value != getattr(ap, name)}
    if "default_bandwidth_kbit" in new:
        _store(ap, values["default_bandwidth_kbit"], actor=actor, reason=reason)  # type: ignore[arg-type]
    if new.keys() & {"total_kbit", "observe_only"}:
        _store_limiting(ap, new, actor=actor, reason=reason)
    elif "default_bandwidth_kbit" in new:
        queue_after_commit(FAN_OUT_DEFAULTS)
    for more in AP_SETTINGS:
        if new.keys() & more.names:
            more.store(ap, new, actor=actor, reason=reason)


@transaction.atomic
def ap_defaults_set(*, defaults: Mapping[int, int | None], actor: User | None, reason: str) -> None:
    """Set the defaults of many attachment points by key; their rows must be locked. Raises `FieldRuleError`
    (`bandwidth_negative`, `bandwidth_too_high`)."""
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
    audit.note(ap, kind=audit.Kind.AP_DEFAULT, actor=actor, old=old, new=wanted_kbit, reason=reason)
    logger.info("policy.ap_default ap=%s old=%s new=%s", ap.pk, old, wanted_kbit)


def _store_limiting(ap: AttachmentPoint, new: Values, *, actor: User | None, reason: str) -> None:
    """Store total and observe only: both are in the signed text of the host's configuration."""
    changes = Changes()
    apply_default(ap.pk, changes)
    if "total_kbit" in new:
        old, ap.total_kbit = ap.total_kbit, new["total_kbit"]
        audit.note(ap, kind=audit.Kind.AP_TOTAL, actor=actor, old=old, new=ap.total_kbit, reason=reason)
        changes.note_documents([ap.host_id])
    if "observe_only" in new:
        ap.observe_only = bool(new["observe_only"])
        audit.note_observing(ap, actor=actor, reason=reason)
        provider_host_of = dict(_provided(ap).values_list("pk", "interface_a__host_id"))
        locks.lock_links(provider_host_of)
        changes.note_limits(provider_host_of)
        changes.note_documents([ap.host_id])
    ap.save(update_fields=["total_kbit", "observe_only"])
    changes.carry_out()
    logger.info("policy.ap_limiting ap=%s total=%s observe_only=%s", ap.pk, ap.total_kbit, ap.observe_only)


def _provided(ap: AttachmentPoint) -> QuerySet[Link]:
    links = Link.objects.filter(type=Link.Type.PROVIDER, interface_a__AS=ap.AS_id, active=True)
    return links.filter(interface_b__AS__useras__isnull=False)


def _checked_ap(values: Values) -> Values:
    default, total = values.get("default_bandwidth_kbit"), values.get("total_kbit")
    if default is not None:
        _check(int(default))
    if total is not None:
        with at_field("total_kbit"):
            check_total(int(total))
    for more in AP_SETTINGS:
        values = {**values, **more.checked({name: values[name] for name in values.keys() & more.names})}
    return values


def _check(default_bandwidth_kbit: int) -> None:
    with at_field("default_bandwidth_kbit"):
        check_bandwidth(default_bandwidth_kbit)


def fan_out() -> list[int]:
    """Apply changed defaults, one attachment point per transaction; return the hosts whose L rose. Level-triggered and
    idempotent: it compares what is applied with what is in force, so it may run at any time. L rises once per host,
    only if a limit there changes. A failure at one attachment point does not affect others."""
    return for_each(pending_attachment_points(), carry_out_default)


def pending_attachment_points() -> list[int]:
    """Attachment points whose maximum differs from the default in force, or where an exception began or ended. Three
    statements."""
    in_force = Coalesce("default_bandwidth_kbit", selectors.policy().default_bandwidth_kbit)
    found = set(AttachmentPoint.objects.exclude(maximum_kbit=in_force).values_list("pk", flat=True))
    links = links_with_other_exception(database_now())
    return sorted(found.union(links.values_list("interface_a__AS__attachment_point", flat=True)))


@retried
@transaction.atomic
def carry_out_default(attachment_point_id: int) -> list[int]:
    """Apply the default of one attachment point, e.g. a new one."""
    locks.lock_attachment_points([attachment_point_id])
    changes = Changes()
    apply_default(attachment_point_id, changes)
    return sorted(changes.carry_out())


def _stated_above(kbit: int) -> Q:
    """Links with a higher number in any direction at any time that no exception allows: min(b, old) != min(b, new)
    holds exactly for numbers above the lower of the two."""
    above: Any = {}
    for of, exception in (("link", F("exception_kbit")), ("timed", OuterRef("exception_kbit"))):
        above[of] = Greatest(Value(kbit), Coalesce(exception, 0))
    in_configuration = TimedLimit.objects.filter(link=OuterRef("pk"), cancelled_at=None, retired_at=None)
    timed = in_configuration.filter(highest_kbit__gt=above["timed"])
    return Q(bandwidth_kbit__gt=above["link"]) | Q(from_user_kbit__gt=above["link"]) | Q(Exists(timed))


def apply_default(attachment_point_id: int, changes: Changes, *, of_links: Collection[int] | None = None) -> None:
    """Set the maximum to the default in force, and apply current exceptions; collect the Links whose limit changes. The
    row is locked. Services that change an attachment point call this first, so that nothing is clamped to an outdated
    maximum. `of_links`: only their exceptions, which is all that a save of these depends on; `fan_out` applies the
    others."""
    ap = AttachmentPoint.objects.filter(pk=attachment_point_id).first()
    if ap is None:  # deleted meanwhile
        return
    old, new = ap.maximum_kbit, ap.default_in_force(selectors.policy())
    if old != new:
        affected = _provided(ap).exclude(exception_kbit__gte=max(old, new)).filter(_stated_above(min(old, new)))
        provider_host_of = dict(affected.values_list("pk", "interface_a__host_id"))
        locks.lock_links(provider_host_of)
        AttachmentPoint.objects.filter(pk=ap.pk).update(maximum_kbit=new)
        changes.note_limits(provider_host_of)
        if HeldLinkEnd.objects.filter(host=ap.host_id, end__isnull=False).exists():  # perhaps of an inactive Link
            changes.note_documents([ap.host_id])
        logger.info("policy.carried_out ap=%s old=%s new=%s links=%s", ap.pk, old, new, len(provider_host_of))
    _apply_exceptions(ap, new, changes, of_links)


def _apply_exceptions(
    ap: AttachmentPoint, maximum_kbit: int, changes: Changes, of_links: Collection[int] | None
) -> None:
    other: Any = links_with_other_exception(database_now()).filter(interface_a__AS=ap.AS_id)
    if of_links is not None:
        other = other.filter(pk__in=of_links)
    links = list(other.select_related("interface_a").prefetch_related(selectors.TIMED_LIMITS))
    locks.lock_links(link.pk for link in links)
    affected = {}
    for link in links:
        old, new = (with_exception(maximum_kbit, kbit) for kbit in (link.exception_kbit, link.held_kbit))
        highest = max(*link.requested, *(one.highest_kbit for one in link.timed_in_configuration))
        if link.active and old != new and highest > min(old, new):
            affected[link.pk] = link.interface_a.host_id
        Link.objects.filter(pk=link.pk).update(exception_kbit=link.held_kbit)
        logger.info("exception.carried_out link=%s old=%s new=%s", link.pk, link.exception_kbit, link.held_kbit)
    changes.note_limits(affected)
