"""Shared by the views of pages."""

from __future__ import annotations

from collections.abc import Sequence
from functools import wraps
from typing import Any

from django.contrib import messages
from django.core.exceptions import ObjectDoesNotExist
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect

from scionlab.limits.pages.consequences import Snapshot, snapshot, surprises, what_happens_next
from scionlab.testbed import selectors
from scionlab.testbed.models import Link, UserAS
from scionlab.web.pages.conflict import Conflict
from scionlab.web.pages.own_pages import PageRequest, View


def gone_is_404(view: View) -> View:
    """404 for objects deleted between reading and locking."""

    @wraps(view)
    def wrapped(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        try:
            return view(request, *args, **kwargs)
        except ObjectDoesNotExist as exc:
            raise Http404 from exc

    return wrapped


def nothing_typed(request: PageRequest, conflict: Conflict, page: str, *keys: int) -> HttpResponse:
    """An outdated page without changes: nothing to decide or overwrite."""
    messages.warning(request, f"You made no changes, so nothing was saved. {conflict.sentence}")
    return redirect(page, *keys)


def say_saved(
    request: PageRequest,
    user_as: UserAS,
    before: Snapshot | None,
    *,
    links: Sequence[Link] | None = None,
    done: str = "Saved.",
) -> None:
    """Add messages about the consequences of the save; `links` avoids reading again."""
    after = snapshot(user_as if links is not None else selectors.user_as_of(request.user, user_as.pk), links)
    messages.success(request, " ".join([done, *what_happens_next(before, after)]))
    for warning in surprises(before, after):
        messages.warning(request, warning)
