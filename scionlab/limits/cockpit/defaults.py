"""Changes of defaults in three pages: choose, preview and confirm, result."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from bandwidth_config import RuleError
from scionlab.limits.cockpit.default_report import counted, report_of, rows_of
from scionlab.limits.cockpit.forms import DefaultsChoice, OperationForm
from scionlab.limits.default_changes import (
    DefaultChangedError,
    default_change_apply,
    default_change_preview,
    default_change_put_back,
    default_change_refresh,
    lines_of,
)
from scionlab.limits.models import DefaultChange
from scionlab.testbed import selectors
from scionlab.web.access import staff_page
from scionlab.web.pages.common import gone_is_404
from scionlab.web.pages.own_pages import PageRequest, form_on, taken_back
from scionlab.web.paging import page_of
from scionlab.web.typed import typed_keys, typed_text

ROWS = 50
FORMER_SHOWN = 10


@require_http_methods(["GET", "HEAD", "POST"])
@staff_page
def choose(request: PageRequest) -> HttpResponse:
    """The filter is in the query string, also of the POST that requests a preview."""
    choice = DefaultsChoice(request.GET, auto_id="choice_%s", label_suffix="")
    typed = request.POST if request.method == "POST" else taken_back(request)
    form = OperationForm(typed)
    ticked, scope = (typed.getlist("ticked"), typed.get("scope", "all")) if typed else ([], "all")
    if request.method == "POST" and form.is_valid() and choice.is_valid():
        keys, words = choice.chosen(scope, frozenset(typed_keys(ticked)))
        operation = form.cleaned_data["operation"]
        try:
            change = default_change_preview(keys=keys, operation=operation, chosen=words, actor=request.user)
        except RuleError as exc:
            form.add_error(None, exc.message)
        else:
            return redirect("cockpit_defaults_change", pk=change.pk)
    page = page_of(request, choice.rows(), ROWS)
    former = DefaultChange.objects.exclude(applied_at=None).defer("lines")[:FORMER_SHOWN]
    context = {
        "tab": "defaults",
        "policy": selectors.policy(),
        "choice": choice,
        "form": form,
        "page": page,
        "ticked": set(ticked),
        "scope": scope,
        "previous": former,
        "found": page.paginator.count,
    }
    return render(request, "limits/defaults.html", context)


# --- preview, and what was done ---------------------------------------------------------------------------------


@require_safe
@staff_page
@gone_is_404
def show(request: PageRequest, pk: int) -> HttpResponse:
    return _change_page(request, pk, reason=(taken_back(request) or QueryDict()).get("reason"))


def _change_page(request: PageRequest, pk: int, *, reason: str | None, **more: Any) -> HttpResponse:
    change = DefaultChange.objects.select_related("created_by", "puts_back").get(pk=pk)
    lines, marked = lines_of(change), set(more.get("marked", ()))
    # Marked rows first, then changed ones, then skipped ones.
    lines.sort(key=lambda line: (line.key not in marked, bool(line.skipped), line.key))
    page = page_of(request, lines, ROWS)
    rows = rows_of(change, list(page.object_list))
    context = {
        "tab": "defaults",
        "change": change,
        "report": report_of(change, lines),
        "page": page,
        "rows": [(row, line.key in marked) for row, line in zip(rows, page.object_list, strict=True)],
        "reason": change.reason if reason is None else reason,
        "put_back_by": change.put_back_by.exclude(applied_at=None).defer("lines").first(),
        **more,
    }
    return render(request, "limits/default_change.html", context)


@require_POST
@staff_page
@gone_is_404
@form_on("cockpit_defaults_change", "pk")
def apply(request: PageRequest, pk: int) -> HttpResponse:
    reason = typed_text(request, "reason")[:200]
    try:
        change = default_change_apply(change_id=pk, actor=request.user, reason=reason)
    except DefaultChangedError as exc:
        marked = default_change_refresh(change_id=pk)
        return _change_page(request, pk, refused=exc.message, marked=marked, reason=reason)
    except RuleError as exc:
        return _change_page(request, pk, problem=exc.message, reason=reason)
    count = change.result["attachment_points"]
    told = f"Done: {counted(count, 'attachment point')} {'has' if count == 1 else 'have'} a new default."
    messages.success(request, f"{told} The limits follow within seconds; nothing restarts.")
    return redirect("cockpit_defaults_change", pk=pk)


@require_POST
@staff_page
@gone_is_404
@form_on("cockpit_defaults_change", "pk")
def put_back(request: PageRequest, pk: int) -> HttpResponse:
    """Redirect to the preview that undoes the change."""
    try:
        shown = default_change_put_back(change_id=pk, actor=request.user).pk
    except RuleError as exc:
        messages.error(request, exc.message)
        shown = pk
    return redirect("cockpit_defaults_change", pk=shown)
