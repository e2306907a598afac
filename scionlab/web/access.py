"""Access to the cockpit, for administrators only."""

from __future__ import annotations

from functools import wraps
from typing import Any

from django.core.exceptions import PermissionDenied
from django.http import HttpResponse

from scionlab.web.pages.own_pages import PageRequest, View, own_page


def staff_page(view: View) -> View:
    """Decorate a view: anonymous users are redirected to the login, others than administrators get 403."""

    @wraps(view)
    def wrapped(request: PageRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        if not request.user.is_staff:
            raise PermissionDenied("The cockpit is for administrators.")
        return view(request, *args, **kwargs)

    return own_page(wrapped)
