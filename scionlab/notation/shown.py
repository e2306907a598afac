"""Values as HTML with the exact one in the title, for pages, cockpit and Django admin. Nothing here is read back."""

from __future__ import annotations

from datetime import datetime

from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from bandwidth_config import MBIT_FROM_KBIT, format_exact_kbit, format_kbit

SPACE = "\N{NO-BREAK SPACE}"
_UNITS = ((86400, "d"), (3600, "h"), (60, "min"))


def kbit(value: int) -> SafeString:
    """`500` -> `500 kbit/s`; from 10 000 kbit/s on in Mbit/s, with the kbit/s in the title."""
    return titled(format_kbit(value), value)


def titled(text: str, kbit: int) -> SafeString:
    """`text` with the exact number in the title, where it is in Mbit/s."""
    if kbit < MBIT_FROM_KBIT:
        return format_html("{}", text)
    return format_html('<span title="{}">{}</span>', format_exact_kbit(kbit), text)


def age(at: datetime | None) -> str | SafeString:
    """`3 min ago`, with the exact time in the title; `never` for None."""
    if at is None:
        return "never"
    seconds = max(0, int((timezone.now() - at).total_seconds()))
    in_units = (f"{seconds // size}{SPACE}{unit}" for size, unit in _UNITS if seconds >= size)
    exact = at.isoformat(timespec="seconds")
    amount = next(in_units, f"{seconds}{SPACE}s")
    return format_html('<time datetime="{0}" title="{0}">{1} ago</time>', exact, amount)
