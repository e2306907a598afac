"""Field types of the REST API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from bandwidth_config import MAX_BANDWIDTH_KBIT, Limits, RuleError, check_bandwidth, parse_bandwidth
from station.tools import TOOLS

_KBIT = {
    "type": ["integer", "string"],
    "minimum": 0,
    "maximum": MAX_BANDWIDTH_KBIT,
    "pattern": r"^\s*[0-9]+\s*$",
    "description": "kbit/s; a string of digits is accepted too.",
}


@extend_schema_field(_KBIT)
class BandwidthField(serializers.Field[int, Any, int, Any]):
    """kbit/s, validated like the web form, with the same messages."""

    def validate_empty_values(self, data: Any) -> tuple[bool, Any]:
        return super().validate_empty_values("" if data is None and not self.allow_null else data)

    def to_internal_value(self, data: Any) -> int:
        try:
            return parse_bandwidth(data)
        except RuleError as exc:
            raise serializers.ValidationError(exc.message, code=exc.code) from exc

    def to_representation(self, value: int) -> int:
        return value


class AnyBandwidthField(BandwidthField):
    """Of no Link, whose maximum would bound it: 0 to MAX_BANDWIDTH_KBIT."""

    def to_internal_value(self, data: Any) -> int:
        value = super().to_internal_value(data)
        try:
            check_bandwidth(value)
        except RuleError as exc:
            raise serializers.ValidationError(exc.message, code=exc.code) from exc
        return value


class Text(serializers.CharField):
    """A JSON string; numbers are rejected."""

    def to_internal_value(self, data: Any) -> str:
        if not isinstance(data, str):
            self.fail("invalid")
        return super().to_internal_value(data)


class Flag(serializers.BooleanField):
    """A JSON boolean; 0, "no" and "off" are rejected."""

    def to_internal_value(self, data: Any) -> bool:
        if not isinstance(data, bool):
            self.fail("invalid", input=data)
        return data


class Whole(serializers.IntegerField):
    """A JSON integer; 5.0 and "5" are rejected."""

    def to_internal_value(self, data: Any) -> int:
        if not isinstance(data, int) or isinstance(data, bool):
            self.fail("invalid")
        return super().to_internal_value(data)


class Present(serializers.BooleanField):
    """Whether there is something at `source`."""

    def get_attribute(self, instance: Any) -> bool:
        return super().get_attribute(instance) is not None


class StrictSerializer(serializers.Serializer[Any]):
    """Rejects unknown names: a misspelt one would silently change nothing."""

    def to_internal_value(self, data: Any) -> Any:
        unknown = sorted(set(data) - set(self.fields)) if isinstance(data, Mapping) else []
        if unknown:
            text = f"Unknown field. Known fields: {', '.join(sorted(self.fields))}."
            raise serializers.ValidationError(
                {name[:100]: [serializers.ErrorDetail(text, "unknown_field")] for name in unknown}
            )
        return super().to_internal_value(data)


def _parameters_schema() -> dict[str, Any]:
    """All tools: if several have a parameter of that name, the widest bounds."""
    every = [one for tool in TOOLS.values() for one in tool.parameters]
    properties = {}
    for name in sorted({one.name for one in every}):
        of_name = [one for one in every if one.name == name]
        low, high = min(one.low for one in of_name), max(one.high for one in of_name)
        text = f"{of_name[0].label} [{of_name[0].unit}]"
        properties[name] = {"type": "integer", "minimum": low, "maximum": high, "description": text}
    return {"type": "object", "properties": properties, "additionalProperties": False}


@extend_schema_field(_parameters_schema())
class ParametersField(serializers.DictField):
    """Parameters of a tool that sends; the tool validates them."""


class LimitsSerializer(StrictSerializer):
    """kbit/s in each direction; 0 blocks that direction."""

    to_user_kbit = AnyBandwidthField(help_text="To the user AS.")
    from_user_kbit = AnyBandwidthField(help_text="From the user AS.")


@extend_schema_field(
    {
        "oneOf": [
            {**_KBIT, "description": "Both directions."},
            {
                "type": "object",
                "required": ["to_user_kbit", "from_user_kbit"],
                "properties": {"to_user_kbit": _KBIT, "from_user_kbit": _KBIT},
                "additionalProperties": False,
            },
        ],
    }
)
class LimitsField(serializers.Field[Limits, Any, Any, Any]):
    """One number for both directions, or an object with one for each."""

    def to_internal_value(self, data: Any) -> Limits:
        if isinstance(data, Mapping):
            each = LimitsSerializer(data=data)
            each.is_valid(raise_exception=True)
            return Limits(**each.validated_data)
        return Limits.both(AnyBandwidthField().run_validation(data))

    def to_representation(self, value: Limits) -> dict[str, int]:
        return value._asdict()
