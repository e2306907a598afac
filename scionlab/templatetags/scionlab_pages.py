"""How values are written for people. Display only: nothing here flows back into a form or a rule."""

from __future__ import annotations

from datetime import UTC, datetime

from django import template
from django.template.defaultfilters import date
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from bandwidth_config import Limits, format_kbit, format_limits, format_number
from scionlab.consequences import duration, in_words
from scionlab.enforcement.status import LinkStatus
from scionlab.local_time import said_locally

register = template.Library()


@register.inclusion_tag("parts/stage.html")
def stage(status: LinkStatus) -> dict[str, object]:
    """The state: a word, a colour and a shape, none of which is needed to understand the others."""
    return {"status": status}


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
def limits(value: Limits) -> SafeString:
    """One number where both directions have the same, else both with their directions."""
    if value.is_symmetric:
        return format_html("{}", format_kbit(value.to_user_kbit))
    return format_html(
        '<span class="directions"><span class="direction">{} <small>to your AS</small></span> '
        '<span class="direction">{} <small>from it</small></span></span>',
        *(format_kbit(kbit) for kbit in value),
    )


@register.filter
def pair(value: Limits) -> SafeString:
    """For a narrow column: the directions are named in short where they differ."""
    if value.is_symmetric:
        return format_html("{}", format_kbit(value.to_user_kbit))
    return format_html(
        '<span class="directions"><span class="direction"><small>to</small> {}</span> '
        '<span class="direction"><small>from</small> {}</span></span>',
        *(format_kbit(kbit) for kbit in value),
    )


@register.filter
def inline(value: Limits) -> str:
    """The same within a sentence."""
    return format_limits(value)


@register.filter
def words(value: Limits) -> str:
    """`To the user AS 500 kbit/s, from it 500 kbit/s`."""
    text = in_words(value)
    return text[:1].upper() + text[1:]


@register.filter
def rate(kbit: float | None) -> str:
    """A measured rate, in three digits: `1.23 Mbit/s`; an en dash where nothing is known."""
    if kbit is None:
        return "\N{EN DASH}"
    for unit in ("kbit/s", "Mbit/s", "Gbit/s"):
        if kbit < 1000 or unit == "Gbit/s":
            break
        kbit /= 1000
    digits = 0 if kbit >= 100 or kbit == 0 else 1 if kbit >= 10 else 2
    return f"{kbit:.{digits}f}\N{NO-BREAK SPACE}{unit}"


@register.filter
def seconds(value: float) -> str:
    """`90` -> `1 min 30 s`."""
    return duration(value)


@register.filter
def when(at: datetime) -> SafeString:
    """A `<time>` to the second, in the zone of whoever reads the page."""
    return _time(at, "j M Y, H:i:s T")


@register.filter
def minute(at: datetime) -> SafeString:
    """The same without seconds where they are 0."""
    return _time(at, "j M Y, H:i T" if timezone.localtime(at).second == 0 else "j M Y, H:i:s T")


@register.filter
def clock(at: datetime) -> SafeString:
    """Short, where many stand in a row."""
    return _time(at, "j M, H:i")


@register.filter
def day(at: datetime) -> SafeString:
    """A `<time>` where the hour does not matter."""
    return _time(at, "j M Y")


@register.filter
def locally(text: str) -> str:
    """What the audit keeps in UTC, in the zone of whoever reads the page."""
    return said_locally(text)


def _time(at: datetime, form: str) -> SafeString:
    utc, local = at.astimezone(UTC), timezone.localtime(at)
    return format_html('<time datetime="{}">{}</time>', utc.isoformat(timespec="seconds"), date(local, form))
