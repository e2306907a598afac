"""Log format: one line per event, with time (UTC) and request id, whatever text a host, a browser or a library
contributes.

A receipt may contain a key with a line break, which would forge a line. URLs of links in mails are shortened: Django
logs the path of each rejected request.
"""

from __future__ import annotations

import logging
import re
import textwrap
from datetime import UTC, datetime
from types import TracebackType
from typing import Final

from django_guid import get_guid

FORMAT: Final = "%(asctime)s %(levelname)s %(name)s %(request_id)s %(message)s"

_LINKS = re.compile(r"(/account/(?:confirm|reset|mails)/)(?!sent/)[^\s\"'<>?]+")


class Line(logging.Formatter):
    """Only tracebacks have further lines, which are indented."""

    def format(self, record: logging.LogRecord) -> str:
        record.request_id = get_guid() or "-"
        return _LINKS.sub(r"\1...", super().format(record))

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: ARG002, N802  the library's
        return datetime.fromtimestamp(record.created, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  the library's name
        return _one_line(super().formatMessage(record))

    def formatException(  # noqa: N802  the library's name
        self, ei: tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]
    ) -> str:
        return textwrap.indent(super().formatException(ei), "    ")


def _one_line(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
