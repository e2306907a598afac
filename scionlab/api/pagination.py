"""How long a page of a list is."""

from __future__ import annotations

from rest_framework.pagination import LimitOffsetPagination


class Pages(LimitOffsetPagination):
    """`limit` (PAGE_SIZE of the settings without one) and `offset`; a greater limit than ours counts as ours, so that
    neither a page nor the number that the database gets is of any size."""

    max_limit = 1000
