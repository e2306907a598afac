"""Retention of rows: which are deleted, and when."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from django.db.models import Model


@dataclass(frozen=True)
class Kept:
    """Rows of `model` whose column `since` is older than `age` and that match `which` are deleted."""

    model: type[Model]
    since: str
    age: timedelta
    which: Any = None


# Rows of other apps, appended in `AppConfig.ready`; `site.retention` has those of the core.
KEPT: Final[list[Kept]] = []
