"""Database constraints for times that others send."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from django.db import models

# PostgreSQL stores times that Python cannot read, or not show in every time zone: one such row would break each page
# that reads it.
_FIRST: Final = datetime(1970, 1, 1, tzinfo=UTC)
_END: Final = datetime(3000, 1, 1, tzinfo=UTC)


def readable(table: str, *columns: str) -> list[models.BaseConstraint]:
    return [
        models.CheckConstraint(
            condition=models.Q(**{f"{one}__gte": _FIRST, f"{one}__lt": _END}), name=f"{table}_{one}_readable"
        )
        for one in columns
    ]
