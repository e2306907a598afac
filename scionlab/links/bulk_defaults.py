"""Defaults of many attachment points changed at once: previewed, carried out as it was shown or not at all, put back.

As `links.bulk` does it with limits of Links (ADR 0019). Who is affected is counted from the Links as they are when
somebody looks: that an owner changes a limit meanwhile makes no default another one, and refuses nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass

from django.db import transaction
from django.utils import timezone

from bandwidth_config import RuleError
from scionlab.links.bulk import BulkChangedError, applied_change, bulk_lock, check_reason
from scionlab.links.default_plan import DefaultLine, DefaultOperation, differing_defaults, plan_defaults
from scionlab.links.defaults import ap_defaults_set
from scionlab.models import AttachmentPoint, BulkChange, Link, User, locks, selectors

logger = logging.getLogger(__name__)

DEFAULTS = BulkChange.About.DEFAULTS


def default_lines_of(change: BulkChange) -> list[DefaultLine]:
    return [DefaultLine.read(stored) for stored in change.lines]


def defaults_preview(
    *,
    ap_ids: Collection[int],
    operation: DefaultOperation,
    chosen: str,
    actor: User,
    puts_back: BulkChange | None = None,
) -> BulkChange:
    """Store what would happen. Changes no default and needs no lock. `chosen`: the choice in words.

    Raises `RuleError` (`bulk_nothing_chosen`).
    """
    lines = _lines(locks.storable_ids(ap_ids), operation, puts_back)
    if not lines:
        text = "No attachment point is selected. Select some, or choose all that match the filter."
        raise RuleError("bulk_nothing_chosen", text)
    return BulkChange.objects.create(
        about=DEFAULTS,
        created_by=actor,
        created_by_email=actor.email,
        what=operation.text,
        chosen=chosen[:200],
        operation=asdict(operation),
        lines=[line.stored() for line in lines],
        puts_back=puts_back,
    )


def defaults_put_back(*, bulk_id: int, actor: User) -> BulkChange:
    """The preview of giving each attachment point back what it had; those changed again since are left alone.

    Raises `RuleError` (`bulk_not_applied`, as above), `BulkChange.DoesNotExist`.
    """
    change = applied_change(bulk_id, DEFAULTS)
    ids = [line.ap_id for line in default_lines_of(change) if line.is_change]
    chosen = f"the attachment points of change {change.pk}: {change.what}"
    operation = DefaultOperation("put_back")
    return defaults_preview(ap_ids=ids, operation=operation, chosen=chosen, actor=actor, puts_back=change)


@transaction.atomic
def defaults_refresh(*, bulk_id: int) -> list[int]:
    """Make a preview anew; returns the attachment points of which it says something else than before.

    What was carried out meanwhile is a record, and stays. Raises `BulkChange.DoesNotExist`.
    """
    change = bulk_lock(bulk_id=bulk_id, about=DEFAULTS)
    if change.applied_at is not None:
        return []
    old = default_lines_of(change)
    new = _again(change, old)
    change.lines = [line.stored() for line in new]
    change.save(update_fields=["lines"])
    return differing_defaults(old, new)


@transaction.atomic
def defaults_apply(*, bulk_id: int, actor: User, reason: str) -> BulkChange:
    """Carry a preview out, all of it or nothing; one that was carried out already is returned as it is.

    One audit row for each attachment point; the limits follow within moments (`links.defaults.fan_out`), and who is
    held at a lower maximum is told as always (`enforcement.notices`).
    Raises `RuleError` (`reason_required`), `BulkChangedError`, `BulkChange.DoesNotExist`.
    """
    check_reason(reason, "It is kept in the history.")
    change = bulk_lock(bulk_id=bulk_id, about=DEFAULTS)
    if change.applied_at is not None:
        return change
    shown = default_lines_of(change)
    # With these rows locked the site's default stays what it is, too: who sets it locks all of them.
    locks.lock_attachment_points([line.ap_id for line in shown])
    lines = _again(change, shown)
    if found := differing_defaults(shown, lines):
        raise BulkChangedError(len(found), "attachment point")
    changed = [line for line in lines if line.is_change]
    affected = affected_by(changed)
    ap_defaults_set(defaults={line.ap_id: line.new_kbit for line in changed}, actor=actor, reason=reason)
    change.applied_at, change.reason = timezone.now(), reason[:200]
    change.result = {"attachment_points": len(changed), "links": sum(one.links for one in affected.values())}
    change.save(update_fields=["applied_at", "reason", "result"])
    logger.info("bulk.defaults_applied id=%s attachment_points=%s actor=%s", change.pk, len(changed), actor.pk)
    return change


def _again(change: BulkChange, lines: list[DefaultLine]) -> list[DefaultLine]:
    operation = DefaultOperation(**change.operation)
    return _lines({line.ap_id for line in lines}, operation, change.puts_back)


def _lines(ap_ids: Collection[int], operation: DefaultOperation, puts_back: BulkChange | None) -> list[DefaultLine]:
    own = dict(AttachmentPoint.objects.filter(pk__in=ap_ids).values_list("pk", "default_bandwidth_kbit"))
    done = [] if puts_back is None else default_lines_of(puts_back)
    targets = {line.ap_id: line for line in done if line.is_change}
    return plan_defaults(own, selectors.policy().default_bandwidth_kbit, operation, targets)


# --- who is affected --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Affected:
    """At one attachment point: active Links that get another limit, how many of these are held below what was asked
    for, and their owners (by key)."""

    links: int = 0
    held: int = 0
    owners: frozenset[int] = frozenset()


def affected_by(lines: Collection[DefaultLine]) -> Mapping[int, Affected]:
    """By attachment point, as the Links are now. One statement."""
    changed = {line.ap_id: line for line in lines if line.old_maximum_kbit != line.new_maximum_kbit}
    links = Link.objects.filter(
        selectors.USER_LINKS, active=True, interface_a__AS__attachment_point__in=list(changed)
    ).values_list(
        "interface_a__AS__attachment_point", "bandwidth_kbit", "from_user_kbit", "interface_b__AS__useras__owner"
    )
    found: dict[int, Affected] = {}
    for ap_id, to_user, from_user, owner in links:
        line, highest = changed[ap_id], max(to_user, from_user or 0)
        if highest <= min(line.old_maximum_kbit, line.new_maximum_kbit):
            continue
        had = found.get(ap_id, Affected())
        is_held = highest > line.new_maximum_kbit
        found[ap_id] = Affected(had.links + 1, had.held + is_held, had.owners | {owner})
    return found
