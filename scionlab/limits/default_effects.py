"""The Links that a change of defaults affects, counted as they are when it is shown."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from contract.link_rules import with_exception
from scionlab.limits.default_plan import SITE, Line
from scionlab.testbed import selectors
from scionlab.testbed.models import Link


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


def affected_by(lines: Iterable[Line]) -> dict[int, Affected]:
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


def are_felt(lines: Iterable[Line]) -> bool:
    """Whether the maximum of any Link changes, active or not."""
    ap_ids = list(_other_maximum(lines))
    return Link.objects.filter(selectors.USER_LINKS, interface_a__AS__attachment_point__in=ap_ids).exists()


def _other_maximum(lines: Iterable[Line]) -> dict[int, Line]:
    return {line.key: line for line in lines if line.key != SITE and line.old_in_force != line.new_in_force}
