"""Locks of exceptions; `testbed.locks` has the order of all."""

from __future__ import annotations

from scionlab.limits.models import MaximumException


def lock_exception(exception_id: int) -> MaximumException:
    """Raises `MaximumException.DoesNotExist`."""
    return MaximumException.objects.select_for_update(no_key=True).get(pk=exception_id)
