"""Forms of the cockpit."""

from __future__ import annotations

import re
from collections.abc import Collection
from decimal import Decimal, InvalidOperation
from typing import Any

from django import forms
from django.db.models.functions import Coalesce

from bandwidth_config import RuleError, format_kbit
from scionlab.limits.default_changes import FOLLOWERS
from scionlab.limits.default_plan import SITE, Operation
from scionlab.platform.notation.bandwidth import parse_bandwidth_text
from scionlab.testbed import selectors
from scionlab.testbed.models import AttachmentPoint, BandwidthPolicy
from scionlab.testbed.models.attachment_point import MAX_UPLINK_KBIT
from scionlab.web.pages.forms import RuleField

_MAX_COST = Decimal(999_999)


_KINDS = {"set": "Set to", "cap": "Cap at", "scale": "Scale to, in percent", "site": "Follow the site default"}


class DefaultsChoice(forms.Form):
    """Filter in the query string: of which attachment points a default changes."""

    q = forms.CharField(required=False, max_length=100, label="Attachment point", help_text="ISD-AS or label")

    def rows(self) -> list[AttachmentPoint]:
        """With `in_force_kbit`, the default in force."""
        in_force = Coalesce("default_bandwidth_kbit", selectors.policy().default_bandwidth_kbit)
        aps = AttachmentPoint.objects.annotate(in_force_kbit=in_force).select_related("AS__isd")
        aps = aps.order_by("AS__isd__isd_id", "AS__as_id")
        q = self.cleaned_data["q"].lower() if self.is_valid() else None
        return [ap for ap in aps if q is not None and q in f"{ap.AS.isd_as} {ap.AS.label}".lower()]

    def chosen(self, scope: str, ticked: frozenset[int]) -> tuple[Collection[int], str]:
        """Of a valid form, keys and a description: everything that matches ("all"), the ticked rows ("ticked"), or the
        site default ("site")."""
        if scope == "site":
            return [SITE], FOLLOWERS
        keys = [ap.pk for ap in self.rows() if scope == "all" or ap.pk in ticked]
        filtered = f" with {self.cleaned_data['q']}" if self.cleaned_data["q"] else ""
        return keys, f"{'all' if scope == 'all' else 'selected'} attachment points{filtered}"


class OperationForm(forms.Form):
    """The operation on the selected defaults."""

    kind = forms.ChoiceField(
        label="Operation",
        choices=list(_KINDS.items()),
        widget=forms.RadioSelect,
        initial="set",
        error_messages={"required": "Choose an operation.", "invalid_choice": "Choose an operation."},
    )
    value = forms.CharField(
        label="Default, or percent",
        required=False,
        max_length=40,
        help_text="A default such as 500, 1.5M or 10 Mbit/s; for scaling, a whole number of percent: 50 halves the "
        "defaults.",
    )

    def __init__(self, data: Any = None) -> None:
        super().__init__(data, auto_id="op_%s", label_suffix="")

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        kind = cleaned.get("kind")
        if kind is None:
            return cleaned
        try:
            cleaned["operation"] = Operation(kind, _value(kind, cleaned.get("value", "").strip()))
        except RuleError as exc:
            self.add_error("value", forms.ValidationError(exc.message, code=exc.code))
        return cleaned


def _value(kind: str, text: str) -> int:
    if kind == "site":
        return 0
    return _percent(text) if kind == "scale" else parse_bandwidth_text(text)


def _percent(text: str) -> int:
    match = re.fullmatch(r"([0-9]{1,6}) ?%?", text, flags=re.ASCII)
    if match is None:
        raise RuleError("percent_invalid", f'"{text[:40]}" is not a whole number of percent. Enter for example 50.')
    return int(match[1])


def parse_uplink(text: str) -> int:
    """Parse a bandwidth [kbit/s]. Raises `RuleError` (`uplink_range`, those of `parse_bandwidth_text`)."""
    kbit = parse_bandwidth_text(text)
    if not 1 <= kbit <= MAX_UPLINK_KBIT:
        words = f"An uplink of {format_kbit(kbit)} is not between 1 kbit/s and {format_kbit(MAX_UPLINK_KBIT)}."
        raise RuleError("uplink_range", f"{words} Enter the capacity of the uplink, or leave it empty.")
    return kbit


def parse_cost(text: str) -> Decimal:
    """Parse a cost per GB with at most four decimals. Raises `RuleError` (`cost_invalid`)."""
    hint = "Enter for example 0.085, with a decimal point and at most four decimals."
    try:
        cost = Decimal(text) if re.fullmatch(r"[0-9.]{1,20}", text, flags=re.ASCII) else None
    except InvalidOperation:
        cost = None
    if cost is None or cost > _MAX_COST or cost != round(cost, 4):
        raise RuleError("cost_invalid", f'"{text[:40]}" is not a cost. {hint}')
    return cost


class UplinkForm(forms.Form):
    """Capacity and cost of an attachment point's uplink; both optional."""

    uplink_kbit = RuleField(
        parse_uplink,
        optional=True,
        label="Uplink [kbit/s]",
        help_text="In each direction; you can also enter 10 Gbit/s. Empty: not set.",
    )
    cost_per_gb = RuleField(
        parse_cost,
        optional=True,
        label="Cost per GB",
        help_text="Cost of egress to user ASes. Empty: the default cost.",
    )

    def __init__(self, data: Any = None, *, ap: AttachmentPoint) -> None:
        initial = {"uplink_kbit": ap.uplink_kbit, "cost_per_gb": ap.cost_per_gb}
        super().__init__(data, initial=initial, auto_id="uplink_%s", label_suffix="")


class CostForm(forms.Form):
    """Default cost of the site."""

    cost_per_gb = RuleField(parse_cost, optional=True, label="Cost per GB", help_text="Empty: no cost is shown.")
    currency = forms.RegexField(
        r"^[A-Z]{3}\Z",
        label="Currency",
        max_length=3,
        error_messages={"invalid": "Enter three capital letters, such as CHF.", "required": "Enter a currency."},
    )

    def __init__(self, data: Any = None, *, policy: BandwidthPolicy) -> None:
        initial = {"cost_per_gb": policy.cost_per_gb, "currency": policy.currency}
        super().__init__(data, initial=initial, auto_id="cost_%s", label_suffix="")
