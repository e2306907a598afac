"""What gunicorn serves."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

from django.core.wsgi import get_wsgi_application
from django.utils.http import parse_header_parameters

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "scionlab.settings.prod")

Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]

_USUAL = {"utf-8", "utf8", "us-ascii", "ascii", "iso-8859-1", "latin-1"}


def refuse_odd_charsets(serve: Application) -> Application:
    """415 where Content-Type names an encoding that no browser and no client of ours sends.

    Django decodes even the query with it while it makes the request, before any middleware. Python knows encodings that
    decode nothing (`rot13`, `undefined`): a server error at every address, for anybody who asks.
    """

    def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        if _charset(environ.get("CONTENT_TYPE", "")) in _USUAL:
            return serve(environ, start_response)
        start_response("415 Unsupported Media Type", [("Content-Type", "text/plain")])
        return [b"Send it in UTF-8.\n"]

    return application


def _charset(content_type: str) -> str:
    try:
        return parse_header_parameters(content_type)[1].get("charset", "utf-8").lower()
    except ValueError:  # too long to be one
        return ""


application = refuse_odd_charsets(get_wsgi_application())
