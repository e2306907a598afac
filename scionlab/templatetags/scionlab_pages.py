"""How values are written for people. Display only: nothing here flows back into a form or a rule."""

from __future__ import annotations

from datetime import UTC, datetime

from django import template
from django.template.defaultfilters import date
from django.utils.html import format_html
from django.utils.safestring import SafeString

from bandwidth_config import format_kbit, format_number
from scionlab.selectors import LinkStatus

register = template.Library()

STAGE_WORDS = {
    "inactive": "Inactive",
    "waiting": "Waiting",
    "delivered": "Delivered",
    "enforced": "Enforced",
    "not_verified": "Not verified",
    "failed": "Not enforced",
    "silent": "No news",
}


@register.inclusion_tag("parts/stage.html")
def stage(status: LinkStatus) -> dict[str, str]:
    """A word, a colour and a shape: none of them is needed to understand the others."""
    words = STAGE_WORDS[status.stage]
    if status.stage == "enforced" and status.enforced_kbit == 0:
        words = "Enforced: blocked"
    return {"stage": status.stage, "words": words}


@register.filter
def kbit(value: int) -> str:
    """`500` -> `500 kbit/s`."""
    return format_kbit(value)


@register.filter
def number(value: int | None) -> str:
    """`120000` -> `120 000`; an en dash where nothing is known."""
    return "\N{EN DASH}" if value is None else format_number(value)


@register.filter
def data(value: int | None) -> str:
    """Bytes in powers of 1000: `1234567` -> `1.23 MB`."""
    if value is None:
        return "\N{EN DASH}"
    size = float(value)
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if size < 1000 or unit == "TB":
            break
        size /= 1000
    return f"{value}\N{NO-BREAK SPACE}B" if unit == "B" else f"{size:.2f}\N{NO-BREAK SPACE}{unit}"


@register.filter
def when(at: datetime) -> SafeString:
    """A `<time>` in UTC, to the second."""
    utc = at.astimezone(UTC)
    return format_html(
        '<time datetime="{}">{}</time>', utc.isoformat(timespec="seconds"), date(utc, "j M Y, H:i:s") + " UTC"
    )


@register.filter
def day(at: datetime) -> SafeString:
    """A `<time>` in UTC, where the hour does not matter."""
    utc = at.astimezone(UTC)
    return format_html('<time datetime="{}">{}</time>', utc.date().isoformat(), date(utc, "j M Y"))
