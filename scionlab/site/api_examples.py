"""Example errors for the API's description, made by what answers requests. A test checks them against the schema."""

from __future__ import annotations

import json
from typing import Any

from django.http import Http404
from rest_framework import exceptions

from bandwidth_config import Limits
from scionlab.accounts.token_auth import read_only
from scionlab.limits.maximum import limit_errors
from scionlab.platform.api_errors import RuleViolations, body, exception_handler
from scionlab.platform.api_handlers import failed
from scionlab.platform.etags import Stale
from scionlab.platform.outage import SENTENCE
from scionlab.web.rest.idempotency import IdempotencyMismatchError, SecretNotKeptError


def _said(error: Exception) -> dict[str, Any]:
    """The body of the response to it."""
    response = exception_handler(error, {})
    if response is None:
        raise error
    found: dict[str, Any] = response.data
    return found


ERRORS: dict[int, tuple[str, dict[str, Any]]] = {
    400: (
        "A value is wrong, or a rule is broken.",
        _said(RuleViolations(list(limit_errors(None, Limits.both(120_000), 1_000)))),
    ),
    401: ("Missing or invalid token.", _said(exceptions.NotAuthenticated())),
    403: ("The token is read-only, or the operation requires an administrator.", _said(read_only("monitor"))),
    404: ("The object does not exist, or it belongs to another account.", _said(Http404())),
    406: ("No media type in Accept is supported.", _said(exceptions.NotAcceptable())),
    409: (
        "The Idempotency-Key was used before, and its response contained a secret, which is not stored. Or another "
        "test has the time (`test_slot_taken`; `next_free_at` is the next beginning that is free).",
        _said(SecretNotKeptError()),
    ),
    412: (
        "If-Match: the object was changed. `current` is the current version.",
        _said(Stale(current={"id": 7}, etag="")),
    ),
    413: ("The body is too large.", body("too_large", "The request is too large.")),
    415: ("The body is not application/json.", _said(exceptions.UnsupportedMediaType("text/csv"))),
    422: ("The Idempotency-Key was used before with another request.", _said(IdempotencyMismatchError())),
    428: (
        "If-Match is required here.",
        body("if_match_missing", "If-Match is missing. Send the ETag of the preview that you want to apply."),
    ),
    429: (
        "Too many requests; retry after the number of seconds in Retry-After.",
        _said(exceptions.Throttled(wait=7)),
    ),
    500: ("Internal error; it was logged.", json.loads(failed().content)),
    503: (
        "The database is unavailable. The change was saved completely or not at all; check, then retry. With the "
        "code `conflict` a concurrent change won and nothing was saved.",
        body("unavailable", SENTENCE),
    ),
}
