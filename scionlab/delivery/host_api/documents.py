"""Documents from hosts. Each is declared once, as a msgspec struct: keys, types and bounds, from which its reader and
its part of the OpenAPI description come (docs/api.md; ADR 0055).

Unknown keys are ignored; a key that occurs twice, NaN and what is not UTF-8 are refused. The first error is told, by
its place in the document ("links.3.to_user.bytes"), with the value and what is allowed there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final, Generic, Literal, TypeVar

import msgspec
from django.utils.dateparse import parse_datetime
from msgspec import Meta, inspect

from bandwidth_config import RuleError
from contract.link_rules import MAX_INTERFACE_ID
from scionlab.platform.api_errors import FieldErrors
from scionlab.platform.clock import database_now
from scionlab.platform.notation import strict_json

MAX_SHOWN_CHARS: Final = 60
MAX_VERSION: Final = 2**31 - 1
CLOCK_WITHIN: Final = timedelta(days=3652)  # of ours: years for a clock that is merely wrong, which pages say

InterfaceId = Annotated[int, Meta(ge=1, le=MAX_INTERFACE_ID)]
Text16 = Annotated[str, Meta(max_length=16, pattern=r"^[^\x00]*$")]  # PostgreSQL cannot store NUL
Text32 = Annotated[str, Meta(max_length=32, pattern=r"^[^\x00]*$")]
Text200 = Annotated[str, Meta(max_length=200, pattern=r"^[^\x00]*$")]
Text2000 = Annotated[str, Meta(max_length=2000, pattern=r"^[^\x00]*$")]
Hex16 = Annotated[str, Meta(max_length=16, pattern="^[0-9a-f]{16}$", title="16 hexadecimal digits in lower case")]
Hex32 = Annotated[str, Meta(max_length=32, pattern="^[0-9a-f]{32}$", title="32 hexadecimal digits in lower case")]
Hex64 = Annotated[str, Meta(max_length=64, pattern="^[0-9a-f]{64}$", title="64 hexadecimal digits in lower case")]
# Python's $ matches before a line feed, too.
Version = Annotated[str, Meta(pattern=r"^[0-9]{1,10}\.[0-9]{1,10}(?!\n)$", title='a version like "1.18"')]
# A text: readers compare it with the service's clock (`time_of`, `time_near`).
Time = Annotated[str, Meta(title="a time in ISO 8601 with its zone", extra_json_schema={"format": "date-time"})]


class Document(msgspec.Struct, frozen=True, omit_defaults=True):
    """A part of a document. A key that agents send as null has UNSET as its default, not null: `Kind.read` is fast for
    documents that have, written anew, the keys they came with."""


class Versioned(Document, frozen=True, kw_only=True):
    schema: Literal[1]


class Stored(Document, frozen=True):
    """The answer to what was sent; `ignored_links` have no Link here."""

    stored: bool
    ignored_links: list[str] = []


class WrongError(ValueError):
    """For `__post_init__`: fields that do not fit together. `field` is the one to correct."""

    def __init__(self, field: str, wanted: str) -> None:
        super().__init__(wanted)
        self.field, self.wanted = field, wanted


class DocumentError(RuleError):
    """A rejected document; `fields` has the invalid place, `status` is that of the response."""

    status = 400

    def __init__(self, code: str, message: str, fields: FieldErrors | None = None) -> None:
        super().__init__(code, message)
        self.fields = fields or {}


class TooLargeError(DocumentError):
    """The body exceeds a limit."""

    status = 413


T = TypeVar("T", bound=msgspec.Struct)


class Kind(Generic[T]):
    """A kind of documents: its struct, the code of its errors, and what an invalid one is called."""

    def __init__(self, struct: type[T], code: str, name: str) -> None:
        self._struct, self._code, self._name = struct, code, name
        self._decoder = msgspec.json.Decoder(struct)
        self._encoder = msgspec.json.Encoder()

    def read(self, content: bytes) -> T:
        """Raises only `DocumentError`, for any bytes.

        The reader does not notice a key that occurs twice. If each key is known and occurs once, the document has as
        many colons as when it is written anew: one per key, and those in texts (unless one is written \\u003a).
        Others are read by Python's reader: it is several times as slow, and tells what is wrong and where.
        """
        try:
            document = self._decoder.decode(content)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return self._read_slowly(content)
        is_plain = content.count(b":") == self._encoder.encode(document).count(b":") and b"\\u003" not in content
        return document if is_plain else self._read_slowly(content)

    def refusal(self, place: str, wanted: str, *value: object) -> DocumentError:
        """`value`: what was sent there, to be named."""
        message = f"Send {wanted} here.{''.join(f' Not {_shown(one)}.' for one in value)}"
        fields = {place: [{"code": "wrong_value", "message": message}]}
        return DocumentError(self._code, f"{place or self._name}: {message}", fields)

    def time_near(self, written: str, place: str) -> datetime:
        """In UTC, by a clock that may be wrong, but is one. Raises `DocumentError`."""
        now = database_now()
        earliest, latest = now - CLOCK_WITHIN, now + CLOCK_WITHIN
        found = time_of(written)
        if found is None or not earliest <= found <= latest:
            wanted = f"a time in ISO 8601 with its zone, from {earliest:%Y-%m-%d} to {latest:%Y-%m-%d},"
            raise self.refusal(place, wanted, written)
        return found

    def _read_slowly(self, content: bytes) -> T:
        try:
            document = strict_json.load(content)
        except strict_json.StrictJSONError as exc:
            raise DocumentError("not_json", str(exc)) from exc
        if isinstance(document, dict) and issubclass(self._struct, Versioned):
            _require_schema(document)
        document = _storable(document) if _HALF_WRITTEN.search(content) else document
        try:
            return msgspec.convert(document, self._struct, str_keys=True)
        except msgspec.ValidationError as exc:
            place, node, value = _found(inspect.type_info(self._struct), document, exc)
            wanted = exc.__cause__.wanted if isinstance(exc.__cause__, WrongError) else _words(node)
            raise self.refusal(".".join(place), wanted, *value) from exc


def version_of(written: str) -> tuple[int, int]:
    """(G, H) of a `Version`. Raises `WrongError`: one is too large."""
    generation, _, config_version = written.partition(".")
    if max(int(generation), int(config_version)) > MAX_VERSION:
        raise WrongError("version", 'a version like "1.18"')
    return int(generation), int(config_version)


def time_of(written: str) -> datetime | None:
    """Parse ISO 8601 with a zone to UTC; None if invalid."""
    try:
        found = parse_datetime(written)
        return found.astimezone(UTC) if found is not None and found.tzinfo is not None else None
    except (ValueError, OverflowError):  # the 31st of February; in UTC it is in the year 0 or 10000
        return None


def _require_schema(document: dict[str, Any]) -> None:
    schema = document.get("schema")
    if schema != 1 or isinstance(schema, bool):
        text = f"Schema {str(schema)[:20]!r} is not known here. Send schema 1, or update the service first."
        raise DocumentError("schema_unknown", text)


_HALF_WRITTEN = re.compile(rb"\\u[dD][89a-fA-F]")
_HALF = re.compile("[\ud800-\udfff]")


def _storable(document: Any) -> Any:
    """Lone surrogates, which cannot be encoded, become NUL, which no text may have."""
    return json.loads(_HALF.sub(r"\\u0000", json.dumps(document, ensure_ascii=False)))


# --- where an error is, and what is wanted there ---------------------------------------------------------------------

_AT = re.compile(r" - at `(key` in `)?\$([^`]*)`$")
_MISSING = re.compile(r"Object missing required field `(\w+)`")
_STEP = re.compile(r"\.(\w+)|\[(\d+|\.\.\.)\]")
_KEY, _ANY = "[key]", "..."  # steps: a key of a mapping itself, a value of one


def _found(
    node: inspect.Type, document: Any, error: msgspec.ValidationError
) -> tuple[list[str], inspect.Type, list[object]]:
    """The place, its type, and the value there, if there is one."""
    at = _AT.search(str(error))
    steps = [name or index for name, index in _STEP.findall(at[2])] if at else []
    if at and at[1]:
        steps.append(_KEY)
    missing, cause = _MISSING.match(str(error)), error.__cause__
    if isinstance(cause, WrongError):
        steps += cause.field.split(".")
    elif missing:
        steps.append(missing[1])
    place: list[str] = []
    value: list[object] = [document]
    for step in steps:
        here: Any = value[0] if value else None
        key, node = _step(_inner(node), here, step)
        place.append(json.dumps(str(key)[:20])[1:-1])  # in ASCII: it is stored and shown
        if step == _KEY:
            return place, node, []
        is_there = key in here if isinstance(here, dict) else isinstance(here, list) and int(key) < len(here)
        value = [here[key]] if is_there else []
    return place, node, value


def _step(node: inspect.Type, here: Any, step: str) -> tuple[Any, inspect.Type]:
    """The key of the next value, and its type. msgspec does not name the keys of mappings."""
    match node:
        case inspect.StructType():
            return step, next(one.type for one in node.fields if one.encode_name == step)
        case inspect.ListType():
            return int(step), node.item_type
        case inspect.DictType() if step == _KEY:
            return next(one for one in here if not _fits({one: None}, dict[InterfaceId, Any])), node.key_type
        case inspect.DictType() if step == _ANY:
            struct = _inner(node.value_type)
            wanted = struct.cls if isinstance(struct, inspect.StructType) else Any
            return next(key for key, one in here.items() if not _fits(one, wanted)), node.value_type
        case inspect.DictType():
            return step, node.value_type
    raise TypeError(f"{node} has no {step}")


def _fits(value: Any, wanted: Any) -> bool:
    try:
        msgspec.convert(value, wanted, str_keys=True)
    except msgspec.ValidationError:
        return False
    return True


def _parts(node: inspect.Type) -> Iterator[inspect.Type]:
    if isinstance(node, inspect.UnionType):
        yield from sorted(node.types, key=lambda one: isinstance(one, inspect.NoneType))
    else:
        yield node


def _inner(node: inspect.Type) -> inspect.Type:
    """Without descriptions and null."""
    while isinstance(node, inspect.Metadata | inspect.UnionType):
        node = node.type if isinstance(node, inspect.Metadata) else next(_parts(node))
    return node


def _words(node: inspect.Type) -> str:  # noqa: PLR0911  a kind of values each
    match node:
        case inspect.Metadata():
            return str((node.extra_json_schema or {}).get("title", "")) or _words(node.type)
        case inspect.UnionType():
            return ", or ".join(map(_words, _parts(node)))
        case inspect.IntType():
            return f"an integer from {node.ge} to {node.le}"
        case inspect.StrType():
            return f"a text of at most {node.max_length} characters without NUL"
        case inspect.LiteralType():
            return " or ".join(map(json.dumps, node.values))
        case inspect.ListType():
            return f"a list of {f'{node.min_length} to' if node.min_length else 'at most'} {node.max_length}"
        case inspect.BoolType():
            return "true or false"
        case inspect.NoneType():
            return "null"
        case inspect.DictType() if node.max_length is not None:
            return f"an object of at most {node.max_length}"
    return "an object"


def _shown(value: object) -> str:
    """In ASCII, shortened."""
    if isinstance(value, dict | list):
        return f"{'an object' if isinstance(value, dict) else 'a list'} of {len(value)}"
    text = json.dumps(value)
    return text if len(text) <= MAX_SHOWN_CHARS else f"{text[:MAX_SHOWN_CHARS]}... ({len(text)} characters)"
