"""The page that explains a throughput: from the requested limit to the traffic, and for an entered measurement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django import forms
from django.http import HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_safe

from bandwidth_config import MAX_BANDWIDTH_KBIT, RuleError, format_exact_kbit
from scionlab.enforcement.status import link_status
from scionlab.links.framing import Framing
from scionlab.links.measured import LONGEST_SCION_HEADERS, Measured, check_measured
from scionlab.links.throughput import Side, Step, explain
from scionlab.notation.bandwidth import parse_bandwidth_text
from scionlab.pages.forms import RuleField, problems_of, text_input
from scionlab.pages.link import link_or_404
from scionlab.pages.own_pages import PageRequest, own_page
from scionlab.pages.plots import WIDTH
from scionlab.usage.series import usage_of_link

HOUR = timedelta(hours=1)
DIRECTION_CHOICES = (("to_user", "To your AS"), ("from_user", "From your AS"))


def _measured_rate(text: str) -> int:
    kbit = parse_bandwidth_text(text)
    if not 1 <= kbit <= MAX_BANDWIDTH_KBIT:
        raise RuleError(
            "measured_range",
            f"{format_exact_kbit(kbit)} is not between 1 and {format_exact_kbit(MAX_BANDWIDTH_KBIT)}. Enter what you "
            "measured.",
        )
    return kbit


def _bytes(label: str, low: int, high: int, **kwargs: Any) -> forms.IntegerField:
    whole = f"Enter a whole number of bytes from {low} to {high}."
    messages = dict.fromkeys(("required", "invalid", "min_value", "max_value"), whole)
    widget = text_input(inputmode="numeric")
    return forms.IntegerField(
        label=f"{label} [byte]", min_value=low, max_value=high, widget=widget, error_messages=messages, **kwargs
    )


class MeasuredForm(forms.Form):
    """The user's measurement, in the query string."""

    direction = forms.ChoiceField(label="Direction", choices=DIRECTION_CHOICES)
    rate = RuleField(
        _measured_rate,
        label="Throughput [kbit/s]",
        help_text="Of payload, for example 413 or 1.2M.",
        widget=text_input(),
    )
    size = _bytes("Payload of a packet", 1, 9000, help_text="What your program counts of each packet.")
    headers = _bytes(
        "Headers of SCION",
        0,
        LONGEST_SCION_HEADERS,
        required=False,
        help_text="Those that your program does not count: 44 with UDP over IPv4, and those of the path (4, 8 for "
        "each segment, 12 for each hop field). Leave empty if the size is that of SCION packets.",
    )

    def __init__(self, data: Mapping[str, Any] | None, *, framing: Framing) -> None:
        super().__init__(data)
        self.framing = framing

    def clean(self) -> dict[str, Any]:
        found = self.cleaned_data
        if "size" in found and "headers" in found:
            try:
                check_measured(found["size"], found["headers"] or 0, self.framing)
            except RuleError as exc:
                self.add_error("size", forms.ValidationError(exc.message, code=exc.code))
        return found

    def measured(self, sides: Sequence[Side]) -> Measured | None:
        if not self.is_bound or not self.is_valid():
            return None
        found = self.cleaned_data
        [limit] = [side.limit_kbit for side in sides if side.direction == found["direction"]]
        return Measured(found["rate"], found["size"], found["headers"] or 0, limit, self.framing)


@dataclass(frozen=True)
class Bar:
    """A step of the waterfall plot: `left` from 0, `lost` behind it up to the previous step."""

    step: Step
    left: str
    lost: str


def bars_of(steps: Sequence[Step]) -> list[Bar]:
    """In a box `WIDTH` wide. Unknown steps, and losses next to them, are not drawn."""
    top = max((step.kbit or 0.0 for step in steps), default=0.0) or 1.0
    found, before = [], 0.0
    for step in steps:
        if step.kbit is None:
            found.append(Bar(step, "", ""))
            continue
        found.append(Bar(step, _x(step.kbit / top), _x(max(0.0, before - step.kbit) / top)))
        before = step.kbit
    return found


def _x(share: float) -> str:
    return f"{share * WIDTH:.1f}"


@require_safe
@own_page
def link_why(request: PageRequest, pk: int, link_id: int) -> HttpResponse:
    user_as, link = link_or_404(request, pk, link_id)
    now = timezone.now()
    usage = usage_of_link(link.pk, begins_at=now - HOUR, ends_at=now, step="10s")
    sides = explain(link_status(link, now=now), usage.points)
    form = MeasuredForm(request.GET if "rate" in request.GET else None, framing=Framing.of(link))
    names = dict(DIRECTION_CHOICES)
    context = {
        "nav": "ases",
        "user_as": user_as,
        "link": link,
        "form": form,
        "measured": form.measured(sides),
        "sides": [(names[side.direction], side, bars_of(side.steps)) for side in sides],
        "problems": list(problems_of(form, "")),
    }
    return render(request, "user_as/why.html", context)
