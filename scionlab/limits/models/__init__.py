"""Models."""

from scionlab.limits.models.default_change import DefaultChange
from scionlab.limits.models.maximum_exception import MaximumException

__all__ = ["DefaultChange", "MaximumException"]
