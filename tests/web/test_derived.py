"""Serializers made from a dataclass: each type of a field, what is null, its help, and what is declared beside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from rest_framework import serializers

from scionlab.web.rest.derived import DerivedSerializer


@dataclass
class Measured:
    at: datetime
    code: Literal["full", "free"]
    kbit: Annotated[float | None, "Mean rate."]
    limits: tuple[int, ...]
    secret: str
    is_late: bool = False
    names: Sequence[str] | None = None
    parameters: Mapping[str, int] = field(default_factory=dict)
    phases: list[dict[str, Any]] = field(default_factory=list)


class MeasuredDocument(DerivedSerializer):
    of = Measured
    left_out = frozenset({"secret"})
    limits = serializers.CharField(help_text="Declared.")
    text = serializers.CharField(source="code")


def test_each_field_of_the_class_is_in_the_document_in_its_order() -> None:
    one = Measured(datetime(2026, 11, 21, 6, tzinfo=UTC), "full", None, (1, 2), "x", parameters={"seconds": 3})
    assert list(MeasuredDocument(one).data.items()) == [
        ("at", "2026-11-21T06:00:00Z"),
        ("code", "full"),
        ("kbit", None),
        ("limits", "(1, 2)"),
        ("is_late", False),
        ("names", None),
        ("parameters", {"seconds": 3}),
        ("phases", []),
        ("text", "full"),
    ]


def test_types_null_help_and_choices_are_those_of_the_class() -> None:
    fields: Any = MeasuredDocument().fields
    assert [name for name, one in fields.items() if one.allow_null] == ["kbit", "names"]
    assert (fields["kbit"].help_text, fields["limits"].help_text) == ("Mean rate.", "Declared.")
    assert list(fields["code"].choices) == ["full", "free"]
    assert type(fields["parameters"].child) is serializers.IntegerField
    assert type(fields["phases"].child) is serializers.DictField
