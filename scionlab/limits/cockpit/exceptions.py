"""Exceptions from the maximum in the cockpit: requests, exceptions in force, and granting."""

from __future__ import annotations

import re
from typing import Any

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST

from bandwidth_config import RuleError, format_kbit
from scionlab.accounts.models import MailKind, User
from scionlab.limits.exceptions import exception_decide, exception_end, exception_grant, people_of
from scionlab.limits.models import MaximumException
from scionlab.limits.pages.exceptions import ExceptionForm
from scionlab.platform.clock import database_now
from scionlab.platform.notation.local_time import zone_of
from scionlab.testbed import selectors
from scionlab.testbed.models import Link, UserAS
from scionlab.testbed.selectors import USER_LINKS
from scionlab.web.access import staff_page
from scionlab.web.pages.common import gone_is_404
from scionlab.web.pages.forms import RuleField, problems_of, text_input
from scionlab.web.pages.own_pages import PageRequest, form_on, taken_back
from scionlab.web.paging import page_of
from scionlab.web.typed import typed_text

ROWS = 40
_OF = ("user", "group", "user_as__isd", "asked_by", "decided_by")
_RELATIONS = (*_OF, *(f"link__interface_{end}__AS__{path}" for end in "ab" for path in ("isd", "useras__owner")))


def parse_of(text: str) -> User | UserAS | Link:
    """Parse the subject of an exception: an email address, an ISD-AS, or a Link by the interface of its user AS
    (`17-ffaa:1:1#2`). Raises `RuleError` (`exception_of`)."""
    text = text.strip()
    found: User | UserAS | Link | None = None
    isd_as, _, interface = text.partition("#")
    if "@" in text:
        found = User.objects.filter(email__iexact=text, is_active=True).first()
    elif re.fullmatch(r"[0-9]+-[0-9a-f:]+", isd_as, flags=re.ASCII | re.IGNORECASE):
        user_as = UserAS.objects.filter(selectors.as_named(isd_as)).first()
        found = user_as
        if "#" in text:
            number = int(interface) if re.fullmatch(r"[0-9]{1,4}", interface, flags=re.ASCII) else 0
            links = Link.objects.filter(USER_LINKS, interface_b__AS=user_as and user_as.pk)
            found = links.filter(interface_b__interface_id=number).first()
    if found is None:
        shown = text if len(text) <= 60 else f"{text[:57]}..."
        raise RuleError(
            "exception_of",
            f'There is no user, user AS or link "{shown}". Enter an email address, an ISD-AS such as 17-ffaa:1:1, or '
            "a link by its interface, such as 17-ffaa:1:1#1.",
        )
    return found


class GrantForm(ExceptionForm):
    of = RuleField(
        parse_of,
        label="For",
        help_text="An email address: all links of that user. An ISD-AS: all links of that AS. With its interface, such "
        "as 17-ffaa:1:1#1: that link.",
        widget=text_input(),
    )


@require_http_methods(["GET", "HEAD", "POST"])
@staff_page
def exceptions(request: PageRequest) -> HttpResponse:
    """Show pending requests, exceptions in force, and the form that grants one."""
    is_sent = request.method == "POST"
    form = GrantForm(request.POST if is_sent else taken_back(request), zone=zone_of(request.user))
    if is_sent and form.is_valid():
        with form.refusing():
            made = exception_grant(actor=request.user, **form.cleaned_data)
            messages.success(
                request, f"Granted: {made.of} may have up to {format_kbit(made.maximum_kbit)} within a minute."
            )
            return redirect("cockpit_exceptions")
    return _page(request, form, list(problems_of(form, "")) if is_sent else [])


@require_POST
@staff_page
@form_on("cockpit_exceptions")
@gone_is_404
def decide(request: PageRequest, pk: int) -> HttpResponse:
    approve = "approve" in request.POST
    answer = typed_text(request, "answer")
    try:
        found = exception_decide(exception_id=pk, approve=approve, answer=answer, actor=request.user)
    except RuleError as exc:
        messages.error(request, exc.message)
    else:
        to = people_of(found)[0] if approve or found.asked_by is None else found.asked_by
        told = " The user gets an email." if to.accepts_mail(MailKind.CHANGED) else ""
        messages.success(request, f"{found.get_state_display().capitalize()}: {found.of}.{told}")
    return redirect("cockpit_exceptions")


@require_POST
@staff_page
@form_on("cockpit_exceptions")
@gone_is_404
def end(request: PageRequest, pk: int) -> HttpResponse:
    found = exception_end(exception_id=pk, actor=request.user)
    messages.success(request, f"Ended: {found.of}. Limits above the maximum are clamped within a minute.")
    return redirect("cockpit_exceptions")


def _page(request: PageRequest, form: GrantForm, problems: list[Any]) -> HttpResponse:
    rows = MaximumException.objects.select_related(*_RELATIONS).filter(ends_at__gt=database_now())
    asked = rows.filter(state=MaximumException.State.ASKED).order_by("pk")[:ROWS]
    page = page_of(request, rows.filter(state=MaximumException.State.APPROVED).order_by("ends_at", "pk"), ROWS)
    context = {
        "tab": "exceptions",
        "asked": asked,
        "page": page,
        "form": form,
        "problems": problems,
    }
    return render(request, "limits/exceptions.html", context)
