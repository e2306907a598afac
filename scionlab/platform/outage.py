"""503 with Retry-After, instead of a server error, while the database is unavailable, full or read-only, or while the
password pool is full.

This module defines which errors count as such an outage. Redis is not among them: everything has a fallback without it
(docs/reliability.md). A transaction that failed in conflicts, despite retries (`scionlab.platform.retry`), has its own
message.
"""

from __future__ import annotations

import logging
import random
import sys
import time
from typing import Final

from django.db import InterfaceError, OperationalError, connection
from django.http import HttpRequest, HttpResponse
from django.template import loader
from django.utils.deprecation import MiddlewareMixin
from django.views.defaults import server_error as broken

from scionlab.platform.api_errors import error_response
from scionlab.platform.api_handlers import failed, is_api
from scionlab.platform.passwords.place import HashingBusyError
from scionlab.platform.retry import is_conflict

logger = logging.getLogger(__name__)

RETRY_AFTER_S: Final = (2, 4)  # spread, so that clients do not return together
WARN_EVERY_S: Final = 10.0
# A save is one transaction. If the answer to its commit was lost, only reading shows the result; saving the same again
# changes nothing (web.pages.stale_pages).
SENTENCE: Final = (
    "The database is unavailable. The change was saved completely or not at all: check in a few seconds whether "
    "it was saved, and retry if not."
)
CONFLICT: Final = "A concurrent change won and yours was rolled back. Nothing was saved: try again in a few seconds."
BUSY: Final = "Too many concurrent logins. Nothing was changed. Try again after the number of seconds in Retry-After."


class OutageMiddleware(MiddlewareMixin):
    """Handles errors of views. Those of middleware (a session that cannot be written) reach `server_error`."""

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse | None:
        return unavailable(request, exception) if is_outage(exception) else None


def is_outage(error: BaseException | None) -> bool:
    """True for temporary errors: no slot to hash a password, and the database's environment (unavailable, restarting,
    full, locked, read-only). `ReadOnlySqlTransaction` is an `InternalError`, which is otherwise a bug of ours."""
    if isinstance(error, OperationalError | InterfaceError | HashingBusyError):
        return True
    return type(getattr(error, "__cause__", None)).__name__ == "ReadOnlySqlTransaction"


def unavailable(request: HttpRequest, error: BaseException | None) -> HttpResponse:
    _log(error)
    is_busy, is_met = isinstance(error, HashingBusyError), is_conflict(error)
    if not is_busy:
        connection.close_if_unusable_or_obsolete()  # the next request of this thread opens a new one
    response: HttpResponse
    if request.path.startswith("/api/"):
        sentence = BUSY if is_busy else CONFLICT if is_met else SENTENCE
        response = error_response("conflict" if is_met else "unavailable", sentence, 503)
    else:
        page = loader.render_to_string("503.html", {"is_busy": is_busy, "conflict": CONFLICT if is_met else ""})
        response = HttpResponse(page, status=503)
    response["Retry-After"] = str(random.randint(*RETRY_AFTER_S))  # noqa: S311  nobody gains by guessing it
    return response


def server_error(request: HttpRequest) -> HttpResponse:
    """Django's `handler500`: called while the exception is being handled."""
    error = sys.exc_info()[1]
    if is_outage(error):
        return unavailable(request, error)
    return failed() if is_api(request) else broken(request)


_logged_at: dict[bool, float] = {}


def _log(error: BaseException | None) -> None:
    """Rate-limited: every request meets the same outage."""
    is_busy, now = isinstance(error, HashingBusyError), time.monotonic()
    if now - _logged_at.get(is_busy, -WARN_EVERY_S) < WARN_EVERY_S:
        return
    _logged_at[is_busy] = now
    if is_busy:
        logger.warning("hashing.busy too many concurrent logins")
    else:
        logger.error("outage.database %s: %s", type(error).__name__, str(error).strip().replace("\n", " ")[:300])
