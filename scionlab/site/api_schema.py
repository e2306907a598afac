"""What every operation of the REST API does alike, added to the generated description."""

from __future__ import annotations

from typing import Any, Final

from django.urls import URLPattern
from rest_framework import status

from scionlab.delivery.host_api.schema import ENROL, TAG, host_components
from scionlab.site.api_examples import ERRORS
from scionlab.site.apps_urls import of_apps
from scionlab.web.models import MAX_KEY_CHARS

IF_MATCH: Final = "If-Match"
IF_NONE_MATCH: Final = "If-None-Match"
IDEMPOTENCY_KEY: Final = "Idempotency-Key"
_PARAMETERS: Final = {
    IF_NONE_MATCH: "Known ETags: 304 if one of them is current.",
    IF_MATCH: "The ETag on which the change is based: 412 if the object was changed since. Reports of the "
    "attachment point do not count as changes.",
    IDEMPOTENCY_KEY: "Printable ASCII, for example a random UUID. A request repeated within 24 hours is not "
    "executed twice; it returns the first response.",
}
_HEADERS: Final = {
    "ETag": ("string", "ETag of this representation."),
    "Location": ("string", "URL of the created object."),
    "Link": ("string", "URLs of the first, previous, next and last page (RFC 8288)."),
    "Retry-After": ("integer", "Seconds."),
    "WWW-Authenticate": ("string", "Token"),
}
_ERROR_HEADERS: Final = {401: "WWW-Authenticate", 412: "ETag", 429: "Retry-After", 503: "Retry-After"}
# A client that requests a token has none yet, and revoking the one in use needs no comparison.
_PLAIN: Final = {"/api/v1/token/"}
# Repeating it has no effect, so no key is needed.
REPEATABLE: Final = {"/api/v1/paths/", "/api/v1/tests/{id}/start/", "/api/v1/tests/{id}/report/"}
CONFIRMS: Final = "/apply/"  # If-Match is required, and repeating it has no effect

_DESCRIPTIONS: Final = {"200": "OK.", "201": "Created.", "204": "Done; no body."}
TAGS: Final = {
    "ASes": "User ASes with their attachments.",
    "links": "Links to attachment points: their limits and the state of enforcement.",
    "timed limits": "Temporary limits, which end automatically.",
    "tests": "Tests of Links: watch whether one is what slows your traffic, or send over it between its two ends.",
    "paths": "Limits along SCION paths.",
    "attachment points": "Attachment points and the defaults in force there.",
    "account": "Your profile and tokens.",
    TAG: "The host API v4: hosts pull their configuration and report what they enforce. HTTP Basic.",
}

Operation = dict[str, Any]


def complete(result: dict[str, Any], generator: Any, request: Any, public: bool) -> dict[str, Any]:  # noqa: ARG001
    """Add headers, preconditions and every possible error, each defined once."""
    components = result["components"]
    _without_marks(result)
    for path, operations in result["paths"].items():
        for method, operation in operations.items():
            _complete_operation(path, method, operation)
    components["responses"] = {_error_name(code): _error_response(code) for code in ERRORS}
    components["headers"] = {
        name: {"description": text, "schema": {"type": kind}} for name, (kind, text) in _HEADERS.items()
    }
    components["parameters"] = {
        name: {"name": name, "in": "header", "description": text, "schema": _parameter_schema(name)}
        for name, text in _PARAMETERS.items()
    }
    components["schemas"] |= {"Error": _error_schema(), "StaleError": _stale_schema()}
    components["securitySchemes"] = SECURITY_SCHEMES
    components["responses"]["ErrorHost401"] = {
        **_error_response(401),
        "description": "Missing or wrong credentials, or those of another host.",
    }
    result["paths"] |= _host_paths()
    components["schemas"] |= host_components()
    used = {tag for operations in result["paths"].values() for one in operations.values() for tag in one["tags"]}
    result["tags"] = [{"name": name, "description": text} for name, text in TAGS.items() if name in used]
    return result


def _host_paths() -> dict[str, dict[str, Operation]]:
    """Of the apps that are installed; `host_endpoint` attaches the operations."""
    views = {str(one.pattern): one.callback for one in of_apps("host_patterns") if isinstance(one, URLPattern)}
    paths: dict[str, dict[str, Operation]] = {
        f"/api/v4/host/{route}".replace("<str:uid>", "{uid}"): vars(view)["described"] for route, view in views.items()
    }
    return {**paths, "/api/v4/enrol": {"post": ENROL}}


def _without_marks(node: Any) -> None:
    if isinstance(node, dict):
        node.pop("x-spec-enum-id", None)
    for one in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        _without_marks(one)


def _complete_operation(path: str, method: str, operation: Operation) -> None:
    asked = _conditions(path, method, operation)
    if asked:
        parameters = operation.setdefault("parameters", [])
        parameters += [{"$ref": f"#/components/parameters/{name}"} for name in asked]
    for code, response in operation["responses"].items():
        response["description"] = _DESCRIPTIONS[code]
        names = _answer_headers(method, operation, int(code))
        if names:
            response["headers"] = {name: {"$ref": f"#/components/headers/{name}"} for name in names}
    if IF_NONE_MATCH in asked:
        operation["responses"]["304"] = {
            "description": "If-None-Match matches: no body.",
            "headers": {"ETag": {"$ref": "#/components/headers/ETag"}},
        }
    for code in _possible_errors(path, method, operation, asked):
        operation["responses"].setdefault(str(code), {"$ref": f"#/components/responses/{_error_name(code)}"})
    operation["responses"] = dict(sorted(operation["responses"].items()))


def _conditions(path: str, method: str, operation: Operation) -> list[str]:
    if path in _PLAIN | REPEATABLE:
        return []
    if method == "get":
        return [IF_NONE_MATCH] if "application/json" in operation["responses"]["200"]["content"] else []
    return [IDEMPOTENCY_KEY] if method == "post" and not path.endswith(CONFIRMS) else [IF_MATCH]


def _answer_headers(method: str, operation: Operation, code: int) -> list[str]:
    if code == status.HTTP_204_NO_CONTENT:
        return []
    content = operation["responses"][str(code)].get("content", {})
    names = ["ETag"] if "application/json" in content else []
    if code == status.HTTP_201_CREATED:
        names.append("Location")
    if method == "get" and any(one.get("name") == "offset" for one in operation.get("parameters", [])):
        names.append("Link")
    return names


def _possible_errors(path: str, method: str, operation: Operation, asked: list[str]) -> set[int]:
    found = {400, 406, 429, 500, 503}
    if operation.get("security", [{}]) != [{}]:
        found |= {401, 403}
    if method == "get":
        found -= set() if _has_403_on_get(path) else {403}
    if path in _PLAIN and method == "post":
        found |= {401, 403}
    if "{" in path:
        found.add(404)
    if method in {"post", "put", "patch"}:
        found.add(415)
    if IF_MATCH in asked:
        found.add(412)
    if path.endswith(CONFIRMS):
        found.add(428)
    if IDEMPOTENCY_KEY in asked:
        found |= {409, 422}  # 409 also if another test is scheduled then
    if path.endswith("/start/"):
        found.add(409)
    return found


def _has_403_on_get(path: str) -> bool:
    return path.endswith("/configuration/") or path.startswith(STAFF_PATHS)


STAFF_PATHS: Final = ("/api/v1/traffic/",)


def _parameter_schema(name: str) -> dict[str, Any]:
    limits = {"minLength": 1, "maxLength": MAX_KEY_CHARS, "pattern": "^[ -~]+$"} if name == IDEMPOTENCY_KEY else {}
    return {"type": "string", **limits}


def _error_name(code: int) -> str:
    return f"Error{code}"


def _error_response(code: int) -> dict[str, Any]:
    text, example = ERRORS[code]
    schema = "StaleError" if code == status.HTTP_412_PRECONDITION_FAILED else "Error"
    header = _ERROR_HEADERS.get(code)
    return {
        "description": text,
        **({"headers": {header: {"$ref": f"#/components/headers/{header}"}}} if header else {}),
        "content": {"application/json": {"schema": {"$ref": f"#/components/schemas/{schema}"}, "example": example}},
    }


def _error_schema() -> dict[str, Any]:
    """The one shape of every error (`platform.api_errors`)."""
    entry = {
        "type": "object",
        "required": ["code", "message"],
        "properties": {"code": {"type": "string"}, "message": {"type": "string"}},
    }
    return {
        "type": "object",
        "description": "All errors of this API. `code` is stable, `message` is for people; both describe the "
        "first error.",
        "required": ["code", "message", "fields"],
        "properties": {
            "code": {"type": "string"},
            "message": {"type": "string"},
            "fields": {
                "type": "object",
                "description": 'Errors by path of the field ("attachments.0.public_ip").',
                "additionalProperties": {"type": "array", "items": entry},
            },
        },
    }


def _stale_schema() -> dict[str, Any]:
    current = {
        "type": "object",
        "description": "The current object, as returned by GET; its tag is in the ETag header.",
    }
    return {
        "allOf": [{"$ref": "#/components/schemas/Error"}],
        "type": "object",
        "required": ["current"],
        "properties": {"current": current},
    }


SECURITY_SCHEMES: Final = {
    "token": {
        "type": "apiKey",
        "in": "header",
        "name": "Authorization",
        "description": "`Authorization: Token slbwu_...` or `Authorization: Bearer slbwu_...`. Tokens are created "
        "on the profile page or with `POST /api/v1/tokens/`; some are read-only.",
    },
    "session": {
        "type": "apiKey",
        "in": "cookie",
        "name": "sessionid",
        "description": "The session of the site. Changes also need the CSRF token.",
    },
    "host": {"type": "http", "scheme": "basic", "description": "Host id and host secret. A host can only read itself."},
}
