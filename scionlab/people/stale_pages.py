"""Saves of pages that somebody else made old: what was shown travels with the page and is compared under the locks.

A page sends what it showed beside what was typed. A service that was given `shown` compares it with what is stored
once it holds the row's lock, and refuses with `StalePageError` where saving would undo a change that nobody saw. Values
are compared, not version numbers: the same value saved twice, or changed and changed back, bothers nobody (ADR 0012).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from django.contrib.admin.models import LogEntry
from django.contrib.contenttypes.models import ContentType
from django.db import models
from django.utils import timezone

from bandwidth_config import RuleError
from scionlab.models import BandwidthChange, User, UserAS

Value = str | int | bool | None
Values = Mapping[str, Value]  # by the name of the field; of a user AS's Links "<link id>.<field>"

UNKNOWN: Final = "?"  # shown, but the page does not say what: it was cut off, or is none of ours
_LONGEST = 25_000  # characters; path metadata of 10 000 doubles at most, five attachments need 2 000


@dataclass(frozen=True)
class LastChange:
    """Who changed the thing last, and when; None where no person did. `email` is what is left of an account."""

    actor: User | None = None
    at: datetime | None = None
    email: str = ""


@dataclass(frozen=True)
class Difference:
    """One value that is not what the page showed. None also where there is, or was, no such field (any more)."""

    name: str
    shown: Value
    stored: Value
    wanted: Value


class StalePageError(RuleError):
    """What was shown is not what is stored any more; nothing was saved.

    `is_untouched`: nobody typed anything into the old page, so there is nothing to decide either.
    """

    def __init__(self, *, shown: Values, stored: Values, wanted: Values, last: LastChange) -> None:
        super().__init__(
            "changed_meanwhile",
            "Other values were saved while this page was open. Your changes were not saved. Check the "
            "differences, then overwrite with yours or keep theirs.",
        )
        self.stored = dict(stored)
        self.last = last
        self.is_untouched = dict(wanted) == dict(shown)
        self.differences = [
            Difference(name, shown.get(name), stored.get(name), wanted.get(name))
            for name in sorted({*shown, *stored})
            if (name in shown, shown.get(name)) != (name in stored, stored.get(name))
        ]


def refuse_stale(
    *, shown: Values | None, stored: Values, wanted: Values, last: Callable[[], LastChange] = LastChange
) -> None:
    """To be called with the lock held. `shown` None: whoever asks did not look before (a script), so nothing is undone
    that they saw.

    Raises `StalePageError` when `stored` is neither what was shown nor what is wanted.
    """
    if shown is not None and stored not in (shown, wanted):
        raise StalePageError(shown=shown, stored=stored, wanted=wanted, last=last())


# --- on the page -------------------------------------------------------------------------------------------------


def shown_to_text(values: Values) -> str:
    """For a hidden field."""
    return json.dumps(dict(values), sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def shown_from_text(text: str | None) -> dict[str, Value] | None:
    """None where the page sent nothing (a script). What cannot be read compares as different from everything."""
    if text is None:
        return None
    try:
        found = json.loads(text) if len(text) <= _LONGEST else None
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or not all(_is_value(value) for value in found.values()):
        return {UNKNOWN: None}
    return found


def _is_value(value: Any) -> bool:
    return value is None or isinstance(value, str | int)


def values_of(obj: models.Model, names: tuple[str, ...]) -> dict[str, Value]:
    """The columns that a page of `obj` lets people type into."""
    return {name: getattr(obj, name) for name in names}


# --- who and when ------------------------------------------------------------------------------------------------


def note_change(user_as_id: int, *, actor: User | None) -> None:
    """Note who changed the AS or one of its Links; within the transaction that does it."""
    UserAS.objects.filter(pk=user_as_id).update(changed_at=timezone.now(), changed_by=actor)


def last_change_of_user_as(user_as_id: int) -> LastChange:
    found = UserAS.objects.select_related("changed_by").filter(pk=user_as_id).first()
    return LastChange() if found is None else LastChange(found.changed_by, found.changed_at)


def last_bandwidth_change(**filters: object) -> LastChange:
    """The newest row of the audit, as `BandwidthChange.objects.filter` selects it."""
    found = BandwidthChange.objects.select_related("actor").filter(**filters).first()
    return LastChange() if found is None else LastChange(found.actor, found.at, found.actor_email)


def last_admin_change(obj: models.Model) -> LastChange:
    """Of what only administrators change, on their pages: Django keeps a log of those."""
    rows = LogEntry.objects.filter(content_type=ContentType.objects.get_for_model(obj), object_id=str(obj.pk))
    changing = rows.exclude(change_message="[]")  # Django's words for a page that was saved as it stood
    found = changing.select_related("user").order_by("-action_time", "-pk").first()
    return LastChange() if found is None else LastChange(found.user, found.action_time)
