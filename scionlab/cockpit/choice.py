"""Which Links a bulk change is about: by attachment point, user AS, owner, and how much they may carry."""

from __future__ import annotations

from typing import Any

from django import forms
from django.db.models import F, Q, QuerySet
from django.db.models.functions import Coalesce, Greatest

from bandwidth_config import RuleError, format_kbit
from scionlab.cockpit.testbed import USER_LINKS
from scionlab.forms import RuleField
from scionlab.isd_as import parse_as_id, parse_isd_as
from scionlab.models import AttachmentPoint, Link
from scionlab.units import parse_bandwidth_text


def optional_bandwidth(text: str) -> int | None:
    return None if text.strip() == "" else parse_bandwidth_text(text)


class ChoiceForm(forms.Form):
    """A filter in the address; everything is optional, and nothing means all Links."""

    ap: forms.ModelChoiceField[AttachmentPoint] = forms.ModelChoiceField(
        queryset=AttachmentPoint.objects.select_related("AS__isd").order_by("AS__isd__isd_id", "AS__as_id"),
        required=False,
        label="Attachment point",
        empty_label="all",
    )
    q = forms.CharField(required=False, max_length=100, label="User AS", help_text="ISD-AS, AS number or label")
    owner = forms.CharField(required=False, max_length=254, label="Owner", help_text="Part of the e-mail address")
    above = RuleField(optional_bandwidth, label="Limit above", help_text="In either direction, e.g. 10 Mbit/s")

    def __init__(self, data: Any) -> None:
        super().__init__(data, auto_id="choice_%s", label_suffix="")

    def links(self) -> QuerySet[Link]:
        """What the filter finds, in the order of attachment points and ASes; nothing while a field is wrong."""
        links = Link.objects.filter(USER_LINKS)
        if not self.is_valid():
            return links.none()
        chosen = self.cleaned_data
        if chosen["ap"] is not None:
            links = links.filter(interface_a__AS__attachment_point=chosen["ap"])
        if chosen["owner"]:
            links = links.filter(interface_b__AS__useras__owner__email__icontains=chosen["owner"])
        if chosen["q"]:
            links = links.filter(_of_as(chosen["q"].strip()))
        if chosen["above"] is not None:
            highest = Greatest("bandwidth_kbit", Coalesce("from_user_kbit", F("bandwidth_kbit")))
            links = links.annotate(highest_kbit=highest).filter(highest_kbit__gt=chosen["above"])
        return links.order_by("interface_a__AS__as_id", "interface_b__AS__as_id", "pk")

    @property
    def words(self) -> str:
        """The filter, for the record of the change."""
        chosen = self.cleaned_data
        parts = [
            f"at {chosen['ap'].AS.isd_as}" if chosen["ap"] else "",
            f"of owners with {chosen['owner']}" if chosen["owner"] else "",
            f"of AS {chosen['q']}" if chosen["q"] else "",
            "" if chosen["above"] is None else f"above {format_kbit(chosen['above'])}",
        ]
        return ", ".join(part for part in parts if part)


def _of_as(text: str) -> Q:
    try:
        isd, as_id = parse_isd_as(text)
    except RuleError:
        pass
    else:
        return Q(interface_b__AS__isd__isd_id=isd, interface_b__AS__as_id=as_id)
    try:
        return Q(interface_b__AS__as_id=parse_as_id(text))
    except RuleError:
        return Q(interface_b__AS__label__icontains=text)
