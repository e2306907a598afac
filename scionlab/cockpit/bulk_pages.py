"""Texts and tables of the bulk pages, for limits and for defaults."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from django.urls import reverse

from bandwidth_config import Limits, format_number
from scionlab.cockpit.choice import LINK_RELATIONS, DefaultsChoice, LinksChoice
from scionlab.cockpit.forms import DefaultsForm, LimitsForm, OperationForm
from scionlab.links import bulk_defaults, bulk_limits
from scionlab.links.bulk_defaults import Affected, affected_by, total_of
from scionlab.links.bulk_plan import SITE, DefaultLine, LimitsLine
from scionlab.models import AttachmentPoint, BulkChange, Link

_MOST_NAMED = 12


class Cell(NamedTuple):
    column: str
    text: str
    url: str = ""
    label: str = ""


class Row(NamedTuple):
    """One row of the table: subject, old and new value (`is_site`: the site default applies), and a note."""

    cells: Sequence[Cell]
    was: Limits
    becomes: Limits | None
    note: str
    is_site: tuple[bool, bool] = (False, False)


class Report(NamedTuple):
    """Summary of a preview or of an applied change. `button` is empty if nothing would change."""

    facts: Mapping[str, str]
    button: str
    warning: str


class Pages(ABC):
    """Differences between the two kinds of changes. Templates and URLs are named after `tab`."""

    about: BulkChange.About
    tab: str
    columns: Sequence[str]
    form: type[OperationForm]
    choice: type[LinksChoice | DefaultsChoice]
    counts: tuple[str, str]  # name of the count that holds the number of changes
    done: str  # what they get

    @abstractmethod
    def report(self, change: BulkChange, lines: Any) -> Report: ...

    @abstractmethod
    def rows(self, change: BulkChange, lines: Any) -> list[Row]: ...


def counted(count: int, noun: str) -> str:
    return f"{format_number(count)} {noun}{'' if count == 1 else 's'}"


class LimitsPages(Pages):
    about = BulkChange.About.LINKS
    tab = "limits"
    columns = ("User AS", "Attachment point", "Owner")
    form = LimitsForm
    choice = LinksChoice
    counts = ("links", "link")
    done = "new limits. Nothing restarts."

    def report(self, change: BulkChange, lines: Sequence[LimitsLine]) -> Report:
        found, result = bulk_limits.summary_of(lines), change.result
        skipped = "; ".join(
            f"{format_number(count)}: {bulk_limits.SKIPPED[why]}" for why, count in found.skipped.items()
        )
        if change.applied_at:
            facts = {
                "Links with new limits": format_number(result["links"]),
                "Emails to owners": format_number(result["mails"]),
                "New configuration for": counted(result["hosts"], "host"),
            }
        else:
            names = ", ".join(found.attachment_points[:_MOST_NAMED])
            more = len(found.attachment_points) - _MOST_NAMED
            facts = {
                "Links with new limits": format_number(found.links),
                "Their owners": f"{format_number(found.owners)}; each gets one email unless unsubscribed",
                "New configuration for": (names or "none: the enforced limits do not change")
                + (f" and {more} more" if more > 0 else ""),
            }
        blocked = f"A limit of 0 blocks {counted(found.blocked, 'link')}: nothing will pass." if found.blocked else ""
        button = f"Change {counted(found.links, 'link')}" if found.links else ""
        return Report({**facts, "Skipped": skipped or "none"}, button, blocked)

    def rows(self, change: BulkChange, lines: Sequence[LimitsLine]) -> list[Row]:  # noqa: ARG002  as of defaults
        links = Link.objects.select_related(*LINK_RELATIONS).in_bulk([line.key for line in lines])
        return [self._row(line, links.get(line.key)) for line in lines]

    def _row(self, line: LimitsLine, link: Link | None) -> Row:
        note = ""
        if line.skipped:
            note = bulk_limits.SKIPPED[line.skipped]
        elif line.new_in_force != line.new:
            note = f"clamped to {line.new_in_force}"
        elif line.old_in_force == line.new_in_force:
            note = "the enforced limit does not change"
        texts, urls = ["deleted link", "\N{EN DASH}", "\N{EN DASH}"], ["", "", ""]
        if link is not None:
            note += "" if link.active else " inactive"
            user_as, ap = link.interface_b.AS, link.interface_a.AS
            texts = [user_as.isd_as, ap.isd_as, user_as.useras.owner.email]
            page_of_ap = reverse("cockpit_ap", args=[ap.attachment_point.pk])
            urls = [reverse("user_as_detail", args=[user_as.pk]), page_of_ap, ""]
        cells = [Cell(*one) for one in zip(self.columns, texts, urls, strict=True)]
        return Row(cells, line.old, line.new if line.is_change else None, note)


class DefaultsPages(Pages):
    about = BulkChange.About.DEFAULTS
    tab = "defaults"
    columns = ("Attachment point",)
    form = DefaultsForm
    choice = DefaultsChoice
    counts = ("attachment_points", "attachment point")
    done = "a new default. The limits follow within seconds; nothing restarts."

    def report(self, change: BulkChange, lines: Sequence[DefaultLine]) -> Report:
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

    def rows(self, change: BulkChange, lines: Sequence[DefaultLine]) -> list[Row]:
        affected = {} if change.applied_at else affected_by(lines)
        aps = AttachmentPoint.objects.select_related("AS__isd").in_bulk([line.key for line in lines])
        return [self._row(line, aps.get(line.key), affected.get(line.key)) for line in lines]

    def _row(self, line: DefaultLine, ap: AttachmentPoint | None, affected: Affected | None) -> Row:
        note = ""
        if line.skipped:
            note = bulk_defaults.SKIPPED[line.skipped]
        elif line.old_in_force == line.new_in_force:
            note = "the default in force does not change"
        elif affected is not None:
            note = f"{counted(affected.links, 'link')} affected{_fate(affected)}"
        (column,) = self.columns
        if line.key == SITE:
            cell = Cell(column, "Site default", reverse("admin:scionlab_bandwidthpolicy_changelist"))
        elif ap is None:
            cell = Cell(column, "deleted attachment point")
        else:
            cell = Cell(column, ap.AS.isd_as, reverse("cockpit_ap", args=[ap.pk]), ap.AS.label)
        becomes = Limits.both(line.new_in_force) if line.is_change else None
        is_site = line.old is None, line.new is None
        return Row([cell], Limits.both(line.old_in_force), becomes, note, is_site)


def _fate(found: Affected, of_them: str = "") -> str:
    """What happens to the affected Links, as the end of a list."""
    fates = {"clamped": found.held - found.blocked, "blocked": found.blocked, "no longer clamped": found.released}
    return "".join(f"; {format_number(count)}{of_them} {fate}" for fate, count in fates.items() if count)


LIMITS, DEFAULTS = LimitsPages(), DefaultsPages()
