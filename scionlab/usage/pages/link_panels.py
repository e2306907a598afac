"""Usage on the page of a Link: what passes now, and the past."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from scionlab.limits.pages.panels import LinkPage, LinkPanel
from scionlab.platform.throttles import ManyAtOnceError, one_of_few
from scionlab.usage.pages.dials import now_of
from scionlab.usage.pages.usage_panel import SPANS, SpanName, UsagePanel, newest_usage, span_named, usage_panel


def _now(page: LinkPage) -> Mapping[str, Any] | None:
    return {"passing": now_of(page.link)} if page.link.active else None


def _usage(page: LinkPage) -> Mapping[str, Any]:
    span = span_named(page.request.GET.get("span", ""), page.dates, now=page.now)
    return {
        "span": span,
        "spans": SPANS,
        "usage": _panel(page, span),
        "busy": ManyAtOnceError.default_detail,
        "live": f"{page.request.path}?span={span}",
    }


def _panel(page: LinkPage, span: SpanName) -> UsagePanel | None:
    """None while other dear requests of this person run: the rest of the page is there."""
    try:
        with one_of_few(page.request.user.pk):
            return usage_panel(page.link, span, now=page.now)
    except ManyAtOnceError:
        return None


NOW: Final = LinkPanel("usage/parts/link_now.html", _now, is_above=True)
USAGE: Final = LinkPanel("usage/parts/link_usage.html", _usage, beside=newest_usage)
