"""Values as HTML with the exact one in the title, for pages, cockpit and Django admin."""

from __future__ import annotations

from datetime import UTC, datetime

from django.template.defaultfilters import date
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from bandwidth_config import MBIT_FROM_KBIT, format_exact_kbit, format_kbit
from scionlab.platform.clock import database_now

SPACE = "\N{NO-BREAK SPACE}"
_UNITS = ((86400, "d"), (3600, "h"), (60, "min"))


def kbit(value: int) -> SafeString:
    """`500` -> `500 kbit/s`; from 10 000 kbit/s on in Mbit/s, with the kbit/s in the title."""
    return titled(format_kbit(value), value)


def titled(text: str, kbit: int) -> SafeString:
    """`text`; with the exact number in the title if in Mbit/s."""
    if kbit < MBIT_FROM_KBIT:
        return format_html("{}", text)
    return format_html('<span title="{}">{}</span>', format_exact_kbit(kbit), text)


def age(at: datetime | None) -> str | SafeString:
    """`3 min ago`, with the exact time in the reader's zone in the title; `never` for None."""
    return "never" if at is None else _ago(at, " ago")


def lasting(at: datetime) -> SafeString:
    """Time elapsed since then: `3 min`, with the exact time in the title."""
    return _ago(at, "")


def _ago(at: datetime, suffix: str) -> SafeString:
    seconds = max(0, int((database_now() - at).total_seconds()))
    in_units = (f"{seconds // size}{SPACE}{unit}" for size, unit in _UNITS if seconds >= size)
    amount = next(in_units, f"{seconds}{SPACE}s")
    utc, exact = at.astimezone(UTC).isoformat(timespec="seconds"), date(timezone.localtime(at), "j M Y, H:i:s T")
    return format_html('<time datetime="{}" title="{}">{}{}</time>', utc, exact, amount, suffix)


def duration(seconds: float) -> str:
    """The two largest units: `1 d 3 h`, `2 h`, `1 min 30 s`."""
    left, parts = max(0, round(seconds)), list[str]()
    for name, length in (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1)):
        if left >= length and len(parts) < 2:
            parts.append(f"{left // length}\N{NO-BREAK SPACE}{name}")
            left %= length
        elif parts:
            break
    return " ".join(parts) or "0\N{NO-BREAK SPACE}s"
