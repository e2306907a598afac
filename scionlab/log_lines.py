"""One line in the log per event, whatever text a host, a browser or a library put into it.

A receipt may quote a key with a line break: what follows it would look like a line of ours, of any level. And the
addresses of links that prove something, which mails have, are cut short: Django logs the path of each refused request.
"""

from __future__ import annotations

import logging
import re
import textwrap
from types import TracebackType

_LINKS = re.compile(r"(/account/(?:confirm|reset|mails)/)(?!sent/)[^\s\"'<>?]+")


class Line(logging.Formatter):
    """Only tracebacks have further lines, which are indented."""

    def format(self, record: logging.LogRecord) -> str:
        return _LINKS.sub(r"\1...", super().format(record))

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
