"""Rejects limits above the maximum of the attachment point, for every form, API and service."""

from __future__ import annotations

from collections.abc import Iterator

from bandwidth_config import Limits, check_change
from scionlab.platform.field_errors import FieldRuleError


def limit_errors(
    old: Limits | None, new: Limits, maximum_kbit: int, index: int | None = None
) -> Iterator[FieldRuleError]:
    """Errors of `check_change` by column of a Link, which are also the field names of forms and of the API."""
    for direction, error in check_change(old, new, maximum_kbit).items():
        yield FieldRuleError.of(error, "bandwidth_kbit" if direction == "to_user_kbit" else direction, index)
