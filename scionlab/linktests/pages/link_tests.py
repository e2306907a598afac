"""Tests of a Link: schedules those that send; shows results of all."""

from __future__ import annotations

from datetime import datetime

from django.contrib import messages
from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from bandwidth_config import RuleError
from scionlab.limits.pages.consequences import local
from scionlab.limits.pages.link import link_or_404
from scionlab.linktests.link_test import link_test_cancel, link_test_create
from scionlab.linktests.models import LinkTest
from scionlab.linktests.pages.sending_panel import sending_panel
from scionlab.linktests.pages.test_forms import SendingForm
from scionlab.linktests.pages.watch import form_page, panel_of
from scionlab.linktests.sending_verdict import SendingVerdict
from scionlab.linktests.test_formats import csv_name, points_csv
from scionlab.linktests.test_status import TestStatus, status_of_test, with_results
from scionlab.platform.clock import database_now
from scionlab.platform.notation.local_time import zone_of
from scionlab.testbed.models import Link
from scionlab.web.pages.common import gone_is_404
from scionlab.web.pages.own_pages import PageRequest, form_on, own_page, taken_back
from station.tools import TOOLS


@require_http_methods(["GET", "HEAD", "POST"])
@own_page
@gone_is_404
def test_new(request: PageRequest, pk: int, link_id: int, tool: str) -> HttpResponse:
    """GET shows the tool's form and earlier tests, POST reserves a time."""
    if tool not in TOOLS:
        raise Http404("There is no such tool.")
    user_as, link = link_or_404(request, pk, link_id)
    now, zone = database_now(), zone_of(request.user)
    is_sent = request.method == "POST"
    form = SendingForm(TOOLS[tool], request.POST if is_sent else taken_back(request), zone=zone, now=now)
    if is_sent and form.is_valid():
        begins_at, parameters = form.cleaned_data["begins_at"], form.parameters
        try:
            made = link_test_create(
                link_id=link.pk, tool=tool, parameters=parameters, begins_at=begins_at, actor=request.user
            )
        except RuleError as exc:
            form.refuse(exc)
        else:
            return redirect("link_test", pk=pk, link_id=link_id, test_id=made.pk)
    more = {"user_as": user_as, "command": f"scionlab-bw test {link.pk} {tool}"}
    return form_page(request, "linktests/test_new.html", link, form, now=now, is_wrong=is_sent, **more)


@require_safe
@own_page
def link_test(request: PageRequest, pk: int, link_id: int, test_id: int) -> HttpResponse:
    user_as, link = link_or_404(request, pk, link_id)
    now = database_now()
    found = _status_or_404(link, test_id, now)
    verdict = found.verdict
    context = {
        "nav": "ases",
        "user_as": user_as,
        "link": link,
        "one": found,
        "live": reverse("link_test", args=[pk, link_id, test_id]) if found.is_open else "",
        "now": now,
    }
    if not found.test.sends:
        return render(request, "linktests/watch.html", {**context, "panel": panel_of(found)})
    context |= {
        "tool": TOOLS.get(found.test.tool),
        "command": f"scionlab-bw test {link.pk} --id {found.test.pk}",
        "is_mine": found.test.created_by == request.user,
        "panel": sending_panel(found),
        "steps": [step for side in verdict.sides for step in side.steps] if isinstance(verdict, SendingVerdict) else [],
    }
    return render(request, "linktests/test.html", context)


@require_safe
@own_page
def test_csv(request: PageRequest, pk: int, link_id: int, test_id: int) -> HttpResponse:
    _, link = link_or_404(request, pk, link_id)
    test = _status_or_404(link, test_id, database_now()).test
    response = HttpResponse(points_csv(test), content_type="text/csv; charset=utf-8; header=present")
    response["Content-Disposition"] = f'attachment; filename="{csv_name(test)}"'
    return response


@require_POST
@own_page
@form_on("link_test", "pk", "link_id", "test_id")
@gone_is_404
def test_cancel(request: PageRequest, pk: int, link_id: int, test_id: int) -> HttpResponse:
    _, link = link_or_404(request, pk, link_id)
    found = link_test_cancel(link_test_id=_status_or_404(link, test_id, database_now()).test.pk, actor=request.user)
    if found.cancelled_at is None:
        messages.warning(request, f"It had already ended at {local(found.ends_at)}. Nothing was cancelled.")
    else:
        messages.success(request, "Cancelled.")
    return redirect("link_test", pk=pk, link_id=link_id, test_id=test_id)


def _status_or_404(link: Link, test_id: int, now: datetime) -> TestStatus:
    found = with_results(LinkTest.objects.filter(link=link, pk=test_id)).first()
    if found is None:
        raise Http404("This link has no such test.")
    return status_of_test(found, now=now)
