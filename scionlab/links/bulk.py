"""Bulk changes of limits or defaults: previewed, confirmed, carried out exactly as shown or not at all, undone.

A preview is stored (`BulkChange`) with a line for each Link or default: old value, new value, or why it is skipped.
Confirming it computes the lines again under locks; if one differs, nothing is changed and the preview is refreshed (ADR
0019). Undoing is another bulk change with its own preview. The subject (`Subject`) is limits of Links, or defaults of
attachment points or the site.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from datetime import timedelta
from typing import Any, Final, Protocol

from django.db import transaction
from django.utils import timezone

from bandwidth_config import RuleError, format_number
from scionlab.links import bulk_defaults, bulk_limits
from scionlab.links.bulk_plan import SITE, Line, Operation, differing, read_line
from scionlab.models import AttachmentPoint, BulkChange, User

logger = logging.getLogger(__name__)

MAX_LINKS: Final = 10_000  # per change: one transaction holds all their locks, for seconds
PREVIEW_KEPT: Final = timedelta(days=1)

About = BulkChange.About
Lines = Sequence[Line[Any, Any]]


class Subject(Protocol):
    """The subject of a bulk change: a module that reads present values, and stores and announces new ones."""

    NOUN: str
    CHOICES: str  # what can be selected, in the plural
    REASON_FOR: str  # who sees the reason
    SKIPPED: Mapping[str, str]  # why a line is skipped

    def words(self, operation: Operation, keys: Collection[int]) -> str:
        """Title of the change."""

    def lines(self, keys: Collection[int], operation: Operation, targets: Mapping[int, Line[Any, Any]]) -> Lines:
        """Result of the operation on the present values. `targets`: the values to restore, for an undo."""

    def lock(self, keys: Collection[int]) -> Any:
        """Lock everything that `lines` reads until the transaction ends. Return what `store` needs."""

    def store(self, change: BulkChange, changed: Lines, locked: Any, *, actor: User, reason: str) -> dict[str, int]:
        """Store and audit the new values, and notify the owners. Return the counts for the record."""


SUBJECTS: Final[Mapping[str, Subject]] = {About.LINKS: bulk_limits, About.DEFAULTS: bulk_defaults}


class BulkChangedError(RuleError):
    """The previewed values were changed meanwhile; nothing was done."""

    def __init__(self, count: int, noun: str) -> None:
        changed = f"1 {noun} has" if count == 1 else f"{format_number(count)} {noun}s have"
        super().__init__(
            "changed_meanwhile",
            f"{changed} changed since this preview was created. Nothing was applied. Check the marked rows of the "
            "new preview, then confirm.",
        )
        self.count = count


def lines_of(change: BulkChange) -> list[Line[Any, Any]]:
    return [read_line(stored) for stored in change.lines]


# --- preview ----------------------------------------------------------------------------------------------------


def bulk_preview(
    *,
    about: str,
    keys: Collection[int],
    operation: Operation,
    chosen: str,
    actor: User,
    reason: str = "",
    puts_back: BulkChange | None = None,
) -> BulkChange:
    """Store a preview for the Links, or the defaults of the attachment points (`SITE`: of the site), with these keys.
    Changes nothing and takes no lock. `chosen`: description of the selection; `reason`: a suggestion. Raises
    `RuleError` (`bulk_nothing_chosen`, `bulk_too_many`)."""
    subject = SUBJECTS[about]
    if len(keys) > MAX_LINKS:
        text = f"{format_number(len(keys))} {subject.CHOICES} are above the limit of {format_number(MAX_LINKS)} per "
        raise RuleError("bulk_too_many", f"{text}change. Select fewer.")
    lines = subject.lines(keys, operation, _targets(puts_back))
    if not lines:
        text = f"No {subject.CHOICES.removesuffix('s')} is selected. Select some, or choose all that match the filter."
        raise RuleError("bulk_nothing_chosen", text)
    return BulkChange.objects.create(
        about=about,
        created_by=actor,
        created_by_email=actor.email,
        what=subject.words(operation, keys),
        chosen=chosen[:200],
        operation=asdict(operation),
        lines=[line.stored() for line in lines],
        puts_back=puts_back,
        reason=reason[:200],
    )


def default_preview(*, key: int, default_kbit: int | None, actor: User, reason: str) -> BulkChange | None:
    """The preview of one attachment point's default, or of the site's (`SITE`); None if it changes no Link's maximum,
    so that no confirmation is needed."""
    operation = Operation("site") if default_kbit is None else Operation("set", default_kbit)
    if not bulk_defaults.are_felt(bulk_defaults.lines([key], operation, {})):
        return None
    chosen = bulk_defaults.FOLLOWERS
    if key != SITE:
        chosen = f"attachment point {AttachmentPoint.objects.select_related('AS__isd').get(pk=key).AS.isd_as}"
    return bulk_preview(
        about=About.DEFAULTS, keys=[key], operation=operation, chosen=chosen, actor=actor, reason=reason
    )


def bulk_put_back(*, bulk_id: int, actor: User) -> BulkChange:
    """Create the preview that restores previous values; those changed since are skipped. Raises `RuleError`
    (`bulk_not_applied`), `BulkChange.DoesNotExist`."""
    change = BulkChange.objects.get(pk=bulk_id)
    if change.applied_at is None:
        raise RuleError("bulk_not_applied", "This change was not applied and cannot be undone.")
    return bulk_preview(
        about=change.about,
        keys=[line.key for line in lines_of(change) if line.is_change],
        operation=Operation("put_back"),
        chosen=f"the {SUBJECTS[change.about].CHOICES} of change {change.pk}: {change.what}",
        actor=actor,
        puts_back=change,
    )


@transaction.atomic
def bulk_refresh(*, bulk_id: int) -> list[int]:
    """Refresh a preview; return the keys whose lines changed. An applied change is a record and stays. Raises
    `BulkChange.DoesNotExist`."""
    change = bulk_lock(bulk_id=bulk_id)
    if change.applied_at is not None:
        return []
    old = lines_of(change)
    new = _lines_now(change, old)
    change.lines = [line.stored() for line in new]
    change.save(update_fields=["lines"])
    return differing(old, new)


def _lines_now(change: BulkChange, shown: Lines) -> Lines:
    keys = {line.key for line in shown}
    return SUBJECTS[change.about].lines(keys, Operation(**change.operation), _targets(change.puts_back))


def _targets(puts_back: BulkChange | None) -> dict[int, Line[Any, Any]]:
    return {} if puts_back is None else {line.key: line for line in lines_of(puts_back) if line.is_change}


# --- carrying out -----------------------------------------------------------------------------------------------


@transaction.atomic
def bulk_apply(*, bulk_id: int, actor: User, reason: str) -> BulkChange:
    """Apply a preview completely or not at all; one that is already applied is returned unchanged. Raises `RuleError`
    (`reason_required`), `BulkChangedError`, `BulkChange.DoesNotExist`."""
    change = bulk_lock(bulk_id=bulk_id)
    subject = SUBJECTS[change.about]
    if not reason.strip():
        raise RuleError("reason_required", f"A reason is missing. It is {subject.REASON_FOR}.")
    if change.applied_at is not None:
        return change
    shown = lines_of(change)
    locked = subject.lock({line.key for line in shown})
    lines = _lines_now(change, shown)
    if found := differing(shown, lines):
        raise BulkChangedError(len(found), subject.NOUN)
    changed = [line for line in lines if line.is_change]
    change.result = subject.store(change, changed, locked, actor=actor, reason=reason)
    change.applied_at, change.reason = timezone.now(), reason[:200]
    change.save(update_fields=["applied_at", "reason", "result"])
    counts = " ".join(f"{name}={count}" for name, count in change.result.items())
    logger.info("bulk.applied id=%s about=%s %s actor=%s", change.pk, change.about, counts, actor.pk)
    return change


def bulk_lock(*, bulk_id: int) -> BulkChange:
    """Lock the row until the transaction ends, so that it cannot be applied or refreshed twice; locked before
    attachment points. Raises `BulkChange.DoesNotExist`."""
    rows = BulkChange.objects.select_related("puts_back").select_for_update(of=("self",), no_key=True)
    return rows.get(pk=bulk_id)
