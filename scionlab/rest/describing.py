"""The OpenAPI description as what a page shows: operations with a curl line each, and tables of fields.

Pure: description in, plain values out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

from django.utils.text import slugify

# What stands for {id} in the curl lines, by the beginning of the path.
_VARIABLES: Final = {
    "/api/v1/ases/": "$AS",
    "/api/v1/links/": "$LINK",
    "/api/v1/timed-limits/": "$TIMED",
    "/api/v1/attachment-points/": "$AP",
    "/api/v1/bulk-changes/": "$CHANGE",
    "/api/v1/default-changes/": "$CHANGE",
    "/api/v1/tokens/": "$TOKEN_ID",
    "/api/v4/": "$HOST_ID",
}
_GREATEST_TOLD: Final = 2**31  # bounds beyond are the database's, and of no interest to people
_CREDENTIALS: Final = {"token": '-H "Authorization: Token $TOKEN"', "host": '-u "$HOST_ID:$HOST_SECRET"'}


@dataclass(frozen=True)
class Row:
    """One parameter, or one field of a document."""

    name: str
    kind: str
    text: str
    is_required: bool
    where: str = ""  # of a parameter: query, path, header
    link: str = ""  # the anchor of the document that is meant


@dataclass(frozen=True)
class Document:
    """One object with its fields; `example` is JSON."""

    name: str
    anchor: str
    text: str
    rows: list[Row]


@dataclass(frozen=True)
class Example:
    title: str
    text: str


@dataclass(frozen=True)
class Answer:
    code: str
    phrase: str
    text: str
    link: str = ""
    example: str = ""
    is_error: bool = False


@dataclass(frozen=True)
class Described:
    """One operation."""

    method: str
    path: str
    anchor: str
    summary: str
    text: str
    parameters: list[Row]
    bodies: list[str]  # anchors of the documents that may be sent
    curls: list[Example]
    answers: list[Answer]

    @property
    def successes(self) -> list[Answer]:
        return [one for one in self.answers if not one.is_error]

    @property
    def errors(self) -> list[Answer]:
        return [one for one in self.answers if one.is_error]


@dataclass(frozen=True)
class Section:
    """All of one tag: a page."""

    name: str
    slug: str
    text: str
    operations: list[Described]
    documents: list[Document]


def sections(description: dict[str, Any]) -> list[Section]:
    return [_section(description, tag["name"], tag["description"]) for tag in description["tags"]]


def _section(description: dict[str, Any], tag: str, text: str) -> Section:
    found = [
        (path, method, operation)
        for path, operations in description["paths"].items()
        for method, operation in operations.items()
        if tag in operation["tags"]
    ]
    operations = [_operation(description, *one) for one in found]
    names = _used(description, [operation for _, _, operation in found])
    schemas = description["components"]["schemas"]
    documents = [_document(name, schemas[name]) for name in sorted(names) if "properties" in schemas[name]]
    return Section(tag, slugify(tag), text, operations, documents)


# --- operations ---------------------------------------------------------------------------------------------


def _operation(description: dict[str, Any], path: str, method: str, operation: dict[str, Any]) -> Described:
    body = next(iter(operation.get("requestBody", {}).get("content", {}).items()), None)
    return Described(
        method=method.upper(),
        path=path,
        anchor=operation["operationId"],
        summary=operation["summary"],
        text=operation.get("description", ""),
        parameters=[_parameter(_resolved(description, one)) for one in operation.get("parameters", [])],
        bodies=[] if body is None else _references(_alternatives(description, body[1]["schema"])),
        curls=list(_curls(path, method, operation, body)),
        answers=[_answer(code, _resolved(description, one)) for code, one in operation["responses"].items()],
    )


def _alternatives(description: dict[str, Any], schema: dict[str, Any]) -> Any:
    """Of a body that is one of several documents: these."""
    return _resolved(description, schema).get("oneOf", schema)


def _parameter(parameter: dict[str, Any]) -> Row:
    return Row(
        name=parameter["name"],
        kind=_kind(parameter["schema"]),
        text=parameter.get("description", ""),
        is_required=parameter.get("required", False),
        where=parameter["in"],
    )


def _answer(code: str, response: dict[str, Any]) -> Answer:
    contents: dict[str, Any] = response.get("content", {})
    media_type, content = next(iter(contents.items()), ("", dict[str, Any]()))
    examples: list[dict[str, Any]] = list(content.get("examples", {}).values())
    example = examples[0]["value"] if examples else content.get("example")
    is_error = int(code) >= HTTPStatus.BAD_REQUEST
    return Answer(
        code=code,
        phrase=HTTPStatus(int(code)).phrase,
        text=response["description"] + ("" if media_type in {"", "application/json"} else f" {media_type}"),
        link="" if is_error else next(iter(_references(content.get("schema", {}))), ""),
        example="" if example is None or is_error else _json(example),
        is_error=is_error,
    )


def _curls(
    path: str, method: str, operation: dict[str, Any], body: tuple[str, dict[str, Any]] | None
) -> Iterator[Example]:
    if body is None:
        yield Example("", _curl(path, method, operation, ""))
        return
    media_type, content = body
    examples = content.get("examples") or {"": {"value": content.get("example")}}
    for title, example in examples.items():
        if media_type == "application/json":
            data = f"-H 'Content-Type: application/json' \\\n    -d '{json.dumps(example['value'])}'"
        else:
            data = " ".join(f"-d {name}={value}" for name, value in example["value"].items())
        yield Example(example.get("summary", title), _curl(path, method, operation, data))


def _curl(path: str, method: str, operation: dict[str, Any], data: str) -> str:
    variable = next((one for start, one in _VARIABLES.items() if path.startswith(start)), "$ID")
    address = re.sub(r"\{[a-z]+\}", variable, path)
    security = operation.get("security") or [{}]
    is_file = "application/json" not in next(iter(operation["responses"].values())).get(
        "content", {"application/json": 1}
    )
    words = [
        "curl -sOJ" if is_file else "curl -s",
        "" if method == "get" or (method == "post" and data) else f"-X {method.upper()}",  # with data curl posts
        f'"$SITE{address}"',
        next((_CREDENTIALS[name] for one in security for name in one if name in _CREDENTIALS), ""),
        '-H "If-Match: $ETAG"' if str(HTTPStatus.PRECONDITION_REQUIRED.value) in operation["responses"] else "",
        data,
    ]
    return " ".join(word for word in words if word)


def _json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)


# --- documents ----------------------------------------------------------------------------------------------


def anchor_of(name: str) -> str:
    return f"document-{name}"


def _document(name: str, schema: dict[str, Any]) -> Document:
    required = set(schema.get("required", []))
    rows = [_row(field, one, is_required=field in required) for field, one in schema["properties"].items()]
    return Document(name, anchor_of(name), schema.get("description", ""), rows)


def _row(name: str, schema: dict[str, Any], *, is_required: bool) -> Row:
    link = next(iter(_references(schema)), "")
    return Row(name, _kind(schema), schema.get("description", ""), is_required, link=link)


def _kind(schema: dict[str, Any]) -> str:
    """In words: `integer, 0 to 100`, `one of a, b`, `list of LinkDocument, or null`."""
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    for word in ("oneOf", "allOf", "anyOf"):
        if word in schema:
            return " or ".join(_kind(one) for one in schema[word])
    if "const" in schema:
        return json.dumps(schema["const"])
    kinds = schema.get("type", "any")
    listed = kinds if isinstance(kinds, list) else [kinds]
    base = " or ".join(one for one in listed if one != "null")
    if "enum" in schema:
        base = "one of " + ", ".join(str(one) for one in schema["enum"] if one is not None)
    elif "array" in listed:
        base = f"list of {_kind(schema.get('items', {}))}"
    elif "format" in schema and schema["format"] != "int64":
        base = str(schema["format"])
    return base + _bounds(schema) + (", or null" if "null" in listed else "")


def _bounds(schema: dict[str, Any]) -> str:
    low, high = schema.get("minimum"), schema.get("maximum")
    if high is not None and high > _GREATEST_TOLD:
        high = None
    found = ""
    if low is not None and high is not None:
        found = f", {low} to {high}"
    elif low is not None:
        found = f", at least {low}"
    if schema.get("maxLength"):
        found += f", at most {schema['maxLength']} characters"
    if "default" in schema and schema["default"] is not None:
        found += f", default {json.dumps(schema['default'])}"
    return found


def _references(schema: Any) -> list[str]:
    """Anchors of the documents that are named, those of a page of a list being its items'."""
    if isinstance(schema, dict):
        name = str(schema.get("$ref", "")).rpartition("/")[2]
        if name:
            return [anchor_of(re.sub(r"^Paginated(.*)List$", r"\1", name))]
        return [one for value in schema.values() for one in _references(value)]
    return [one for value in schema for one in _references(value)] if isinstance(schema, list) else []


def _used(description: dict[str, Any], operations: list[dict[str, Any]]) -> set[str]:
    """Names of all documents that these operations name, directly or in one another."""
    schemas = description["components"]["schemas"]
    waiting = [_named(one.get("requestBody", {})) | _named(_successes(one)) for one in operations]
    found: set[str] = set()
    todo = set[str]().union(*waiting)
    while todo:
        name = todo.pop()
        if name not in found:
            found.add(name)
            todo |= _named(schemas[name])
    return {name for name in found if not name.startswith("Paginated")}


def _successes(operation: dict[str, Any]) -> list[Any]:
    return [one for code, one in operation["responses"].items() if int(code) < HTTPStatus.BAD_REQUEST]


def _named(node: Any) -> set[str]:
    if isinstance(node, dict):
        reference = str(node.get("$ref", ""))
        own = {reference.rpartition("/")[2]} if reference.startswith("#/components/schemas/") else set()
        return own.union(*(_named(one) for one in node.values()))
    return set[str]().union(*(_named(one) for one in node)) if isinstance(node, list) else set()


def _resolved(description: dict[str, Any], node: dict[str, Any]) -> dict[str, Any]:
    reference = node.get("$ref")
    if reference is None:
        return node
    found: Any = description
    for part in reference.removeprefix("#/").split("/"):
        found = found[part]
    return dict(found)
