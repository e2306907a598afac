"""Errors below /api/ outside of views, in the same format. Elsewhere Django's pages are shown."""

from __future__ import annotations

from django.core.exceptions import RequestDataTooBig
from django.http import HttpRequest, HttpResponse
from django.views import defaults

from scionlab.platform.api_errors import error_response


def is_api(request: HttpRequest) -> bool:
    return request.path.startswith("/api/") and not request.path.startswith("/api/docs/")


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Django's `handler404`."""
    if request.path.startswith("/api/v4/host/"):
        text = "No such document, or the part of the service that takes it is not enabled here. It was not stored."
        return error_response("not_found", text, 404)
    if is_api(request):
        text = "No such URL. See /api/v1/schema/; URLs of the REST API end with /."
        return error_response("not_found", text, 404)
    return defaults.page_not_found(request, exception)


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Django's `handler400`: rejected before a view is called."""
    if not is_api(request):
        return defaults.bad_request(request, exception)
    if isinstance(exception, RequestDataTooBig):
        return error_response("too_large", "The request is too large.", 413)
    return error_response("request_invalid", "The request is malformed. Check its headers and URL.", 400)


def failed() -> HttpResponse:
    """Internal error; the log has its traceback."""
    text = "Internal error; nothing was saved. The error was logged. Try again later."
    return error_response("server_error", text, 500)
