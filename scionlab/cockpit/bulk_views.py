"""Many limits changed at once, in three pages: choose, look at the preview and confirm, see what was done."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.core.paginator import Page
from django.http import HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from bandwidth_config import RuleError, format_number
from scionlab.cockpit.access import staff_page
from scionlab.cockpit.choice import ChoiceForm
from scionlab.cockpit.forms import OperationForm
from scionlab.cockpit.paging import page_of
from scionlab.links.bulk import (
    BulkChangedError,
    bulk_apply,
    bulk_preview,
    bulk_put_back,
    bulk_refresh,
    bulk_summary,
    lines_of,
)
from scionlab.links.bulk_plan import Line
from scionlab.models import BulkChange, Link
from scionlab.pages.common import gone_is_404
from scionlab.pages.own_pages import PageRequest, form_on, taken_back

ROWS = 50
FORMER_SHOWN = 10
LINKS = BulkChange.About.LINKS

LINE_RELATIONS = [f"interface_{end}__AS__isd" for end in "ab"]
LINE_RELATIONS += ["interface_b__AS__useras__owner", "interface_a__AS__attachment_point"]


# --- choose -----------------------------------------------------------------------------------------------------


@require_http_methods(["GET", "HEAD", "POST"])
@staff_page
def choose(request: PageRequest) -> HttpResponse:
    """The filter stands in the address, also of the POST that asks for a preview."""
    choice = ChoiceForm(request.GET)
    links = choice.links()
    typed = request.POST if request.method == "POST" else taken_back(request)
    form = OperationForm(typed)
    ticked, scope = (typed.getlist("link"), typed.get("scope", "all")) if typed else ([], "all")
    if request.method == "POST" and form.is_valid() and choice.is_valid():
        chosen = choice.choice(None if scope == "all" else ticked_ids(ticked))
        try:
            change = bulk_preview(
                link_ids=chosen.link_ids(),
                operation=form.cleaned_data["operation"],
                chosen=chosen.words,
                actor=request.user,
            )
        except RuleError as exc:
            form.add_error(None, exc.message)
        else:
            return redirect("cockpit_bulk", pk=change.pk)
    page = page_of(request, links.select_related(*LINE_RELATIONS), ROWS)
    previous = BulkChange.objects.filter(about=LINKS).exclude(applied_at=None).defer("lines")[:FORMER_SHOWN]
    context = {
        "tab": "limits",
        "nav": "cockpit",
        "choice": choice,
        "form": form,
        "page": page,
        "ticked": set(ticked),
        "scope": scope,
        "previous": previous,
        "found": page.paginator.count,
    }
    return render(request, "cockpit/limits.html", context)


def ticked_ids(ticked: list[str]) -> frozenset[int]:
    """Of the boxes of a page; what is no key is left out."""
    return frozenset(int(one) for one in ticked if one.isascii() and one.isdigit() and len(one) < 19)


# --- preview, and what was done ---------------------------------------------------------------------------------


@require_safe
@staff_page
@gone_is_404
def show(request: PageRequest, pk: int) -> HttpResponse:
    change = BulkChange.objects.select_related("created_by", "puts_back").get(pk=pk, about=LINKS)
    return _bulk_page(request, change, reason=(taken_back(request) or QueryDict()).get("reason", ""))


def _bulk_page(request: PageRequest, change: BulkChange, **more: Any) -> HttpResponse:
    lines = lines_of(change)
    marked = set(more.get("marked", ()))
    # What is marked comes first, then what changes; what is left out stands at the end.
    lines.sort(key=lambda line: (line.link_id not in marked, bool(line.skipped), line.link_id))
    page = page_of(request, lines, ROWS)
    context = {
        "tab": "limits",
        "nav": "cockpit",
        "change": change,
        "summary": bulk_summary(change),
        "page": page,
        "rows": _rows(page, marked),
        "put_back_by": change.put_back_by.exclude(applied_at=None).defer("lines").first(),
        **more,
    }
    return render(request, "cockpit/bulk.html", context)


def _rows(page: Page[Line], marked: set[int]) -> list[dict[str, Any]]:
    lines = list(page)
    links = Link.objects.select_related(*LINE_RELATIONS).in_bulk([line.link_id for line in lines])
    return [{"line": line, "link": links.get(line.link_id), "is_marked": line.link_id in marked} for line in lines]


@require_POST
@staff_page
@form_on("cockpit_bulk", "pk")
@gone_is_404
def apply(request: PageRequest, pk: int) -> HttpResponse:
    reason = request.POST.get("reason", "").strip()[:200]
    try:
        change = bulk_apply(bulk_id=pk, actor=request.user, reason=reason)
    except BulkChangedError as exc:
        marked = bulk_refresh(bulk_id=pk)
        change = BulkChange.objects.select_related("created_by", "puts_back").get(pk=pk, about=LINKS)
        if change.applied_at is not None:  # by somebody else, in this moment
            return redirect("cockpit_bulk", pk=pk)
        return _bulk_page(request, change, refused=exc.message, marked=marked, reason=reason)
    except RuleError as exc:
        change = BulkChange.objects.select_related("created_by", "puts_back").get(pk=pk, about=LINKS)
        return _bulk_page(request, change, problem=exc.message, reason=reason)
    result = change.result
    words = f"Done: {format_number(result['links'])} links have new limits. Nothing restarts."
    messages.success(request, words.replace(" 1 links have", " 1 link has"))
    return redirect("cockpit_bulk", pk=change.pk)


@require_POST
@staff_page
@form_on("cockpit_bulk", "pk")
@gone_is_404
def put_back(request: PageRequest, pk: int) -> HttpResponse:
    """Leads to a preview like any other."""
    try:
        preview = bulk_put_back(bulk_id=pk, actor=request.user)
    except RuleError as exc:
        messages.error(request, exc.message)
        return redirect("cockpit_bulk", pk=pk)
    return redirect("cockpit_bulk", pk=preview.pk)
