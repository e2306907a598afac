"""Long tables in pages, in an order that a link chooses (`?sort=name`, `?sort=-name`)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Generic, TypeVar

from django.core.paginator import Page, Paginator
from django.db.models import F, QuerySet
from django.http import HttpRequest

Row = TypeVar("Row")


class Order(Generic[Row]):
    """The orders that a table offers, by name; the first one counts where none is asked for, or one that there is not.

    A key is a function of a row (`sorted`), or the columns by which the database sorts (`ordered`). Columns in
    `highest_first` begin with the highest value; asked for with a `-`, an order is the other way round.
    """

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
        """What is equal, by key; what has no value comes last."""
        assert not callable(self._key)  # noqa: S101  for the type checker
        keys = [
            F(name).desc(nulls_last=True) if self.is_descending else F(name).asc(nulls_last=True) for name in self._key
        ]
        return rows.order_by(*keys, "pk")


def page_of(
    request: HttpRequest, rows: Sequence[Row] | QuerySet[Any, Row], size: int, *, count: int | None = None
) -> Page[Row]:
    """The page that the address asks for (`?page=`); the nearest one for a number that there is not. `count`: of the
    rows, where it is known."""
    paginator = Paginator(rows, size)
    if count is not None:
        paginator.count = count
    return paginator.get_page(request.GET.get("page"))
