"""Exceptions of groups: granted and edited here, ended on the page of exceptions. `limits.admin` has their members."""

from __future__ import annotations

from typing import Any
from zoneinfo import ZoneInfo

from django import forms
from django.contrib import messages
from django.contrib.auth.models import Group
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods

from bandwidth_config import RuleError
from scionlab.accounts.models import User
from scionlab.limits.exceptions import exception_change, exception_grant, values_shown
from scionlab.limits.models import MaximumException
from scionlab.limits.pages.exceptions import ExceptionForm
from scionlab.platform.clock import database_now
from scionlab.platform.notation.local_time import write_local_time, zone_of
from scionlab.testbed.models import AttachmentPoint
from scionlab.web.access import staff_page
from scionlab.web.pages.common import gone_is_404, nothing_typed
from scionlab.web.pages.conflict import conflict_of
from scionlab.web.pages.forms import ComparedForm, problems_of
from scionlab.web.pages.own_pages import PageRequest, taken_back
from scionlab.web.pages.stale_pages import StalePageError, shown_to_text


class GroupForm(ExceptionForm, ComparedForm):
    group = forms.ModelChoiceField(
        Group.objects.order_by("name"), label="Group", error_messages={"required": "Choose a group."}
    )
    attachment_points = forms.ModelMultipleChoiceField(
        AttachmentPoint.objects.select_related("AS__isd").order_by("AS__isd__isd_id", "AS__as_id"),
        widget=forms.CheckboxSelectMultiple,
        label="Attachment points",
        error_messages={"required": "Choose at least one attachment point."},
    )

    def __init__(self, data: Any = None, *, zone: ZoneInfo, of: MaximumException | None = None) -> None:
        super().__init__(data, zone=zone)
        if of is not None:
            del self.fields["group"]
            places = list(of.attachment_points.all())
            self.initial.update(
                {
                    "attachment_points": [ap.pk for ap in places],
                    "maximum_kbit": of.maximum_kbit,
                    "ends_at": write_local_time(of.ends_at, zone),
                    "reason": of.reason,
                    "shown": shown_to_text(values_shown(of, places)),
                }
            )
        self.order_fields(("group", "attachment_points"))


@require_http_methods(["GET", "HEAD", "POST"])
@staff_page
@gone_is_404
def group(request: PageRequest, pk: int | None = None) -> HttpResponse:
    """Grant an exception to a group, or edit the one with this key until it ends."""
    rows = MaximumException.objects.exclude(group=None).filter(ends_at__gt=database_now())
    of = None if pk is None else rows.select_related("group").prefetch_related("attachment_points__AS__isd").get(pk=pk)
    is_sent = request.method == "POST"
    form = GroupForm(request.POST if is_sent else taken_back(request), zone=zone_of(request.user), of=of)
    if is_sent and form.is_valid():
        try:
            _save(form, pk, request.user)
        except StalePageError as exc:
            labels = {name: str(field.label) for name, field in form.fields.items()}
            conflict = conflict_of(exc, reader=request.user, labels=labels, choices={})
            if exc.is_untouched:
                return nothing_typed(request, conflict, request.path)
            form.meet(conflict, exc.stored)
        except RuleError as exc:
            form.refuse(exc)
        else:
            messages.success(request, "Saved. Members can set limits up to the maximum within a minute.")
            return redirect("cockpit_exceptions")
    problems = list(problems_of(form, "")) if is_sent else []
    context = {"tab": "exceptions", "exception": of, "form": form, "problems": problems}
    return render(request, "limits/group.html", context, status=409 if form.conflict else 200)


def _save(form: GroupForm, pk: int | None, actor: User) -> None:
    values = {name: value for name, value in form.cleaned_data.items() if name != "shown"}
    if pk is None:
        exception_grant(of=values.pop("group"), actor=actor, **values)
    else:
        exception_change(exception_id=pk, shown=form.shown_values(), actor=actor, **values)
