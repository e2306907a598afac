"""Serializers made from a dataclass or a NamedTuple, which names each field once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, ClassVar, Final, Literal, Union, get_args, get_origin, get_type_hints

from rest_framework import serializers

Field = serializers.Field[Any, Any, Any, Any]
_BASIC: Final[dict[Any, type[Field]]] = {
    bool: serializers.BooleanField,
    int: serializers.IntegerField,
    float: serializers.FloatField,
    str: serializers.CharField,
    datetime: serializers.DateTimeField,
}


class DerivedSerializer(serializers.Serializer[Any]):
    """Has the fields of the class `of`, in their order, without those that are `left_out`; a text in a field's
    `Annotated` is its help. Declared fields take the place of those with their name, or follow."""

    of: ClassVar[type]
    left_out: ClassVar[frozenset[str]] = frozenset()

    def get_fields(self) -> dict[str, Field]:
        declared = super().get_fields()
        names = [name for name in _hints(self.of) if name not in self.left_out]
        derived = {name: _field(_hints(self.of)[name]) for name in names if name not in declared}
        return {name: (derived | declared)[name] for name in [*names, *declared]}


@cache
def _hints(of: type) -> Mapping[str, Any]:
    return get_type_hints(of, include_extras=True)


def _field(hint: Any, **options: Any) -> Field:
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _field(inner[0], help_text=inner[1], **options)
    if origin in {Union, UnionType}:
        (known,) = (one for one in inner if one is not NoneType)
        return _field(known, allow_null=True, **options)
    if origin is Literal:
        return serializers.ChoiceField(choices=inner, **options)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return serializers.DictField(**options if inner[1] is Any else {"child": _field(inner[1]), **options})
    if isinstance(origin, type) and issubclass(origin, Sequence):
        return serializers.ListField(child=_field(inner[0]), **options)
    return _BASIC[hint](**options)
