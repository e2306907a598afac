"""Defaults as the subject of a bulk change (`links.bulk.Subject`): of attachment points, or of the site (key `SITE`).

The affected Links are counted when the preview is shown: a concurrent change of a limit does not change a default, so
it does not invalidate the preview. The line of an attachment point that follows the site default shows only what is in
force there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from bandwidth_config import MAX_BANDWIDTH_KBIT, format_kbit
from link_rules import with_exception
from scionlab.links.bulk_plan import CHANGED_SINCE, SAME, SITE, TOO_HIGH, DefaultLine, Operation, plan_defaults
from scionlab.links.defaults import ap_defaults_set, site_default_set
from scionlab.models import AttachmentPoint, BulkChange, Link, User, locks, selectors

NOUN = "default"
CHOICES = "attachment points"
FOLLOWERS = "attachment points without a default of their own"
REASON_FOR = "kept in the history"
SKIPPED: Mapping[str, str] = {
    SAME: "already has this default",
    TOO_HIGH: f"would exceed {format_kbit(MAX_BANDWIDTH_KBIT)}",
    CHANGED_SINCE: "has been changed since",
}


def words(operation: Operation, keys: Collection[int]) -> str:
    return f"{'Site default' if SITE in keys else 'Defaults'}: {operation.text[0].lower()}{operation.text[1:]}"


def lines(keys: Collection[int], operation: Operation, targets: Mapping[int, DefaultLine]) -> list[DefaultLine]:
    aps = AttachmentPoint.objects.all()
    if SITE not in keys:
        aps = aps.filter(pk__in=locks.storable_ids(keys))
    own = dict(aps.values_list("pk", "default_bandwidth_kbit"))
    return plan_defaults(keys, own, selectors.policy().default_bandwidth_kbit, operation, targets)


def lock(keys: Collection[int]) -> None:
    """Lock the attachment points. This also keeps the site default, as setting it locks all of them."""
    if SITE in keys:
        locks.lock_policy()
    locks.lock_attachment_points(None if SITE in keys else keys)


def store(
    change: BulkChange,  # noqa: ARG001  of limits it names the mails
    changed: Sequence[DefaultLine],
    locked: None,  # noqa: ARG001
    *,
    actor: User,
    reason: str,
) -> dict[str, int]:
    """Add one audit row per default; limits follow within moments (`links.defaults.fan_out`), and owners of newly
    clamped Links are notified (`enforcement.notices`)."""
    affected = affected_by(changed)
    new = {line.key: line.new for line in changed if line.old != line.new}
    site_kbit = new.pop(SITE, None)
    if site_kbit is not None:
        site_default_set(default_bandwidth_kbit=site_kbit, actor=actor, reason=reason)
    ap_defaults_set(defaults=new, actor=actor, reason=reason)
    points = sum(line.key != SITE for line in changed)
    return {"attachment_points": points, "links": total_of(affected.values()).links}


# --- affected Links ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Affected:
    """Active Links whose limit changes: newly clamped (of these, `blocked`: at 0), no longer clamped (`released`), and
    the keys of their owners."""

    links: int = 0
    held: int = 0
    blocked: int = 0
    released: int = 0
    owners: frozenset[int] = frozenset()

    def __add__(self, other: Affected) -> Affected:
        return Affected(
            self.links + other.links,
            self.held + other.held,
            self.blocked + other.blocked,
            self.released + other.released,
            self.owners | other.owners,
        )


def total_of(affected: Iterable[Affected]) -> Affected:
    return sum(affected, Affected())


def affected_by(lines: Iterable[DefaultLine]) -> dict[int, Affected]:
    """Count by attachment point, for the current Links. One SQL statement."""
    changed = _other_maximum(lines)
    links = Link.objects.filter(
        selectors.USER_LINKS, active=True, interface_a__AS__attachment_point__in=list(changed)
    ).values_list(
        "interface_a__AS__attachment_point",
        "bandwidth_kbit",
        "from_user_kbit",
        "exception_kbit",
        "interface_b__AS__useras__owner",
    )
    found: dict[int, Affected] = {}
    for ap_id, to_user, from_user, exception, owner in links:
        line, highest = changed[ap_id], max(to_user, from_user or 0)
        old, new = (with_exception(kbit, exception) for kbit in (line.old_in_force, line.new_in_force))
        if old == new or highest <= min(old, new):
            continue
        is_held = highest > new
        is_blocked = new == 0
        one = Affected(1, is_held, is_blocked, not is_held, frozenset([owner]))
        found[ap_id] = found.get(ap_id, Affected()) + one
    return found


def are_felt(lines: Iterable[DefaultLine]) -> bool:
    """Whether the maximum of any Link changes, active or not."""
    ap_ids = list(_other_maximum(lines))
    return Link.objects.filter(selectors.USER_LINKS, interface_a__AS__attachment_point__in=ap_ids).exists()


def _other_maximum(lines: Iterable[DefaultLine]) -> dict[int, DefaultLine]:
    return {line.key: line for line in lines if line.key != SITE and line.old_in_force != line.new_in_force}
