"""The latest mails in files, for development, where no mail leaves the machine.

The page gives access to every account, so it needs `settings.SHOW_MAILS` (development settings).
"""

from __future__ import annotations

import email
from email.message import EmailMessage
from email.policy import default
from pathlib import Path
from typing import Final

from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

SHOWN: Final = 10
_END: Final = b"\n" + b"-" * 79 + b"\n"  # written by Django's file backend after each mail


@require_safe
@never_cache
def mails(request: HttpRequest) -> HttpResponse:
    """404 without `SHOW_MAILS`."""
    if not settings.SHOW_MAILS:
        raise Http404("SHOW_MAILS is not set.")
    return render(request, "accounts/mails.html", {"mails": newest_mails(Path(settings.EMAIL_FILE_PATH))})


def shows_mails(_request: HttpRequest) -> dict[str, bool]:
    """Context processor for the link to the mails."""
    return {"shows_mails": settings.SHOW_MAILS}


def newest_mails(folder: Path) -> list[dict[str, str]]:
    """Newest first, at most `SHOWN`. A file has the mails of one connection, newest last."""
    files = sorted(folder.glob("*.log"), key=lambda one: one.stat().st_mtime_ns, reverse=True)[:SHOWN]
    written = [data for one in files for data in reversed(one.read_bytes().split(_END)) if data.strip()]
    return [_parsed(data) for data in written[:SHOWN]]


def _parsed(data: bytes) -> dict[str, str]:
    found = email.message_from_bytes(data, _class=EmailMessage, policy=default)
    body = found.get_body(("plain",))
    text = body.get_content() if body is not None else ""
    return {"recipient": str(found["To"]), "subject": str(found["Subject"]), "date": str(found["Date"]), "body": text}
