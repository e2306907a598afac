"""Row locks; `testbed.locks` has their order."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet


def lock_rows(rows: QuerySet[Any]) -> None:
    """In the order of their primary keys, until the transaction ends. NO KEY: see `testbed.locks`."""
    list(rows.select_for_update(no_key=True).order_by("pk").values_list("pk", flat=True))
