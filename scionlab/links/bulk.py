"""Many limits changed at once: previewed, confirmed, carried out exactly as shown or not at all, and put back.

A preview is stored (`BulkChange`) with a line for each chosen Link: what it has, what it gets, or why it is left out.
Confirming it computes the same lines again under the locks; where one differs, somebody was quicker, nothing is done,
and the preview is made anew (ADR 0019). Putting back is a further bulk change with a preview of its own.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Final

from django.db import transaction
from django.utils import timezone

from bandwidth_config import Limits, RuleError, format_number
from scionlab.links import bulk_mail
from scionlab.links.bulk_plan import Line, Operation, Present, differing, plan
from scionlab.links.defaults import settle_default
from scionlab.models import BulkChange, Link, User, UserAS, locks, selectors
from scionlab.notation.isd_as import format_isd_as
from scionlab.people import audit
from scionlab.versions.changes import Changes, read_links, view_of

logger = logging.getLogger(__name__)

MAX_LINKS: Final = 10_000  # more are changed in several goes: one transaction holds all their locks, for seconds
PREVIEW_KEPT: Final = timedelta(days=1)


class BulkChangedError(RuleError):
    """Somebody changed what the preview showed; nothing was done."""

    def __init__(self, count: int, what: str = "link") -> None:
        links = f"1 {what} has" if count == 1 else f"{format_number(count)} {what}s have"
        super().__init__(
            "changed_meanwhile",
            f"{links} changed since this preview was created. Nothing was applied. Check the marked rows of the "
            "new preview, then confirm.",
        )
        self.count = count


def lines_of(change: BulkChange) -> list[Line]:
    return [Line.read(stored) for stored in change.lines]


def operation_of(change: BulkChange) -> Operation:
    return Operation(**change.operation)


# --- preview ----------------------------------------------------------------------------------------------------


def bulk_preview(
    *, link_ids: Collection[int], operation: Operation, chosen: str, actor: User, puts_back: BulkChange | None = None
) -> BulkChange:
    """Store what would happen. Changes no Link and needs no lock. `chosen`: the choice in words.

    Raises `RuleError` (`bulk_nothing_chosen`, `bulk_too_many`).
    """
    ids = sorted(locks.storable_ids(link_ids))
    if not ids:
        raise RuleError(
            "bulk_nothing_chosen", "No link is selected. Select links, or choose all that match the filter."
        )
    if len(ids) > MAX_LINKS:
        text = (
            f"{format_number(len(ids))} links are above the limit of {format_number(MAX_LINKS)} per change. "
            "Select fewer."
        )
        raise RuleError("bulk_too_many", text)
    lines = plan(_present(ids), operation, _targets(puts_back))
    return BulkChange.objects.create(
        created_by=actor,
        created_by_email=actor.email,
        what=operation.text,
        chosen=chosen[:200],
        operation=asdict(operation),
        lines=[line.stored() for line in lines],
        puts_back=puts_back,
    )


def applied_change(bulk_id: int, about: BulkChange.About) -> BulkChange:
    """One that can be put back. Raises `RuleError` (`bulk_not_applied`), `BulkChange.DoesNotExist`."""
    change = BulkChange.objects.get(pk=bulk_id, about=about)
    if change.applied_at is None:
        raise RuleError("bulk_not_applied", "This change was not applied and cannot be undone.")
    return change


def bulk_put_back(*, bulk_id: int, actor: User) -> BulkChange:
    """The preview of giving each Link back what it had before; those that were changed again since are left alone.

    Raises `RuleError` (`bulk_not_applied`, as above), `BulkChange.DoesNotExist`.
    """
    change = applied_change(bulk_id, BulkChange.About.LINKS)
    ids = [line.link_id for line in lines_of(change) if line.is_change]
    chosen = f"the links of change {change.pk}: {change.what}"
    return bulk_preview(link_ids=ids, operation=Operation("put_back"), chosen=chosen, actor=actor, puts_back=change)


@transaction.atomic
def bulk_refresh(*, bulk_id: int) -> list[int]:
    """Make a preview anew; returns the Links of which it says something else than before.

    What was carried out meanwhile is a record, and stays. Raises `BulkChange.DoesNotExist`.
    """
    change = bulk_lock(bulk_id=bulk_id)
    if change.applied_at is not None:
        return []
    old = lines_of(change)
    new = plan(_present([line.link_id for line in old]), operation_of(change), _targets(change.puts_back))
    change.lines = [line.stored() for line in new]
    change.save(update_fields=["lines"])
    return differing(old, new)


def _present(ids: Collection[int]) -> list[Present]:
    """Read as plain values: thousands of whole Links, each with its ends and their ASes, would take seconds."""
    site_kbit = selectors.policy().default_bandwidth_kbit
    links = Link.objects.filter(pk__in=ids, type=Link.Type.PROVIDER, interface_b__AS__useras__isnull=False)
    rows = links.filter(interface_a__AS__attachment_point__isnull=False).values_list(
        "pk", "bandwidth_kbit", "from_user_kbit", "interface_a__AS__attachment_point__default_bandwidth_kbit"
    )
    return [
        Present(pk, Limits(kbit, kbit if from_user is None else from_user), site_kbit if own_kbit is None else own_kbit)
        for pk, kbit, from_user, own_kbit in rows.order_by("pk")
    ]


def _targets(puts_back: BulkChange | None) -> Mapping[int, Line]:
    """By Link, what a change did that is to be put back."""
    return {} if puts_back is None else {line.link_id: line for line in lines_of(puts_back) if line.is_change}


# --- carrying out -----------------------------------------------------------------------------------------------


@transaction.atomic
def bulk_apply(*, bulk_id: int, actor: User, reason: str) -> BulkChange:
    """Carry a preview out, all of it or nothing; one that was carried out already is returned as it is.

    One audit row for each Link, one mail for each owner, and each host's L rises once.
    Raises `RuleError` (`reason_required`), `BulkChangedError`, `BulkChange.DoesNotExist`.
    """
    check_reason(reason, "It is included in the email to the owners and kept in the history.")
    change = bulk_lock(bulk_id=bulk_id)
    if change.applied_at is not None:
        return change
    shown = lines_of(change)
    changes = Changes()
    ids = {line.link_id for line in shown}
    _lock_attachment_points(ids, changes)
    links = {link.pk: link for link in read_links(ids)}
    lines = plan(_present(ids), operation_of(change), _targets(change.puts_back))
    if found := differing(shown, lines):
        raise BulkChangedError(len(found))
    changed = [line for line in lines if line.is_change]
    _store(changed, links, changes, actor=actor, reason=reason)
    hosts = changes.carry_out()
    mails = bulk_mail.tell_owners(change, changed, actor=actor, reason=reason)
    change.applied_at, change.reason = timezone.now(), reason[:200]
    change.result = {"links": len(changed), "hosts": len(hosts), "mails": mails}
    change.save(update_fields=["applied_at", "reason", "result"])
    logger.info("bulk.applied id=%s links=%s hosts=%s actor=%s", change.pk, len(changed), len(hosts), actor.pk)
    return change


def check_reason(reason: str, readers: str) -> None:
    """Raises `RuleError` (`reason_required`)."""
    if not reason.strip():
        raise RuleError("reason_required", f"A reason is missing. {readers}")


def bulk_lock(*, bulk_id: int, about: BulkChange.About = BulkChange.About.LINKS) -> BulkChange:
    """The row, which nobody else carries out or makes anew until the end of the transaction; it is locked before
    attachment points. Raises `BulkChange.DoesNotExist`, also for one about something else."""
    rows = BulkChange.objects.select_related("puts_back").select_for_update(of=("self",), no_key=True)
    return rows.get(pk=bulk_id, about=about)


def _lock_attachment_points(link_ids: Collection[int], changes: Changes) -> None:
    aps = Link.objects.filter(pk__in=link_ids).values_list("interface_a__AS__attachment_point", flat=True)
    ap_ids = sorted({pk for pk in aps if pk is not None})
    locks.lock_attachment_points(ap_ids)
    for ap_id in ap_ids:
        settle_default(ap_id, changes)


def _store(lines: list[Line], links: Mapping[int, Link], changes: Changes, *, actor: User, reason: str) -> None:
    for line in lines:
        link = links[line.link_id]
        before = view_of(link)
        link.bandwidth_kbit, link.from_user_kbit = line.new.to_columns()
        changes.note(link.pk, before, view_of(link))
    touched = [links[line.link_id] for line in lines]
    # An upsert of rows that are all there: `bulk_update` writes a CASE with a branch for each row, ten times as slow.
    Link.objects.bulk_create(
        touched,
        update_conflicts=True,
        unique_fields=["pk"],
        update_fields=["bandwidth_kbit", "from_user_kbit"],
        batch_size=1000,
    )
    audit.note_links([(links[line.link_id], line.old, line.new) for line in lines], actor=actor, reason=reason)
    owned = UserAS.objects.filter(pk__in={link.interface_b.AS_id for link in touched})
    # In the order of their keys: two bulk changes at different attachment points may meet at the same ASes.
    ids = list(owned.select_for_update(of=("self",), no_key=True).order_by("pk").values_list("pk", flat=True))
    UserAS.objects.filter(pk__in=ids).update(changed_at=timezone.now(), changed_by=actor)


# --- for the page -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Summary:
    """Who is affected: Links that change, those left out by reason, owners who get a mail, and attachment points that
    get a new configuration because something else is enforced there."""

    links: int
    skipped: dict[str, int]
    blocked: int
    owners: int
    attachment_points: list[str]


def bulk_summary(change: BulkChange) -> Summary:
    """Two SQL statements."""
    lines = lines_of(change)
    changed = [line for line in lines if line.is_change]
    skipped: dict[str, int] = {}
    for line in lines:
        if line.skipped:
            skipped[line.why_skipped] = skipped.get(line.why_skipped, 0) + 1
    felt = {line.link_id for line in changed if line.old_enforced != line.new_enforced}
    rows = Link.objects.filter(pk__in=[line.link_id for line in changed]).values_list(
        "pk",
        "active",
        "interface_b__AS__useras__owner",
        "interface_a__AS__isd__isd_id",
        "interface_a__AS__as_id",
    )
    owners, aps = set(), set()
    for pk, is_active, owner, isd, as_id in rows:
        owners.add(owner)
        if is_active and pk in felt:
            aps.add((isd, as_id))
    return Summary(
        links=len(changed),
        skipped=skipped,
        blocked=sum(0 in line.new and 0 not in line.old for line in changed),
        owners=len(owners),
        attachment_points=[format_isd_as(*one) for one in sorted(aps)],
    )
