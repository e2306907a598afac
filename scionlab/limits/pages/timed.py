"""Timed limits: preview, start, and cancel."""

from __future__ import annotations

from datetime import datetime
from typing import Any, get_args

from django.contrib import messages
from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from scionlab.enforcement.status import link_status
from scionlab.limits.pages.consequences import SOON, local, preview_timed, takes_effect
from scionlab.limits.pages.limit_forms import TimedForm, preset_limits
from scionlab.limits.pages.link import link_or_404
from scionlab.limits.pages.presenters import LinkPanel
from scionlab.limits.presets import offered
from scionlab.limits.profiles import Kind
from scionlab.limits.timed_limit import timed_limit_cancel, timed_limit_create
from scionlab.platform.clock import database_now
from scionlab.platform.notation.local_time import zone_of
from scionlab.testbed import selectors
from scionlab.testbed.models import Link, TimedLimit, UserAS
from scionlab.web.pages.common import gone_is_404
from scionlab.web.pages.forms import problems_of
from scionlab.web.pages.own_pages import PageRequest, form_on, own_page, taken_back
from scionlab.web.pages.plots import profile_plot

KINDS: dict[Kind, tuple[str, str]] = {
    "constant": ("Constant", "Constant limits, for example those of a slow link."),
    "stair": ("Stair", "From one pair of limits to another in equal steps."),
    "square": ("Square wave", "Two pairs of limits in turn, as on an unstable link."),
    "outage": ("Outage", "Nothing passes, as if the link were down."),
}


@require_http_methods(["GET", "HEAD", "POST"])
@own_page
@gone_is_404
def timed_new(request: PageRequest, pk: int, link_id: int) -> HttpResponse:
    """GET shows the form of a kind, POST previews or starts it."""
    user_as, link = link_or_404(request, pk, link_id)
    now = database_now()
    if request.method != "POST":
        typed = taken_back(request)
        form = _form(request, link, typed, (typed or request.GET).get("kind", "constant"), now)
        return _page(request, user_as, link, form, now)
    data = request.POST.copy()
    limits = preset_limits(data.get("preset", ""))
    if limits is not None:
        data["timed-to_user"], data["timed-from_user"] = (str(kbit) for kbit in limits)
    form = _form(request, link, data, data.get("kind", "constant"), now)
    is_start = "start" in data and limits is None
    if is_start and form.is_valid():
        with form.refusing():
            made = timed_limit_create(
                link_id=link.pk,
                profile=form.profile,
                begins_at=form.beginning(),
                ends_at=form.ending(),
                actor=request.user,
            )
            is_later = made.begins_at > database_now()  # not `now`: it may have begun since
            done, effect = "Started", takes_effect(link, now=now)
            if is_later:
                done, begins = "Scheduled", f"from {local(made.begins_at)} on"
                effect = begins if effect == SOON else f"{begins}; {effect}"
            until = f"until {local(made.ends_at)}, when the limits are again those without it"
            messages.success(request, f"{done}: {effect}; {until}; nothing restarts.")
            return redirect("link_detail", pk=pk, link_id=link_id)
    return _page(request, user_as, link, form, now, is_wrong=is_start)


@require_safe
@own_page
def timed_preview(request: PageRequest, pk: int, link_id: int) -> HttpResponse:
    """Part of the page: plot and effect of the query. Read-only."""
    _, link = link_or_404(request, pk, link_id)
    now = database_now()
    form = _form(request, link, request.GET, request.GET.get("kind", "constant"), now)
    return render(request, "limits/timed_preview.html", {"form": form, **_preview(form, link, now)})


@require_POST
@own_page
@form_on("link_detail", "pk", "link_id")
@gone_is_404
def timed_cancel(request: PageRequest, pk: int, link_id: int, timed_id: int) -> HttpResponse:
    _, link = link_or_404(request, pk, link_id)
    if not TimedLimit.objects.filter(pk=timed_id, link=link).exists():  # `link.timed_limits` has no cancelled ones
        raise Http404
    found = timed_limit_cancel(timed_limit_id=timed_id, actor=request.user)
    if found.cancelled_at is None:
        messages.warning(request, f"It had already ended at {local(found.ends_at)}. Nothing was cancelled.")
    elif found.is_cancelled_before:
        messages.success(request, "Cancelled before it started. The limits do not change.")
    else:
        effect = takes_effect(link, now=database_now())
        messages.success(request, f"Cancelled. The regular limits are restored; this {effect}.")
    return redirect("link_detail", pk=pk, link_id=link_id)


def _form(request: PageRequest, link: Link, data: Any, kind: str, now: datetime) -> TimedForm:
    found: Kind = next((one for one in get_args(Kind) if one == kind), "constant")
    return TimedForm(data, kind=found, link=link, policy=selectors.policy(), zone=zone_of(request.user), now=now)


def _preview(form: TimedForm, link: Link, now: datetime) -> dict[str, Any]:
    if not form.is_bound or not form.is_valid():
        return {}
    steps, duration_s = form.profile.steps, form.profile.duration_s
    status = link_status(link, now=now)
    return {
        "preview": preview_timed(status, steps, begins_at=form.beginning(), duration_s=duration_s, now=now),
        "plot": profile_plot(steps, duration_s, standing=link.enforced),
        "steps": steps,
    }


def _page(
    request: PageRequest, user_as: UserAS, link: Link, form: TimedForm, now: datetime, *, is_wrong: bool = False
) -> HttpResponse:
    possible, too_fast = offered(form.maximum_kbit) if form.kind == "constant" else ([], [])
    context = {
        "nav": "ases",
        "user_as": user_as,
        "link": link,
        "row": LinkPanel(link_status(link, now=now), now),
        "form": form,
        "kinds": [(key, *words) for key, words in KINDS.items()],
        "kind_text": KINDS[form.kind][1],
        "presets": possible,
        "presets_above": too_fast,
        "problems": list(problems_of(form, "")) if is_wrong else [],
        "now": now,
        **_preview(form, link, now),
    }
    return render(request, "limits/timed.html", context)
