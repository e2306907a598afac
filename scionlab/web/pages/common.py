"""Shared by the views of pages."""

from __future__ import annotations

from functools import wraps
from typing import Any

from django.contrib import messages
from django.core.exceptions import ObjectDoesNotExist
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect

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
