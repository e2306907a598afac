"""A field for the start of five minutes, stored as a 4-byte integer."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from django.db import models
from django.db.models.lookups import IntegerGreaterThanOrEqual, IntegerLessThan

if TYPE_CHECKING:
    _Field = models.DateTimeField[Any, Any]  # type of its values
else:
    _Field = models.IntegerField

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SLOT: Final = timedelta(minutes=5)


def slot_number(at: datetime) -> int:
    """Number of the five minutes since 1970 that contain `at`."""
    return (at - _EPOCH) // _SLOT


class SlotField(_Field):
    """A datetime, stored as the number of five minutes since 1970. `gte` and `lt` accept any moment; a value between
    two slots is stored as the earlier one."""

    def get_prep_value(self, value: Any) -> Any:
        return slot_number(value) if isinstance(value, datetime) else super().get_prep_value(value)

    def from_db_value(self, value: int | None, *_more: Any) -> datetime | None:
        return None if value is None else _EPOCH + value * _SLOT


class _RoundedUp:
    """Rounds a moment between slots up to the next one."""

    rhs: Any

    def get_prep_lookup(self) -> Any:
        if isinstance(self.rhs, datetime):
            self.rhs = -((_EPOCH - self.rhs) // _SLOT)
        return super().get_prep_lookup()  # type: ignore[misc]


@SlotField.register_lookup
class _NotBefore(_RoundedUp, IntegerGreaterThanOrEqual):
    pass


@SlotField.register_lookup
class _Before(_RoundedUp, IntegerLessThan):
    pass
