"""Tests of a Link: schedules those that send; shows results of all, the newest also on the page of the Link."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from django.contrib import messages
from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from contract.link_tests import UDP, WATCH
from scionlab.limits.pages.consequences import local
from scionlab.limits.pages.link import link_or_404
from scionlab.limits.pages.panels import LinkPage, LinkPanel
from scionlab.linktests.link_test import link_test_cancel, link_test_create
from scionlab.linktests.models import JointTest, LinkTest
from scionlab.linktests.pages.test_forms import WatchForm, form_of
from scionlab.linktests.pages.test_panel import panel_of
from scionlab.linktests.sending_verdict import SendingVerdict
from scionlab.linktests.test_formats import points_csv
from scionlab.linktests.test_status import TestStatus, reason_against, status_of_test, with_results
from scionlab.platform.clock import database_now
from scionlab.platform.notation.local_time import zone_of
from scionlab.testbed.models import Link
from scionlab.web.pages.common import gone_is_404
from scionlab.web.pages.forms import problems_of
from scionlab.web.pages.own_pages import PageRequest, form_on, own_page, taken_back
from station.tools import TOOLS

SHOWN = 20  # per Link, newest first
SHOWN_ON_LINK = 5  # on its own page


@require_http_methods(["GET", "HEAD", "POST"])
@own_page
@gone_is_404
def test_new(request: PageRequest, pk: int, link_id: int, tool: str) -> HttpResponse:
    """GET shows the form of the tool, or of a watch, with the latest tests; POST reserves a time, 409 if taken."""
    if tool not in {WATCH, *TOOLS}:
        raise Http404("There is no such tool.")
    user_as, link = link_or_404(request, pk, link_id)
    now = database_now()
    is_sent = request.method == "POST"
    form = form_of(tool, request.POST if is_sent else taken_back(request), zone=zone_of(request.user), now=now)
    if is_sent and form.is_valid():
        with form.refusing():
            made = link_test_create(link_id=link.pk, tool=tool, actor=request.user, **form.asked)
            return redirect("link_test", pk=pk, link_id=link_id, test_id=made.pk)
    context = {
        "nav": "ases",
        "user_as": user_as,
        "link": link,
        "form": form,
        "problems": list(problems_of(form, "")) if is_sent else [],
        "tests": newest_of(link, now=now, count=SHOWN),
        "command": f"scionlab-bw test {link.pk} {tool}",
    }
    template = "linktests/watch_new.html" if tool == WATCH else "linktests/test_new.html"
    return render(request, template, context, status=409 if form.has_error("begins_at", "test_slot_taken") else 200)


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
        "panel": panel_of(found),
        "now": now,
    }
    if not found.test.sends:
        return render(request, "linktests/watch.html", context)
    context |= {
        "tool": TOOLS.get(found.test.tool),
        "command": f"scionlab-bw test {link.pk} --id {found.test.pk}",
        "is_mine": found.test.created_by == request.user,
        "steps": [step for side in verdict.sides for step in side.steps] if isinstance(verdict, SendingVerdict) else [],
    }
    return render(request, "linktests/test.html", context)


@require_safe
@own_page
def test_csv(request: PageRequest, pk: int, link_id: int, test_id: int) -> HttpResponse:
    _, link = link_or_404(request, pk, link_id)
    return points_csv(_status_or_404(link, test_id, database_now()).test)


@require_POST
@own_page
@form_on("link_test", "pk", "link_id", "test_id")
@gone_is_404
def test_cancel(request: PageRequest, pk: int, link_id: int, test_id: int) -> HttpResponse:
    _, link = link_or_404(request, pk, link_id)
    found = _status_or_404(link, test_id, database_now()).test
    say_cancelled(request, link_test_cancel(link_test_id=found.pk, actor=request.user))
    return redirect("link_test", pk=pk, link_id=link_id, test_id=test_id)


def say_cancelled(request: PageRequest, found: LinkTest | JointTest) -> None:
    if found.cancelled_at is None:
        messages.warning(request, f"It had already ended at {local(found.ends_at)}. Nothing was cancelled.")
    else:
        messages.success(request, "Cancelled.")


def _status_or_404(link: Link, test_id: int, now: datetime) -> TestStatus:
    found = with_results(LinkTest.objects.filter(link=link, pk=test_id)).first()
    if found is None:
        raise Http404("This link has no such test.")
    return status_of_test(found, now=now)


def _tests_panel(page: LinkPage) -> Mapping[str, Any]:
    agent = page.status.agent
    return {
        "watch_form": WatchForm(zone=zone_of(page.request.user), now=page.now),
        "tests": newest_of(page.link, now=page.now, count=SHOWN_ON_LINK),
        "tools": TOOLS.values(),
        "not_sending": reason_against(agent, kind=UDP) if agent is not None else "",
    }


TESTS_PANEL: Final = LinkPanel("linktests/parts/link_tests.html", _tests_panel)


def newest_of(link: Link, *, now: datetime, count: int) -> list[TestStatus]:
    """Its watches and tests, newest first; two statements."""
    rows = with_results(LinkTest.objects.filter(link=link)).order_by("-begins_at", "-pk")
    return [status_of_test(one, now=now) for one in rows[:count]]
