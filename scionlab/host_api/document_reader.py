"""Reads what agents send, by its places; shared by `receipt_format` and `usage_format`."""

from __future__ import annotations

from typing import Any, Final

from scionlab.platform.api_errors import FieldErrors

MAX_ERRORS_TOLD: Final = 20


def no_constant(name: str) -> Any:
    """For `json.loads`: NaN and Infinity are not JSON."""
    raise ValueError(f"{name} is not JSON")


class DocumentReader:
    """Collects what is wrong. Each method returns a value of the right type even then, so that reading goes on."""

    def __init__(self) -> None:
        self.fields: FieldErrors = {}

    def expect(self, is_right: bool, place: str, wanted: str) -> bool:
        if not is_right and len(self.fields) < MAX_ERRORS_TOLD:
            self.fields[place] = [{"code": "wrong_value", "message": f"Send {wanted} here."}]
        return is_right

    def integer(self, value: object, place: str, high: int) -> int:
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= high:
            return value
        self.expect(False, place, f"an integer from 0 to {high}")
        return 0

    def text(self, value: object, place: str, max_length: int) -> str:
        # NUL: PostgreSQL cannot store it. Surrogates: nobody can, they are half a character.
        if isinstance(value, str) and len(value) <= max_length and "\0" not in value and _is_unicode(value):
            return value
        self.expect(False, place, f"a text of at most {max_length} characters")
        return ""

    def mapping(self, value: object, place: str) -> dict[str, Any]:
        if isinstance(value, dict):
            return value
        self.expect(False, place, "an object")
        return {}


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
