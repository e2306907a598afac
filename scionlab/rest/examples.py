"""What answers look like, for the description of the API. A test holds each of them against its schema."""

from __future__ import annotations

from typing import Any

LIMITS = {"to_user_kbit": 1000, "from_user_kbit": 500}
TIMED_BRIEF = {
    "id": 31,
    "kind": "square",
    "begins_at": "2026-11-21T08:00:00Z",
    "ends_at": "2026-11-21T08:01:00Z",
}
TIMED: dict[str, Any] = {
    **TIMED_BRIEF,
    "link_id": 7,
    "steps": [
        {"offset_s": 0, "to_user_kbit": 100, "from_user_kbit": 100},
        {"offset_s": 30, "to_user_kbit": 500, "from_user_kbit": 500},
    ],
    "created_at": "2026-11-21T07:59:58Z",
    "created_by": "you@example.org",
    "cancelled_at": None,
    "state": "upcoming",
}
_COUNTERS = {"bytes": 1_200_000, "packets": 1090, "drops": 12, "refused": 12, "dropped": 0}
LINK: dict[str, Any] = {
    "id": 7,
    "as_id": 12,
    "isd_as": "17-ffaa:1:b6",
    "as_label": "Lab",
    "interface_id": 1,
    "attachment_point_id": 1,
    "attachment_point": "17-ffaa:0:1107",
    "attachment_point_interface_id": 2,
    "attachment_point_ip": "192.0.2.7",
    "attachment_point_port": 50002,
    "use_vpn": False,
    "public_ip": "198.51.100.30",
    "public_port": 50000,
    "bind_ip": None,
    "bind_port": None,
    "active": True,
    "bandwidth_kbit": 500,
    "to_user_kbit": 1000,
    "from_user_kbit": 500,
    "changed_at": "2026-11-21T05:59:57Z",
    "status": {
        "stage": "enforced",
        "state": "enforced",
        "remark": {
            "code": "hook_obstructed",
            "text": "Something foreign stands in front at 17-ffaa:0:1107: what it takes is not limited",
        },
        "maximum_kbit": 1000,
        "requested": LIMITS,
        "wanted": LIMITS,
        "enforced": LIMITS,
        "last_known": LIMITS,
        "read_at": "2026-11-21T06:05:00Z",
        "counters": {"to_user": _COUNTERS, "from_user": _COUNTERS},
        "observe_only": False,
        "total": {
            "wanted_kbit": 100_000,
            "is_in_force": True,
            "text": "All links together carry at most 100 000 kbit/s in each direction.",
        },
        "requested_kbit": 500,
        "wanted_kbit": 500,
        "enforced_kbit": 500,
        "since": "2026-11-21T06:00:00Z",
        "delivered_at": "2026-11-21T05:59:58Z",
        "text": "Enforced in both directions since 2026-11-21 06:00:00 UTC. Something foreign stands in front at "
        "17-ffaa:0:1107: what it takes is not limited.",
        "running": None,
        "upcoming": [TIMED_BRIEF],
    },
}
USER_AS: dict[str, Any] = {
    "id": 12,
    "isd_as": "17-ffaa:1:b6",
    "label": "Lab",
    "installation_type": "dedicated",
    "scion_packages": "scionlab",
    "owner": "you@example.org",
    "created_at": "2026-11-20T09:00:00Z",
    "scion_files": "this_service",
    "links": [LINK],
}
ATTACHMENT_POINT: dict[str, Any] = {
    "id": 1,
    "isd_as": "17-ffaa:0:1107",
    "label": "Zurich",
    "default_bandwidth_kbit": 1000,
    "own_default_bandwidth_kbit": None,
    "total_kbit": 100_000,
    "observe_only": False,
    "publishes_limits": False,
    "scion_files": "this_service",
    "has_vpn": True,
    "has_ipv4": True,
    "has_ipv6": False,
}
CHANGE: dict[str, Any] = {
    "id": 90,
    "at": "2026-11-21T05:59:57Z",
    "kind": "link",
    "actor": "you@example.org",
    "old": {"to_user_kbit": 1000, "from_user_kbit": 1000},
    "new": LIMITS,
    "text": "1 000 kbit/s \N{RIGHTWARDS ARROW} 1 000 kbit/s to the user AS and 500 kbit/s from it",
    "reason": "API",
}

_USED: dict[str, Any] = {
    "bytes": 187500,
    "packets": 150,
    "drops": 3,
    "kbit": 150,
    "limit_kbit": 500,
    "covered_s": 10.0,
    "at_limit_s": 0.0,
    "backlog_bytes": 1514,
}
USAGE: dict[str, Any] = {
    "link_id": 7,
    "begins_at": "2026-11-21T05:59:50Z",
    "ends_at": "2026-11-21T06:00:10Z",
    "step_s": 10,
    "points": [
        {"begins_at": "2026-11-21T05:59:50Z", "to_user": _USED, "from_user": None},
        {"begins_at": "2026-11-21T06:00:00Z", "to_user": None, "from_user": None},
    ],
}
PROFILE: dict[str, Any] = {
    "email": "you@example.org",
    "full_name": "You",
    "time_zone": "Europe/Zurich",
    "mail_opt_outs": ["enforced"],
    "is_administrator": False,
    "as_quota": 5,
    "date_joined": "2026-11-01T08:00:00Z",
}
_TRAFFIC_ROW: dict[str, Any] = {
    "attachment_point_id": 1,
    "ap_isd_as": "17-ffaa:0:1107",
    "isd_as": "",
    "owner_email": "",
    "to_user_bytes": 81000000000,
    "from_user_bytes": 9000000000,
    "to_user_p95_kbit": 780,
    "from_user_p95_kbit": 90,
}
TRAFFIC: dict[str, Any] = {
    "year": 2026,
    "month": 11,
    "computed_at": "2026-11-21T06:00:00Z",
    "attachment_points": [_TRAFFIC_ROW],
    "ases": [{**_TRAFFIC_ROW, "isd_as": "17-ffaa:1:b6", "owner_email": "you@example.org"}],
}
API_TOKEN: dict[str, Any] = {
    "id": 3,
    "name": "monitor",
    "may_write": False,
    "created_at": "2026-11-21T06:00:00Z",
    "expires_at": "2027-01-01T00:00:00Z",
    "last_used_at": None,
}
_BULK: dict[str, Any] = {
    "id": 4,
    "what": "Cap at 500\N{NO-BREAK SPACE}kbit/s",
    "chosen": "all links at 17-ffaa:0:1107",
    "created_at": "2026-11-21T06:00:00Z",
    "created_by": "admin@example.org",
    "applied_at": None,
    "reason": "",
    "result": None,
    "puts_back": None,
}
_BULK_LINE: dict[str, Any] = {
    "link_id": 7,
    "isd_as": "17-ffaa:1:b6",
    "attachment_point": "17-ffaa:0:1107",
    "owner": "you@example.org",
    "active": True,
    "old": LIMITS,
    "new": {"to_user_kbit": 500, "from_user_kbit": 500},
    "old_enforced": LIMITS,
    "new_enforced": {"to_user_kbit": 500, "from_user_kbit": 500},
    "left_out": None,
}

ANSWERS: dict[str, Any] = {
    "LinkDocument": LINK,
    "UserASDocument": USER_AS,
    "TimedLimitDocument": TIMED,
    "AttachmentPointDocument": ATTACHMENT_POINT,
    "ChangeDocument": CHANGE,
    "PolicyDocument": {"default_bandwidth_kbit": 1000},
    "TokenDocument": {"token": "slbwu_..."},
    "ApiTokenDocument": API_TOKEN,
    "UsageDocument": USAGE,
    "ProfileDocument": PROFILE,
    "TrafficDocument": TRAFFIC,
    "BulkBriefDocument": _BULK,
    "BulkDocument": {
        **_BULK,
        "links": 2,
        "left_out": [{"why": "same", "count": 1}],
        "blocked": 0,
        "owners": 2,
        "attachment_points": ["17-ffaa:0:1107"],
        "lines_sha256": "2a0f3c5f6f1b7a9d3b1c8e7d5f4a6b2c1d0e9f8a7b6c5d4e3f2a1b0c9d8e7f6a",
    },
    "BulkLineDocument": _BULK_LINE,
    "DefaultChangeDocument": {
        **_BULK,
        "what": "Defaults: set to 10\N{NO-BREAK SPACE}000\N{NO-BREAK SPACE}kbit/s",
        "chosen": "all attachment points",
        "site_default": None,
        "attachment_points": [
            {
                "attachment_point_id": 1,
                "isd_as": "17-ffaa:0:1107",
                "old_own_kbit": None,
                "new_own_kbit": 10000,
                "old_default_kbit": 1000,
                "new_default_kbit": 10000,
                "left_out": None,
            }
        ],
        "lines_sha256": "7d1f3c5f6f1b7a9d3b1c8e7d5f4a6b2c1d0e9f8a7b6c5d4e3f2a1b0c9d8e7f6a",
        "status": {"links": 4, "held": 1, "blocked": 0, "released": 3, "owners": 3},
    },
    "NewApiTokenDocument": {**API_TOKEN, "token": "slbwu_..."},
}


def _error(code: str, message: str, fields: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"code": code, "message": message, "fields": fields or {}}


_TOO_HIGH = (
    "Bandwidth 120 000 kbit/s is above this attachment point's limit of 1 000 kbit/s. Choose at most 1 000, or ask "
    "the administrators to raise it."
)
ERRORS: dict[int, tuple[str, dict[str, Any]]] = {
    400: (
        "A value is wrong, or a rule is broken.",
        _error(
            "bandwidth_too_high",
            _TOO_HIGH,
            {"bandwidth_kbit": [{"code": "bandwidth_too_high", "message": _TOO_HIGH}]},
        ),
    ),
    401: (
        "Missing or invalid token.",
        _error("not_authenticated", "Authentication credentials were not provided."),
    ),
    403: (
        "The token is read-only, or the operation requires an administrator.",
        _error(
            "token_read_only",
            'The API token "monitor" is read-only. Create one with read and write access.',
        ),
    ),
    404: (
        "The object does not exist, or it belongs to another account.",
        _error("not_found", "The object does not exist, or it belongs to another account."),
    ),
    406: (
        "No media type in Accept is supported.",
        _error("not_acceptable", "Could not satisfy the request Accept header."),
    ),
    409: (
        "The Idempotency-Key was used before, and its response contained a secret, which is not stored.",
        _error(
            "idempotency_secret",
            "The request with this Idempotency-Key was executed. Its response contained a secret, which is shown "
            "only once.",
        ),
    ),
    412: (
        "If-Match: the object was changed. `current` is the current version.",
        {
            **_error("stale", "The object was changed since you read it. Your change was not saved."),
            "current": {"id": 7},
        },
    ),
    413: (
        "The body is too large.",
        _error("too_large", "A receipt has at most 8388608 bytes."),
    ),
    415: (
        "The body is not application/json.",
        _error("unsupported_media_type", 'Unsupported media type "text/csv" in request.'),
    ),
    422: (
        "The Idempotency-Key was used before with another request.",
        _error("idempotency_mismatch", "This Idempotency-Key was used before with another request."),
    ),
    428: (
        "If-Match is required here.",
        _error("if_match_missing", "If-Match is missing. Send the ETag of the preview that you want to apply."),
    ),
    429: (
        "Too many requests; retry after the number of seconds in Retry-After.",
        _error("throttled", "Too many requests. Try again in 7 s."),
    ),
    500: (
        "Internal error; it was logged.",
        _error("server_error", "Internal error; nothing was saved. The error was logged. Try again later."),
    ),
    503: (
        "The database is unavailable. The change was saved completely or not at all; check, then retry. With the "
        "code `conflict` a concurrent change won and nothing was saved.",
        _error("unavailable", "The database is unavailable."),
    ),
}
