"""The form of a tool that sends, generated from its parameters (`station.tools`), and the equivalent command."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final
from zoneinfo import ZoneInfo

from django import forms

from bandwidth_config import RuleError
from scionlab.platform.notation.local_time import parse_local_time, write_local_time
from scionlab.web.pages.forms import RuleField, TimeInput, text_input
from station.tools import Parameter, Tool

AHEAD: Final = timedelta(minutes=1)  # time to copy the command


class SendingForm(forms.Form):
    """Whole numbers within the bounds of each parameter; the service checks what is allowed."""

    begins_at = RuleField(str, label="Start", widget=TimeInput())

    def __init__(self, tool: Tool, data: Mapping[str, Any] | None = None, *, zone: ZoneInfo, now: datetime) -> None:
        super().__init__(data, prefix="test")
        self.tool, self.zone, self.now = tool, zone, now
        for one in tool.parameters:
            self.fields[one.name] = _field(one)
        self.order_fields([one.name for one in tool.parameters])
        here = f"Time zone {zone.key}; it is {write_local_time(now.replace(second=0), zone)} now."
        self.fields["begins_at"].help_text = f"Leave empty to start in a minute. {here}"

    def clean_begins_at(self) -> datetime:
        text = self.cleaned_data["begins_at"]
        try:
            return parse_local_time(text, self.zone) if text else self.now + AHEAD
        except RuleError as exc:
            raise forms.ValidationError(exc.message, code=exc.code) from exc

    @property
    def parameters(self) -> dict[str, int]:
        return {one.name: self.cleaned_data[one.name] for one in self.tool.parameters}

    def refuse(self, error: RuleError) -> None:
        field = getattr(error, "field", None)
        self.add_error(field if field in self.fields else None, forms.ValidationError(error.message, code=error.code))


def _field(one: Parameter) -> forms.IntegerField:
    whole = f"Enter a whole number from {one.low} to {one.high}."
    return forms.IntegerField(
        label=f"{one.label} [{one.unit}]",
        initial=one.default,
        min_value=one.low,
        max_value=one.high,
        widget=text_input(inputmode="numeric"),
        help_text=f"{one.low} to {one.high} {one.unit}.",
        error_messages=dict.fromkeys(("required", "invalid", "min_value", "max_value"), whole),
    )
