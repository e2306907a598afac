"""What every answer of Django carries besides Django's own headers (SecurityMiddleware, django-csp)."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse, HttpResponseBase, HttpResponseNotAllowed
from django.template import loader
from django.utils.deprecation import MiddlewareMixin

from scionlab.platform.client_address import client_address, from_address

# Features that no page of ours uses: injected code could not use them either.
PERMISSIONS_POLICY = ", ".join(
    f"{feature}=()"
    for feature in ("camera", "display-capture", "geolocation", "microphone", "midi", "payment", "usb", "serial", "hid")
)

PAGE_METHODS = ("GET", "HEAD", "POST")


class HeadersMiddleware(MiddlewareMixin):
    """Nothing is kept by caches on the way unless a view says so: pages and answers are somebody's own.

    Stands behind WhiteNoise, so static files, which are nobody's, are cached as it says.
    """

    def process_response(self, _request: HttpRequest, response: HttpResponse) -> HttpResponse:
        response.headers.setdefault("Cache-Control", "no-store, private")
        response.headers.setdefault("Permissions-Policy", PERMISSIONS_POLICY)
        response.headers.setdefault("Cross-Origin-Resource-Policy", "same-origin")
        return response


class AdminMethodsMiddleware(MiddlewareMixin):
    """Django's administrators' pages answer PUT, TRACE or whatever is sent like GET; ours know three methods."""

    def process_view(self, request: HttpRequest, _view: object, _args: object, _kwargs: object) -> HttpResponse | None:
        match = request.resolver_match
        if match is not None and "admin" in match.app_names and request.method not in PAGE_METHODS:
            return HttpResponseNotAllowed(PAGE_METHODS)
        return None


class OnlySentMiddleware(MiddlewareMixin):
    """A page for who opens the address of a button, which browsers show as their own error otherwise.

    That happens to whoever reloads by the address after a mistake in a form, or has to log in because the session ended
    before the button was pressed.
    """

    def process_response(self, request: HttpRequest, response: HttpResponse) -> HttpResponse:
        if isinstance(response, HttpResponseNotAllowed) and request.method == "GET" and not response.content:
            response.content = loader.render_to_string("405.html", request=request)
        return response


class AuditMiddleware(MiddlewareMixin):
    """Tells the audit from which address the changes of this request come."""

    def process_request(self, request: HttpRequest) -> None:
        from_address.set(client_address(request))

    def process_response(self, _request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        from_address.set(None)  # the thread serves others next
        return response
