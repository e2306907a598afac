"""Forms for the limits of one Link: regular (`LimitsForm`) and timed (`TimedForm`).

They parse and place errors. `bandwidth_config` and `links` have the rules.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from django import forms

from bandwidth_config import Limits, RuleError, check_change, format_exact_kbit
from contract.link_rules import MAX_STEPS, MAX_TIMED_S
from scionlab.limits.maximum import limit_errors
from scionlab.limits.presets import BY_KEY
from scionlab.limits.profiles import Kind, Profile, constant, outage, square_wave, stair
from scionlab.limits.timed_limit import checked_beginning
from scionlab.limits.update import limits_to_values
from scionlab.platform.notation.bandwidth import parse_bandwidth_text
from scionlab.platform.notation.local_time import parse_local_time, write_local_time
from scionlab.testbed.models import BandwidthPolicy, Link
from scionlab.testbed.selectors import maximum_in_force
from scionlab.web.pages.forms import ComparedForm, RuleField, RulesForm, TimeInput, text_input
from scionlab.web.pages.stale_pages import shown_to_text

UNIT_HINT = "In kbit/s; you can also enter 1.5M or 10 Mbit/s."
SAME = "Leave empty for the same in both directions."

_UNITS = {"s": ("seconds", 1), "min": ("minutes", 60), "h": ("hours", 3600), "d": ("days", 86_400)}


def _bandwidth(label: str, help_text: str = "", *, optional: bool = False) -> RuleField:
    return RuleField(parse_bandwidth_text, optional=optional, label=label, help_text=help_text, widget=text_input())


def _written(limits: Limits) -> dict[str, str]:
    return {name: "" if value is None else str(value) for name, value in limits_to_values(limits).items()}


class LimitsForm(ComparedForm):
    """The regular limits of one Link. An empty second number means the same in both directions."""

    rule_field = "bandwidth_kbit"
    bandwidth_kbit = _bandwidth("Bandwidth of this link [kbit/s]")
    from_user_kbit = _bandwidth(
        "Bandwidth from your AS [kbit/s]",
        "If set, the number above is the bandwidth to your AS. Leave empty for the same in both directions.",
        optional=True,
    )

    def __init__(self, data: Mapping[str, Any] | None = None, *, link: Link, policy: BandwidthPolicy) -> None:
        shown = shown_to_text(limits_to_values(link.requested))
        super().__init__(data, prefix=f"link-{link.pk}", initial={**_written(link.requested), "shown": shown})
        self.link = link
        self.maximum_kbit = maximum_in_force(link, policy)
        hint = f"From 0 (blocked) to {format_exact_kbit(self.maximum_kbit)}. {UNIT_HINT}"
        self.fields["bandwidth_kbit"].help_text = hint

    @classmethod
    def filled_with(cls, limits: Limits, data: Mapping[str, Any], *, link: Link, policy: BandwidthPolicy) -> LimitsForm:
        """The submitted input with the limits of a preset."""
        form = cls(link=link, policy=policy)
        shown = data.get(form.add_prefix("shown"), form.initial["shown"])
        typed = {form.add_prefix(name): value for name, value in {**_written(limits), "shown": shown}.items()}
        return cls(typed, link=link, policy=policy)

    @property
    def is_divided(self) -> bool:
        """Open the second number if it has a value or an error."""
        return bool(self["from_user_kbit"].value() or self["from_user_kbit"].errors)

    def limits(self) -> Limits:
        """The form must be valid."""
        return Limits.of_columns(self.cleaned_data["bandwidth_kbit"], self.cleaned_data["from_user_kbit"])

    def check(self) -> None:
        """Check the bounds for a preview; a save leaves that to the service."""
        if not self.is_valid():
            return
        for error in list(limit_errors(self.link.requested, self.limits(), self.maximum_kbit)):
            self.refuse(error)


# --- for a time -----------------------------------------------------------------------------------------------


def _whole(name: str, high: int) -> Any:
    def parse(text: str) -> int:
        if not re.fullmatch(r"[0-9]{1,9}", text, flags=re.ASCII) or not 1 <= int(text) <= high:
            shown = text if len(text) <= 40 else text[:37] + "..."
            raise RuleError(
                "number_invalid", f'"{shown}" is not a number of {name}. Enter a whole number from 1 to {high}.'
            )
        return int(text)

    return parse


def _amount(label: str, initial: str) -> RuleField:
    return RuleField(
        _whole("seconds, minutes, hours or days", MAX_TIMED_S),
        label=label,
        initial=initial,
        widget=text_input(inputmode="numeric"),
    )


def _unit(label: str, initial: str) -> forms.ChoiceField:
    choices = [(key, words) for key, (words, _) in _UNITS.items()]
    return forms.ChoiceField(
        label=label,
        initial=initial,
        choices=choices,
        error_messages={"invalid_choice": "Choose seconds, minutes, hours or days.", "required": "Choose a unit."},
    )


class TimedForm(RulesForm):
    """Timed limits of one kind; the fields of other kinds are omitted."""

    to_user = _bandwidth("To your AS [kbit/s]", UNIT_HINT)
    from_user = _bandwidth("From your AS [kbit/s]", SAME, optional=True)
    then_to_user = _bandwidth("To your AS [kbit/s]")
    then_from_user = _bandwidth("From your AS [kbit/s]", SAME, optional=True)
    count = RuleField(
        _whole("steps", MAX_STEPS), label="Number of steps", initial="5", widget=text_input(inputmode="numeric")
    )
    cycles = RuleField(
        _whole("cycles", MAX_STEPS // 2), label="Number of cycles", initial="10", widget=text_input(inputmode="numeric")
    )
    each = _amount("Each step lasts", "1")
    each_unit = _unit("Unit of the duration of a step", "min")
    ends = forms.ChoiceField(
        label="Duration",
        initial="for",
        choices=[("for", "For a duration"), ("until", "Until a time")],
        error_messages={"invalid_choice": "Choose one of the two.", "required": "Choose one of the two."},
    )
    amount = _amount("Duration", "2")
    amount_unit = _unit("Unit of the duration", "h")
    until = RuleField(str, label="Until", widget=TimeInput())
    begins_at = RuleField(str, label="Start", widget=TimeInput())

    _LENGTH = ("ends", "amount", "amount_unit", "until", "begins_at")
    _TWO = ("to_user", "from_user", "then_to_user", "then_from_user")
    _EACH = ("each", "each_unit", "begins_at")
    SECTIONS: Mapping[str, tuple[str, ...]] = {
        "constant": ("to_user", "from_user", *_LENGTH),
        "outage": _LENGTH,
        "stair": (*_TWO, "count", *_EACH),
        "square": (*_TWO, "cycles", *_EACH),
    }

    def __init__(
        self,
        data: Mapping[str, Any] | None = None,
        *,
        kind: Kind,
        link: Link,
        policy: BandwidthPolicy,
        zone: ZoneInfo,
        now: datetime,
    ) -> None:
        super().__init__(data, prefix="timed")
        self.kind, self.link, self.zone, self.now = kind, link, zone, now
        self.maximum_kbit = maximum_in_force(link, policy)
        for name in set(self.fields) - set(self.SECTIONS[kind]):
            del self.fields[name]
        here = f"Time zone {zone.key}; it is {write_local_time(now.replace(second=0), zone)} now."
        self.fields["begins_at"].help_text = f"Leave empty to start now. {here}"
        if "until" in self.fields:
            self.fields["until"].help_text = here
            self.initial["until"] = ""
        for name, kbit in self._first_values().items():
            if name in self.fields:
                self.initial[name] = str(kbit)

    def _first_values(self) -> dict[str, int]:
        """Initial values: half of the current ones."""
        now = self.link.enforced.lowest_kbit or self.maximum_kbit
        return {"to_user": max(1, now // 2), "then_to_user": now}

    def clean(self) -> dict[str, Any]:
        for prefix in ("", "then_"):
            names = {"to_user_kbit": f"{prefix}to_user", "from_user_kbit": f"{prefix}from_user"}
            if all(name in self.cleaned_data for name in names.values()):
                for direction, error in check_change(None, self._limits(prefix), self.maximum_kbit).items():
                    self.add_error(names[direction], forms.ValidationError(error.message, code=error.code))
        begins_at = self.cleaned_data.get("begins_at")
        self.cleaned_data["begins_at"] = self._time("begins_at", begins_at) if begins_at else None
        self._try("begins_at", lambda: checked_beginning(self.cleaned_data["begins_at"], self.now))
        if self.cleaned_data.get("ends") == "until":
            self.errors.pop("amount", None)  # not requested
            self.cleaned_data["until"] = self._time("until", self.cleaned_data.get("until"))
        if not self.errors:
            self._try(self._where, self._make)
        return self.cleaned_data

    def _time(self, name: str, text: object) -> datetime | None:
        found: datetime | None = self._try(name, lambda: parse_local_time(text, self.zone))
        return found

    def _try(self, name: Any, what: Any) -> Any:
        """Show errors of `what` at the field `name`, or at `name(error)`."""
        try:
            return what()
        except RuleError as exc:
            field = name(exc) if callable(name) else name
            self.add_error(field, forms.ValidationError(exc.message, code=exc.code))
            return None

    def _where(self, error: RuleError) -> str:
        fields = {"timed_steps": "count" if self.kind == "stair" else "cycles", "timed_step_short": "each"}
        name = fields.get(error.code, "each")
        length = "until" if self.cleaned_data.get("ends") == "until" else "amount"
        return name if name in self.fields else length

    def _make(self) -> None:
        data = self.cleaned_data
        if self.kind in {"constant", "outage"}:
            seconds = self._length_s()
            self.profile = outage(seconds) if self.kind == "outage" else constant(self._limits(), seconds)
            return
        each_s = data["each"] * _UNITS[data["each_unit"]][1]
        if self.kind == "stair":
            self.profile = stair(self._limits(), self._limits("then_"), data["count"], each_s)
        else:
            self.profile = square_wave(self._limits(), self._limits("then_"), each_s, data["cycles"])

    profile: Profile

    def _length_s(self) -> int:
        data = self.cleaned_data
        if data["ends"] == "for":
            return int(data["amount"] * _UNITS[data["amount_unit"]][1])
        begins_at = data["begins_at"] or self.now.replace(microsecond=0)
        if data["until"] <= begins_at:
            text = f"{write_local_time(data['until'], self.zone)} is not after the start. Choose a later end."
            raise RuleError("timed_past", text)
        return int((data["until"] - begins_at).total_seconds())

    def _limits(self, prefix: str = "") -> Limits:
        return Limits.of_columns(self.cleaned_data[f"{prefix}to_user"], self.cleaned_data[f"{prefix}from_user"])

    def beginning(self) -> datetime | None:
        """None: now. The form must be valid."""
        found: datetime | None = self.cleaned_data["begins_at"]
        return found

    def ending(self) -> datetime | None:
        """The chosen end; None if a duration was chosen. The form must be valid."""
        found: datetime | None = self.cleaned_data["until"] if self.cleaned_data.get("ends") == "until" else None
        return found

    def refuse(self, error: RuleError) -> None:
        """Show an error of the service."""
        name = getattr(error, "field", "").replace("ends_at", "until")
        self.add_error(name if name in self.fields else None, forms.ValidationError(error.message, code=error.code))


def preset_limits(key: str) -> Limits | None:
    """Limits of the preset with this key."""
    preset = BY_KEY.get(key)
    return None if preset is None else preset.limits
