"""/.well-known/security.txt (RFC 9116), if `SECURITY_CONTACT` is set."""

from __future__ import annotations

from datetime import timedelta

from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from scionlab.platform.clock import database_now

VALID_FOR = timedelta(days=180)  # counted from the request


@require_safe
def security_txt(_request: HttpRequest) -> HttpResponse:
    """404 without a contact."""
    if not settings.SECURITY_CONTACT:
        raise Http404("SECURITY_CONTACT is not set.")
    today = database_now().replace(hour=0, minute=0, second=0, microsecond=0)
    lines = [
        *(f"Contact: {contact}" for contact in settings.SECURITY_CONTACT),
        f"Expires: {(today + VALID_FOR).strftime('%Y-%m-%dT%H:%M:%SZ')}",
        "Preferred-Languages: en",
        f"Canonical: {settings.SITE_URL}/.well-known/security.txt",
    ]
    return HttpResponse("\n".join(lines) + "\n", content_type="text/plain; charset=utf-8")
