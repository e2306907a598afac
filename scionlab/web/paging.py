"""Paging and sorting of long tables by query string (`?sort=name`, `?sort=-name`)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Generic, TypeVar

from django.core.paginator import Page, Paginator
from django.db.models import F, QuerySet
from django.http import HttpRequest

Row = TypeVar("Row")


class Order(Generic[Row]):
    """Sort orders of a table by name; the first one is the default, also for an unknown name. A key is a function of a
    row (`sorted`), or columns for the database (`ordered`). Columns in `highest_first` start with the highest value; a
    `-` reverses any order."""

    def __init__(
        self,
        request: HttpRequest,
        keys: Mapping[str, Callable[[Row], Any] | Sequence[str]],
        *,
        highest_first: Collection[str] = (),
    ) -> None:
        asked = request.GET.get("sort", "")
        self.name = asked.removeprefix("-")
        self.is_turned = asked.startswith("-")
        if self.name not in keys:
            self.name, self.is_turned = next(iter(keys)), False
        self.is_descending = (self.name in highest_first) != self.is_turned
        self._key = keys[self.name]

    def sorted(self, rows: Sequence[Row]) -> list[Row]:
        assert callable(self._key)  # noqa: S101  for the type checker
        return sorted(rows, key=self._key, reverse=self.is_descending)

    def ordered(self, rows: QuerySet[Any, Any]) -> QuerySet[Any, Any]:
        """Ties are sorted by key; rows without a value come last."""
        assert not callable(self._key)  # noqa: S101  for the type checker
        keys = [
            F(name).desc(nulls_last=True) if self.is_descending else F(name).asc(nulls_last=True) for name in self._key
        ]
        return rows.order_by(*keys, "pk")


def page_of(
    request: HttpRequest, rows: Sequence[Row] | QuerySet[Any, Row], size: int, *, count: int | None = None
) -> Page[Row]:
    """The page of `?page=`, or the nearest existing one. `count`: number of rows, if known."""
    paginator = Paginator(rows, size)
    if count is not None:
        paginator.count = count
    return paginator.get_page(request.GET.get("page"))
