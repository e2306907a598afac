"""The page on which a user requests a higher maximum of a Link; administrators answer in the cockpit."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from zoneinfo import ZoneInfo

from django import forms
from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods

from scionlab.accounts.models import MailKind
from scionlab.limits.exceptions import exception_request
from scionlab.limits.pages.link import link_or_404
from scionlab.platform.clock import database_now
from scionlab.platform.notation.bandwidth import parse_bandwidth_text
from scionlab.platform.notation.local_time import parse_local_time, write_local_time, zone_of
from scionlab.testbed import selectors
from scionlab.web.pages.common import gone_is_404
from scionlab.web.pages.forms import RuleField, RulesForm, TimeInput, problems_of, text_input
from scionlab.web.pages.own_pages import PageRequest, own_page, taken_back

_FIRST_END = timedelta(days=14)


class ExceptionForm(RulesForm):
    """Maximum, end, and reason. `limits.exceptions` has the bounds."""

    maximum_kbit = RuleField(
        parse_bandwidth_text,
        label="Maximum [kbit/s]",
        help_text="Per direction; you can also enter 1.5M or 10 Mbit/s.",
        widget=text_input(),
    )
    reason = forms.CharField(
        label="Reason", max_length=200, error_messages={"required": "Say what the bandwidth is for."}
    )

    def __init__(self, data: Any = None, *, zone: ZoneInfo, **kwargs: Any) -> None:
        now = database_now().replace(second=0, microsecond=0)
        initial = {"ends_at": write_local_time(now + _FIRST_END, zone)}
        super().__init__(data, auto_id="exception_%s", label_suffix="", initial=initial, **kwargs)
        self.fields["ends_at"] = RuleField(
            lambda text: parse_local_time(text, zone),
            label="Until",
            help_text=f"Time zone {zone.key}; it is {write_local_time(now, zone)} now.",
            widget=TimeInput(),
        )
        self.order_fields(("of", "maximum_kbit", "ends_at", "reason"))


@require_http_methods(["GET", "HEAD", "POST"])
@own_page
@gone_is_404
def exception_new(request: PageRequest, pk: int, link_id: int) -> HttpResponse:
    user_as, link = link_or_404(request, pk, link_id)
    is_sent = request.method == "POST"
    form = ExceptionForm(request.POST if is_sent else taken_back(request), zone=zone_of(request.user))
    if is_sent and form.is_valid():
        with form.refusing():
            exception_request(link_id=link.pk, actor=request.user, **form.cleaned_data)
            is_mailed = user_as.owner == request.user and request.user.accepts_mail(MailKind.CHANGED)
            where = (
                "We will email you their answer." if is_mailed else "Their answer will be in the history of this link."
            )
            messages.success(request, f"Sent to the administrators. {where}")
            return redirect("link_detail", pk=pk, link_id=link_id)
    context = {
        "nav": "ases",
        "user_as": user_as,
        "link": link,
        "form": form,
        "maximum_kbit": selectors.maximum_in_force(link),
        "problems": list(problems_of(form, "")) if is_sent else [],
    }
    return render(request, "limits/exception.html", context)
