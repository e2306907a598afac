"""Protection against password guessing: after some failures an account is blocked for that address for a while, later
the whole address.

django-axes counts in the database, so an outage of Redis does not help. There are two limits, because each alone is
easy to evade or to abuse:

    LOGIN_FAILURES              per account *and* address: nobody can lock others out from elsewhere
    LOGIN_FAILURES_PER_ADDRESS  per address, for all accounts; high, because people share addresses

An IPv6 address counts by its /64; its /56 and /48 have limits twice and four times as high, because whoever has one of
these has many of those. Passwords from networks with recent failures leave half of the places of hashing free.

The login page and `POST /api/v1/token/` count together. Unknown accounts are counted and blocked alike, so that the
response does not reveal which exist.

Codes of a second factor are counted separately, from all addresses together: only someone who knows the password can
try one.
"""

from __future__ import annotations

import logging
import math
from datetime import timedelta
from typing import Any, Final

from axes.handlers.database import AxesDatabaseHandler
from axes.handlers.proxy import AxesProxyHandler
from axes.models import AccessAttempt
from axes.utils import reset
from django.conf import settings
from django.contrib.auth.signals import user_login_failed
from django.db.models import F, Max, Q, QuerySet, Sum
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from scionlab.platform.api_errors import error_response
from scionlab.platform.client_address import wider_networks
from scionlab.platform.clock import database_now
from scionlab.platform.passwords.place import is_suspect

logger = logging.getLogger(__name__)

MAX_USERNAME = 255  # the column of axes; lower() can make a text longer
_CODES: Final = "code of "  # cannot be part of an email address
# Of wider networks: times LOGIN_FAILURES_PER_ADDRESS. Counted in axes' table under a name that is no account.
_TIMES: Final = {56: 2, 48: 4}
_WIDER: Final = {prefix: f"/{prefix}" for prefix in _TIMES}


def username_of(request: HttpRequest, credentials: dict[str, Any] | None) -> str:
    """Normalized as by `UserManager.get_by_natural_key`: no separate count for other capitals."""
    given = credentials or {}
    written = given.get("username") or given.get("email") or request.POST.get("username") or ""
    return str(written).strip().lower()[:MAX_USERNAME]


class LoginGuard(AxesDatabaseHandler):  # type: ignore[misc]  # axes ships no type information
    """axes has one limit for all its parameters; here the address has its own."""

    def filter_user_attempts(self, request: Any, credentials: dict[str, Any] | None = None) -> list[QuerySet[Any]]:
        of_account, of_address = super().filter_user_attempts(request, credentials)
        name = username_of(request, credentials)
        of_address = of_address.exclude(username__in=_WIDER.values())
        return [AccessAttempt.objects.filter(username=name) if name.startswith(_CODES) else of_account, of_address]

    def get_failures(self, request: Any, credentials: dict[str, Any] | None = None) -> int:
        """Failures of the account from this address; at least the limit if the address or a network around it has
        reached its own. Notes for the hashing that follows whether there were any."""
        of_account, of_address = (_sum(rows) for rows in self.get_user_attempts(request, credentials))
        of_networks = dict(_of_networks(request.axes_ip_address).values_list("username", "failures_since_start"))
        is_suspect.set(bool(of_account or of_address or of_networks))
        most = settings.LOGIN_FAILURES_PER_ADDRESS
        is_full = of_address >= most or any(
            of_networks.get(name, 0) >= most * _TIMES[prefix] for prefix, name in _WIDER.items()
        )
        return max(of_account, settings.AXES_FAILURE_LIMIT) if is_full else of_account

    def reset_user_attempts(self, request: Any, credentials: dict[str, Any] | None = None) -> int:
        """A login resets that account from that address; not the address, or an attacker's own account would."""
        count, _ = self.filter_user_attempts(request, credentials)[0].delete()
        return int(count)

    def user_login_failed(self, sender: Any, credentials: dict[str, Any], request: Any = None, **kwargs: Any) -> None:
        """Does not log the account: people type passwords into that field."""
        if request is not None:
            _note_networks(request.axes_ip_address)
        super().user_login_failed(sender, credentials, request, **kwargs)
        if request is not None:
            event = "login.locked" if request.axes_locked_out else "login.failed"
            logger.warning("%s address=%s", event, request.axes_ip_address)
            if not settings.TRUSTED_PROXIES and "HTTP_X_FORWARDED_FOR" in request.META:
                logger.warning("login.proxy TRUSTED_PROXIES is 0, and there is a proxy: all count as one address")

    def seconds_left(self, request: HttpRequest, credentials: dict[str, Any] | None) -> int:
        """Maximum time that the account, or the address, stays blocked."""
        newest = [rows.aggregate(at=Max("attempt_time"))["at"] for rows in self.get_user_attempts(request, credentials)]
        cool_off: timedelta = settings.AXES_COOLOFF_TIME
        newest.append(_of_networks(request.axes_ip_address).aggregate(at=Max("attempt_time"))["at"])  # type: ignore[attr-defined]
        ends = [at + cool_off for at in newest if at is not None]
        return max(1, math.ceil((max(ends) - database_now()).total_seconds())) if ends else 1


def code_refused(request: HttpRequest, email: str) -> bool:
    """Whether codes of this account are rejected; then the response becomes `locked_out`."""
    credentials = _codes_of(email)
    if AxesProxyHandler.is_allowed(request, credentials):
        return False
    request.axes_locked_out = True  # type: ignore[attr-defined]  # read by axes' middleware
    request.axes_credentials = credentials  # type: ignore[attr-defined]
    return True


def code_failed(request: HttpRequest, email: str) -> None:
    user_login_failed.send(sender=__name__, credentials=_codes_of(email), request=request)


def failures_forget(email: str, *, codes_only: bool = False) -> None:
    """Reset the count after a correct code, or a password reset by mail."""
    for name in [_codes_of(email)["username"], *([] if codes_only else [email])]:
        reset(username=name)


def _codes_of(email: str) -> dict[str, str]:
    return {"username": (_CODES + email)[:MAX_USERNAME]}


def _sum(rows: QuerySet[Any]) -> int:
    return int(rows.aggregate(Sum("failures_since_start"))["failures_since_start__sum"] or 0)


def _of_networks(network: str | None) -> QuerySet[Any]:
    """Counts of the wider networks whose windows are open."""
    which = Q(pk__in=[])
    for prefix, address in wider_networks(network):
        which |= Q(username=_WIDER[prefix], ip_address=address)
    rows: QuerySet[Any] = AccessAttempt.objects.filter(
        which, attempt_time__gt=database_now() - settings.AXES_COOLOFF_TIME
    )
    return rows


def _note_networks(network: str | None) -> None:
    """A count begins anew when its window is over, however many failures follow each other."""
    for prefix, address in wider_networks(network):
        row = {"username": _WIDER[prefix], "ip_address": address, "user_agent": ""}
        AccessAttempt.objects.get_or_create(**row, defaults={"failures_since_start": 0})
        rows = AccessAttempt.objects.filter(**row)
        is_over = rows.filter(attempt_time__lte=database_now() - settings.AXES_COOLOFF_TIME)
        is_over.update(failures_since_start=0, attempt_time=database_now())
        rows.update(failures_since_start=F("failures_since_start") + 1)


def locked_out(request: HttpRequest, _answer: HttpResponse, credentials: dict[str, Any] | None) -> HttpResponse:
    """429 instead of the response, whether the password is right or wrong."""
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
