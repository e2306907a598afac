"""Formats values for people. Display only."""

from __future__ import annotations

from datetime import UTC, datetime

from django import template
from django.template.defaultfilters import date
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from bandwidth_config import MBIT_FROM_KBIT, Limits, format_kbit, format_number
from scionlab.platform.notation.bandwidth import in_words
from scionlab.platform.notation.local_time import localized
from scionlab.platform.notation.shown import SPACE, age, duration, kbit, lasting, titled

register = template.Library()
register.filter("kbit", kbit)


@register.filter
def number(value: int | None) -> str:
    """`120000` -> `120 000`; an en dash if unknown."""
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
    """One number if both directions are equal, otherwise both with their directions."""
    return _each(value, "{} <small>to your AS</small>", "{} <small>from it</small>")


@register.filter
def pair(value: Limits) -> SafeString:
    """For a narrow column: directions are abbreviated."""
    return _each(value, "<small>to</small> {}", "<small>from</small> {}")


def _each(value: Limits, to_user: str, from_user: str) -> SafeString:
    if value.is_symmetric:
        return kbit(value.to_user_kbit)
    both = " ".join(f'<span class="direction">{one}</span>' for one in (to_user, from_user))
    return format_html(f'<span class="directions">{both}</span>', *(kbit(one) for one in value))


@register.filter
def words(value: Limits) -> str:
    """`To the user AS 500 kbit/s, from it 500 kbit/s`."""
    text = in_words(value)
    return text[:1].upper() + text[1:]


@register.filter
def rate(value: float | None) -> SafeString:
    """A measured rate: `312 kbit/s`, `4 530 kbit/s`; from 10 000 kbit/s on in Mbit/s with three digits, and kbit/s in
    the title. An en dash if unknown."""
    if value is None:
        return format_html("{}", "\N{EN DASH}")
    if round(value) < MBIT_FROM_KBIT:
        return format_html("{}", f"{value:.1f}{SPACE}kbit/s" if 0 < value < 10 else format_kbit(round(value)))
    mbit = value / 1000
    shown = f"{mbit:.1f}" if mbit < 100 else format_number(round(mbit))
    return titled(f"{shown}{SPACE}Mbit/s", round(value))


@register.filter
def of_limit(passed_kbit: int, limit_kbit: int) -> SafeString:
    """`412 of 500 kbit/s`; each with its unit if one of them is in Mbit/s."""
    if max(passed_kbit, limit_kbit) < MBIT_FROM_KBIT:
        return format_html("{} of {}", format_number(passed_kbit), format_kbit(limit_kbit))
    return format_html("{} of {}", rate(passed_kbit), kbit(limit_kbit))


@register.filter
def seconds(value: float) -> str:
    """`90` -> `1 min 30 s`."""
    return duration(value)


register.filter("when", age)
register.filter("lasting", lasting)


@register.filter
def minute(at: datetime) -> SafeString:
    """A `<time>` in the reader's zone; without seconds if they are 0."""
    return _time(at, "j M Y, H:i T" if timezone.localtime(at).second == 0 else "j M Y, H:i:s T")


@register.filter
def clock(at: datetime) -> SafeString:
    """Short, for a row of times."""
    return _time(at, "j M, H:i")


@register.filter
def day(at: datetime) -> SafeString:
    """A `<time>` without the hour."""
    return _time(at, "j M Y")


@register.filter
def locally(text: str) -> str:
    """Convert the UTC times in an audit text to the reader's zone."""
    return localized(text)


def _time(at: datetime, form: str) -> SafeString:
    utc, local = at.astimezone(UTC), timezone.localtime(at)
    return format_html('<time datetime="{}">{}</time>', utc.isoformat(timespec="seconds"), date(local, form))
