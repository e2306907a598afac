"""The description of the APIs, for programs (OpenAPI) and for people (pages made from the same)."""

from __future__ import annotations

import hashlib
import json
from functools import cache
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework.permissions import AllowAny
from rest_framework.request import Request
from rest_framework.response import Response

from scionlab.rest.base import ApiView
from scionlab.rest.describing import Section, sections

SCHEMA_TYPE = "application/vnd.oai.openapi+json"


@cache
def description() -> dict[str, Any]:
    """It is made of the code alone, so once per process."""
    generator: Any = SchemaGenerator()  # type: ignore[no-untyped-call]  # it has no types
    found: dict[str, Any] = generator.get_schema(request=None, public=True)
    return found


@cache
def _sections() -> list[Section]:
    return sections(description())


@cache
def _as_sent() -> tuple[bytes, str]:
    content = json.dumps(description(), default=str, ensure_ascii=False).encode()
    return content, f'"{hashlib.sha256(content).hexdigest()[:16]}"'


class SchemaView(ApiView):
    permission_classes = (AllowAny,)
    schema = None  # it does not describe itself

    @extend_schema(responses=OpenApiTypes.OBJECT)
    def get(self, request: Request) -> HttpResponse:
        """Everybody may read it. Raises nothing."""
        content, etag = _as_sent()
        if etag in request.headers.get("If-None-Match", ""):
            return Response(status=304, headers={"ETag": etag})
        return HttpResponse(content, content_type=SCHEMA_TYPE, headers={"ETag": etag})


@require_safe
def docs(request: HttpRequest) -> HttpResponse:
    """What there is: every operation in one line."""
    return render(request, "api/docs.html", {"nav": "api", "sections": _sections()})


@require_safe
def docs_section(request: HttpRequest, slug: str) -> HttpResponse:
    section = next((one for one in _sections() if one.slug == slug), None)
    if section is None:
        raise Http404("The API has no such section.")
    context = {"nav": "api", "sections": _sections(), "section": section}
    return render(request, "api/docs_section.html", context)
