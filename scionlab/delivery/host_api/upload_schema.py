"""OpenAPI description of agents' uploads: usage and test results."""

from __future__ import annotations

from scionlab.delivery.host_api.schema import (
    COUNT,
    COUNT_OR_NULL,
    COUNTERS,
    MOMENT,
    STORED,
    TEST_ID,
    TEXT,
    VERSION,
    Operation,
    json_answer,
    object_of,
    of_interfaces,
    operation_of,
)

_SEGMENT = {"type": "string", "minLength": 1, "maxLength": 64, "description": "Identifies one lifetime of the class."}
_NUMBERS = {"type": "array", "maxItems": 60, "items": COUNT_OR_NULL}
_USED = object_of({"segment": _SEGMENT, **dict.fromkeys(("rate_kbit", *COUNTERS), _NUMBERS)})
_USAGE = object_of(
    {
        "schema": {"const": 1},
        "batch": {"type": "string", "pattern": "^[0-9a-f]{32}$"},
        "agent_version": TEXT,
        "version": {**VERSION, "description": "Version of the configuration to which the interface ids belong."},
        "times": {"type": "array", "minItems": 1, "maxItems": 60, "items": MOMENT},
        "links": of_interfaces(object_of({"to_user": _USED, "from_user": _USED})),
    }
)
_SERIES = {"type": "array", "maxItems": 610, "items": COUNT}
_TESTED = object_of(
    {
        "segment": {"type": "array", "maxItems": 610, "items": {"type": "string", "pattern": "^[0-9a-f]{16}$"}},
        **dict.fromkeys(("rate_kbit", "passed_bytes", "passed_packets", "dropped_bytes", "dropped_packets"), _SERIES),
        "lost_packets": {**_SERIES, "description": "Part of passed: dropped by the queue behind the limit."},
    }
)
_TEST_RESULT = object_of(
    {
        "schema": {"const": 1},
        "agent_version": TEXT,
        "test": TEST_ID,
        "is_final": {"type": "boolean", "description": "No other samples will follow."},
        "times_ms": {**_SERIES, "description": "Clock of the host, since 1970."},
        "clock_ms": {**_SERIES, "description": "Monotonic clock of the host."},
        "in_force": {"type": "array", "maxItems": 610, "items": {"type": "boolean"}},
        "to_user": _TESTED,
        "from_user": _TESTED,
        "report": {
            "type": ["object", "null"],
            "description": "What the end of a test that sends counted (docs/api.md).",
        },
    },
    optional=("report",),
)
_RATE = object_of(dict.fromkeys(("rate_kbit", "passed_bytes", "dropped_bytes"), COUNT))
_RATES = object_of(
    {
        "over_ms": {"type": "integer", "minimum": 1, "maximum": 600_000, "description": "Between two samples."},
        "in_force": {"type": "boolean", "description": "False: only observed, or not limited as wanted."},
        "to_user": _RATE,
        "from_user": _RATE,
    },
    optional=("to_user", "from_user"),
)
_LIVE = object_of(
    {
        "schema": {"const": 1},
        "age_ms": {"type": "integer", "minimum": 0, "maximum": 600_000, "description": "Of the newer sample."},
        "links": of_interfaces(_RATES),
    }
)
_LOOKED_AT = object_of({"links": {"type": "array", "maxItems": 64, "items": {"type": "string"}}})


def upload_paths() -> dict[str, dict[str, Operation]]:
    return {
        "/api/v4/host/{uid}/usage": {"post": _usage()},
        "/api/v4/host/{uid}/test_results": {"post": _test_results()},
        "/api/v4/host/{uid}/live": {"post": _live()},
    }


def _usage() -> Operation:
    counted = {"rate_kbit": [500], "bytes": [1200], "packets": [9], "drops": [0], "backlog_bytes": [0]}
    used = {"segment": "boot-1", **counted}
    example = {
        "schema": 1,
        "batch": "0" * 31 + "1",
        "agent_version": "0.1.0",
        "version": "1.18",
        "times": ["2026-11-21T06:00:00.000Z"],
        "links": {"1": {"to_user": used, "from_user": used}},
    }
    return operation_of(
        "host_usage",
        "Upload a batch of counters",
        "Absolute counters of the kernel; `Content-Encoding: gzip` is accepted. Duplicates are ignored.",
        body=("application/json", _USAGE, example),
        responses={"200": json_answer("False: the batch was stored before.", STORED, {"stored": True})},
        errors=(400, 413),
    )


def _test_results() -> Operation:
    counted = {"rate_kbit": [500], "passed_bytes": [1200], "passed_packets": [9]}
    side = {"segment": ["0" * 15 + "7"], **counted, "dropped_bytes": [0], "dropped_packets": [0], "lost_packets": [0]}
    example = {
        "schema": 1,
        "agent_version": "0.1.0",
        "test": "0f" * 16,
        "is_final": False,
        "times_ms": [1_795_371_323_000],
        "clock_ms": [86_400_000],
        "in_force": [True],
        "to_user": side,
        "from_user": side,
    }
    return operation_of(
        "host_test_results",
        "Upload what was measured for a test of a link",
        "Absolute counters, once a second; `Content-Encoding: gzip` is accepted. Samples may come in pieces and "
        "repeatedly; after `is_final` nothing is stored.",
        body=("application/json", _TEST_RESULT, example),
        responses={"200": json_answer("False: the test is unknown or final.", STORED, {"stored": True})},
        errors=(400, 413),
    )


def _live() -> Operation:
    side = {"rate_kbit": 500, "passed_bytes": 51_500, "dropped_bytes": 0}
    rates = {"over_ms": 1000, "in_force": True, "to_user": side, "from_user": side}
    return operation_of(
        "host_live",
        "Report what passes now",
        "For Links whose page is open: what passed between the last two samples. Kept for an hour, never in the "
        "database. The first call comes with a poll (`live=1`, header `Scionlab-Looked-At`).",
        body=("application/json", _LIVE, {"schema": 1, "age_ms": 4, "links": {"1": rates}}),
        responses={"200": json_answer("The Links whose page is open now.", _LOOKED_AT, {"links": ["1"]})},
        errors=(400, 413),
    )
