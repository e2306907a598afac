"""Authentication of hosts: HTTP Basic with id and secret. All endpoints of the host API use `host_endpoint`.

A host may only access itself: the credentials must match the host in the URL.
"""

from __future__ import annotations

import base64
import binascii
import functools
import hmac
import logging
import re
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Aggregate, IntegerField, OuterRef, QuerySet, Subquery, TextField, Value
from django.db.models.functions import Coalesce
from django.db.models.sql.compiler import SQLCompiler
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.views.decorators.csrf import csrf_exempt

from scionlab.delivery.host_api.documents import DocumentError
from scionlab.delivery.models import IssuedLimits
from scionlab.platform.api_errors import error_response
from scionlab.platform.clock import database_now
from scionlab.testbed.deleted_host import was_deleted
from scionlab.testbed.models import Host, ServiceState
from scionlab.testbed.models.host import secret_fits

P = ParamSpec("P")
HostView = Callable[Concatenate[HttpRequest, Host, P], HttpResponseBase]

logger = logging.getLogger(__name__)

UID = re.compile(r"[0-9A-Za-z_-]{1,32}", flags=re.ASCII)
_NOBODY = "0" * 32  # compared for unknown hosts, so that the response takes as long


def host_endpoint(
    *methods: str, described: dict[str, Any], tells_deleted: bool = False
) -> Callable[[HostView[P]], Callable[..., HttpResponseBase]]:
    """Decorate `view(request, host, ...)`; the route has a `uid`. Handles 405, 401 and `DocumentError`, and with
    `tells_deleted` returns 204 to a recently deleted host. The host has its AS and the annotations of
    `hosts_with_newest`, in one SQL statement. `described`: its operation of OpenAPI, which `site.api_schema` reads."""

    def decorate(view: HostView[P]) -> Callable[..., HttpResponseBase]:
        @csrf_exempt  # no cookies involved
        @functools.wraps(view)
        def checked(request: HttpRequest, uid: str, *args: P.args, **kwargs: P.kwargs) -> HttpResponseBase:
            if request.method not in methods:
                response = error_response("method_not_allowed", f"Use {' or '.join(methods)} here.", 405)
                response["Allow"] = ", ".join(methods)
                return response
            host = authenticated_host(request, uid)
            if host is not None:
                try:
                    return view(request, host, *args, **kwargs)
                except DocumentError as exc:
                    logger.warning("%s.refused host=%s code=%s %s", view.__name__, host.pk, exc.code, exc.message)
                    return error_response(exc.code, exc.message, exc.status, exc.fields)
                except Host.DoesNotExist:
                    logger.info("%s.host_deleted host=%s", view.__name__, host.pk)  # meanwhile
            return HttpResponse(status=204) if tells_deleted and _is_deleted(request, uid) else unauthorized()

        checked.described = {methods[0].lower(): described}  # type: ignore[attr-defined]  # of a function
        return checked

    return decorate


def authenticated_host(request: HttpRequest, uid: str) -> Host | None:
    """Return the host `uid` if the request has its credentials, otherwise None. At most one SQL statement."""
    password = password_for(uid, request.headers.get("Authorization", ""))
    if password is None:
        return None
    host = hosts_with_newest().select_related("AS__isd").filter(uid=uid).first()
    matches = secret_fits(
        password,
        secret=_NOBODY if host is None else host.secret,
        previous=_NOBODY if host is None else host.previous_secret,
        previous_until=None if host is None else host.previous_secret_until,
        now=database_now(),
    )
    return host if matches else None


def _is_deleted(request: HttpRequest, uid: str) -> bool:
    password = password_for(uid, request.headers.get("Authorization", ""))
    return password is not None and was_deleted(uid, password)


def is_agent(request: HttpRequest) -> bool:
    """True for our agent, which installs nothing in /etc; the stock client identifies itself as Python-urllib."""
    return request.headers.get("User-Agent", "").startswith("scionlab-bw-agent/")


def hosts_with_newest() -> QuerySet[Host]:
    """Query of all hosts with what a poll is compared with, in one statement. `generation` is the service's G.
    `issued_digests` are those of the limits issued for the host's versions, separated by spaces, or None."""
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
    function = "STRING_AGG"
    template = "%(function)s(%(expressions)s, ' ')"
    output_field = TextField()

    def as_sqlite(self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **extra: Any) -> tuple[str, Any]:
        return self.as_sql(compiler, connection, function="GROUP_CONCAT", **extra)


def password_for(uid: str, header: str) -> bytes | None:
    """Return the password of an Authorization header (RFC 7617) with this user; None if there is none."""
    scheme, _, encoded = header.partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        decoded = base64.b64decode(encoded.strip().encode("ascii"), validate=True)
    except (binascii.Error, UnicodeEncodeError):
        return None
    user, colon, password = decoded.partition(b":")
    is_of = UID.fullmatch(uid) is not None and hmac.compare_digest(user, uid.encode())
    return password if colon and is_of else None


def unauthorized() -> HttpResponse:
    """The same response for missing, wrong and another host's credentials: it does not reveal which hosts exist."""
    response = error_response(
        "unauthorized", "Send the id and secret of this host with HTTP Basic. Both are on the page of the host.", 401
    )
    response["WWW-Authenticate"] = 'Basic realm="host"'
    return response
