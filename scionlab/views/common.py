"""What the views of the pages share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import ObjectDoesNotExist
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils import timezone
from django.views.decorators.cache import never_cache

from scionlab import selectors
from scionlab.conflict import Conflict
from scionlab.consequences import Snapshot, snapshot, surprises, what_happens_next
from scionlab.local_time import zone_of
from scionlab.models import Link, User, UserAS
from scionlab.retry import retried

View = Callable[..., HttpResponse]


class PageRequest(HttpRequest):
    """A request of somebody who is logged in."""

    user: User


def own_page(view: View) -> View:
    """For who is logged in, never from a cache, with times in the zone of their profile. A page saves once."""

    @wraps(view)
    def wrapped(request: PageRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        with timezone.override(zone_of(request.user)):
            return retried(view)(request, *args, **kwargs)

    return never_cache(login_required(wrapped))


def gone_is_404(view: View) -> View:
    """What somebody else deleted between our look and our lock is not found, like what was never there."""

    @wraps(view)
    def wrapped(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        try:
            return view(request, *args, **kwargs)
        except ObjectDoesNotExist as exc:
            raise Http404 from exc

    return wrapped


def nothing_typed(request: PageRequest, conflict: Conflict, page: str, *keys: int) -> HttpResponse:
    """An old page was saved as it stood: there is nothing to decide, and nothing of somebody else's is undone."""
    messages.warning(request, f"You had changed nothing, so nothing was saved. {conflict.sentence} That stays.")
    return redirect(page, *keys)


def say_saved(
    request: PageRequest,
    user_as: UserAS,
    before: Snapshot | None,
    *,
    links: Sequence[Link] | None = None,
    done: str = "Saved.",
) -> None:
    """Says what happens next, of what was stored: `links`, or read anew."""
    after = snapshot(user_as if links is not None else selectors.user_as_of(request.user, user_as.pk), links)
    messages.success(request, " ".join([done, *what_happens_next(before, after)]))
    for warning in surprises(before, after):
        messages.warning(request, warning)
