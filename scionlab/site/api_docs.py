"""Documentation of the APIs: OpenAPI and Swagger UI."""

from __future__ import annotations

import hashlib
import json
from functools import cache
from typing import Any

from csp.decorators import csp_update
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework.permissions import AllowAny
from rest_framework.request import Request
from rest_framework.response import Response

from scionlab.web.rest.base import ApiView

SCHEMA_TYPE = "application/vnd.oai.openapi+json"


@cache
def description() -> dict[str, Any]:
    """Depends only on the code, so it is cached per process."""
    generator: Any = SchemaGenerator()  # type: ignore[no-untyped-call]  # it has no types
    found: dict[str, Any] = generator.get_schema(request=None, public=True)
    return found


@cache
def _as_sent() -> tuple[bytes, str]:
    content = json.dumps(description(), default=str, ensure_ascii=False).encode()
    return content, f'"{hashlib.sha256(content).hexdigest()[:16]}"'


class SchemaView(ApiView):
    permission_classes = (AllowAny,)
    schema = None  # not part of the description

    @extend_schema(responses=OpenApiTypes.OBJECT)
    def get(self, request: Request) -> HttpResponse:
        """Public. Raises nothing."""
        content, etag = _as_sent()
        if etag in request.headers.get("If-None-Match", ""):
            return Response(status=304, headers={"ETag": etag})
        return HttpResponse(content, content_type=SCHEMA_TYPE, headers={"ETag": etag})


@require_safe
def docs(request: HttpRequest) -> HttpResponse:
    """Getting started, and common behaviour."""
    return render(request, "web/docs.html", {"nav": "api"})


@csp_update({"img-src": ["data:"]})  # icons in Swagger UI's style sheet
@require_safe
def operations(request: HttpRequest) -> HttpResponse:
    return render(request, "web/operations.html")
