"""Limits of Links as the subject of a bulk change (`links.bulk.Subject`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from django.utils import timezone

from bandwidth_config import Limits, default_in_force
from link_rules import with_exception
from scionlab.links import bulk_mail
from scionlab.links.bulk_plan import (
    CHANGED_SINCE,
    SAME,
    TOO_HIGH,
    LimitsLine,
    Operation,
    PresentLimits,
    plan,
)
from scionlab.links.defaults import apply_default
from scionlab.models import BulkChange, Link, User, UserAS, locks, selectors
from scionlab.notation.isd_as import format_isd_as
from scionlab.people import audit
from scionlab.versions.changes import Changes, read_links, view_of

NOUN = "link"
CHOICES = "links"
REASON_FOR = "included in the email to the owners and kept in the history"
SKIPPED: Mapping[str, str] = {
    SAME: "already has this limit",
    TOO_HIGH: "would exceed the maximum",
    CHANGED_SINCE: "has been changed since",
}


def words(operation: Operation, keys: Collection[int]) -> str:  # noqa: ARG001  of a default they matter
    return operation.text


def lines(keys: Collection[int], operation: Operation, targets: Mapping[int, LimitsLine]) -> list[LimitsLine]:
    return plan(_present(keys), operation, targets)


def _present(keys: Collection[int]) -> list[PresentLimits]:
    """Read as plain values: thousands of Link objects with their relations would take seconds."""
    site_kbit = selectors.policy().default_bandwidth_kbit
    rows = Link.objects.filter(selectors.USER_LINKS, pk__in=locks.storable_ids(keys)).values_list(
        "pk",
        "bandwidth_kbit",
        "from_user_kbit",
        "exception_kbit",
        "interface_a__AS__attachment_point__default_bandwidth_kbit",
    )
    return [
        PresentLimits(
            pk, Limits.of_columns(to_user, from_user), with_exception(default_in_force(site_kbit, own), exception)
        )
        for pk, to_user, from_user, exception, own in rows.order_by("pk")
    ]


@dataclass(frozen=True)
class Locked:
    links: Mapping[int, Link]
    changes: Changes


def lock(keys: Collection[int]) -> Locked:
    """Pending defaults of their attachment points are applied along with it."""
    changes = Changes()
    aps = Link.objects.filter(pk__in=keys).values_list("interface_a__AS__attachment_point", flat=True)
    ap_ids = sorted({pk for pk in aps if pk is not None})
    locks.lock_attachment_points(ap_ids)
    for ap_id in ap_ids:
        apply_default(ap_id, changes)
    return Locked({link.pk: link for link in read_links(set(keys))}, changes)


def store(
    change: BulkChange, changed: Sequence[LimitsLine], locked: Locked, *, actor: User, reason: str
) -> dict[str, int]:
    """Add one audit row per Link and one mail per owner; L of each host rises once."""
    for line in changed:
        link = locked.links[line.key]
        before = view_of(link)
        link.bandwidth_kbit, link.from_user_kbit = line.new.to_columns()
        locked.changes.note(link.pk, before, view_of(link))
    touched = [locked.links[line.key] for line in changed]
    # An upsert of existing rows: `bulk_update` writes a CASE with a branch for each row and is ten times slower.
    Link.objects.bulk_create(
        touched,
        update_conflicts=True,
        unique_fields=["pk"],
        update_fields=["bandwidth_kbit", "from_user_kbit"],
        batch_size=1000,
    )
    audit.note_links([(locked.links[line.key], line.old, line.new) for line in changed], actor=actor, reason=reason)
    _note_change({link.interface_b.AS_id for link in touched}, actor)
    hosts = locked.changes.carry_out()
    mails = bulk_mail.notify_owners(change, changed, actor=actor, reason=reason)
    return {"links": len(changed), "hosts": len(hosts), "mails": mails}


def _note_change(as_ids: Collection[int], actor: User) -> None:
    """Ordered by key: two bulk changes at different attachment points may share ASes."""
    owned = UserAS.objects.filter(pk__in=as_ids).select_for_update(of=("self",), no_key=True)
    ids = list(owned.order_by("pk").values_list("pk", flat=True))
    UserAS.objects.filter(pk__in=ids).update(changed_at=timezone.now(), changed_by=actor)


# --- for people -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Summary:
    """Affected: Links that change, skipped Links by reason, Links blocked in a direction, owners who get a mail, and
    attachment points (ISD-ASes) whose enforced limits change."""

    links: int
    skipped: Mapping[str, int]
    blocked: int
    owners: int
    attachment_points: list[str]


def summary_of(all_lines: Iterable[LimitsLine]) -> Summary:
    """One SQL statement."""
    changed = {line.key: line for line in all_lines if line.is_change}
    rows = Link.objects.filter(pk__in=changed).values_list(
        "pk", "active", "interface_b__AS__useras__owner", "interface_a__AS__isd__isd_id", "interface_a__AS__as_id"
    )
    owners, aps = set(), set()
    for pk, is_active, owner, isd, as_id in rows:
        owners.add(owner)
        if is_active and changed[pk].old_in_force != changed[pk].new_in_force:
            aps.add((isd, as_id))
    return Summary(
        links=len(changed),
        skipped=Counter(line.skipped for line in all_lines if line.skipped),
        blocked=sum(0 in line.new and 0 not in line.old for line in changed.values()),
        owners=len(owners),
        attachment_points=[format_isd_as(*one) for one in sorted(aps)],
    )
