"""Joint tests of an AS: schedule, result, cancel."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from django import forms
from django.contrib import messages
from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from bandwidth_config import RuleError
from scionlab.limits.pages.consequences import local
from scionlab.linktests.joint_plan import DEFAULT_S, MAX_S, MIN_S
from scionlab.linktests.joint_report import JointStatus, status_of_joint, with_parts
from scionlab.linktests.joint_test import joint_test_cancel, joint_test_create
from scionlab.linktests.models import JointTest
from scionlab.linktests.pages.joint_panel import joint_panel
from scionlab.linktests.pages.test_forms import AHEAD
from scionlab.platform.clock import database_now
from scionlab.platform.notation.local_time import parse_local_time, write_local_time, zone_of
from scionlab.testbed import selectors
from scionlab.testbed.models import UserAS
from scionlab.web.pages.common import gone_is_404
from scionlab.web.pages.forms import RuleField, TimeInput, problems_of, text_input
from scionlab.web.pages.own_pages import PageRequest, form_on, own_page, taken_back

SHOWN = 20  # per AS, newest first


class JointTestForm(forms.Form):
    """The service checks what is allowed."""

    seconds = forms.IntegerField(
        label="Time for each direction [s]",
        required=False,
        widget=text_input(inputmode="numeric", placeholder=str(DEFAULT_S)),
        help_text=f"{MIN_S} to {MAX_S} s.",
        error_messages={"invalid": "Enter a whole number."},
    )
    begins_at = RuleField(str, label="Start", widget=TimeInput())

    def __init__(self, data: Mapping[str, Any] | None = None, *, zone: ZoneInfo, now: datetime) -> None:
        super().__init__(data, prefix="joint")
        self.zone, self.now = zone, now
        here = f"Time zone {zone.key}; it is {write_local_time(now.replace(second=0), zone)} now."
        self.fields["begins_at"].help_text = f"Leave empty to start in a minute. {here}"

    def clean_begins_at(self) -> datetime:
        text = self.cleaned_data["begins_at"]
        try:
            return parse_local_time(text, self.zone) if text else self.now + AHEAD
        except RuleError as exc:
            raise forms.ValidationError(exc.message, code=exc.code) from exc

    def refuse(self, error: RuleError) -> None:
        field = getattr(error, "field", None)
        self.add_error(field if field in self.fields else None, forms.ValidationError(error.message, code=error.code))


@require_http_methods(["GET", "HEAD", "POST"])
@own_page
@gone_is_404
def joint_test_new(request: PageRequest, pk: int) -> HttpResponse:
    """GET shows the form and earlier joint tests, POST reserves a time."""
    user_as = selectors.user_as_of(request.user, pk)
    links = [one for one in selectors.links_of(user_as) if one.active]
    now = database_now()
    is_sent = request.method == "POST"
    typed = request.POST if is_sent else taken_back(request)
    form = JointTestForm(typed, zone=zone_of(request.user), now=now)
    if is_sent and form.is_valid():
        try:
            made = joint_test_create(user_as_id=user_as.pk, actor=request.user, **form.cleaned_data)
        except RuleError as exc:
            form.refuse(exc)
        else:
            return redirect("joint_test", pk=pk, joint_id=made.pk)
    rows = with_parts(JointTest.objects.filter(user_as=user_as))[:SHOWN]
    context = {
        "nav": "ases",
        "user_as": user_as,
        "links": links,
        "form": form,
        "command": f"scionlab-bw test {user_as.isd_as} --all-links",
        "problems": list(problems_of(form, "")) if is_sent else [],
        "tests": [status_of_joint(one, now=now) for one in rows],
    }
    is_taken = is_sent and form.has_error("begins_at", "test_slot_taken")
    return render(request, "linktests/joint_test_new.html", context, status=409 if is_taken else 200)


@require_safe
@own_page
def joint_test(request: PageRequest, pk: int, joint_id: int) -> HttpResponse:
    user_as = selectors.user_as_of(request.user, pk)
    found = _status_or_404(user_as, joint_id)
    context = {
        "nav": "ases",
        "user_as": user_as,
        "one": found,
        "is_mine": found.joint.created_by == request.user,
        "command": f"scionlab-bw test {user_as.isd_as} --all-links --id {found.joint.pk}",
        "live": reverse("joint_test", args=[pk, joint_id]) if found.is_open else "",
        "panel": joint_panel(found),
        "now": database_now(),
    }
    return render(request, "linktests/joint_test.html", context)


@require_POST
@own_page
@form_on("joint_test", "pk", "joint_id")
@gone_is_404
def joint_cancel(request: PageRequest, pk: int, joint_id: int) -> HttpResponse:
    user_as = selectors.user_as_of(request.user, pk)
    found = _status_or_404(user_as, joint_id).joint
    if joint_test_cancel(joint_test_id=found.pk, actor=request.user).cancelled_at is None:
        messages.warning(request, f"It had already ended at {local(found.ends_at)}. Nothing was cancelled.")
    else:
        messages.success(request, "Cancelled.")
    return redirect("joint_test", pk=pk, joint_id=joint_id)


def _status_or_404(user_as: UserAS, joint_id: int) -> JointStatus:
    found = with_parts(JointTest.objects.filter(user_as=user_as, pk=joint_id)).first()
    if found is None:
        raise Http404("This AS has no such joint test.")
    return status_of_joint(found, now=database_now())
