"""Parts that other apps add to the page of a Link."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from django.db.models import Subquery

from scionlab.enforcement.status import LinkStatus
from scionlab.testbed.models import Link
from scionlab.web.pages.own_pages import PageRequest


@dataclass(frozen=True)
class LinkPage:
    """What a panel may use. `dates` has the answers to the expressions of `LinkPanel.beside`, without missing ones."""

    request: PageRequest
    link: Link
    status: LinkStatus
    dates: Mapping[str, datetime]
    now: datetime


def _nothing(link: Link) -> Mapping[str, Subquery]:  # noqa: ARG001  the signature of `LinkPanel.beside`
    return {}


@dataclass(frozen=True)
class LinkPanel:
    """`template` is shown with what `context_of` returns beside the context of the page; None: not on this page.
    `is_above`: between the state and the form of the limit, else below the form. `beside`: expressions that cost no
    statement of their own."""

    template: str
    context_of: Callable[[LinkPage], Mapping[str, Any] | None]
    is_above: bool = False
    beside: Callable[[Link], Mapping[str, Subquery]] = _nothing


LINK_PANELS: Final[list[LinkPanel]] = []  # appended in `AppConfig.ready`
