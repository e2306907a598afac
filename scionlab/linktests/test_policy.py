"""Allowances for tests: the administrators' policies, merged. Read at each request, so changes apply immediately."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from django.contrib.auth.models import Group
from django.db.models import Q

from contract.link_tests import MAX_AHEAD_S, MAX_TEST_S, MAX_WATCH_S, WATCH
from scionlab.accounts.models import User
from scionlab.linktests.models import TestPolicy
from scionlab.linktests.test_hours import Hours, say_hours
from station.tools import TOOLS


class Allowance(NamedTuple):
    """Allowance for one tool; fields are named like the columns of `TestPolicy`. A watch has no share, data and load.
    `max_load_percent` None: any load; no `hours`: at any time."""

    max_seconds: int
    runs_per_day: int
    max_pending: int
    horizon_hours: int
    limit_percent: int = 0
    megabytes_per_day: int = 0
    max_load_percent: int | None = None
    hours: tuple[Hours, ...] = ()

    @property
    def hours_text(self) -> str:
        return say_hours(self.hours)

    def columns(self) -> dict[str, int | None]:
        """As columns of a policy."""
        return {name: getattr(self, name) for name in COLUMNS}

    def capped(self, tool: str) -> Allowance:
        """Capped by the rules."""
        capped = self._replace(horizon_hours=min(self.horizon_hours, MAX_AHEAD_S // 3600))
        if tool != WATCH:
            return capped._replace(max_seconds=min(self.max_seconds, MAX_TEST_S))
        most_s = min(self.max_seconds, MAX_WATCH_S)
        return capped._replace(max_seconds=most_s, limit_percent=0, megabytes_per_day=0, max_load_percent=None)


NUMBERS: Final = Allowance._fields[:6]  # the highest of several counts
COLUMNS: Final = (*NUMBERS, "max_load_percent")
BUILT_IN = Allowance(
    max_seconds=MAX_WATCH_S,
    runs_per_day=50,
    max_pending=4,
    horizon_hours=7 * 24,
    limit_percent=400,
    megabytes_per_day=5000,
)


def allowance_of(user: User, tool: str) -> Allowance:
    """Two SQL statements."""
    covered = Q(applies_to=TestPolicy.AppliesTo.EVERYBODY) | Q(group__in=user.groups.all())
    if user.is_staff:
        covered |= Q(applies_to=TestPolicy.AppliesTo.STAFF)
    return _merged(tool, TestPolicy.objects.filter(covered, tool=tool))


def _merged(tool: str, policies: Iterable[TestPolicy]) -> Allowance:
    """The highest value of each column and the hours of all; built-in values if no policy covers everyone."""
    rows = list(policies)
    found = [Allowance(**{name: getattr(row, name) for name in COLUMNS}, hours=hours_of(row)) for row in rows]
    if not any(row.applies_to == TestPolicy.AppliesTo.EVERYBODY for row in rows):
        found.append(BUILT_IN)
    highest = {name: max(getattr(one, name) for one in found) for name in NUMBERS}
    loads = [one.max_load_percent for one in found if one.max_load_percent is not None]
    load = max(loads) if len(loads) == len(found) else None
    hours = {one for each in found for one in each.hours} if all(one.hours for one in found) else ()
    return Allowance(**highest, max_load_percent=load, hours=tuple(sorted(hours))).capped(tool)


def hours_of(policy: TestPolicy) -> tuple[Hours, ...]:
    """None: at any time."""
    if policy.hours_begin is None or policy.hours_end is None:
        return ()
    return (Hours(policy.hours_begin, policy.hours_end, policy.hours_zone),)


class Line(NamedTuple):
    """Row of the preview: who, tool, and allowance."""

    tool: str
    who: str
    people: int
    allowance: Allowance


def who_may_what() -> list[Line]:
    """By tool: everyone, members of each group, and administrators; a member of several groups gets the highest."""
    policies = list(TestPolicy.objects.select_related("group"))
    active = User.objects.filter(is_active=True)
    groups = [(one, active.filter(groups=one).count()) for one in Group.objects.order_by("name")]
    people, administrators = active.count(), active.filter(is_staff=True).count()
    lines = []
    for tool in (WATCH, *TOOLS):
        rows = [row for row in policies if row.tool == tool]
        everybody = [row for row in rows if row.applies_to == TestPolicy.AppliesTo.EVERYBODY]
        staff = [row for row in rows if row.applies_to == TestPolicy.AppliesTo.STAFF]
        lines.append(Line(tool, "everybody", people, _merged(tool, everybody)))
        for group, members in groups:
            own = [row for row in rows if row.group_id == group.pk]
            lines.append(Line(tool, f"group {group.name}", members, _merged(tool, [*everybody, *own])))
        lines.append(Line(tool, "administrators", administrators, _merged(tool, [*everybody, *staff])))
    return lines
