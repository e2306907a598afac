"""Conflicts with a concurrent save: which values, by whom and when, and the submitted ones.

`people.stale_pages` detects them; this module formats them. The page is shown again as submitted, but carries the
stored values, so that its Save button now means "overwrite with mine".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from bandwidth_config import format_kbit
from scionlab.accounts.models import User
from scionlab.platform.notation.local_time import say_time
from scionlab.testbed.locks import storable_ids
from scionlab.testbed.models import AttachmentPoint, Host, UserAS
from scionlab.web.pages.stale_pages import UNKNOWN, Difference, LastChange, StalePageError, Value

NAMES = {
    "label": "Label",
    "installation_type": "Installation type",
    "scion_packages": "SCION packages",
    "attachment_point_id": "Attachment point",
    "use_vpn": "Use VPN",
    "public_ip": "Public IP address",
    "public_port": "Public port (UDP)",
    "bandwidth_kbit": "Bandwidth",
    "from_user_kbit": "Bandwidth from the user AS",
    "default_bandwidth_kbit": "Default bandwidth",
    "bind_ip": "Bind IP address",
    "bind_port": "Bind port (UDP)",
    "active": "Active",
}
_CHOICES = {
    "installation_type": {value: str(label) for value, label in UserAS.Installation.choices},
    "scion_packages": {value: str(label) for value, label in Host.ScionPackages.choices},
}


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


def conflict_of(error: StalePageError, *, reader: User, labels: Mapping[str, str] | None = None) -> Conflict:
    """For `reader`; `labels` has the page's names of fields."""
    links = _LinkNames(error)
    lines: list[Line] = []
    for difference in error.differences:
        line = _line(difference, links, labels or {})
        if line is not None and line not in lines:
            lines.append(line)
    return Conflict(_who(error.last, reader), error.last.at, lines)


def _who(last: LastChange, reader: User) -> str:
    if last.actor is None:
        return last.email or "someone"
    return "you, in another window," if last.actor == reader else str(last.actor)


class _LinkNames:
    """Names the Links of a user AS, before and after, by attachment point."""

    def __init__(self, error: StalePageError) -> None:
        ids = {one.name: one for one in error.differences if one.name.endswith(".attachment_point_id")}
        self.added = {name.split(".")[0] for name, one in ids.items() if one.shown is None}
        self.removed = {name.split(".")[0] for name, one in ids.items() if one.stored is None}
        stored = {name: value for name, value in error.stored.items() if name.endswith(".attachment_point_id")}
        by_link = {name.split(".")[0]: value for name, value in stored.items()}
        by_link |= {name.split(".")[0]: one.shown for name, one in ids.items() if one.stored is None}
        self._names = _ap_names(by_link)

    def of(self, link: str) -> str:
        return self._names.get(link, "a deleted attachment point")


def _ap_names(by_link: Mapping[str, Value]) -> dict[str, str]:
    ids = storable_ids(value for value in by_link.values() if isinstance(value, int))
    aps = {ap.pk: ap.AS.isd_as for ap in AttachmentPoint.objects.select_related("AS__isd").filter(pk__in=ids)}
    return {link: aps[value] for link, value in by_link.items() if isinstance(value, int) and value in aps}


def _line(difference: Difference, links: _LinkNames, labels: Mapping[str, str]) -> Line | None:
    if difference.name == UNKNOWN:
        return Line("The page", "unreadable", "newer", None)
    link, _, field = difference.name.rpartition(".")
    if link in links.added:
        return Line(f"Attachment to {links.of(link)}", "none", "added", None)
    if link in links.removed:
        return Line(f"Attachment to {links.of(link)}", "there", "removed", None)
    name = labels.get(field) or NAMES.get(field, field)
    where = f"{name} of the link to {links.of(link)}" if link else name
    yours = None if difference.wanted in {difference.shown, difference.stored} else written(field, difference.wanted)
    return Line(where, written(field, difference.shown), written(field, difference.stored), yours)


def written(field: str, value: Value) -> str:
    """Format a value."""
    if field == "from_user_kbit" and value is None:
        return "the same as to it"
    if value is None or value == "":
        return "empty"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if field.endswith("_kbit") and isinstance(value, int):
        return format_kbit(value)
    return _CHOICES.get(field, {}).get(str(value), str(value))
