"""Many attachment points' defaults changed at once, in three pages: choose, confirm the preview, see what was done."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from bandwidth_config import RuleError
from scionlab.cockpit.access import staff_page
from scionlab.cockpit.bulk_views import FORMER_SHOWN, ROWS, ticked_ids
from scionlab.cockpit.forms import DefaultOperationForm
from scionlab.cockpit.paging import page_of
from scionlab.links.bulk import BulkChangedError
from scionlab.links.bulk_defaults import (
    DEFAULTS,
    Affected,
    affected_by,
    default_lines_of,
    defaults_apply,
    defaults_preview,
    defaults_put_back,
    defaults_refresh,
)
from scionlab.links.default_plan import DefaultLine
from scionlab.models import AttachmentPoint, BulkChange, selectors
from scionlab.pages.common import gone_is_404
from scionlab.pages.own_pages import PageRequest, form_on, taken_back

# --- choose -----------------------------------------------------------------------------------------------------


@require_http_methods(["GET", "HEAD", "POST"])
@staff_page
def choose(request: PageRequest) -> HttpResponse:
    """The filter stands in the address, also of the POST that asks for a preview."""
    q = request.GET.get("q", "").strip()[:100]
    found = _found(q)
    typed = request.POST if request.method == "POST" else taken_back(request)
    form = DefaultOperationForm(typed)
    ticked, scope = (typed.getlist("ap"), typed.get("scope", "all")) if typed else ([], "all")
    if request.method == "POST" and form.is_valid():
        only = ticked_ids(ticked)
        chosen = [ap for ap in found if scope == "all" or ap.pk in only]
        try:
            change = defaults_preview(
                ap_ids=[ap.pk for ap in chosen],
                operation=form.cleaned_data["operation"],
                chosen=_words(q, scope),
                actor=request.user,
            )
        except RuleError as exc:
            form.add_error(None, exc.message)
        else:
            return redirect("cockpit_defaults_change", pk=change.pk)
    policy = selectors.policy()
    page = page_of(request, found, ROWS)
    context = {
        "tab": "defaults",
        "nav": "cockpit",
        "q": q,
        "form": form,
        "page": page,
        "rows": [(ap, ap.default_in_force(policy)) for ap in page],
        "policy": policy,
        "ticked": set(ticked),
        "scope": scope,
        "found": len(found),
        "previous": BulkChange.objects.filter(about=DEFAULTS).exclude(applied_at=None).defer("lines")[:FORMER_SHOWN],
    }
    return render(request, "cockpit/defaults.html", context)


def _found(q: str) -> list[AttachmentPoint]:
    aps = AttachmentPoint.objects.select_related("AS__isd").order_by("AS__isd__isd_id", "AS__as_id")
    return [ap for ap in aps if q.lower() in f"{ap.AS.isd_as} {ap.AS.label}".lower()]


def _words(q: str, scope: str) -> str:
    filtered = f" with {q}" if q else ""
    return f"all attachment points{filtered}" if scope == "all" else f"selected attachment points{filtered}"


# --- preview, and what was done ---------------------------------------------------------------------------------


@require_safe
@staff_page
@gone_is_404
def show(request: PageRequest, pk: int) -> HttpResponse:
    return _change_page(request, pk, reason=(taken_back(request) or QueryDict()).get("reason", ""))


def _change_page(request: PageRequest, pk: int, **more: Any) -> HttpResponse:
    change = BulkChange.objects.select_related("created_by", "puts_back").get(pk=pk, about=DEFAULTS)
    lines, marked = default_lines_of(change), set(more.get("marked", ()))
    lines.sort(key=lambda line: (line.ap_id not in marked, bool(line.skipped), line.ap_id))
    changed = [line for line in lines if line.is_change]
    affected = {} if change.applied_at else affected_by(changed)
    page = page_of(request, lines, ROWS)
    aps = AttachmentPoint.objects.select_related("AS__isd").in_bulk([line.ap_id for line in page])
    context = {
        "tab": "defaults",
        "nav": "cockpit",
        "change": change,
        "changed": len(changed),
        "left_out": len(lines) - len(changed),
        "blocked": sum(line.new_maximum_kbit == 0 != line.old_maximum_kbit for line in changed),
        "links": sum(one.links for one in affected.values()),
        "held": sum(one.held for one in affected.values()),
        "owners": len(set().union(*(one.owners for one in affected.values()))),
        "page": page,
        "rows": [_row(line, aps, affected.get(line.ap_id, Affected()), marked) for line in page],
        "put_back_by": change.put_back_by.exclude(applied_at=None).defer("lines").first(),
        **more,
    }
    return render(request, "cockpit/default_change.html", context)


def _row(line: DefaultLine, aps: dict[int, AttachmentPoint], affected: Affected, marked: set[int]) -> dict[str, Any]:
    return {"line": line, "ap": aps.get(line.ap_id), "affected": affected, "is_marked": line.ap_id in marked}


@require_POST
@staff_page
@form_on("cockpit_defaults_change", "pk")
@gone_is_404
def apply(request: PageRequest, pk: int) -> HttpResponse:
    reason = request.POST.get("reason", "").strip()[:200]
    try:
        change = defaults_apply(bulk_id=pk, actor=request.user, reason=reason)
    except BulkChangedError as exc:
        marked = defaults_refresh(bulk_id=pk)
        return _change_page(request, pk, refused=exc.message, marked=marked, reason=reason)
    except RuleError as exc:
        return _change_page(request, pk, problem=exc.message, reason=reason)
    count = change.result["attachment_points"]
    words = "1 attachment point has" if count == 1 else f"{count} attachment points have"
    messages.success(request, f"Done: {words} a new default. The limits follow within seconds; nothing restarts.")
    return redirect("cockpit_defaults_change", pk=pk)


@require_POST
@staff_page
@form_on("cockpit_defaults_change", "pk")
@gone_is_404
def put_back(request: PageRequest, pk: int) -> HttpResponse:
    """Leads to a preview like any other."""
    try:
        preview = defaults_put_back(bulk_id=pk, actor=request.user)
    except RuleError as exc:
        messages.error(request, exc.message)
        return redirect("cockpit_defaults_change", pk=pk)
    return redirect("cockpit_defaults_change", pk=preview.pk)
