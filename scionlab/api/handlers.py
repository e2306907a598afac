"""Errors below /api/ that no view answers: they have the one shape too. Elsewhere Django's pages are shown."""

from __future__ import annotations

from django.core.exceptions import RequestDataTooBig
from django.http import HttpRequest, HttpResponse
from django.views import defaults

from scionlab.api.errors import error_response


def is_api(request: HttpRequest) -> bool:
    return request.path.startswith("/api/") and not request.path.startswith("/api/docs/")


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Django's `handler404`."""
    if is_api(request):
        text = "There is no such address. /api/v1/schema/ lists what there is; addresses of the REST API end with /."
        return error_response("not_found", text, 404)
    return defaults.page_not_found(request, exception)


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Django's `handler400`: what its own checks refuse before a view sees it."""
    if not is_api(request):
        return defaults.bad_request(request, exception)
    if isinstance(exception, RequestDataTooBig):
        return error_response("too_large", "The request has more bytes than are read here.", 413)
    return error_response("request_invalid", "The request cannot be read. Check its headers and its address.", 400)


def failed() -> HttpResponse:
    """A mistake of ours; the log has its traceback."""
    text = "The service failed, and nothing was saved. Administrators find the reason in the log; try again later."
    return error_response("server_error", text, 500)
