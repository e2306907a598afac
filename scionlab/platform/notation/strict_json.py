"""JSON as the service reads it from outside: what two readers could take differently is refused."""

from __future__ import annotations

import json
from typing import Any


class StrictJSONError(ValueError):
    """Not JSON, or ambiguous; the message is a sentence for whoever sent it."""


def load(content: bytes | str, subject: str = "The body") -> Any:
    """Raises `StrictJSONError`, also for a key that occurs twice, NaN and Infinity, bytes that are not UTF-8, and too
    many levels or digits (RFC 8259, sections 4, 6, 8.1 and 9). The words of Python's reader differ by version and
    are not repeated, nor are values, which may be secrets."""
    try:
        text = content.decode("utf-8") if isinstance(content, bytes) else content
        return json.loads(text, object_pairs_hook=_unique, parse_constant=_refuse_constant)
    except _FoundError as exc:
        raise StrictJSONError(f"{subject} has {exc}") from exc
    except UnicodeDecodeError as exc:
        raise StrictJSONError(f"{subject} is not UTF-8: see byte {exc.start + 1}.") from exc
    except json.JSONDecodeError as exc:
        raise StrictJSONError(f"{subject} is not JSON: see line {exc.lineno}, column {exc.colno}.") from exc
    except RecursionError as exc:
        raise StrictJSONError(f"{subject} has too many levels of brackets.") from exc
    except ValueError as exc:  # Python converts at most 4300 digits
        raise StrictJSONError(f"{subject} has a number with thousands of digits.") from exc


class _FoundError(ValueError):
    """Raised from within Python's reader; says what the document has."""


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise _FoundError(f"the key {json.dumps(key[:60])} twice in one object.")
        found[key] = value
    return found


def _refuse_constant(name: str) -> Any:
    raise _FoundError(f"{name}, which is not JSON.")
