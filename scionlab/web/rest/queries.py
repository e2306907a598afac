"""Query parameters of lists. Unknown ones are rejected: a misspelt filter would otherwise return everything."""

from __future__ import annotations

from typing import Any

from django.http import QueryDict
from rest_framework import serializers

from bandwidth_config import MAX_BANDWIDTH_KBIT

MAX_ID = 2**63 - 1  # range of a primary key
PAGE_ITEMS, MAX_PAGE_ITEMS = 100, 1000


class Query(serializers.Serializer[Any]):
    """The parameters of one operation; none by default."""

    @classmethod
    def read(cls, given: QueryDict) -> dict[str, Any]:
        """Validated values by name, without omitted ones that have no default. Raises `serializers.ValidationError`
        (`unknown_parameter`, `parameter_twice`, or those of a field)."""
        query = cls(data=given.dict())
        known = sorted(query.fields)
        errors: dict[str, Any] = {}
        for name in given:
            if name not in query.fields:
                text = f"Known parameters: {', '.join(known)}." if known else "This operation has none."
                errors[name[:100]] = [serializers.ErrorDetail(f"Unknown parameter. {text}", "unknown_parameter")]
            elif len(given.getlist(name)) > 1:
                errors[name] = [serializers.ErrorDetail("Send this parameter once.", "parameter_twice")]
        if errors:
            raise serializers.ValidationError(errors)
        query.is_valid(raise_exception=True)
        return dict(query.validated_data)


def key_field(help_text: str) -> serializers.IntegerField:
    return serializers.IntegerField(required=False, min_value=1, max_value=MAX_ID, help_text=help_text)


def kbit_field(help_text: str) -> serializers.IntegerField:
    return serializers.IntegerField(required=False, min_value=0, max_value=MAX_BANDWIDTH_KBIT, help_text=help_text)


def sort_field(*names: str) -> serializers.ChoiceField:
    both = [sign + name for name in names for sign in ("", "-")]
    text = "Sort by this field, in descending order with a minus before it. Ties are sorted by id."
    return serializers.ChoiceField(choices=both, default=names[0], help_text=text)


class PageQuery(Query):
    """Which part of a list."""

    limit = serializers.IntegerField(
        min_value=1, max_value=MAX_PAGE_ITEMS, default=PAGE_ITEMS, help_text="Maximum number of results."
    )
    offset = serializers.IntegerField(
        min_value=0, max_value=2**31 - 1, default=0, help_text="Number of results to skip."
    )
