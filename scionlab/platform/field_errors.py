"""The error of a rule that was broken in one field of a form or an API request."""

from __future__ import annotations

from bandwidth_config import RuleError


class FieldRuleError(RuleError):
    """A broken rule, with the place where a person corrects it.

    `field` is the name of the field in the form and the API (those of `AttachmentSpec`, or of the user AS itself);
    `index` says which attachment it belongs to, None for the user AS as a whole.
    """

    def __init__(self, code: str, message: str, field: str, index: int | None = None) -> None:
        super().__init__(code, message)
        self.field = field
        self.index = index

    @classmethod
    def of(cls, error: RuleError, field: str, index: int | None = None) -> FieldRuleError:
        """A rule that knows values only, told where the value stands."""
        return cls(error.code, error.message, field, index)
