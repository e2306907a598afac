"""Texts and rows of the pages of changed defaults."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from django.urls import reverse

from bandwidth_config import format_number
from scionlab.limits.default_effects import Affected, affected_by, total_of
from scionlab.limits.default_plan import SITE, SKIPPED, Line
from scionlab.limits.models import DefaultChange
from scionlab.testbed.models import AttachmentPoint


class Row(NamedTuple):
    """One default [kbit/s]: what it is of, old and new value in force (`is_site`: the site default applies), a note."""

    name: str
    url: str
    label: str
    was_kbit: int
    becomes_kbit: int | None
    was_site: bool
    becomes_site: bool
    note: str


class Report(NamedTuple):
    """Summary of a preview or of an applied change. `button` is empty if nothing would change."""

    facts: Mapping[str, str]
    button: str
    warning: str


def counted(count: int, noun: str) -> str:
    return f"{format_number(count)} {noun}{'' if count == 1 else 's'}"


def report_of(change: DefaultChange, lines: Sequence[Line]) -> Report:
    changed = [line for line in lines if line.is_change]
    points = [line for line in changed if line.key != SITE]
    skipped = f"; {format_number(len(lines) - len(changed))} skipped" if len(changed) < len(lines) else ""
    found = total_of(affected_by([] if change.applied_at else points).values())
    owners = f" of {counted(len(found.owners), 'owner')}{_fate(found, ' of them')}"
    facts = {
        "Attachment points with a new default": f"{format_number(len(points))}{skipped}",
        "Active links with a new limit": format_number(change.result["links"])
        if change.applied_at
        else f"{counted(found.links, 'link')}{owners}",
        "Emails": "to owners whose limits are newly clamped or no longer clamped, one per attachment point",
    }
    blocked = sum(line.new_in_force == 0 != line.old_in_force for line in points)
    warning = f"A default of 0 blocks all links at {counted(blocked, 'attachment point')}: nothing will pass."
    is_site = bool(changed) and changed[0].key == SITE
    button = "Change the site default" if is_site else f"Change {counted(len(points), 'default')}"
    return Report(facts, button if changed else "", warning if blocked else "")


def rows_of(change: DefaultChange, lines: Sequence[Line]) -> list[Row]:
    affected = {} if change.applied_at else affected_by(lines)
    aps = AttachmentPoint.objects.select_related("AS__isd").in_bulk([line.key for line in lines])
    return [_row(line, aps.get(line.key), affected.get(line.key)) for line in lines]


def _row(line: Line, ap: AttachmentPoint | None, affected: Affected | None) -> Row:
    note = ""
    if line.skipped:
        note = SKIPPED[line.skipped]
    elif line.old_in_force == line.new_in_force:
        note = "the default in force does not change"
    elif affected is not None:
        note = f"{counted(affected.links, 'link')} affected{_fate(affected)}"
    if line.key == SITE:
        name, url, label = "Site default", reverse("admin:testbed_bandwidthpolicy_changelist"), ""
    elif ap is None:
        name, url, label = "deleted attachment point", "", ""
    else:
        name, url, label = ap.AS.isd_as, reverse("cockpit_ap", args=[ap.pk]), ap.AS.label
    becomes_kbit = line.new_in_force if line.is_change else None
    return Row(name, url, label, line.old_in_force, becomes_kbit, line.old is None, line.new is None, note)


def _fate(found: Affected, of_them: str = "") -> str:
    """What happens to the affected Links, as the end of a list."""
    fates = {"clamped": found.held - found.blocked, "blocked": found.blocked, "no longer clamped": found.released}
    return "".join(f"; {format_number(count)}{of_them} {fate}" for fate, count in fates.items() if count)
