"""Bulk changes of limits or defaults in three pages: choose, preview and confirm, result.

`cockpit.urls` passes the kind (`bulk_pages.Pages`) to each view.
"""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from bandwidth_config import RuleError
from scionlab.cockpit.access import staff_page
from scionlab.cockpit.bulk_pages import Pages, counted
from scionlab.cockpit.paging import page_of
from scionlab.links.bulk import (
    SUBJECTS,
    BulkChangedError,
    bulk_apply,
    bulk_preview,
    bulk_put_back,
    bulk_refresh,
    lines_of,
)
from scionlab.models import BulkChange, selectors
from scionlab.pages.common import gone_is_404
from scionlab.pages.own_pages import PageRequest, taken_back

ROWS = 50
FORMER_SHOWN = 10


@require_http_methods(["GET", "HEAD", "POST"])
@staff_page
def choose(request: PageRequest, pages: Pages) -> HttpResponse:
    """The filter is in the query string, also of the POST that requests a preview."""
    choice = pages.choice(request.GET, auto_id="choice_%s", label_suffix="")
    typed = request.POST if request.method == "POST" else taken_back(request)
    form = pages.form(typed)
    ticked, scope = (typed.getlist("ticked"), typed.get("scope", "all")) if typed else ([], "all")
    if request.method == "POST" and form.is_valid() and choice.is_valid():
        keys, words = choice.chosen(scope, _keys(ticked))
        operation = form.cleaned_data["operation"]
        try:
            change = bulk_preview(about=pages.about, keys=keys, operation=operation, chosen=words, actor=request.user)
        except RuleError as exc:
            form.add_error(None, exc.message)
        else:
            return redirect(f"cockpit_{pages.tab}_change", pk=change.pk)
    page = page_of(request, choice.rows(), ROWS)
    former = BulkChange.objects.filter(about=pages.about).exclude(applied_at=None).defer("lines")[:FORMER_SHOWN]
    context = {
        **_common(pages),
        "policy": selectors.policy(),
        "choice": choice,
        "form": form,
        "page": page,
        "ticked": set(ticked),
        "scope": scope,
        "previous": [(change, change.result[pages.counts[0]]) for change in former],
        "found": page.paginator.count,
    }
    return render(request, f"cockpit/{pages.tab}.html", context)


def _keys(ticked: list[str]) -> frozenset[int]:
    """Keys of the ticked boxes, without invalid ones."""
    return frozenset(int(one) for one in ticked if one.isascii() and one.isdigit() and len(one) < 19)


def _common(pages: Pages) -> dict[str, Any]:
    at = {name: f"cockpit_{pages.tab}_{name}" for name in ("change", "apply", "put_back")}
    at["choose"] = f"cockpit_{pages.tab}"
    return {"subject": SUBJECTS[pages.about], "pages": pages, "tab": pages.tab, "nav": "cockpit", "at": at}


# --- preview, and what was done ---------------------------------------------------------------------------------


@require_safe
@staff_page
@gone_is_404
def show(request: PageRequest, pages: Pages, pk: int) -> HttpResponse:
    return _change_page(request, pages, pk, reason=(taken_back(request) or QueryDict()).get("reason"))


def _change_page(request: PageRequest, pages: Pages, pk: int, *, reason: str | None, **more: Any) -> HttpResponse:
    change = BulkChange.objects.select_related("created_by", "puts_back").get(pk=pk, about=pages.about)
    lines, marked = lines_of(change), set(more.get("marked", ()))
    # Marked rows first, then changed ones, then skipped ones.
    lines.sort(key=lambda line: (line.key not in marked, bool(line.skipped), line.key))
    page = page_of(request, lines, ROWS)
    rows = pages.rows(change, page.object_list)
    context = {
        **_common(pages),
        "change": change,
        "report": pages.report(change, lines),
        "page": page,
        "rows": [(row, line.key in marked) for row, line in zip(rows, page.object_list, strict=True)],
        "reason": change.reason if reason is None else reason,
        "put_back_by": change.put_back_by.exclude(applied_at=None).defer("lines").first(),
        **more,
    }
    return render(request, "cockpit/bulk.html", context)


@require_POST
@staff_page
@gone_is_404
def apply(request: PageRequest, pages: Pages, pk: int) -> HttpResponse:
    reason = request.POST.get("reason", "").strip()[:200]
    BulkChange.objects.only("pk").get(pk=pk, about=pages.about)
    try:
        change = bulk_apply(bulk_id=pk, actor=request.user, reason=reason)
    except BulkChangedError as exc:
        marked = bulk_refresh(bulk_id=pk)
        return _change_page(request, pages, pk, refused=exc.message, marked=marked, reason=reason)
    except RuleError as exc:
        return _change_page(request, pages, pk, problem=exc.message, reason=reason)
    name, noun = pages.counts
    count = change.result[name]
    messages.success(request, f"Done: {counted(count, noun)} {'has' if count == 1 else 'have'} {pages.done}")
    return redirect(f"cockpit_{pages.tab}_change", pk=pk)


@require_POST
@staff_page
@gone_is_404
def put_back(request: PageRequest, pages: Pages, pk: int) -> HttpResponse:
    """Redirect to the preview that undoes the change."""
    BulkChange.objects.only("pk").get(pk=pk, about=pages.about)
    try:
        shown = bulk_put_back(bulk_id=pk, actor=request.user).pk
    except RuleError as exc:
        messages.error(request, exc.message)
        shown = pk
    return redirect(f"cockpit_{pages.tab}_change", pk=shown)
