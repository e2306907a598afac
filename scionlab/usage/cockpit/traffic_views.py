"""Traffic and cost of a month: a page, and all rows as CSV."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST, require_safe

from scionlab.limits.cockpit.forms import CostForm
from scionlab.limits.uplink import site_cost_set
from scionlab.platform.clock import database_now
from scionlab.testbed import selectors
from scionlab.usage.cockpit.traffic import Billed, bill_csv, bill_of
from scionlab.web.access import staff_page
from scionlab.web.csv_files import csv_file
from scionlab.web.pages.own_pages import PageRequest, form_on, taken_back
from scionlab.web.paging import Order, page_of

TOP = 20
POINTS_PER_PAGE = 25
MONTHS_OFFERED = 36


@require_safe
@staff_page
def traffic(request: PageRequest) -> HttpResponse:
    typed = taken_back(request)
    return _traffic_page(request, None if typed is None else CostForm(typed, policy=selectors.policy()))


def _traffic_page(request: PageRequest, form: CostForm | None = None) -> HttpResponse:
    month = _month(request)
    bill = bill_of(month.year, month.month)
    order = Order[Billed](
        request,
        {
            "to": lambda one: one.row.to_user_bytes,
            "from": lambda one: one.row.from_user_bytes,
            "p95_to": lambda one: one.row.to_user_p95_kbit or 0,
            "p95_from": lambda one: one.row.from_user_p95_kbit or 0,
            "cost": lambda one: one.exact_cost or 0,
            "name": lambda one: (one.row.ap_isd_as, one.row.isd_as),
        },
        highest_first=("to", "from", "p95_to", "p95_from", "cost"),
    )
    ap = request.GET.get("ap", "")[:24]
    ases = [one for one in bill.ases if not ap or one.row.ap_isd_as == ap]
    context = {
        "tab": "traffic",
        "month": bill.name,
        "months": _months_offered(database_now()),
        "bill": bill,
        "order": order,
        "page": page_of(request, order.sorted(bill.attachment_points), POINTS_PER_PAGE),
        "ap": ap,
        "top": order.sorted(ases)[:TOP],
        "ases": len(ases),
        "form": form or CostForm(policy=selectors.policy()),
    }
    return render(request, "usage/traffic.html", context)


@require_safe
@staff_page
def traffic_csv(request: PageRequest) -> HttpResponse:
    month = _month(request)
    bill = bill_of(month.year, month.month)
    return csv_file(bill_csv(bill), f"scionlab-traffic-{bill.name}.csv")


@require_POST
@staff_page
@form_on("cockpit_traffic")
def cost(request: PageRequest) -> HttpResponse:
    form = CostForm(request.POST, policy=selectors.policy())
    if not form.is_valid():
        return _traffic_page(request, form)
    site_cost_set(actor=request.user, **form.cleaned_data)
    messages.success(request, "Saved. The costs of all months were updated.")
    return redirect("cockpit_traffic")


def _month(request: PageRequest) -> date:
    """The month in the query string (`2026-11`, UTC); the current one if invalid."""
    match = re.fullmatch(r"(20[0-9]{2})-(0[1-9]|1[0-2])", request.GET.get("month", ""), flags=re.ASCII)
    return date(int(match[1]), int(match[2]), 1) if match else database_now().astimezone(UTC).date().replace(day=1)


def _months_offered(now: datetime) -> list[str]:
    newest = now.year * 12 + now.month - 1
    return [f"{one // 12:04}-{one % 12 + 1:02}" for one in range(newest, newest - MONTHS_OFFERED, -1)]
