"""Filters and tags of the cockpit: shares, states, and sortable column heads."""

from __future__ import annotations

from django import template
from django.utils.html import format_html
from django.utils.safestring import SafeString

from scionlab.platform.notation.shown import SPACE, age
from scionlab.web.paging import Order

register = template.Library()
register.filter("age", age)

NOTHING = "\N{EN DASH}"


@register.filter
def percent(share: float | None) -> str:
    """`1.364` -> `136 %`; a value above 0 is never shown as 0."""
    if share is None:
        return NOTHING
    value = share * 100
    if 0 < value < 0.1:
        return f"below{SPACE}0.1{SPACE}%"
    return f"{value:.{0 if value >= 10 or value == 0 else 1}f}{SPACE}%"


@register.simple_tag
def bar(share: float | None, words: str) -> SafeString | str:
    """A bar, full from 100 % on; `words` are its accessible label."""
    if share is None:
        return ""
    tone = "bad" if share > 1 else "warn" if share > 0.8 else "good"
    return format_html(
        '<svg class="bar bar-{}" viewBox="0 0 100 6" preserveAspectRatio="none" role="img" aria-label="{}">'
        '<rect class="bar-whole" width="100" height="6"></rect>'
        '<rect class="bar-part" width="{}" height="6"></rect></svg>',
        tone,
        words,
        round(min(share, 1.0) * 100, 1),
    )


@register.inclusion_tag("cockpit/parts/head.html", takes_context=True)
def sort_head(context: template.Context, name: str, label: str, kind: str = "") -> dict[str, object]:
    """Head of a sortable column; `kind` is "number" for figures."""
    order: Order[object] = context["order"]
    is_current = order.name == name
    return {
        "request": context["request"],
        "label": label,
        "kind": kind,
        "is_current": is_current,
        "is_descending": order.is_descending,
        "next": f"-{name}" if is_current and not order.is_turned else name,
    }
