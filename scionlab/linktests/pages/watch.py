"""Watches of a Link: start, and plot of the result."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.forms import Form
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods

from bandwidth_config import RuleError
from scionlab.enforcement.directions import DIRECTIONS, DirectionName
from scionlab.limits.pages.link import link_or_404
from scionlab.linktests.link_test import link_test_create
from scionlab.linktests.models import LinkTest, TestResult
from scionlab.linktests.pages.watch_forms import WatchForm, newest_of
from scionlab.linktests.test_status import TestStatus
from scionlab.linktests.verdict import Side, Verdict, intervals_of
from scionlab.platform.clock import database_now
from scionlab.platform.notation.local_time import zone_of
from scionlab.testbed.models import Link
from scionlab.web.pages.common import gone_is_404
from scionlab.web.pages.forms import problems_of
from scionlab.web.pages.own_pages import PageRequest, own_page, taken_back
from scionlab.web.pages.plots import Slot, UsagePlot, scale_of, ticks, usage_plot

SHOWN = 20  # per Link, newest first


@require_http_methods(["GET", "HEAD", "POST"])
@own_page
@gone_is_404
def watch_new(request: PageRequest, pk: int, link_id: int) -> HttpResponse:
    """GET shows the form and earlier watches, POST starts one."""
    user_as, link = link_or_404(request, pk, link_id)
    now = database_now()
    zone = zone_of(request.user)
    is_sent = request.method == "POST"
    form = WatchForm(request.POST if is_sent else taken_back(request), zone=zone, now=now)
    if is_sent and form.is_valid():
        try:
            made = link_test_create(link_id=link.pk, actor=request.user, **form.cleaned_data)
        except RuleError as exc:
            form.refuse(exc)
        else:
            return redirect("link_test", pk=pk, link_id=link_id, test_id=made.pk)
    return form_page(request, "linktests/watch_new.html", link, form, now=now, is_wrong=is_sent, user_as=user_as)


def form_page(
    request: PageRequest, template: str, link: Link, form: Form, *, now: datetime, is_wrong: bool, **more: Any
) -> HttpResponse:
    """The form that reserves a time on a link, with its latest tests; 409 if another test is scheduled then."""
    context = {
        "nav": "ases",
        "link": link,
        "form": form,
        "problems": list(problems_of(form, "")) if is_wrong else [],
        "tests": newest_of(link, now=now, count=SHOWN),
        **more,
    }
    is_taken = form.has_error("begins_at", "test_slot_taken")
    return render(request, template, context, status=409 if is_taken else 200)


# --- drawn --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DirectionPanel:
    """One direction: the plot with a slot per second, and the sums."""

    key: DirectionName
    name: str
    plot: UsagePlot
    side: Side


@dataclass(frozen=True)
class WatchPanel:
    directions: list[DirectionPanel]
    rows: list[tuple[Slot, Slot]]
    ticks: list[datetime]


def panel_of(status: TestStatus) -> WatchPanel | None:
    """None without measurements."""
    verdict, result = status.verdict, status.result
    if not isinstance(verdict, Verdict) or result is None:
        return None
    by_direction = [slots_of_test(status.test, result, name) for name in DIRECTIONS]
    top = scale_of(by_direction)
    names = ("To your AS", "From your AS")
    panels = [
        DirectionPanel(key, name, usage_plot(slots, top_kbit=top), side)
        for key, name, slots, side in zip(DIRECTIONS, names, by_direction, verdict.sides, strict=True)
    ]
    moments = ticks(status.test.begins_at, status.test.ends_at, 4)
    return WatchPanel(panels, list(zip(*by_direction, strict=True)), moments)


def slots_of_test(test: LinkTest, result: TestResult, direction: DirectionName) -> list[Slot]:
    """One slot per second of the test; a gap if not measured, or nothing was limited then."""
    began_ms = round(test.begins_at.timestamp() * 1000)
    by_second = {
        (one.begins_at_ms - began_ms) // 1000: one for one in intervals_of(result.samples, direction) if one.is_second
    }
    slots = []
    for second in range(test.duration_s):
        one = by_second.get(second)
        begins_at = test.begins_at + timedelta(seconds=second)
        if one is None:
            slots.append(Slot(begins_at, None, None, 0, 0, 0, 0))
            continue
        covered_s = one.took_ms / 1000
        full_s = covered_s if one.in_force and one.is_full else 0.0
        dropped = one.lost_packets + (one.dropped_packets if one.in_force else 0)
        slots.append(Slot(begins_at, one.kbit, one.limit_kbit, one.passed_bytes, dropped, full_s, covered_s))
    return slots
