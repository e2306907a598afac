"""Pages for logged-in users, and recovery of forms after a session has expired.

    form submitted, session expired ──▶ login page, which carries the input in a hidden field (nothing is stored)
    ──▶ logged in: kept in the new session ──▶ the page of the form, filled in, nothing saved ──▶ the user saves

A form whose CSRF token predates the login takes the second half of the way. Input is only shown to the user whose page
it was typed into: each form names them (`templates/web/parts/own_form.html`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, Final

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters

from scionlab.platform.notation.local_time import zone_of
from scionlab.platform.retry import retried
from scionlab.platform.throttles import ManyAtOnceError
from scionlab.web.pages.forms import LoginForm

if TYPE_CHECKING:
    from django.contrib.auth.models import _User as User  # the stubs' name of AUTH_USER_MODEL

View = Callable[..., HttpResponse]

MAX_TYPED_BYTES: Final = 65_536  # as submitted; the longest of our forms, 200 ticked boxes, has 4 kB
_IN_SESSION: Final = "typed"
_SECRET: Final = {"csrfmiddlewaretoken", "code", "credential"}


class PageRequest(HttpRequest):
    """A request of a logged-in user."""

    user: User


def start_page(user: User) -> str:
    """Name of the start page after login."""
    return "cockpit" if user.is_staff else "user_as_list"


def form_on(page: str, *names: str) -> Callable[[View], View]:
    """For a URL that only accepts a form: the name of the page with the form, and its arguments, which this URL has,
    too."""

    def mark(view: View) -> View:
        view.form_on = (page, *names)  # type: ignore[attr-defined]  # decorators around it copy it
        return view

    return mark


def own_page(view: View) -> View:
    """For logged-in users, never cached, with times in the zone of their profile."""

    @wraps(view)
    def wrapped(request: PageRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        with timezone.override(zone_of(request.user)):
            return retried(view)(request, *args, **kwargs)

    or_log_in: View = login_required(wrapped)

    @wraps(view)
    def answer(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        if request.method == "POST" and not request.user.is_authenticated:
            return _login_required(request, _page_of_form(request), _typed(request))
        return or_log_in(request, *args, **kwargs)

    answer.is_own = True  # type: ignore[attr-defined]  # for `csrf_failure`
    return never_cache(answer)


def taken_back(request: HttpRequest) -> QueryDict | None:
    """Input of this page from before the login; returned once. A view shows it and saves nothing."""
    kept = request.session.get(_IN_SESSION)
    is_behind = "X-Requested-With" in request.headers  # a page that refreshes itself in another tab
    if kept is None or kept["page"] != request.get_full_path() or request.method != "GET" or is_behind:
        return None
    del request.session[_IN_SESSION]
    return QueryDict(kept["typed"])


def keep_typed(request: HttpRequest, page: str, typed: str) -> None:
    """Store the input for `taken_back` on `page` in the new session, if it is the user's own."""
    written = QueryDict(typed[:MAX_TYPED_BYTES])
    if written.get("person") == str(request.user.pk):
        request.session[_IN_SESSION] = {"page": page, "typed": written.urlencode()}
        text = "Your session had expired; nothing was saved. Check the form and submit it again."
    else:
        text = "The form was opened by another account; nothing was saved. Check the page and fill it in again."
    messages.warning(request, text)


@sensitive_post_parameters()
def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponse:  # noqa: ARG001  Django's signature
    """Django's CSRF_FAILURE_VIEW. A form that predates the login leads back to its page. Only for forms of this site:
    cross-site forms are rejected."""
    match = request.resolver_match
    if match is None or request.headers.get("Origin") != f"{request.scheme}://{request.get_host()}":
        return render(request, "403_csrf.html", status=403)
    if match.view_name == "login":
        page, typed = _safe(request, request.POST.get("next", "")), request.POST.get("typed", "")
    elif hasattr(match.func, "is_own"):
        page, typed = _page_of_form(request), _typed(request)
    else:
        return render(request, "403_csrf.html", status=403)
    if not request.user.is_authenticated:
        return _login_required(request, page, typed)
    if typed:
        keep_typed(request, page, typed)
    return redirect(page or "front")


def _page_of_form(request: HttpRequest) -> str:
    match = request.resolver_match
    if match is None or not hasattr(match.func, "form_on"):
        return request.get_full_path()
    page, *names = match.func.form_on
    return reverse(page, kwargs={name: match.kwargs[name] for name in names})


def _safe(request: HttpRequest, page: str) -> str:
    is_ours = url_has_allowed_host_and_scheme(page, {request.get_host()}, require_https=request.is_secure())
    return page if is_ours else ""


def _typed(request: HttpRequest) -> str:
    """The submitted form without secrets; "" if too long."""
    written = request.POST.copy()
    for name in [name for name in written if "password" in name or name in _SECRET]:
        del written[name]
    text = written.urlencode()
    return text if len(text) <= MAX_TYPED_BYTES else ""


def _login_required(request: HttpRequest, page: str, typed: str) -> HttpResponse:
    """403 and not 200: nothing was done."""
    context = {"form": LoginForm(request), "next": page, "typed": typed, "is_expired": True}
    return render(request, "registration/login.html", context, status=403)


def many_at_once(exc: ManyAtOnceError) -> HttpResponse:
    headers = {"Retry-After": str(exc.wait)}
    return HttpResponse(f"{exc.detail}\n", status=429, content_type="text/plain; charset=utf-8", headers=headers)
