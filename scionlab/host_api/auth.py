"""Who a host is: HTTP Basic with its id and secret. Every endpoint of the host API goes through `host_endpoint`.

A host may read only itself: the credentials must be those of the host that the URL names.
"""

from __future__ import annotations

import base64
import binascii
import functools
import hmac
import re
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Aggregate, IntegerField, OuterRef, QuerySet, Subquery, TextField, Value
from django.db.models.functions import Coalesce
from django.db.models.sql.compiler import SQLCompiler
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.utils import timezone
from django.views.decorators.csrf import csrf_exempt

from scionlab.models import Host, IssuedLimits, ServiceState
from scionlab.models.host import secret_fits
from scionlab.network.deleted_host import was_deleted
from scionlab.platform.api_errors import error_response

P = ParamSpec("P")
HostView = Callable[Concatenate[HttpRequest, Host, P], HttpResponseBase]

UID = re.compile(r"[0-9A-Za-z_-]{1,32}", flags=re.ASCII)
_NOBODY = "0" * 32  # compared with where there is no such host, so that an answer takes as long


def host_endpoint(
    *methods: str, tells_deleted: bool = False
) -> Callable[[HostView[P]], Callable[..., HttpResponseBase]]:
    """Decorate `view(request, host, ...)`; the route has a `uid`. Answers 405 and 401 itself, and with `tells_deleted`
    204 to a host that was deleted lately.

    The host comes with its AS and the annotations of `hosts_with_newest`, in one SQL statement.
    """

    def decorate(view: HostView[P]) -> Callable[..., HttpResponseBase]:
        @csrf_exempt  # no cookies take part here
        @functools.wraps(view)
        def checked(request: HttpRequest, uid: str, *args: P.args, **kwargs: P.kwargs) -> HttpResponseBase:
            if request.method not in methods:
                response = error_response("method_not_allowed", f"Use {' or '.join(methods)} here.", 405)
                response["Allow"] = ", ".join(methods)
                return response
            host = authenticated_host(request, uid)
            if host is not None:
                return view(request, host, *args, **kwargs)
            return HttpResponse(status=204) if tells_deleted and _is_deleted(request, uid) else unauthorized()

        return checked

    return decorate


def authenticated_host(request: HttpRequest, uid: str) -> Host | None:
    """The host `uid`, if the request carries its credentials; None otherwise. At most one SQL statement."""
    credentials = basic_credentials(request.headers.get("Authorization", ""))
    if credentials is None or not hmac.compare_digest(credentials[0], uid.encode()) or not UID.fullmatch(uid):
        return None
    host = hosts_with_newest().select_related("AS__isd").filter(uid=uid).first()
    matches = secret_fits(
        credentials[1],
        secret=_NOBODY if host is None else host.secret,
        previous=_NOBODY if host is None else host.previous_secret,
        previous_until=None if host is None else host.previous_secret_until,
        now=timezone.now(),
    )
    return host if matches else None


def _is_deleted(request: HttpRequest, uid: str) -> bool:
    credentials = basic_credentials(request.headers.get("Authorization", ""))
    if credentials is None or not hmac.compare_digest(credentials[0], uid.encode()) or not UID.fullmatch(uid):
        return False
    return was_deleted(uid, credentials[1])


def is_agent(request: HttpRequest) -> bool:
    """True for our agent, which installs nothing below /etc; the stock client calls itself Python-urllib."""
    return request.headers.get("User-Agent", "").startswith("scionlab-bw-agent/")


def hosts_with_newest() -> QuerySet[Host]:
    """All hosts, each with what a poll is compared with, in one statement.

    `generation` is the service's G. `issued_digests` are those of the documents of limits that were issued for the
    host's versions, separated by spaces, or None.
    """
    state = ServiceState.objects.filter(pk=1).values("generation")[:1]
    generation = Coalesce(Subquery(state), Value(1), output_field=IntegerField())
    issued = IssuedLimits.objects.filter(
        host=OuterRef("pk"),
        generation=generation,
        config_version=OuterRef("config_version"),
        limits_version=OuterRef("limits_version"),
    )
    digests = issued.order_by().values("host").annotate(all=_Joined("digest")).values("all")
    return Host.objects.annotate(generation=generation, issued_digests=Subquery(digests))


class _Joined(Aggregate):
    """Texts joined by spaces."""

    function = "STRING_AGG"
    template = "%(function)s(%(expressions)s, ' ')"
    output_field = TextField()

    def as_sqlite(self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **extra: Any) -> tuple[str, Any]:
        return self.as_sql(compiler, connection, function="GROUP_CONCAT", **extra)


def basic_credentials(header: str) -> tuple[bytes, bytes] | None:
    """User and password of an Authorization header (RFC 7617), None if there are none that can be read."""
    scheme, _, encoded = header.partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        decoded = base64.b64decode(encoded.strip().encode("ascii"), validate=True)
    except (binascii.Error, UnicodeEncodeError):
        return None
    user, colon, password = decoded.partition(b":")
    return (user, password) if colon else None


def unauthorized() -> HttpResponse:
    """One answer for missing, wrong and another host's credentials: it does not tell which hosts exist."""
    response = error_response(
        "unauthorized", "Send the id and secret of this host with HTTP Basic. Both are on the page of the host.", 401
    )
    response["WWW-Authenticate"] = 'Basic realm="host"'
    return response
