"""Forms that reserve a time: for a watch, a joint test, and a tool that sends, generated from its parameters. The
services check what is allowed."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, ClassVar, Final
from zoneinfo import ZoneInfo

from django import forms

from contract.link_tests import MAX_WATCH_S, WATCH
from scionlab.linktests.joint_plan import DEFAULT_S, MAX_S, MIN_S
from scionlab.platform.notation.local_time import parse_local_time, write_local_time
from scionlab.web.pages.forms import RuleField, RulesForm, TimeInput, text_input
from station.tools import TOOLS, Parameter

AHEAD: Final = timedelta(minutes=1)  # time to copy the command
WHOLE: Final = f"Enter a whole number of seconds, at most {MAX_WATCH_S}."

Typed = Mapping[str, Any] | None


class _TimeForm(RulesForm):
    """Its last field is the start, a time in the reader's zone; if empty, in a minute."""

    is_to_start_now: ClassVar = False

    def __init__(self, data: Typed = None, *, prefix: str, zone: ZoneInfo, now: datetime) -> None:
        super().__init__(data, prefix=prefix)
        usual, words = (None, "now") if self.is_to_start_now else (now + AHEAD, "in a minute")
        self.fields["begins_at"] = RuleField(
            lambda text: parse_local_time(text, zone) if text else usual,
            label="Start",
            widget=TimeInput(),
            help_text=f"Leave empty to start {words}. Time zone {zone.key}; it is "
            f"{write_local_time(now.replace(second=0), zone)} now.",
        )

    @property
    def asked(self) -> dict[str, Any]:
        """As the service takes it."""
        return self.cleaned_data


class WatchForm(_TimeForm):
    is_to_start_now = True
    duration_s = forms.IntegerField(
        label="Duration [s]",
        initial=60,
        widget=text_input(inputmode="numeric"),
        help_text="5 to 600 seconds.",
        error_messages={"required": WHOLE, "invalid": WHOLE},
    )

    def __init__(self, data: Typed = None, *, zone: ZoneInfo, now: datetime) -> None:
        super().__init__(data, prefix="watch", zone=zone, now=now)


class JointTestForm(_TimeForm):
    seconds = forms.IntegerField(
        label="Time for each direction [s]",
        required=False,
        widget=text_input(inputmode="numeric", placeholder=str(DEFAULT_S)),
        help_text=f"{MIN_S} to {MAX_S} s.",
        error_messages={"invalid": "Enter a whole number."},
    )

    def __init__(self, data: Typed = None, *, zone: ZoneInfo, now: datetime) -> None:
        super().__init__(data, prefix="joint", zone=zone, now=now)


class SendingForm(_TimeForm):
    """Whole numbers within the bounds of each parameter."""

    def __init__(self, tool: str, data: Typed = None, *, zone: ZoneInfo, now: datetime) -> None:
        super().__init__(data, prefix="test", zone=zone, now=now)
        self.tool = TOOLS[tool]
        self.fields = {one.name: _field(one) for one in self.tool.parameters} | self.fields

    @property
    def asked(self) -> dict[str, Any]:
        parameters = {one.name: self.cleaned_data[one.name] for one in self.tool.parameters}
        return {"parameters": parameters, "begins_at": self.cleaned_data["begins_at"]}


def form_of(tool: str, data: Typed, *, zone: ZoneInfo, now: datetime) -> WatchForm | SendingForm:
    return WatchForm(data, zone=zone, now=now) if tool == WATCH else SendingForm(tool, data, zone=zone, now=now)


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
