"""Parses the JSON of `dumpdata`: a list of entries, each with model, primary key and fields.

Only used fields are checked, so newer versions with more fields are accepted. An error names the entry's position in
the list (from 0), its model and key, and the field, but no value that may be secret.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from bandwidth_config import RuleError
from scionlab.platform.notation import strict_json
from scionlab.platform.notation.isd_as import parse_as_id

MAX_DUMP_BYTES: Final = 256 * 1024 * 1024
APP: Final = "scionlab."
_MAX_KEY: Final = 2**63 - 1
_MAX_INTEGER: Final = 2**31 - 1  # PositiveIntegerField
_KINDS: Final = {
    dict: "an object",
    list: "a list",
    str: "a text",
    bool: "a truth value",
    int: "a number",
    float: "a number",
}


class DumpError(ValueError):
    """The file cannot be read; the text says where and what to do."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One row of a table. Each method reads a field, and raises `DumpError` if it is missing or of another type."""

    index: int
    model: str  # in lower case, e.g. scionlab.host
    pk: int
    fields: Mapping[str, Any]

    def __str__(self) -> str:
        return f"[{self.index}] {self.model} {self.pk}"

    def fail(self, field: str, problem: str) -> NoReturn:
        raise DumpError(f'{self}: "{field}" {problem}')

    def _value(self, field: str) -> Any:
        if field not in self.fields:
            self.fail(field, "is missing. Dump the model with all of its fields.")
        return self.fields[field]

    def _wrong(self, field: str, wanted: str) -> NoReturn:
        self.fail(field, f"is {_kind(self.fields[field])}, not {wanted}.")

    def integer(self, field: str, *, high: int = _MAX_INTEGER) -> int:
        value = self._value(field)
        if type(value) is not int:
            self._wrong(field, "a whole number")
        if not 0 <= value <= high:
            self.fail(field, f"is outside 0 to {high}.")
        return value

    def optional_integer(self, field: str) -> int | None:
        """None also if the field is missing, as in some versions."""
        return None if self.fields.get(field) is None else self.integer(field)

    def flag(self, field: str) -> bool:
        value = self._value(field)
        if type(value) is not bool:
            self._wrong(field, "true or false")
        return value

    def text(self, field: str) -> str:
        """Empty for null."""
        value = self._value(field)
        if value is None:
            return ""
        if not isinstance(value, str):
            self._wrong(field, "a text")
        if "\0" in value or not _is_encodable(value):
            self.fail(field, "has a character that no database stores.")
        return value

    def choice(self, field: str, *known: str) -> str:
        value = self.text(field)
        if value not in known:
            self.fail(field, f"is not one of {', '.join(known)}.")
        return value

    def reference(self, field: str) -> int:
        """A primary key; natural keys are not supported."""
        value = self._value(field)
        if type(value) is not int or not 0 < value <= _MAX_KEY:
            self._wrong(field, "a primary key. Dump without --natural-foreign")
        return value

    def optional_reference(self, field: str) -> int | None:
        return None if self._value(field) is None else self.reference(field)

    def address(self, field: str) -> str:
        value = self.optional_address(field)
        if value is None:
            self.fail(field, "is empty, not an IP address.")
        return value

    def optional_address(self, field: str) -> str | None:
        """None for null and for an empty text."""
        value = self.text(field)
        if not value:
            return None
        try:
            if "%" in value:
                raise ValueError
            return str(ipaddress.ip_address(value))
        except ValueError:
            self.fail(field, f'is "{value[:60]}", not an IP address.')

    def as_id(self, field: str) -> int:
        try:
            return parse_as_id(self.text(field))
        except RuleError as exc:
            self.fail(field, f"is wrong. {exc.message}")


def read_entries(content: bytes) -> dict[str, list[Entry]]:
    """Entries by model, ordered by key. Raises `DumpError`."""
    if len(content) > MAX_DUMP_BYTES:
        raise DumpError(
            f"A dump of {len(content)} bytes or more is above the limit of {MAX_DUMP_BYTES}. Leave out what is not "
            "read: --exclude scionlab.key --exclude scionlab.certificate --exclude scionlab.trc."
        )
    found: dict[str, dict[int, Entry]] = {}
    for entry in _entries(_parsed(content)):
        rows = found.setdefault(entry.model, {})
        if entry.pk in rows:
            raise DumpError(f"{entry}: the same model and key are at [{rows[entry.pk].index}] already.")
        rows[entry.pk] = entry
    if not any(model.startswith(APP) for model in found):
        raise DumpError("The file has no entry of the app scionlab. Make it with: manage.py dumpdata scionlab")
    return {model: [rows[pk] for pk in sorted(rows)] for model, rows in found.items()}


def _parsed(content: bytes) -> list[Any]:
    try:
        document = strict_json.load(content, "The file")
    except strict_json.StrictJSONError as exc:
        raise DumpError(str(exc)) from None
    if not isinstance(document, list):
        raise DumpError(f"The file contains {_kind(document)}, not the list of entries that dumpdata writes.")
    return document


def _entries(document: list[Any]) -> Iterator[Entry]:
    for index, value in enumerate(document):
        if not isinstance(value, dict):
            raise DumpError(f"[{index}] is {_kind(value)}, not an object with model, pk and fields.")
        model, pk, fields = (value.get(key) for key in ("model", "pk", "fields"))
        if not isinstance(model, str) or not model.isascii() or not 0 < len(model) <= 100:
            raise DumpError(f'[{index}]: "model" is {_kind(model)}, not the name of a model.')
        if not isinstance(fields, dict):
            raise DumpError(f'[{index}] {model}: "fields" is {_kind(fields)}, not an object.')
        if model.lower().startswith(APP) and (type(pk) is not int or not 0 < pk <= _MAX_KEY):
            raise DumpError(f'[{index}] {model}: "pk" is {_kind(pk)}, not a key. Dump without --natural-primary.')
        # Other apps may have text keys; their entries are counted and ignored.
        yield Entry(index, model.lower(), pk if type(pk) is int else -index - 1, fields)


def _is_encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _kind(value: object) -> str:
    return "nothing" if value is None else _KINDS.get(type(value), type(value).__name__)
