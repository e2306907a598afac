"""Guessing passwords: after some failures an account is closed to that address for a while, later the whole address.

django-axes counts in the database, so a Redis that is away lets nobody guess. Two limits, because each alone is easily
got around or turned against others:

    LOGIN_FAILURES              per account *and* address: nobody can lock somebody else out from elsewhere
    LOGIN_FAILURES_PER_ADDRESS  per address, whatever accounts it tries; high, because people share addresses

The page of the site, the administrators' log-in and `POST /api/v1/token/` count together. Accounts that do not exist
are counted and refused like others, so the answer does not tell which exist.
"""

from __future__ import annotations

import logging
import math
from datetime import timedelta
from typing import Any

from axes.handlers.database import AxesDatabaseHandler
from django.conf import settings
from django.db.models import Max, QuerySet, Sum
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone

from scionlab.platform.api_errors import error_response

logger = logging.getLogger(__name__)

MAX_USERNAME = 255  # the column of axes; lower() can make a text longer


def username_of(request: HttpRequest, credentials: dict[str, Any] | None) -> str:
    """The account that is tried, as `UserManager.get_by_natural_key` reads it: no second count for other capitals."""
    given = credentials or {}
    written = given.get("username") or given.get("email") or request.POST.get("username") or ""
    return str(written).strip().lower()[:MAX_USERNAME]


class LoginGuard(AxesDatabaseHandler):  # type: ignore[misc]  # axes ships no type information
    """axes has one limit for all that it counts by; here the address has its own."""

    def get_failures(self, request: Any, credentials: dict[str, Any] | None = None) -> int:
        """Failures of the account from this address; at least the limit where the address has used up its own."""
        of_account, of_address = (_sum(rows) for rows in self.get_user_attempts(request, credentials))
        return (
            max(of_account, settings.AXES_FAILURE_LIMIT)
            if of_address >= settings.LOGIN_FAILURES_PER_ADDRESS
            else of_account
        )

    def reset_user_attempts(self, request: Any, credentials: dict[str, Any] | None = None) -> int:
        """Logging in clears that account from that address; not the address, or a guesser's own account would."""
        count, _ = self.filter_user_attempts(request, credentials)[0].delete()
        return int(count)

    def user_login_failed(self, sender: Any, credentials: dict[str, Any], request: Any = None, **kwargs: Any) -> None:
        """Never logs the account: people type passwords into the field above."""
        super().user_login_failed(sender, credentials, request, **kwargs)
        if request is not None:
            event = "login.locked" if request.axes_locked_out else "login.failed"
            logger.warning("%s address=%s", event, request.axes_ip_address)
            if not settings.TRUSTED_PROXIES and "HTTP_X_FORWARDED_FOR" in request.META:
                logger.warning("login.proxy TRUSTED_PROXIES is 0, and there is a proxy: all count as one address")

    def seconds_left(self, request: HttpRequest, credentials: dict[str, Any] | None) -> int:
        """At most this long the account, or the address, stays closed."""
        newest = [rows.aggregate(at=Max("attempt_time"))["at"] for rows in self.get_user_attempts(request, credentials)]
        cool_off: timedelta = settings.AXES_COOLOFF_TIME
        ends = [at + cool_off for at in newest if at is not None]
        return max(1, math.ceil((max(ends) - timezone.now()).total_seconds())) if ends else 1


def _sum(rows: QuerySet[Any]) -> int:
    return int(rows.aggregate(Sum("failures_since_start"))["failures_since_start__sum"] or 0)


def locked_out(request: HttpRequest, _answer: HttpResponse, credentials: dict[str, Any] | None) -> HttpResponse:
    """429 in place of what the log-in would have said, right password or wrong."""
    seconds = LoginGuard().seconds_left(request, credentials)
    minutes = math.ceil(seconds / 60)
    again = f"{minutes} minute{'' if minutes == 1 else 's'}"
    if request.path.startswith("/api/"):
        message = f"Too many failed login attempts from your address. Try again in {again}."
        response: HttpResponse = error_response("login_locked", message, 429)
    else:
        response = render(request, "registration/locked.html", {"again": again}, status=429)
    response["Retry-After"] = str(seconds)
    return response
