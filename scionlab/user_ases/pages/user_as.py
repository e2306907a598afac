"""A user's ASes: list, detail, create, edit, (de)activate, delete and download."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import Any

from django.contrib import messages
from django.db.models import Max
from django.http import HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from bandwidth_config import RuleError
from scionlab.delivery.installed import effect_of
from scionlab.limits.pages.consequences import local, say_saved, snapshot
from scionlab.limits.pages.presenters import LinkPanel, is_live, statuses_of
from scionlab.platform.clock import database_now
from scionlab.platform.notation.bandwidth import parse_bandwidth_text
from scionlab.testbed import selectors
from scionlab.testbed.conflict import conflict_on_page
from scionlab.testbed.models import HeldLinkEnd, UserAS
from scionlab.testbed.models.installed import FILES_WORDS, files_state
from scionlab.user_ases.download import UNAVAILABLE, download_of
from scionlab.user_ases.pages.attachment_point_field import Choice
from scionlab.user_ases.pages.editor import UserASEditor
from scionlab.user_ases.pages.forms import AttachmentForm
from scionlab.user_ases.pages.panels import AS_LINES, LINK_PARTS
from scionlab.user_ases.user_as import (
    check_shown,
    user_as_change,
    user_as_create,
    user_as_delete,
    user_as_update,
)
from scionlab.web.pages.common import gone_is_404, nothing_typed
from scionlab.web.pages.forms import Problem
from scionlab.web.pages.own_pages import PageRequest, form_on, own_page, taken_back
from scionlab.web.pages.stale_pages import StalePageError


@require_safe
@own_page
def user_as_list(request: PageRequest) -> HttpResponse:
    now = database_now()
    ases = selectors.user_ases_of(request.user)
    statuses = [statuses_of(selectors.links_of(user_as), now=now) for user_as in ases]
    lines = [(line.template, line.of(ases)) for line in AS_LINES]
    rows = [
        {
            "user_as": user_as,
            "statuses": found,
            "lines": [(template, by_as[user_as.pk]) for template, by_as in lines if user_as.pk in by_as],
        }
        for user_as, found in zip(ases, statuses, strict=True)
    ]
    live = is_live(chain.from_iterable(statuses))
    context = {"nav": "ases", "rows": rows, "live": request.path if rows else "", "every_s": 2 if live else 10}
    return render(request, "user_ases/list.html", context)


@require_safe
@own_page
def user_as_detail(request: PageRequest, pk: int) -> HttpResponse:
    user_as, now = selectors.user_as_of(request.user, pk), database_now()
    links = selectors.links_of(user_as)
    statuses = statuses_of(links, now=now)
    parts = [(part.template, part.of(links, now)) for part in LINK_PARTS]
    context = {
        "nav": "ases",
        "user_as": user_as,
        "rows": [
            {
                "panel": LinkPanel(status, now),
                "parts": [(template, of[status.link.pk]) for template, of in parts if status.link.pk in of],
            }
            for status in statuses
        ],
        "live": request.path,
        "every_s": 2 if is_live(statuses) else 10,
        **_scion_files(user_as),
        "typed_kbit": (taken_back(request) or QueryDict()).get("bandwidth_kbit", ""),
        "is_active": any(status.link.active for status in statuses),
        "now": now,
    }
    return render(request, "user_ases/detail.html", context)


def _scion_files(user_as: UserAS) -> dict[str, Any]:
    """Which service manages the SCION files of its host, and what a fetch would do to them."""
    host = selectors.hosts_of([user_as]).get(user_as.pk)
    if host is None:
        return {}
    state = files_state(host)
    effect = effect_of(host, host.installed_files) if state in {"other", "taken_over"} else None
    return {"files": state, "files_words": FILES_WORDS[state], "effect": effect}


# --- create and edit ------------------------------------------------------------------------------------------


@require_http_methods(["GET", "HEAD", "POST"])
@own_page
def user_as_new(request: PageRequest) -> HttpResponse:
    choices = _choices(None)
    if request.method != "POST":
        return _editor(request, _typed_before(request, choices, None) or UserASEditor.blank(choices))
    editor = _posted(request, choices, user_as=None)
    if "save" in request.POST and editor.is_valid(reader=request.user):
        try:
            user_as = user_as_create(owner=request.user, actor=request.user, **editor.values())
        except RuleError as exc:
            editor.refuse(exc)
        else:
            say_saved(request, user_as, None, done=f"{user_as.isd_as} was created.")
            return redirect("user_as_detail", pk=user_as.pk)
    return _editor(request, editor)


@require_http_methods(["GET", "HEAD", "POST"])
@own_page
@gone_is_404
def user_as_edit(request: PageRequest, pk: int) -> HttpResponse:
    user_as = selectors.user_as_of(request.user, pk)
    choices = _choices(user_as)
    if request.method != "POST":
        stored = UserASEditor.stored(user_as, selectors.links_of(user_as), choices)
        return _editor(request, _typed_before(request, choices, user_as) or stored)
    editor = _posted(request, choices, user_as=user_as)
    if "save" not in request.POST:
        return _editor(request, editor)
    before = snapshot(user_as)
    try:
        if editor.is_valid(reader=request.user):
            user_as_update(user_as_id=user_as.pk, actor=request.user, shown=editor.shown_values(), **editor.values())
            say_saved(request, user_as, before)
            return redirect("user_as_detail", pk=user_as.pk)
        # An error may be caused by outdated input (a deleted Link); the conflict says more.
        check_shown(user_as, shown=editor.shown_values())
    except StalePageError as exc:
        conflict = conflict_on_page(exc, reader=request.user)
        if exc.is_untouched:
            return nothing_typed(request, conflict, "user_as_detail", pk)
        editor = UserASEditor.in_conflict(request.POST, choices, user_as=user_as, conflict=conflict, stored=exc.stored)
    except RuleError as exc:
        editor.refuse(exc)
    return _editor(request, editor)


@require_safe
@own_page
def attachment_preview(request: PageRequest) -> HttpResponse:
    """Part of the page: preview of the bandwidths of one row. Read-only."""
    row = request.GET.get("row", "")
    form = AttachmentForm(request.GET, prefix=row, choices=_choices(None))
    link = selectors.link_at(request.user, form["link_id"].value(), form["attachment_point"].value())
    if link is not None:
        form.stored, form.exception_kbit = link.requested, link.exception_kbit
    return render(request, "user_ases/understood.html", {"limits": form.understood, "row": form})


def _choices(user_as: UserAS | None) -> list[Choice]:
    policy = selectors.policy()
    return [Choice.of(ap, policy, user_as=user_as) for ap in selectors.open_attachment_points()]


def _typed_before(request: PageRequest, choices: list[Choice], user_as: UserAS | None) -> UserASEditor | None:
    """Input from before the login."""
    typed = taken_back(request)
    return None if typed is None else UserASEditor.rearranged(typed, choices, user_as=user_as)


def _posted(request: PageRequest, choices: list[Choice], *, user_as: UserAS | None) -> UserASEditor:
    """Buttons that add or remove a row validate and save nothing."""
    kind = UserASEditor.submitted if "save" in request.POST else UserASEditor.rearranged
    return kind(request.POST, choices, user_as=user_as)


def _editor(request: PageRequest, editor: UserASEditor) -> HttpResponse:
    context = {"nav": "ases", "editor": editor, "user_as": editor.user_as, "problems": editor.problems}
    return render(request, "user_ases/form.html", context, status=409 if editor.conflict else 200)


# --- limit, activate, delete, download -------------------------------------------------------------------------------


@require_POST
@own_page
@form_on("user_as_detail", "pk")
@gone_is_404
def user_as_limit(request: PageRequest, pk: int) -> HttpResponse:
    typed = request.POST.get("bandwidth_kbit", "")
    return _change(request, pk, "Saved.", lambda: {"bandwidth_kbit": parse_bandwidth_text(typed)})


@require_POST
@own_page
@form_on("user_as_detail", "pk")
@gone_is_404
def user_as_active(request: PageRequest, pk: int) -> HttpResponse:
    active = request.POST.get("active") == "1"
    return _change(request, pk, "Activated." if active else "Deactivated.", lambda: {"active": active})


def _change(request: PageRequest, pk: int, done: str, values: Callable[[], dict[str, Any]]) -> HttpResponse:
    """Of the AS as a whole; `values` may raise `RuleError`."""
    user_as = selectors.user_as_of(request.user, pk)
    before = snapshot(user_as)
    try:
        user_as_change(user_as_id=user_as.pk, actor=request.user, **values())
    except RuleError as exc:
        messages.error(request, exc.message)
    else:
        say_saved(request, user_as, before, done=done)
    return redirect("user_as_detail", pk=user_as.pk)


@require_http_methods(["GET", "HEAD", "POST"])
@own_page
@gone_is_404
def user_as_delete_page(request: PageRequest, pk: int) -> HttpResponse:
    """GET asks, POST deletes."""
    user_as = selectors.user_as_of(request.user, pk)
    problems: list[Problem] = []
    if request.method == "POST":
        isd_as, ids = user_as.isd_as, [link.pk for link in selectors.links_of(user_as)]
        try:
            user_as_delete(user_as_id=user_as.pk, actor=request.user)
        except RuleError as exc:
            problems = [Problem("main", "", exc.message)]
        else:
            held = HeldLinkEnd.objects.filter(link_id__in=ids, end__isnull=False)
            due_at = held.aggregate(last=Max("host__restart_due_at"))["last"]
            when = f"after the next restart of SCION there, by {local(due_at)}" if due_at else "with their next poll"
            messages.success(request, f"{isd_as} was deleted. The attachment points remove the links {when}.")
            return redirect("user_as_list")
    context: dict[str, Any] = {"nav": "ases", "user_as": user_as, "links": selectors.links_of(user_as)}
    return render(request, "user_ases/delete.html", context | {"problems": problems})


@require_safe
@own_page
@gone_is_404
def user_as_download(request: PageRequest, pk: int) -> HttpResponse:
    """It contains the host's secret, so it is never cached."""
    user_as = selectors.user_as_of(request.user, pk)
    response = download_of(user_as)
    if response is None:
        messages.error(request, UNAVAILABLE)
        return redirect("user_as_detail", pk=user_as.pk)
    return response
