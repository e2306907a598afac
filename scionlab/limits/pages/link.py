"""The page of one Link: state, limits, history."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.contrib import messages
from django.core.paginator import Paginator
from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_safe

from bandwidth_config import RuleError
from scionlab.enforcement.status import LinkStatus, link_status
from scionlab.limits.pages.change_lines import ChangeLine, change_lines
from scionlab.limits.pages.consequences import Preview, preview_limits, say_saved, snapshot
from scionlab.limits.pages.limit_forms import LimitsForm, preset_limits
from scionlab.limits.pages.panels import LINK_PANELS, LinkPage
from scionlab.limits.pages.presenters import LinkPanel, history_of, is_live, policy_and_dates
from scionlab.limits.presets import offered
from scionlab.limits.update import link_update
from scionlab.platform.clock import database_now
from scionlab.testbed import selectors
from scionlab.testbed.conflict import conflict_on_page
from scionlab.testbed.models import Link, UserAS
from scionlab.web.pages.common import gone_is_404, nothing_typed
from scionlab.web.pages.forms import problems_of
from scionlab.web.pages.own_pages import PageRequest, form_on, own_page, taken_back
from scionlab.web.pages.stale_pages import StalePageError

HISTORY_SHOWN = 5  # on the page of the Link; pages of their own have all
HISTORY_ROWS = 25


def found_link(user_as: UserAS, link_id: int) -> Link | None:
    return next((link for link in selectors.links_of(user_as) if link.pk == link_id), None)


def link_or_404(request: PageRequest, pk: int, link_id: int) -> tuple[UserAS, Link]:
    """Raises `Http404`."""
    user_as = selectors.user_as_of(request.user, pk)
    link = found_link(user_as, link_id)
    if link is None:
        raise Http404("This AS has no such link.")
    return user_as, link


@require_safe
@own_page
def link_detail(request: PageRequest, pk: int, link_id: int) -> HttpResponse:
    user_as, link = link_or_404(request, pk, link_id)
    typed = taken_back(request)
    if typed is None:
        return _page(request, user_as, link, None)
    form = LimitsForm(typed, link=link, policy=selectors.policy())
    form.check()
    return _page(request, user_as, link, form)


@require_http_methods(["GET", "HEAD", "POST"])
@own_page
@form_on("link_detail", "pk", "link_id")
@gone_is_404
def link_bandwidth(request: PageRequest, pk: int, link_id: int) -> HttpResponse:
    """Save the limits, preview them, or fill in a preset. GET, as from a browser that loads a refused form again, leads
    back to the Link's page."""
    user_as = selectors.user_as_of(request.user, pk)
    if request.method != "POST":
        return redirect("link_detail", pk=user_as.pk, link_id=link_id)
    link = found_link(user_as, link_id)
    if link is None:
        if f"link-{link_id}-shown" not in request.POST:
            raise Http404
        messages.error(request, "The link was removed while this page was open. Nothing was saved.")
        return redirect("user_as_detail", pk=user_as.pk)
    form = LimitsForm(request.POST, link=link, policy=selectors.policy())
    limits = preset_limits(request.POST.get("preset", ""))
    if limits is not None:
        form = LimitsForm.filled_with(limits, request.POST, link=link, policy=selectors.policy())
    if limits is not None or "preview" in request.POST:
        form.check()
        return _page(request, user_as, link, form)
    before = snapshot(user_as, [link])
    if form.is_valid():
        try:
            saved = link_update(link_id=link.pk, limits=form.limits(), actor=request.user, shown=form.shown_values())
        except StalePageError as exc:
            conflict = conflict_on_page(exc, reader=request.user)
            if exc.is_untouched:
                return nothing_typed(request, conflict, "link_detail", pk, link_id)
            form.meet(conflict, exc.stored)
        except RuleError as exc:
            form.refuse(exc)
        else:
            say_saved(request, user_as, before, links=[saved])
            return redirect("link_detail", pk=pk, link_id=link_id)
    return _page(request, user_as, link, form, is_wrong=True)


@require_safe
@own_page
def link_preview(request: PageRequest, pk: int, link_id: int) -> HttpResponse:
    """Part of the page: preview of the limits in the query. Read-only."""
    _, link = link_or_404(request, pk, link_id)
    form = LimitsForm(request.GET, link=link, policy=selectors.policy())
    form.check()
    now = database_now()
    context = {"form": form, "preview": _preview(form, link_status(link, now=now))}
    return render(request, "limits/preview.html", context)


@require_safe
@own_page
def link_history(request: PageRequest, pk: int, link_id: int) -> HttpResponse:
    user_as, link = link_or_404(request, pk, link_id)
    changes = Paginator(history_of(link), HISTORY_ROWS).get_page(request.GET.get("page"))
    minutes = change_lines(link, changes.object_list)
    context = {
        "nav": "ases",
        "user_as": user_as,
        "link": link,
        "page": changes,
        "minutes": minutes,
        "drawn": any(one.lines for one in minutes),
        "kept_days": settings.USAGE_KEEP_10S_DAYS,
    }
    return render(request, "limits/history.html", context)


def _preview(form: LimitsForm, status: LinkStatus) -> Preview | None:
    if not form.is_valid():
        return None
    return preview_limits(status, form.limits(), now=database_now())


def _page(
    request: PageRequest, user_as: UserAS, link: Link, form: LimitsForm | None, *, is_wrong: bool = False
) -> HttpResponse:
    """`form` None: an initial one. At most eleven statements including those that found the Link."""
    now = database_now()
    beside = {name: one for panel in LINK_PANELS for name, one in panel.beside(link).items()}
    policy, since = policy_and_dates(link, beside=beside)
    form = LimitsForm(link=link, policy=policy) if form is None else form
    status = link_status(link, now=now)
    possible, too_fast = offered(form.maximum_kbit)
    context: dict[str, Any] = {
        "nav": "ases",
        "user_as": user_as,
        "link": link,
        "row": LinkPanel(status, now, since),
        "form": form,
        "preview": _preview(form, status) if form.is_bound else None,
        "presets": possible,
        "presets_above": too_fast,
        "live": reverse("link_detail", args=[user_as.pk, link.pk]),
        "every_s": 2 if is_live([status]) else 5 if status.running else 10,
        "changes": [ChangeLine(one) for one in history_of(link)[:HISTORY_SHOWN]],
        "above": [],
        "below": [],
        "problems": list(problems_of(form, "")) if is_wrong else [],
        "now": now,
    }
    page = LinkPage(request, link, status, since, now)
    for panel in LINK_PANELS:
        found = panel.context_of(page)
        if found is not None:
            context.update(found)
            context["above" if panel.is_above else "below"].append(panel.template)
    return render(request, "limits/link.html", context, status=409 if form.conflict else 200)
