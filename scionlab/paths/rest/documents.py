"""What of a Link is in the answer only where an extension measures it."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from scionlab.limits.measured import LAST_TESTS, TRAFFIC


class MeasuredDocument(serializers.Serializer[Any]):
    """Fields `used`, declared by the subclass, and `last_test`."""

    def get_fields(self) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
        fields = super().get_fields()
        if not TRAFFIC:
            del fields["used"]
        for tests in LAST_TESTS:
            text = "The newest one that has begun; null: none, or not shown."
            fields["last_test"] = tests.document(allow_null=True, help_text=text)
        return fields
