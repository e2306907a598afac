"""CSV (RFC 4180)."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence

from django.http import HttpResponse


def csv_text(rows: Iterable[Sequence[object]]) -> str:
    """The first row is the header."""
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    return text.getvalue()


def csv_file(text: str, name: str) -> HttpResponse:
    """Not streamed: our web server does not stream responses."""
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return HttpResponse(text, content_type="text/csv; charset=utf-8; header=present", headers=headers)
