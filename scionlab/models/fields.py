"""Columns that hold bandwidths, ports and addresses: bounded by the rules of `bandwidth_config`, in their words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from django.core.exceptions import ValidationError
from django.db import models

from bandwidth_config import (
    RuleError,
    check_bandwidth,
    check_bind_address,
    check_port,
    check_underlay_address,
    parse_bandwidth,
)

if TYPE_CHECKING:  # generic for the type checker only
    _Base = models.PositiveBigIntegerField[Any, Any]
else:
    _Base = models.PositiveBigIntegerField


class _BandwidthField(_Base):
    """kbit/s. `full_clean()` refuses what `parse_bandwidth` and `check_bandwidth` refuse, with their codes and words.

    In migrations it is the plain column that it is in the database.
    """

    def to_python(self, value: Any) -> Any:
        if value is None and self.null:
            return None
        return _ruled(lambda: parse_bandwidth(value))

    @property
    def validators(self) -> Sequence[Callable[[Any], None]]:  # type: ignore[override]  # a list that Django never writes
        """Instead of Django's bounds of the column type, which would say the same in other words."""
        return [lambda value: _ruled(lambda: check_bandwidth(value))]

    def deconstruct(self) -> Any:
        name, _path, args, kwargs = super().deconstruct()
        return name, "django.db.models.PositiveBigIntegerField", args, kwargs


class _LinkBandwidthField(_BandwidthField):
    """The same without bounds: `Link.clean()` knows a tighter maximum, and one sentence about a number is enough."""

    @property
    def validators(self) -> Sequence[Callable[[Any], None]]:  # type: ignore[override]  # a list that Django never writes
        return []


def validate_port(value: int) -> None:
    """A column's validator for `check_port`."""
    _ruled(lambda: check_port(value))


def validate_underlay_address(value: str) -> None:
    """A column's validator for what `check_underlay_address` says of any address, whoever is at the other end."""
    _ruled(lambda: check_underlay_address(value))


def validate_bind_address(value: str) -> None:
    """A column's validator for `check_bind_address`."""
    _ruled(lambda: check_bind_address(value))


def _ruled(rule: Callable[[], Any]) -> Any:
    try:
        return rule()
    except RuleError as exc:
        raise ValidationError(exc.message, code=exc.code) from exc


# The type checker's plugin knows the types of columns by Django's own classes.
if TYPE_CHECKING:
    BandwidthField = LinkBandwidthField = models.PositiveBigIntegerField
else:
    BandwidthField = _BandwidthField
    LinkBandwidthField = _LinkBandwidthField
