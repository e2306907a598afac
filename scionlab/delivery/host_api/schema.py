"""OpenAPI description of the host API v4, written by hand: its plain Django views return what the stock client expects.
docs/api.md explains it."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

from bandwidth_config import MAX_TOTAL_KBIT, MIN_TOTAL_KBIT

Operation = dict[str, Any]
Schema = dict[str, Any]

TAG: Final = "hosts"


def object_of(properties: Schema, *, optional: Collection[str] = (), **more: Any) -> Schema:
    """All properties are required except the optional ones."""
    required = [name for name in properties if name not in optional]
    return {"type": "object", **({"required": required} if required else {}), "properties": properties, **more}


def of_interfaces(schema: Schema, **more: Any) -> Schema:
    return {"type": "object", "additionalProperties": schema, **more}


TEXT: Schema = {"type": "string"}
TEXTS: Schema = {"type": "array", "items": TEXT}
VERSION: Schema = {"type": "string", "pattern": r"^[0-9]+\.[0-9]+$"}
_UID = {
    "name": "uid",
    "in": "path",
    "required": True,
    "description": "The host id, which is also the user name for HTTP Basic.",
    "schema": {"type": "string", "pattern": "^[0-9A-Za-z_-]{1,32}$"},
}
TEST_ID: Schema = {"type": "string", "pattern": "^[0-9a-f]{32}$"}
MOMENT: Schema = {"type": "string", "format": "date-time"}
COUNT: Schema = {"type": "integer", "minimum": 0}
COUNT_OR_NULL: Schema = {"type": ["integer", "null"], "minimum": 0}
COUNTERS = ("bytes", "packets", "drops", "backlog_bytes")
_DIRECTION = object_of(
    {
        "dev": TEXT,
        "rate_kbit": COUNT_OR_NULL,
        **dict.fromkeys(COUNTERS, COUNT),
        "refused": {**COUNT_OR_NULL, "description": "Part of drops: dropped before the queue."},
        "dropped": {**COUNT_OR_NULL, "description": "Part of drops: dropped from the queue."},
    },
    optional=("refused", "dropped"),
    type=["object", "null"],
)
_KBIT_IN_FORCE = {**COUNT_OR_NULL, "maximum": MAX_TOTAL_KBIT, "description": "null: none."}
_SIGNATURE = object_of(
    {
        "key_id": {"type": "string", "pattern": "^[0-9a-f]{32}$"},
        "signature": {"type": "string", "description": "64 bytes in base64.", "maxLength": 88},
    }
)
_EVIDENCE = object_of(
    {
        "signed": {"type": "string", "maxLength": 1024 * 1024},
        "signatures": {"type": "array", "minItems": 1, "maxItems": 32, "items": _SIGNATURE},
    },
    type=["object", "null"],
    description="From the manifest in force, verbatim; sent in the receipt after a response with evidence_wanted.",
)
_MANIFEST: Schema = {
    "host_id": {"type": "string", "maxLength": 100},
    "url": {"type": "string", "maxLength": 200},
    "version": {"type": "string", "maxLength": 40},
    "files": {"type": "object", "additionalProperties": TEXT},
    "systemd_units": TEXTS,
}
_INSTALLED = object_of(_MANIFEST, optional=_MANIFEST)
_INSTALLED_NOTED = object_of({"installed": {"enum": ["nothing", "noted"]}})
_LINK = object_of(
    {
        "kbit": {**COUNT, "description": "The lower of both directions."},
        "to_user_kbit": COUNT,
        "from_user_kbit": COUNT,
        "state": {"enum": ["enforced", "observed", "error"]},
        "problem": {"type": ["string", "null"]},
        "to_user": _DIRECTION,
        "from_user": _DIRECTION,
    },
    optional=("to_user_kbit", "from_user_kbit", "problem"),
)
_TOTAL = object_of(
    {
        "wanted_kbit": {"type": "integer", "minimum": MIN_TOTAL_KBIT, "maximum": MAX_TOTAL_KBIT},
        "to_user_kbit": _KBIT_IN_FORCE,
        "from_user_kbit": _KBIT_IN_FORCE,
    },
    type=["object", "null"],
    description="Total of all links; null: no total. Absent: not supported by the agent.",
)
_RECEIPT = object_of(
    {
        "schema": {"const": 1},
        "agent_version": TEXT,
        "version": {"type": ["string", "null"], "description": "Version G.H that is enforced."},
        "limits_version": COUNT_OR_NULL,
        "limits_digest": {
            "type": ["string", "null"],
            "pattern": "^[0-9a-f]{64}$",
            "description": "SHA-256 of the link_info.json in force; null exactly if version is null.",
        },
        "run": {
            "type": ["string", "null"],
            "pattern": "^[0-9a-f]{32}$",
            "description": "Identifies one run of the agent; only together with number.",
        },
        "number": {
            "type": ["integer", "null"],
            "minimum": 1,
            "description": "Sequence number of this receipt within the run.",
        },
        "clock_skew_ms": {"type": ["integer", "null"], "description": "The agent's clock minus the service's."},
        "evidence": _EVIDENCE,
        "observed_at": MOMENT,
        "writes": COUNT,
        "links": of_interfaces(_LINK, description="Keyed by interface id."),
        "devices": {
            "type": ["array", "null"],
            "description": "Names of the devices on which packets are classified.",
            "items": {"type": "string", "maxLength": 32},
        },
        "total": _TOTAL,
        "observe_only": {"type": ["boolean", "null"], "description": "Nothing is limited on this host."},
        "tests": {
            "type": ["array", "null"],
            "description": "Ids of the tests of links that are armed or running. Absent: not supported by the agent.",
            "items": TEST_ID,
        },
        "sending_tests": {
            "enum": ["on", "off", "stopped"],
            "description": "Whether the operator lets tests send. Absent: not supported by the agent.",
        },
        "test_kinds": {
            "type": "array",
            "description": "Kinds of tests that the agent supports.",
            "items": {"type": "string", "maxLength": 16},
        },
        "problems": {"type": "array", "items": object_of(dict.fromkeys(("code", "subject", "message"), TEXT))},
    },
    optional=(
        "limits_digest",
        "run",
        "number",
        "clock_skew_ms",
        "evidence",
        "devices",
        "total",
        "observe_only",
        "tests",
        "sending_tests",
        "test_kinds",
    ),
)
_CREDENTIALS = object_of(
    {
        **dict.fromkeys(("host_id", "host_secret", "url"), TEXT),
        "keys": {"type": "array", "items": {"type": "object"}},
        "revoked": TEXTS,
    }
)
STORED = object_of({"stored": {"type": "boolean"}, "ignored_links": TEXTS}, optional=("ignored_links",))
_RECEIPT_STORED = {
    **STORED,
    "properties": {**STORED["properties"], "evidence_wanted": {"type": "boolean", "description": "Absent: false."}},
}


def host_paths() -> dict[str, dict[str, Operation]]:
    return {
        "/api/v4/host/{uid}/config": {"get": _config()},
        "/api/v4/host/{uid}/deployed_config_version": {"post": _deployed()},
        "/api/v4/host/{uid}/installed": {"post": _installed()},
        "/api/v4/host/{uid}/enforcement": {"post": _enforcement()},
        "/api/v4/enrol": {"post": _enrol()},
    }


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
    body = object_of({"version": VERSION})
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


def _enforcement() -> Operation:
    example = {
        "schema": 1,
        "agent_version": "0.1.0",
        "version": "1.18",
        "limits_version": 7,
        "limits_digest": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "run": "5f0c9f0e6d6b4c0f8f1f3f6f1f0a9b7c",
        "number": 12,
        "clock_skew_ms": -20,
        "observed_at": "2026-11-21T06:00:00.123456Z",
        "writes": 0,
        "links": {},
        "problems": [],
    }
    return operation_of(
        "host_enforcement",
        "Send a receipt with the state of the kernel",
        body=("application/json", _RECEIPT, example),
        responses={"200": json_answer("Result.", _RECEIPT_STORED, {"stored": True})},
        errors=(400, 413),
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
        body=("application/json", _INSTALLED, example),
        responses={
            "200": json_answer(
                "The stock client can fetch the configuration.", _INSTALLED_NOTED, {"installed": "nothing"}
            )
        },
        errors=(400, 409, 413),
    )


def _enrol() -> Operation:
    body = object_of({"token": {"type": "string", "maxLength": 200}})
    credentials = {"host_id": "a" * 32, "host_secret": "...", "url": "https://scionlab.example.org"}
    example = {**credentials, "keys": [], "revoked": []}
    operation = operation_of(
        "host_enrol",
        "Exchange a one-time token for a host's credentials",
        "An administrator creates the token; this response invalidates it.",
        body=("application/json", body, {"token": "<random part>"}),
        responses={"200": json_answer("The credentials, and the keys of the service.", _CREDENTIALS, example)},
        errors=(400, 403, 413, 429),
    )
    operation["security"] = []
    operation["parameters"] = []
    del operation["responses"]["401"]
    return operation


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
