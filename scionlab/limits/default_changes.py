"""Changes of defaults, of attachment points or of the site (key `SITE`): previewed, confirmed, carried out exactly as
shown or not at all, undone.

A preview is stored (`DefaultChange`) with a line for each default: old value, new value, or why it is skipped.
Confirming it computes the lines again under locks; if one differs, nothing is changed and the preview is refreshed.
Undoing is another change with its own preview. The affected Links are counted when the preview is shown
(`limits.default_effects`): a save of a limit does not change a default, so it does not invalidate the preview.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from datetime import timedelta
from typing import Final

from django.db import transaction

from bandwidth_config import RuleError, format_number
from scionlab.accounts.models import User
from scionlab.limits.default_effects import affected_by, are_felt, total_of
from scionlab.limits.default_plan import SITE, Line, Operation, differing, plan
from scionlab.limits.defaults import ap_defaults_set, site_default_set
from scionlab.limits.models import DefaultChange
from scionlab.platform.clock import database_now
from scionlab.testbed import locks, selectors
from scionlab.testbed.models import AttachmentPoint

logger = logging.getLogger(__name__)

PREVIEW_KEPT: Final = timedelta(days=1)
FOLLOWERS: Final = "attachment points without a default of their own"


class DefaultChangedError(RuleError):
    """The previewed defaults were changed meanwhile; nothing was done."""

    def __init__(self, count: int) -> None:
        changed = "1 default has" if count == 1 else f"{format_number(count)} defaults have"
        super().__init__(
            "changed_meanwhile",
            f"{changed} changed since this preview was created. Nothing was applied. Check the marked rows of the "
            "new preview, then confirm.",
        )


def lines_of(change: DefaultChange) -> list[Line]:
    return [Line(*stored) for stored in change.lines]


# --- preview ----------------------------------------------------------------------------------------------------


def default_change_preview(
    *,
    keys: Collection[int],
    operation: Operation,
    chosen: str,
    actor: User,
    reason: str = "",
    puts_back: DefaultChange | None = None,
) -> DefaultChange:
    """Store a preview for the defaults of the attachment points with these keys (`SITE`: of the site). Changes nothing
    and takes no lock. `chosen`: description of the selection; `reason`: a suggestion. Raises `RuleError`
    (`nothing_chosen`)."""
    lines = _lines(keys, operation, puts_back)
    if not lines:
        text = "No attachment point is selected. Select some, or choose all that match the filter."
        raise RuleError("nothing_chosen", text)
    return DefaultChange.objects.create(
        created_by=actor,
        created_by_email=actor.email,
        what=f"{'Site default' if SITE in keys else 'Defaults'}: {operation.text}",
        chosen=chosen[:200],
        operation=asdict(operation),
        lines=[line.stored() for line in lines],
        puts_back=puts_back,
        reason=reason[:200],
    )


def preview_if_felt(*, key: int, default_kbit: int | None, actor: User, reason: str) -> DefaultChange | None:
    """The preview of one attachment point's default, or of the site's (`SITE`); None if it changes no Link's maximum,
    so that no confirmation is needed."""
    operation = Operation("site") if default_kbit is None else Operation("set", default_kbit)
    if not are_felt(_lines([key], operation, None)):
        return None
    chosen = FOLLOWERS
    if key != SITE:
        chosen = f"attachment point {AttachmentPoint.objects.select_related('AS__isd').get(pk=key).AS.isd_as}"
    return default_change_preview(keys=[key], operation=operation, chosen=chosen, actor=actor, reason=reason)


def default_change_put_back(*, change_id: int, actor: User) -> DefaultChange:
    """Create the preview that restores previous values; those changed since are skipped. Raises `RuleError`
    (`not_applied`), `DefaultChange.DoesNotExist`."""
    change = DefaultChange.objects.get(pk=change_id)
    if change.applied_at is None:
        raise RuleError("not_applied", "This change was not applied and cannot be undone.")
    return default_change_preview(
        keys=[line.key for line in lines_of(change) if line.is_change],
        operation=Operation("put_back"),
        chosen=f"the attachment points of change {change.pk}: {change.what}",
        actor=actor,
        puts_back=change,
    )


@transaction.atomic
def default_change_refresh(*, change_id: int) -> list[int]:
    """Refresh a preview; return the keys whose lines changed. An applied change is a record and stays. Raises
    `DefaultChange.DoesNotExist`."""
    change = _locked(change_id)
    if change.applied_at is not None:
        return []
    old = lines_of(change)
    new = _lines_now(change, old)
    change.lines = [line.stored() for line in new]
    change.save(update_fields=["lines"])
    return differing(old, new)


def _lines_now(change: DefaultChange, shown: Sequence[Line]) -> list[Line]:
    return _lines({line.key for line in shown}, Operation(**change.operation), change.puts_back)


def _lines(keys: Collection[int], operation: Operation, puts_back: DefaultChange | None) -> list[Line]:
    aps = AttachmentPoint.objects.all()
    if SITE not in keys:
        aps = aps.filter(pk__in=locks.storable_ids(keys))
    own: Mapping[int, int | None] = dict(aps.values_list("pk", "default_bandwidth_kbit"))
    targets = {} if puts_back is None else {line.key: line for line in lines_of(puts_back) if line.is_change}
    return plan(keys, own, selectors.policy().default_bandwidth_kbit, operation, targets)


# --- carrying out -----------------------------------------------------------------------------------------------


@transaction.atomic
def default_change_apply(*, change_id: int, actor: User, reason: str) -> DefaultChange:
    """Apply a preview completely or not at all; one that is already applied is returned unchanged. Limits follow within
    moments (`limits.defaults.fan_out`), and owners of newly clamped Links are notified (`enforcement.notices`). Raises
    `RuleError` (`reason_required`), `DefaultChangedError`, `DefaultChange.DoesNotExist`."""
    change = _locked(change_id)
    if not reason.strip():
        raise RuleError("reason_required", "A reason is missing. It is kept in the history.")
    if change.applied_at is not None:
        return change
    shown = lines_of(change)
    _lock_defaults({line.key for line in shown})
    lines = _lines_now(change, shown)
    if found := differing(shown, lines):
        raise DefaultChangedError(len(found))
    change.result = _store([line for line in lines if line.is_change], actor=actor, reason=reason)
    change.applied_at, change.reason = database_now(), reason[:200]
    change.save(update_fields=["applied_at", "reason", "result"])
    counts = " ".join(f"{name}={count}" for name, count in change.result.items())
    logger.info("default_change.applied id=%s %s actor=%s", change.pk, counts, actor.pk)
    return change


def _locked(change_id: int) -> DefaultChange:
    """Lock the row until the transaction ends, so that it cannot be applied or refreshed twice; locked before
    attachment points."""
    rows = DefaultChange.objects.select_related("puts_back").select_for_update(of=("self",), no_key=True)
    return rows.get(pk=change_id)


def _lock_defaults(keys: Collection[int]) -> None:
    """Lock the attachment points. This also keeps the site default, as setting it locks all of them."""
    if SITE in keys:
        locks.lock_policy()
    locks.lock_attachment_points(None if SITE in keys else keys)


def _store(changed: Sequence[Line], *, actor: User, reason: str) -> dict[str, int]:
    """Add one audit row per default. Return the counts for the record."""
    affected = affected_by(changed)
    new = {line.key: line.new for line in changed if line.old != line.new}
    site_kbit = new.pop(SITE, None)
    if site_kbit is not None:
        site_default_set(default_bandwidth_kbit=site_kbit, actor=actor, reason=reason)
    ap_defaults_set(defaults=new, actor=actor, reason=reason)
    points = sum(line.key != SITE for line in changed)
    return {"attachment_points": points, "links": total_of(affected.values()).links}
