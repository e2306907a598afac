"""Optimistic locking of pages: the values that a page showed are sent along and compared under locks.

A service that is given `shown` compares it with the stored values once it holds the row's lock, and raises
`StalePageError` if saving would overwrite a change that the user has not seen. Values are compared, not version
numbers: equal values, or a change that was reverted, do not conflict (ADR 0012).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from django.contrib.admin.models import LogEntry
from django.contrib.contenttypes.models import ContentType
from django.db import models

from bandwidth_config import RuleError

if TYPE_CHECKING:
    from django.contrib.auth.models import _User as User  # the stubs' name of AUTH_USER_MODEL

Value = str | int | bool | None
Values = Mapping[str, Value]  # by field name; for a user AS's Links "<link id>.<field>"

UNKNOWN: Final = "?"  # shown, but unreadable: truncated, or not ours
_LONGEST = 25_000  # characters; path metadata of 10 000 doubles at most, five attachments need 2 000


@dataclass(frozen=True)
class LastChange:
    """Who changed it last, and when; None if not by a person. `email` remains of a deleted account."""

    actor: User | None = None
    at: datetime | None = None
    email: str = ""


@dataclass(frozen=True)
class Difference:
    """A value that differs from what the page showed. None also if there is, or was, no such field."""

    name: str
    shown: Value
    stored: Value
    wanted: Value


class StalePageError(RuleError):
    """The stored values differ from those shown; nothing was saved. `is_untouched`: nothing was edited on the outdated
    page, so there is nothing to decide."""

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
    """Call it with the lock held. `shown` None: the caller (a script) has not read before, so there is nothing to
    compare. Raises `StalePageError` if a value of `stored` is neither as shown nor as wanted."""
    if shown is not None and stored not in (shown, wanted):
        raise StalePageError(shown=shown, stored=stored, wanted=wanted, last=last())


# --- on the page -------------------------------------------------------------------------------------------------


def shown_to_text(values: Values) -> str:
    """For a hidden field."""
    return json.dumps(dict(values), sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def shown_from_text(text: str | None) -> dict[str, Value] | None:
    """None if the page sent nothing (a script). Unreadable text compares as different from everything."""
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
    """The editable columns of a page about `obj`."""
    return {name: getattr(obj, name) for name in names}


# --- last change -------------------------------------------------------------------------------------------------


def last_admin_change(obj: models.Model) -> LastChange:
    """For objects that only administrators change: from Django admin's log."""
    rows = LogEntry.objects.filter(content_type=ContentType.objects.get_for_model(obj), object_id=str(obj.pk))
    changing = rows.exclude(change_message="[]")  # Django's text for a page saved without changes
    found = changing.select_related("user").order_by("-action_time", "-pk").first()
    return LastChange() if found is None else LastChange(found.user, found.action_time)
