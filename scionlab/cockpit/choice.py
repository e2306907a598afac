"""Which Links a bulk change is about, as a filter in the address (`links.bulk_choice`)."""

from __future__ import annotations

from typing import Any

from django import forms
from django.db.models import QuerySet

from scionlab.links.bulk_choice import Choice
from scionlab.models import AttachmentPoint, Link
from scionlab.notation.bandwidth import parse_bandwidth_text
from scionlab.pages.forms import RuleField


def optional_bandwidth(text: str) -> int | None:
    return None if text.strip() == "" else parse_bandwidth_text(text)


class ChoiceForm(forms.Form):
    """Everything is optional, and nothing means all Links."""

    ap: forms.ModelChoiceField[AttachmentPoint] = forms.ModelChoiceField(
        queryset=AttachmentPoint.objects.select_related("AS__isd").order_by("AS__isd__isd_id", "AS__as_id"),
        required=False,
        label="Attachment point",
        empty_label="all",
    )
    q = forms.CharField(required=False, max_length=100, label="User AS", help_text="ISD-AS, AS number or label")
    owner = forms.CharField(required=False, max_length=254, label="Owner", help_text="Part of the email address")
    above = RuleField(optional_bandwidth, label="Limit above", help_text="In either direction, e.g. 10 Mbit/s")

    def __init__(self, data: Any) -> None:
        super().__init__(data, auto_id="choice_%s", label_suffix="")

    def choice(self, only: frozenset[int] | None = None) -> Choice:
        """Of a form that is valid. `only`: the Links that were ticked, None for all that the filter finds."""
        chosen = self.cleaned_data
        return Choice(chosen["ap"], chosen["q"], chosen["owner"], chosen["above"], only)

    def links(self) -> QuerySet[Link]:
        """What the filter finds; nothing while a field is wrong."""
        return self.choice().links() if self.is_valid() else Link.objects.none()
