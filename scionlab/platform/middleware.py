"""Headers and methods of Django's responses, beyond SecurityMiddleware and django-csp."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse, HttpResponseBase, HttpResponseNotAllowed
from django.template import loader
from django.utils.deprecation import MiddlewareMixin

from scionlab.platform.client_address import client_address, from_address
from scionlab.platform.passwords.place import is_suspect

# Features that our pages do not use, so that injected code cannot use them either.
PERMISSIONS_POLICY = ", ".join(
    f"{feature}=()"
    for feature in ("camera", "display-capture", "geolocation", "microphone", "midi", "payment", "usb", "serial", "hid")
)

PAGE_METHODS = ("GET", "HEAD", "POST")


class HeadersMiddleware(MiddlewareMixin):
    """Prevents caching unless a view allows it. Behind WhiteNoise, so static files keep their own caching headers."""

    def process_response(self, _request: HttpRequest, response: HttpResponse) -> HttpResponse:
        response.headers.setdefault("Cache-Control", "no-store, private")
        response.headers.setdefault("Permissions-Policy", PERMISSIONS_POLICY)
        response.headers.setdefault("Cross-Origin-Resource-Policy", "same-origin")
        return response


class AdminMethodsMiddleware(MiddlewareMixin):
    """Django admin answers PUT, TRACE etc. like GET; our pages allow three methods."""

    def process_view(self, request: HttpRequest, _view: object, _args: object, _kwargs: object) -> HttpResponse | None:
        match = request.resolver_match
        if match is not None and "admin" in match.app_names and request.method not in PAGE_METHODS:
            return HttpResponseNotAllowed(PAGE_METHODS)
        return None


class OnlySentMiddleware(MiddlewareMixin):
    """Shows a page for GET requests of POST-only URLs, which browsers show as their own error otherwise. This happens
    after a reload by URL, or a login in between."""

    def process_response(self, request: HttpRequest, response: HttpResponse) -> HttpResponse:
        if isinstance(response, HttpResponseNotAllowed) and request.method == "GET" and not response.content:
            response.content = loader.render_to_string("405.html", request=request)
        return response


class AuditMiddleware(MiddlewareMixin):
    """Provides the client's address to the audit log."""

    def process_request(self, request: HttpRequest) -> None:
        from_address.set(client_address(request))

    def process_response(self, _request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        from_address.set(None)  # the thread serves other requests next
        is_suspect.set(False)
        return response
