"""Filters in the query string that select Links, or attachment points, for a bulk change (`links.bulk_choice`)."""

from __future__ import annotations

from collections.abc import Collection

from django import forms
from django.db.models import QuerySet
from django.db.models.functions import Coalesce

from scionlab.links.bulk_choice import Choice
from scionlab.links.bulk_defaults import FOLLOWERS
from scionlab.links.bulk_plan import SITE
from scionlab.models import AttachmentPoint, Link, selectors
from scionlab.notation.bandwidth import parse_bandwidth_text
from scionlab.pages.forms import RuleField

LINK_RELATIONS = [f"interface_{end}__AS__isd" for end in "ab"]
LINK_RELATIONS += ["interface_b__AS__useras__owner", "interface_a__AS__attachment_point"]

Chosen = tuple[Collection[int], str]  # the keys, and a description


def optional_bandwidth(text: str) -> int | None:
    return None if text.strip() == "" else parse_bandwidth_text(text)


class LinksChoice(forms.Form):
    """All fields are optional; an empty form selects all."""

    ap: forms.ModelChoiceField[AttachmentPoint] = forms.ModelChoiceField(
        queryset=AttachmentPoint.objects.select_related("AS__isd").order_by("AS__isd__isd_id", "AS__as_id"),
        required=False,
        label="Attachment point",
        empty_label="all",
    )
    q = forms.CharField(required=False, max_length=100, label="User AS", help_text="ISD-AS, AS number or label")
    owner = forms.CharField(required=False, max_length=254, label="Owner", help_text="Part of the email address")
    above = RuleField(optional_bandwidth, label="Limit above", help_text="In either direction, e.g. 10 Mbit/s")

    def _choice(self, only: frozenset[int] | None = None) -> Choice:
        found = self.cleaned_data
        return Choice(found["ap"], found["q"], found["owner"], found["above"], only)

    def rows(self) -> QuerySet[Link]:
        """Rows that match the filter; none while a field is invalid."""
        links = self._choice().links() if self.is_valid() else Link.objects.none()
        return links.select_related(*LINK_RELATIONS)

    def chosen(self, scope: str, ticked: frozenset[int]) -> Chosen:
        """Of a valid form: everything that matches ("all") or the ticked rows ("ticked")."""
        choice = self._choice(None if scope == "all" else ticked)
        return choice.link_ids(), choice.words


class DefaultsChoice(forms.Form):
    q = forms.CharField(required=False, max_length=100, label="Attachment point", help_text="ISD-AS or label")

    def rows(self) -> list[AttachmentPoint]:
        """With `in_force_kbit`, the default in force."""
        in_force = Coalesce("default_bandwidth_kbit", selectors.policy().default_bandwidth_kbit)
        aps = AttachmentPoint.objects.annotate(in_force_kbit=in_force).select_related("AS__isd")
        aps = aps.order_by("AS__isd__isd_id", "AS__as_id")
        q = self.cleaned_data["q"].lower() if self.is_valid() else None
        return [ap for ap in aps if q is not None and q in f"{ap.AS.isd_as} {ap.AS.label}".lower()]

    def chosen(self, scope: str, ticked: frozenset[int]) -> Chosen:
        """As for Links; also the site default ("site")."""
        if scope == "site":
            return [SITE], FOLLOWERS
        keys = [ap.pk for ap in self.rows() if scope == "all" or ap.pk in ticked]
        filtered = f" with {self.cleaned_data['q']}" if self.cleaned_data["q"] else ""
        return keys, f"{'all' if scope == 'all' else 'selected'} attachment points{filtered}"
