"""How much a person may test: the policies of the administrators, merged. Read with each request, so a change counts at
the next one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from django.contrib.auth.models import Group
from django.db.models import Q

from link_tests import MAX_AHEAD_S, MAX_WATCH_S
from scionlab.models import LinkTest, TestPolicy, User


class Allowance(NamedTuple):
    """Of one kind of test; named as the columns of `TestPolicy`."""

    max_seconds: int
    runs_per_day: int
    max_pending: int
    horizon_hours: int

    def capped(self) -> Allowance:
        """Below the caps in the rules, whatever a policy says."""
        return self._replace(
            max_seconds=min(self.max_seconds, MAX_WATCH_S), horizon_hours=min(self.horizon_hours, MAX_AHEAD_S // 3600)
        )


BUILT_IN = Allowance(max_seconds=MAX_WATCH_S, runs_per_day=50, max_pending=4, horizon_hours=7 * 24)


def allowance_of(user: User, kind: str) -> Allowance:
    """Two statements."""
    covered = Q(applies_to=TestPolicy.AppliesTo.EVERYBODY) | Q(group__in=user.groups.all())
    if user.is_staff:
        covered |= Q(applies_to=TestPolicy.AppliesTo.STAFF)
    return _merged(TestPolicy.objects.filter(covered, kind=kind))


def _merged(policies: Iterable[TestPolicy]) -> Allowance:
    """The highest number of each column; the built-in ones where none covers everybody."""
    rows = list(policies)
    found = [Allowance(*(getattr(row, name) for name in Allowance._fields)) for row in rows]
    if not any(row.applies_to == TestPolicy.AppliesTo.EVERYBODY for row in rows):
        found.append(BUILT_IN)
    return Allowance(*map(max, zip(*found, strict=True))).capped()


class Line(NamedTuple):
    """Of the preview: who, and what they may."""

    who: str
    people: int
    allowance: Allowance


def who_may_what(kind: str = LinkTest.Kind.WATCH) -> list[Line]:
    """Everybody, the members of each group, and administrators; for a member of several groups the highest counts."""
    policies = list(TestPolicy.objects.filter(kind=kind).select_related("group"))
    everybody = [row for row in policies if row.applies_to == TestPolicy.AppliesTo.EVERYBODY]
    staff = [row for row in policies if row.applies_to == TestPolicy.AppliesTo.STAFF]
    active = User.objects.filter(is_active=True)
    lines = [Line("everybody", active.count(), _merged(everybody))]
    for group in Group.objects.order_by("name"):
        own = [row for row in policies if row.group_id == group.pk]
        lines.append(Line(f"group {group.name}", active.filter(groups=group).count(), _merged([*everybody, *own])))
    lines.append(Line("administrators", active.filter(is_staff=True).count(), _merged([*everybody, *staff])))
    return lines
