"""The OpenAPI 3.1 description of the REST API, generated from the views; common behaviour is defined here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from drf_spectacular.openapi import AutoSchema
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiExample, PolymorphicProxySerializer, extend_schema
from rest_framework import serializers, status

from scionlab.web.rest.fields import StrictSerializer

Handler = TypeVar("Handler", bound=Callable[..., Any])

BINARY: Final = OpenApiTypes.BINARY


def describe(
    tag: str,
    summary: str,
    description: str = "",
    *,
    body: Any = None,
    answer: Any = None,
    is_list: bool = False,
    success: int | tuple[int, ...] = status.HTTP_200_OK,
    examples: Mapping[str, Any] | None = None,
    is_public: bool = False,
    also_csv: bool = False,
) -> Callable[[Handler], Handler]:
    """Describes one handler. `examples` are of the body."""
    shown = [OpenApiExample(name, value=value, request_only=True) for name, value in (examples or {}).items()]
    content = answer(many=True) if is_list else answer
    responses: dict[Any, Any] = dict.fromkeys(success if isinstance(success, tuple) else (success,), content)
    if answer is BINARY:
        responses = {(success, "application/gzip"): OpenApiTypes.BINARY}
    if also_csv:
        responses = {(success, "application/json"): content, (success, "text/csv"): OpenApiTypes.STR}
    return extend_schema(
        tags=[tag],
        summary=summary,
        description=description,
        request=_one_of(body) if isinstance(body, dict) else body,
        responses=responses,
        examples=shown,
        auth=[] if is_public else None,
    )


def _one_of(kinds: Mapping[str, type[serializers.Serializer[Any]]]) -> Any:
    return PolymorphicProxySerializer(
        component_name="TimedLimitBody", serializers=dict(kinds), resource_type_field_name="kind"
    )


class ApiAutoSchema(AutoSchema):
    """Adds the parameters of the view's `query`."""

    def get_override_parameters(self) -> list[Any]:
        query = getattr(self.view, "query", None)
        return [query] if self.method == "GET" and query is not None and query().fields else []

    def get_auth(self) -> list[dict[str, Any]]:
        return [{"token": []}, {"session": []}]

    def get_description(self) -> str:  # type: ignore[override]  # as drf-spectacular's own
        return ""  # a view's docstring is for developers

    def _map_basic_serializer(self, serializer: Any, direction: Any) -> Any:
        schema = super()._map_basic_serializer(serializer, direction)  # type: ignore[no-untyped-call]  # it has none
        if isinstance(serializer, StrictSerializer):
            schema["additionalProperties"] = False
        return schema
