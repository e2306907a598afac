"""Pagination: `count`, `next`, `previous`, `results`, and the same URLs in a Link header (RFC 8288)."""

from __future__ import annotations

from typing import Any

from rest_framework.pagination import LimitOffsetPagination
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.utils.urls import replace_query_param


class Pages(LimitOffsetPagination):
    """`limit` and `offset` as parsed by the view's query (`web.rest.queries.PageQuery`)."""

    def paginate_queryset(self, queryset: Any, request: Request, view: Any = None) -> list[Any] | None:
        self.asked: dict[str, Any] = view.asked
        return super().paginate_queryset(queryset, request, view)

    def get_limit(self, request: Request) -> int:  # noqa: ARG002  the framework's signature
        return int(self.asked["limit"])

    def get_offset(self, request: Request) -> int:  # noqa: ARG002  the framework's signature
        return int(self.asked["offset"])

    def get_paginated_response(self, data: Any) -> Response:
        response = super().get_paginated_response(data)
        response["Link"] = ", ".join(f'<{url}>; rel="{name}"' for name, url in self._addresses().items())
        return response

    def _addresses(self) -> dict[str, str]:
        assert self.request is not None and self.limit is not None  # noqa: S101, PT018  paginate_queryset has set them
        here = replace_query_param(self.request.build_absolute_uri(), self.limit_query_param, self.limit)
        last = max(0, ((self.count or 0) - 1) // self.limit * self.limit)
        found = {
            "first": replace_query_param(here, self.offset_query_param, 0),
            "prev": self.get_previous_link(),
            "next": self.get_next_link(),
            "last": replace_query_param(here, self.offset_query_param, last),
        }
        return {name: url for name, url in found.items() if url is not None}

    def get_schema_operation_parameters(self, view: Any) -> list[dict[str, Any]]:  # noqa: ARG002  the framework's
        return []  # they are in the view's query

    def get_paginated_response_schema(self, schema: dict[str, Any]) -> dict[str, Any]:
        found = super().get_paginated_response_schema(schema)
        for name in ("next", "previous"):  # OpenAPI 3.1 has no "nullable"
            del found["properties"][name]["nullable"]
            found["properties"][name]["type"] = ["string", "null"]
        return found
