"""OpenAPI description of the host API v4: bodies are those of the structs that read them (`documents`), the rest is
written here and beside each view. docs/api.md explains it."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from scionlab.delivery.enrolment import Enrolment
from scionlab.delivery.installed import Manifest

Operation = dict[str, Any]
Schema = dict[str, Any]

TAG: Final = "hosts"
_PREFIX: Final = "Host"  # of components: the REST API has some of these names, too
_UID = {
    "name": "uid",
    "in": "path",
    "required": True,
    "description": "The host id, which is also the user name for HTTP Basic.",
    "schema": {"type": "string", "pattern": "^[0-9A-Za-z_-]{1,32}$"},
}
_described: Final[list[type]] = []


def schema_of(struct: type) -> Schema:
    """Refer to its component."""
    _described.append(struct)
    return {"$ref": f"#/components/schemas/{_PREFIX}{struct.__name__}"}


def host_components() -> dict[str, Schema]:
    """All that operations refer to."""
    _, components = msgspec.json.schema_components(_described, ref_template=f"#/components/schemas/{_PREFIX}{{name}}")
    return {f"{_PREFIX}{name}": schema for name, schema in components.items()}


def operation_of(
    name: str,
    summary: str,
    description: str = "",
    *,
    responses: dict[str, Any],
    errors: tuple[int, ...],
    parameters: list[dict[str, Any]] | None = None,
    body: tuple[str, dict[str, Any], Any] | None = None,
) -> Operation:
    every = {str(code): {"$ref": f"#/components/responses/Error{code}"} for code in (401, 500, 503, *errors)}
    every["401"] = {"$ref": "#/components/responses/ErrorHost401"}
    operation: Operation = {
        "operationId": name,
        "summary": summary,
        "description": description,
        "tags": [TAG],
        "security": [{"host": []}],
        "parameters": [_UID, *(parameters or [])],
        "responses": dict(sorted({**responses, **every}.items())),
    }
    if body is not None:
        media_type, schema, example = body
        operation["requestBody"] = {"required": True, "content": {media_type: {"schema": schema, "example": example}}}
    return operation


def json_answer(text: str, schema: dict[str, Any], example: Any) -> dict[str, Any]:
    return {"description": text, "content": {"application/json": {"schema": schema, "example": example}}}


def _query(name: str, schema: dict[str, Any], text: str) -> dict[str, Any]:
    return {"name": name, "in": "query", "description": text, "schema": schema}


def _config() -> Operation:
    parameters = [
        _query("version", {"type": "string", "pattern": r"^([0-9]+\.[0-9]+)?$"}, "Version G.H that the host has."),
        _query("limits", {"type": "string", "pattern": "^[0-9]*$"}, "Limits version L that the host has."),
        _query("digest", {"type": "string", "pattern": "^([0-9a-f]{64})?$"}, "SHA-256 of the link_info.json in force."),
        _query(
            "wait", {"type": "string"}, "Delay a 304 by up to this many seconds, at most 60. Other values are ignored."
        ),
    ]
    tarball = {"application/gzip": {"schema": {"type": "string", "format": "binary"}}}
    return operation_of(
        "host_config",
        "Fetch the configuration of a host",
        "304 if and only if the sent versions are current and the sent digest belongs to a document issued for them.",
        parameters=parameters,
        responses={
            "200": {
                "description": "The tarball.",
                "headers": {"ETag": {"$ref": "#/components/headers/ETag"}},
                "content": tarball,
            },
            "204": {"description": "The host belongs to no AS. This does not mean that limits are to be removed."},
            "304": {"description": "The host is up to date."},
        },
        errors=(400, 503),
    )


def _deployed() -> Operation:
    body = {
        "type": "object",
        "required": ["version"],
        "properties": {"version": {"type": "string", "pattern": r"^[0-9]+\.[0-9]+$"}},
    }
    return operation_of(
        "host_deployed_config_version",
        "Report the installed version",
        body=("application/x-www-form-urlencoded", body, {"version": "1.18"}),
        responses={
            "200": {"description": "Stored."},
            "304": {"description": "Not newer than the stored version, or above the current one."},
        },
        errors=(400,),
    )


def _installed() -> Operation:
    example = {
        "host_id": "b" * 32,
        "url": "https://www.scionlab.org",
        "version": "1.37",
        "files": {"etc/scion/topology.json": "0" * 40, "etc/scion/keys/master0.key": "0" * 40},
        "systemd_units": ["scion-daemon.service"],
    }
    return operation_of(
        "host_installed",
        "Report the SCION files of the host",
        "The scionlab-config.json without `host_secret`, or `{}` if the host has none. 409 `other_coordinator`: "
        "the files belong to another coordination service; an administrator must take over the host first. 409 "
        "`limits_only`: another service manages the host.",
        body=("application/json", schema_of(Manifest), example),
        responses={
            "200": json_answer(
                "The stock client can fetch the configuration.",
                {"properties": {"installed": {"enum": ["nothing", "noted"]}}},
                {"installed": "nothing"},
            )
        },
        errors=(400, 409, 413),
    )


def _enrol() -> Operation:
    body = {
        "type": "object",
        "required": ["token"],
        "properties": {"token": {"type": "string", "maxLength": 200}},
    }
    credentials = {"host_id": "a" * 32, "host_secret": "...", "url": "https://scionlab.example.org"}
    example = {**credentials, "keys": [], "revoked": []}
    operation = operation_of(
        "host_enrol",
        "Exchange a one-time token for a host's credentials",
        "An administrator creates the token; this response invalidates it.",
        body=("application/json", body, {"token": "<random part>"}),
        responses={"200": json_answer("The credentials, and the keys of the service.", schema_of(Enrolment), example)},
        errors=(400, 403, 413, 429),
    )
    operation["security"] = []
    operation["parameters"] = []
    del operation["responses"]["401"]
    return operation


CONFIG: Final = _config()
DEPLOYED: Final = _deployed()
INSTALLED: Final = _installed()
ENROL: Final = _enrol()
