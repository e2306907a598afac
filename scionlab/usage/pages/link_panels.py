"""Usage on the page of a Link: what passes now, and the past."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from scionlab.limits.pages.panels import LinkPage, LinkPanel
from scionlab.usage.pages.dials import now_of
from scionlab.usage.pages.usage_panel import newest_usage, span_named, usage_panel


def _now(page: LinkPage) -> Mapping[str, Any] | None:
    return {"passing": now_of(page.link)} if page.link.active else None


def _usage(page: LinkPage) -> Mapping[str, Any]:
    span = span_named(page.request.GET.get("span", ""), page.dates, now=page.now)
    return {"usage": usage_panel(page.link, span, now=page.now), "live": f"{page.request.path}?span={span}"}


NOW: Final = LinkPanel("usage/parts/link_now.html", _now, is_above=True)
USAGE: Final = LinkPanel("usage/parts/link_usage.html", _usage, beside=newest_usage)
