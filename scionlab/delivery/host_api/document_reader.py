"""Validates documents from agents: strict for known keys, ignoring unknown ones (docs/api.md).

All errors are reported together, by their place in the document ("links.3.to_user.bytes"), with the value and what is
allowed there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from django.utils.dateparse import parse_datetime

from bandwidth_config import RuleError
from contract.link_rules import MAX_INTERFACE_ID
from scionlab.platform.api_errors import FieldErrors
from scionlab.platform.clock import database_now
from scionlab.platform.notation import strict_json

MAX_ERRORS_TOLD: Final = 20
MAX_SHOWN_CHARS: Final = 60
MAX_VERSION: Final = 2**31 - 1
CLOCK_WITHIN: Final = timedelta(days=3652)  # of ours: years for a clock that is merely wrong, which pages say
SCHEMA: Final = 1  # for receipts and batches of usage
_VERSION = re.compile(r"([0-9]{1,10})\.([0-9]{1,10})", flags=re.ASCII)
_INTERFACE_ID = re.compile(r"[1-9][0-9]{0,3}", flags=re.ASCII)


class DocumentError(RuleError):
    """A rejected document; `fields` lists up to 20 invalid places."""

    def __init__(self, code: str, message: str, fields: FieldErrors | None = None) -> None:
        super().__init__(code, message)
        self.fields = fields or {}


def load(content: bytes) -> Any:
    """Raises `DocumentError` (`not_json`)."""
    try:
        return strict_json.load(content)
    except strict_json.StrictJSONError as exc:
        raise DocumentError("not_json", str(exc)) from exc


def require_schema(document: dict[str, Any]) -> None:
    """Raises `DocumentError` (`schema_unknown`)."""
    schema = document.get("schema")
    if schema != SCHEMA or isinstance(schema, bool):
        text = f"Schema {str(schema)[:20]!r} is not known here. Send schema {SCHEMA}, or update the service first."
        raise DocumentError("schema_unknown", text)


def time_of(value: object) -> datetime | None:
    """Parse ISO 8601 with a zone to UTC; None if invalid."""
    try:
        found = parse_datetime(value) if isinstance(value, str) else None
        return found.astimezone(UTC) if found is not None and found.tzinfo is not None else None
    except (ValueError, OverflowError):  # the 31st of February; in UTC it is in the year 0 or 10000
        return None


class DocumentReader:
    """Collects errors. Each method returns a value of the right type even then, so that reading continues."""

    def __init__(self) -> None:
        self.fields: FieldErrors = {}

    def expect(self, is_right: bool, place: str, wanted: str, *value: object) -> bool:
        """`value`: what was sent there, to be named."""
        if not is_right and len(self.fields) < MAX_ERRORS_TOLD:
            sent = "".join(f" Not {_shown(one)}." for one in value)
            self.fields[place] = [{"code": "wrong_value", "message": f"Send {wanted} here.{sent}"}]
        return is_right

    def integer(self, value: object, place: str, high: int) -> int:
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= high:
            return value
        self.expect(False, place, f"an integer from 0 to {high}", value)
        return 0

    def text(self, value: object, place: str, max_length: int) -> str:
        # PostgreSQL cannot store NUL, and lone surrogates cannot be encoded.
        if isinstance(value, str) and len(value) <= max_length and "\0" not in value and _is_unicode(value):
            return value
        self.expect(False, place, f"a text of at most {max_length} characters", value)
        return ""

    def mapping(self, value: object, place: str) -> dict[str, Any]:
        if isinstance(value, dict):
            return value
        self.expect(False, place, "an object", value)
        return {}

    def matching(self, value: object, place: str, pattern: re.Pattern[str], wanted: str) -> str:
        if isinstance(value, str) and pattern.fullmatch(value):
            return value
        self.expect(False, place, wanted, value)
        return ""

    def time(self, value: object, place: str) -> datetime:
        """In UTC, by a clock that may be wrong, but is one."""
        now = database_now()
        earliest, latest = now - CLOCK_WITHIN, now + CLOCK_WITHIN
        found = time_of(value)
        if found is not None and earliest <= found <= latest:
            return found
        wanted = f"a time in ISO 8601 with its zone, from {earliest:%Y-%m-%d} to {latest:%Y-%m-%d},"
        self.expect(False, place, wanted, value)
        return now

    def listed(self, value: object, place: str, most: int, what: str, *, least: int = 0) -> list[Any]:
        if isinstance(value, list) and least <= len(value) <= most:
            return value
        self.expect(False, place, f"a list of {f'{least} to' if least else 'at most'} {most} {what}", value)
        return []

    def version(self, value: object, wanted: str) -> tuple[int, int] | None:
        """(G, H)."""
        match = _VERSION.fullmatch(value) if isinstance(value, str) else None
        parts = (int(match[1]), int(match[2])) if match else None
        is_right = parts is not None and max(parts) <= MAX_VERSION
        return parts if self.expect(is_right, "version", wanted, value) else None

    def links(self, value: object) -> Iterator[tuple[int, Any, str]]:
        """Yield interface id, value and place of each."""
        for key, one in self.mapping(value, "links").items():
            place = f"links.{json.dumps(key[:20])[1:-1]}"  # in ASCII: it is stored and shown
            is_id = _INTERFACE_ID.fullmatch(key) is not None and int(key) <= MAX_INTERFACE_ID
            if self.expect(is_id, place, f"links under interface ids from 1 to {MAX_INTERFACE_ID}"):
                yield int(key), one, place

    def refuse(self, code: str, what: str) -> None:
        """Raise `DocumentError` if there were errors; `what` names the whole document."""
        if self.fields:
            place, errors = next(iter(self.fields.items()))
            raise DocumentError(code, f"{place or what}: {errors[0]['message']}", self.fields)


def _shown(value: object) -> str:
    """In ASCII, shortened."""
    if isinstance(value, (dict, list)):
        return f"{'an object' if isinstance(value, dict) else 'a list'} of {len(value)}"
    text = json.dumps(value)
    return text if len(text) <= MAX_SHOWN_CHARS else f"{text[:MAX_SHOWN_CHARS]}... ({len(text)} characters)"


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
