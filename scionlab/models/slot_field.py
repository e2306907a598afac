"""A time at which five minutes begin, in the four bytes of an integer."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from django.db import models
from django.db.models.lookups import IntegerGreaterThanOrEqual, IntegerLessThan

if TYPE_CHECKING:
    _Field = models.DateTimeField[Any, Any]  # whose values it has
else:
    _Field = models.IntegerField

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SLOT: Final = timedelta(minutes=5)


def slot_number(at: datetime) -> int:
    """Of the five minutes since 1970 that `at` is in."""
    return (at - _EPOCH) // _SLOT


class SlotField(_Field):
    """Stored as the number of the five minutes since 1970, given and taken as a datetime.

    Any moment may be compared with it by `gte` and `lt`; a value between two slots is stored as the earlier one.
    """

    def get_prep_value(self, value: Any) -> Any:
        return slot_number(value) if isinstance(value, datetime) else super().get_prep_value(value)

    def from_db_value(self, value: int | None, *_more: Any) -> datetime | None:
        return None if value is None else _EPOCH + value * _SLOT


class _RoundedUp:
    """A slot is not before a moment, or before it, where it is so of the next slot's beginning."""

    rhs: Any

    def get_prep_lookup(self) -> Any:
        if isinstance(self.rhs, datetime):
            self.rhs = -((_EPOCH - self.rhs) // _SLOT)
        return super().get_prep_lookup()  # type: ignore[misc]


@SlotField.register_lookup
class _NotBefore(_RoundedUp, IntegerGreaterThanOrEqual):
    """`gte`"""


@SlotField.register_lookup
class _Before(_RoundedUp, IntegerLessThan):
    """`lt`"""
