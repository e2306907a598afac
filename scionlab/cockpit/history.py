"""The history of changes: who changed which limit, default or host, and why. Read-only."""

from __future__ import annotations

from typing import Any

from django import forms
from django.db.models import Q, QuerySet
from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from scionlab.testbed.models import AttachmentPoint, BandwidthChange, Link
from scionlab.web.access import staff_page
from scionlab.web.pages.own_pages import PageRequest
from scionlab.web.paging import page_of

CHANGES_PER_PAGE = 50
KINDS = BandwidthChange._meta.get_field("kind").flatchoices


class HistoryForm(forms.Form):
    """All fields are optional; an empty form selects all. `ap` and `link` are set by links on other pages."""

    q = forms.CharField(
        required=False, max_length=100, label="Search", help_text="In what changed, the reason, who, and their address"
    )
    kind = forms.ChoiceField(required=False, choices=[("", "all"), *KINDS])
    until = forms.DateField(
        required=False,
        label="Until",
        widget=forms.DateInput(attrs={"type": "date"}),
        help_text="This day and earlier",
    )
    ap = forms.ModelChoiceField(AttachmentPoint.objects, required=False, widget=forms.HiddenInput)
    link = forms.ModelChoiceField(Link.objects, required=False, widget=forms.HiddenInput)

    def __init__(self, data: Any) -> None:
        super().__init__(data, auto_id="history_%s", label_suffix="")

    def changes(self) -> QuerySet[BandwidthChange]:
        """Changes that match, newest first; none while a field is invalid."""
        if not self.is_valid():
            return BandwidthChange.objects.none()
        asked = self.cleaned_data
        texts = ("subject", "detail", "reason", "actor_email", "address")
        found = Q.create([Q(**{f"{text}__icontains": asked["q"]}) for text in texts], Q.OR) if asked["q"] else Q()
        conditions = {"kind": asked["kind"], "attachment_point": asked["ap"], "link": asked["link"]}
        conditions["at__date__lte"] = asked["until"]
        return BandwidthChange.objects.filter(found, **{name: value for name, value in conditions.items() if value})


@require_safe
@staff_page
def history(request: PageRequest) -> HttpResponse:
    form = HistoryForm(request.GET)
    changes = form.changes().select_related("actor", "link__interface_b__AS__useras")
    context = {
        "tab": "history",
        "form": form,
        "page": page_of(request, changes, CHANGES_PER_PAGE),
    }
    return render(request, "cockpit/history.html", context)
