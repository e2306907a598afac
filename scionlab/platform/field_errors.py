"""A broken rule with the field of a form or an API request."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from bandwidth_config import RuleError


class FieldRuleError(RuleError):
    """A broken rule and its field. `field` is the name in form and API (those of `AttachmentSpec`, or of the user AS
    itself); `index` is the attachment, None for the user AS as a whole."""

    def __init__(self, code: str, message: str, field: str, index: int | None = None) -> None:
        super().__init__(code, message)
        self.field = field
        self.index = index

    @classmethod
    def of(cls, error: RuleError, field: str, index: int | None = None) -> FieldRuleError:
        """Add the place to a rule about values."""
        return cls(error.code, error.message, field, index)


@contextmanager
def at_field(field: str, index: int | None = None) -> Iterator[None]:
    """A broken rule that names no field belongs to this one."""
    try:
        yield
    except FieldRuleError:
        raise
    except RuleError as exc:
        raise FieldRuleError.of(exc, field, index) from exc
