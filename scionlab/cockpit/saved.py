"""Saved filters of the cockpit's lists, per administrator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from django.contrib import messages
from django.http import HttpResponse, QueryDict
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.http import urlencode
from django.views.decorators.http import require_POST

from bandwidth_config import RuleError
from scionlab.cockpit.access import staff_page
from scionlab.models import SavedFilter
from scionlab.pages.common import gone_is_404
from scionlab.pages.own_pages import PageRequest, form_on

# Fields of the filter by URL name of the list. The overview has none: it already takes 10 statements.
KNOWN: Final[Mapping[str, tuple[str, ...]]] = {
    "cockpit_not_enforced": ("why", "ap", "sort"),
    "cockpit_history": ("q", "kind", "until", "ap", "link"),
    "cockpit_traffic": ("month", "ap", "sort"),
    "cockpit_limits": ("ap", "q", "owner", "above"),
    "cockpit_defaults": ("q",),
}
MOST: Final = 20  # per list
_LONGEST = 150


@dataclass(frozen=True)
class Saved:
    """Saved filters of a user for one list, and the filter of the page ("" if none or invalid)."""

    view: str
    query: str
    rows: list[SavedFilter]

    @property
    def page(self) -> str:
        return reverse(self.view)

    @property
    def is_new(self) -> bool:
        return bool(self.query) and self.query not in {one.query for one in self.rows}


def saved_for(request: PageRequest, view: str) -> Saved:
    """One SQL statement."""
    asked = {name: str(value) for name, value in request.GET.items() if name in KNOWN[view]}
    try:
        query = query_of(view, asked)
    except RuleError:
        query = ""
    return Saved(view, query, list(SavedFilter.objects.filter(user=request.user, view=view)))


def query_of(view: str, asked: Mapping[str, str]) -> str:
    """Normalized query string without the page. Raises `RuleError` (`filter_unknown`, `filter_empty`)."""
    known = KNOWN.get(view, ())
    if not known or set(asked) - {*known, "page"} or any(len(value) > _LONGEST for value in asked.values()):
        raise RuleError("filter_unknown", "This is not a filter of the list. Choose it on the page and save it there.")
    found = [(name, value) for name in known if (value := asked.get(name, "").strip())]
    if not found:
        raise RuleError("filter_empty", "There is nothing to save: the list is not filtered.")
    return urlencode(found)


@require_POST
@staff_page
@form_on("cockpit")
def save(request: PageRequest) -> HttpResponse:
    """Save a filter; one with the same name is replaced."""
    view, name = request.POST.get("view", ""), " ".join(request.POST.get("name", "").split())
    try:
        query = query_of(view, QueryDict(request.POST.get("query", "")).dict())
        if not 0 < len(name) <= 40:
            raise RuleError("filter_name", "A name has 1 to 40 characters. Enter one.")
        rows = SavedFilter.objects.filter(user=request.user, view=view)
        if rows.exclude(name=name).count() >= MOST:
            raise RuleError("filter_many", f"There are {MOST} saved filters of this list. Delete one first.")
    except RuleError as exc:
        messages.error(request, exc.message)
        return redirect(view if view in KNOWN else "cockpit")
    SavedFilter.objects.update_or_create(user=request.user, view=view, name=name, defaults={"query": query})
    return redirect(f"{reverse(view)}?{query}")


@require_POST
@staff_page
@form_on("cockpit")
@gone_is_404
def delete(request: PageRequest, pk: int) -> HttpResponse:
    row = SavedFilter.objects.get(pk=pk, user=request.user)
    row.delete()
    return redirect(row.view if row.view in KNOWN else "cockpit")
