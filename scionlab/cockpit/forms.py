"""Forms of the cockpit."""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation
from typing import Any

from django import forms

from bandwidth_config import RuleError, format_kbit
from scionlab.links.bulk_plan import DIRECTIONS, Operation
from scionlab.models import AttachmentPoint, BandwidthPolicy
from scionlab.models.attachment_point import MAX_UPLINK_KBIT
from scionlab.notation.bandwidth import parse_bandwidth_text
from scionlab.pages.forms import RuleField

_MAX_COST = Decimal(999_999)


_KINDS = {"cap": "Cap at", "set": "Set to", "scale": "Scale to, in percent", "site": "Follow the site default"}


class OperationForm(forms.Form):
    """The operation on the selected limits or defaults."""

    kind: forms.ChoiceField
    value: forms.CharField

    def __init__(self, data: Any = None) -> None:
        super().__init__(data, auto_id="op_%s", label_suffix="")

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        kind = cleaned.get("kind")
        if kind is None:
            return cleaned
        try:
            value = _value(kind, cleaned.get("value", "").strip())
            cleaned["operation"] = Operation(kind, value, cleaned.get("direction") or "both")
        except RuleError as exc:
            self.add_error("value", forms.ValidationError(exc.message, code=exc.code))
        return cleaned


def _kind(*kinds: str) -> forms.ChoiceField:
    return forms.ChoiceField(
        label="Operation",
        choices=[(kind, _KINDS[kind]) for kind in kinds],
        widget=forms.RadioSelect,
        initial=kinds[0],
        error_messages={"required": "Choose an operation.", "invalid_choice": "Choose an operation."},
    )


def _number(noun: str) -> forms.CharField:
    return forms.CharField(
        label=f"{noun.capitalize()}, or percent",
        required=False,
        max_length=40,
        help_text=f"A {noun} such as 500, 1.5M or 10 Mbit/s; for scaling, a whole number of percent: 50 halves the "
        f"{noun}s.",
    )


class LimitsForm(OperationForm):
    kind = _kind("cap", "set", "scale")
    value = _number("limit")
    direction = forms.ChoiceField(label="Direction", choices=list(DIRECTIONS.items()), initial="both", required=False)


class DefaultsForm(OperationForm):
    kind = _kind("set", "cap", "scale", "site")
    value = _number("default")


def _value(kind: str, text: str) -> int:
    if kind == "site":
        return 0
    return _percent(text) if kind == "scale" else parse_bandwidth_text(text)


def _percent(text: str) -> int:
    match = re.fullmatch(r"([0-9]{1,6}) ?%?", text, flags=re.ASCII)
    if match is None:
        raise RuleError("percent_invalid", f'"{text[:40]}" is not a whole number of percent. Enter for example 50.')
    return int(match[1])


def parse_uplink(text: str) -> int | None:
    """Parse a bandwidth [kbit/s]. Raises `RuleError` (`uplink_range`, those of `parse_bandwidth_text`)."""
    if text.strip() == "":
        return None
    kbit = parse_bandwidth_text(text)
    if not 1 <= kbit <= MAX_UPLINK_KBIT:
        words = f"An uplink of {format_kbit(kbit)} is not between 1 kbit/s and {format_kbit(MAX_UPLINK_KBIT)}."
        raise RuleError("uplink_range", f"{words} Enter the capacity of the uplink, or leave it empty.")
    return kbit


def parse_cost(text: str) -> Decimal | None:
    """Parse a cost per GB with at most four decimals. Raises `RuleError` (`cost_invalid`)."""
    if text.strip() == "":
        return None
    hint = "Enter for example 0.085, with a decimal point and at most four decimals."
    try:
        cost = Decimal(text.strip()) if re.fullmatch(r"[0-9.]{1,20}", text.strip(), flags=re.ASCII) else None
    except InvalidOperation:
        cost = None
    if cost is None or cost > _MAX_COST or cost != round(cost, 4):
        raise RuleError("cost_invalid", f'"{text[:40]}" is not a cost. {hint}')
    return cost


class UplinkForm(forms.Form):
    """Capacity and cost of an attachment point's uplink; both optional."""

    uplink_kbit = RuleField(
        parse_uplink,
        label="Uplink [kbit/s]",
        help_text="In each direction; you can also enter 10 Gbit/s. Empty: not set.",
    )
    cost_per_gb = RuleField(
        parse_cost, label="Cost per GB", help_text="Cost of egress to user ASes. Empty: the default cost."
    )

    def __init__(self, data: Any = None, *, ap: AttachmentPoint) -> None:
        initial = {"uplink_kbit": ap.uplink_kbit, "cost_per_gb": ap.cost_per_gb}
        super().__init__(data, initial=initial, auto_id="uplink_%s", label_suffix="")


class CostForm(forms.Form):
    """Default cost of the site."""

    cost_per_gb = RuleField(parse_cost, label="Cost per GB", help_text="Empty: no cost is shown.")
    currency = forms.RegexField(
        r"^[A-Z]{3}\Z",
        label="Currency",
        max_length=3,
        error_messages={"invalid": "Enter three capital letters, such as CHF.", "required": "Enter a currency."},
    )

    def __init__(self, data: Any = None, *, policy: BandwidthPolicy) -> None:
        initial = {"cost_per_gb": policy.cost_per_gb, "currency": policy.currency}
        super().__init__(data, initial=initial, auto_id="cost_%s", label_suffix="")
