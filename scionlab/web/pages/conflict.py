"""Conflicts with a concurrent save: which values, by whom and when, and the submitted ones.

`web.pages.stale_pages` detects them; this module formats them. The page is shown again as submitted, but carries the
stored values, so that its Save button now means "overwrite with mine".
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from bandwidth_config import format_kbit
from scionlab.platform.notation.local_time import say_time
from scionlab.web.pages.stale_pages import UNKNOWN, Difference, LastChange, StalePageError, Value

if TYPE_CHECKING:
    from django.contrib.auth.models import _User as User  # the stubs' name of AUTH_USER_MODEL

Choices = Mapping[str, Mapping[str, str]]
Places = Callable[[Collection[int]], Mapping[int, str]]


@dataclass(frozen=True)
class Line:
    """One value: its name, as shown, as stored now, and as submitted (None: equal to one of them)."""

    name: str
    was: str
    now: str
    yours: str | None


@dataclass(frozen=True)
class Conflict:
    """`who` is "You" or an email address; `at` None if not recorded."""

    who: str
    at: datetime | None
    lines: list[Line]

    @property
    def sentence(self) -> str:
        """One sentence, without a table."""
        changes = "; ".join(f"{line.name} was {line.was}, is now {line.now}" for line in self.lines)
        when = "" if self.at is None else f" at {say_time(self.at)}"
        return f"In the meantime {self.who} saved other values{when}: {changes}."


def conflict_of(
    error: StalePageError,
    *,
    reader: User,
    labels: Mapping[str, str],
    choices: Choices,
    places: Places = lambda _keys: {},
) -> Conflict:
    """For `reader`. `labels`: names of fields; `choices`: words of values by field; `places` names attachment points by
    primary key, for a page with attachments."""
    links = _LinkNames(error, places)
    lines: list[Line] = []
    for difference in error.differences:
        line = _line(difference, links, labels, choices)
        if line is not None and line not in lines:
            lines.append(line)
    return Conflict(_who(error.last, reader), error.last.at, lines)


def _who(last: LastChange, reader: User) -> str:
    if last.actor is None:
        return last.email or "someone"
    return "you, in another window," if last.actor == reader else str(last.actor)


class _LinkNames:
    """Names the Links of a user AS, before and after, by attachment point."""

    def __init__(self, error: StalePageError, places: Places) -> None:
        ids = {one.name: one for one in error.differences if one.name.endswith(".attachment_point_id")}
        self.added = {name.split(".")[0] for name, one in ids.items() if one.shown is None}
        self.removed = {name.split(".")[0] for name, one in ids.items() if one.stored is None}
        stored = {name: value for name, value in error.stored.items() if name.endswith(".attachment_point_id")}
        by_link = {name.split(".")[0]: value for name, value in stored.items()}
        by_link |= {name.split(".")[0]: one.shown for name, one in ids.items() if one.stored is None}
        names = places({value for value in by_link.values() if isinstance(value, int)})
        self._names = {
            link: names[value] for link, value in by_link.items() if isinstance(value, int) and value in names
        }

    def of(self, link: str) -> str:
        return self._names.get(link, "a deleted attachment point")


def _line(difference: Difference, links: _LinkNames, labels: Mapping[str, str], choices: Choices) -> Line | None:
    if difference.name == UNKNOWN:
        return Line("The page", "unreadable", "newer", None)
    link, _, field = difference.name.rpartition(".")
    if link in links.added:
        return Line(f"Attachment to {links.of(link)}", "none", "added", None)
    if link in links.removed:
        return Line(f"Attachment to {links.of(link)}", "there", "removed", None)
    name = labels.get(field, field)
    where = f"{name} of the link to {links.of(link)}" if link else name
    shown, stored, wanted = (
        _written(field, value, choices) for value in (difference.shown, difference.stored, difference.wanted)
    )
    return Line(where, shown, stored, None if difference.wanted in {difference.shown, difference.stored} else wanted)


def _written(field: str, value: Value, choices: Choices) -> str:
    if field == "from_user_kbit" and value is None:
        return "the same as to it"
    if value is None or value == "":
        return "empty"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if field.endswith("_kbit") and isinstance(value, int):
        return format_kbit(value)
    return choices.get(field, {}).get(str(value), str(value))
