"""The page that explains a throughput: from the requested limit to the traffic that passed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from scionlab.enforcement.directions import NAMES
from scionlab.enforcement.status import link_status
from scionlab.limits.measured import TRAFFIC
from scionlab.limits.pages.link import link_or_404
from scionlab.linktests.throughput import Step, explain
from scionlab.platform.clock import database_now
from scionlab.platform.throttles import ManyAtOnceError, one_of_few
from scionlab.web.pages.own_pages import PageRequest, many_at_once, own_page
from scionlab.web.pages.plots import WIDTH

HOUR = timedelta(hours=1)


@dataclass(frozen=True)
class Bar:
    """A step of the waterfall plot: `left` from 0, `lost` behind it up to the previous step."""

    step: Step
    left: str
    lost: str


def bars_of(steps: Sequence[Step]) -> list[Bar]:
    """In a box `WIDTH` wide. Unknown steps, and losses next to them, are not drawn."""
    top = max((step.kbit or 0.0 for step in steps), default=0.0) or 1.0
    found, before = [], 0.0
    for step in steps:
        if step.kbit is None:
            found.append(Bar(step, "", ""))
            continue
        found.append(Bar(step, _x(step.kbit / top), _x(max(0.0, before - step.kbit) / top)))
        before = step.kbit
    return found


def _x(share: float) -> str:
    return f"{share * WIDTH:.1f}"


@require_safe
@own_page
def link_why(request: PageRequest, pk: int, link_id: int) -> HttpResponse:
    user_as, link = link_or_404(request, pk, link_id)
    now = database_now()
    try:
        with one_of_few(request.user.pk):
            points = [point for one in TRAFFIC for point in one.in_steps(link.pk, begins_at=now - HOUR, ends_at=now)]
            sides = explain(link_status(link, now=now), points if TRAFFIC else None)
    except ManyAtOnceError as exc:
        return many_at_once(exc)
    context = {
        "nav": "ases",
        "user_as": user_as,
        "link": link,
        "sides": [(NAMES[side.direction], side, bars_of(side.steps)) for side in sides],
    }
    return render(request, "linktests/why.html", context)
