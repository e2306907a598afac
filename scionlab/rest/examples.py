"""Example errors for the API's description. A test checks them against the schema."""

from __future__ import annotations

from typing import Any


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
            "bandwidth_too_high", _TOO_HIGH, {"bandwidth_kbit": [{"code": "bandwidth_too_high", "message": _TOO_HIGH}]}
        ),
    ),
    401: ("Missing or invalid token.", _error("not_authenticated", "Authentication credentials were not provided.")),
    403: (
        "The token is read-only, or the operation requires an administrator.",
        _error("token_read_only", 'The API token "monitor" is read-only. Create one with read and write access.'),
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
        "The Idempotency-Key was used before, and its response contained a secret, which is not stored. Or another "
        "test has the time (`test_slot_taken`; `next_free_at` is the next beginning that is free).",
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
    413: ("The body is too large.", _error("too_large", "A receipt has at most 8388608 bytes.")),
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
