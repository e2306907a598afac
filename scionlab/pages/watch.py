"""Watches of a Link: started, cancelled, and what they found."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.contrib import messages
from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from bandwidth_config import RuleError
from scionlab.links.link_test import link_test_cancel, link_test_create
from scionlab.links.test_formats import csv_name, points_csv
from scionlab.links.test_status import RELATIONS, TestStatus, status_of_test
from scionlab.links.verdict import Side, intervals_of
from scionlab.models import Link, LinkTest, TestResult, UserAS
from scionlab.notation.local_time import zone_of
from scionlab.pages.common import gone_is_404
from scionlab.pages.consequences import local
from scionlab.pages.forms import problems_of
from scionlab.pages.link import link_or_404
from scionlab.pages.own_pages import PageRequest, form_on, own_page, taken_back
from scionlab.pages.plots import Slot, UsagePlot, scale_of, ticks, usage_plot
from scionlab.pages.watch_forms import WatchForm, newest_of
from scionlab.usage.batch import DIRECTIONS, DirectionName

SHOWN = 20  # of a Link, newest first


@require_http_methods(["GET", "HEAD", "POST"])
@own_page
@gone_is_404
def watch_new(request: PageRequest, pk: int, link_id: int) -> HttpResponse:
    """GET shows the form and the watches so far, POST starts one."""
    user_as, link = link_or_404(request, pk, link_id)
    now = timezone.now()
    zone = zone_of(request.user)
    if request.method != "POST":
        return _form_page(request, user_as, link, WatchForm(taken_back(request), zone=zone, now=now), now)
    form = WatchForm(request.POST, zone=zone, now=now)
    if form.is_valid():
        try:
            made = link_test_create(link_id=link.pk, actor=request.user, **form.cleaned_data)
        except RuleError as exc:
            form.refuse(exc)
        else:
            return redirect("link_watch", pk=pk, link_id=link_id, test_id=made.pk)
    return _form_page(request, user_as, link, form, now, is_wrong=True)


def _form_page(
    request: PageRequest, user_as: UserAS, link: Link, form: WatchForm, now: datetime, *, is_wrong: bool = False
) -> HttpResponse:
    context = {
        "nav": "ases",
        "user_as": user_as,
        "link": link,
        "form": form,
        "problems": list(problems_of(form, "")) if is_wrong else [],
        "watches": newest_of(link, now=now, count=SHOWN),
    }
    is_taken = form.has_error("begins_at", "test_slot_taken")
    return render(request, "user_as/watch_new.html", context, status=409 if is_taken else 200)


@require_safe
@own_page
def watch_page(request: PageRequest, pk: int, link_id: int, test_id: int) -> HttpResponse:
    user_as, link = link_or_404(request, pk, link_id)
    now = timezone.now()
    found = _status_or_404(link, test_id, now)
    context = {
        "nav": "ases",
        "user_as": user_as,
        "link": link,
        "one": found,
        "panel": panel_of(found),
        "live": reverse("link_watch", args=[pk, link_id, test_id]) if found.is_open else "",
        "now": now,
    }
    return render(request, "user_as/watch.html", context)


@require_safe
@own_page
def watch_csv(request: PageRequest, pk: int, link_id: int, test_id: int) -> HttpResponse:
    _, link = link_or_404(request, pk, link_id)
    test = _status_or_404(link, test_id, timezone.now()).test
    response = HttpResponse(points_csv(test), content_type="text/csv; charset=utf-8; header=present")
    response["Content-Disposition"] = f'attachment; filename="{csv_name(test)}"'
    return response


@require_POST
@own_page
@form_on("link_watch", "pk", "link_id", "test_id")
@gone_is_404
def watch_cancel(request: PageRequest, pk: int, link_id: int, test_id: int) -> HttpResponse:
    _, link = link_or_404(request, pk, link_id)
    found = link_test_cancel(link_test_id=_status_or_404(link, test_id, timezone.now()).test.pk, actor=request.user)
    if found.cancelled_at is None:
        messages.warning(request, f"It had already ended at {local(found.ends_at)}. Nothing was cancelled.")
    else:
        messages.success(request, "Cancelled.")
    return redirect("link_watch", pk=pk, link_id=link_id, test_id=test_id)


def _status_or_404(link: Link, test_id: int, now: datetime) -> TestStatus:
    found = LinkTest.objects.filter(link=link, pk=test_id).select_related(*RELATIONS).first()
    if found is None:
        raise Http404("This link has no such watch.")
    return status_of_test(found, now=now)


# --- drawn --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DirectionPanel:
    """One direction: the plot, a slot for each second, and the sums."""

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
    """None while nothing was measured."""
    verdict, result = status.verdict, status.result
    if verdict is None or result is None:
        return None
    by_direction = [_slots(status.test, result, name) for name in DIRECTIONS]
    top = scale_of(by_direction)
    names = ("To your AS", "From your AS")
    panels = [
        DirectionPanel(key, name, usage_plot(slots, top_kbit=top), side)
        for key, name, slots, side in zip(DIRECTIONS, names, by_direction, verdict.sides, strict=True)
    ]
    moments = ticks(status.test.begins_at, status.test.ends_at, 4)
    return WatchPanel(panels, list(zip(*by_direction, strict=True)), moments)


def _slots(test: LinkTest, result: TestResult, direction: DirectionName) -> list[Slot]:
    """One for each second of the watch; a gap where that second was not measured, or nothing was limited then."""
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
        dropped = one.dropped_packets if one.in_force else 0
        slots.append(Slot(begins_at, one.kbit, one.limit_kbit, one.passed_bytes, dropped, full_s, covered_s))
    return slots
