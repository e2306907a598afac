"""Forms of the users' pages.

They parse text and place errors. `editor` handles the rows of the whole page; `bandwidth_config` and `links` have the
rules, whose messages are shown unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from django import forms
from django.contrib.auth.forms import AuthenticationForm
from django.core.exceptions import NON_FIELD_ERRORS
from django.utils import timezone
from django.utils.html import format_html

from bandwidth_config import (
    MAX_BANDWIDTH_KBIT,
    NEW_PATHS_MINIMUM_KBIT,
    Limits,
    RuleError,
    check_change,
    format_exact_kbit,
    format_kbit,
)
from link_rules import MAX_PORT, MIN_PORT, check_port, parse_ip, with_exception
from scion_files import link_mtu_bytes
from scionlab.limits.pages.counted import counted_sentence
from scionlab.platform.notation.bandwidth import limits_warning, parse_bandwidth_text
from scionlab.platform.notation.local_time import control_value
from scionlab.testbed.models import Host, UserAS
from scionlab.user_ases.attachments import DEFAULT_PORT, VM_ADDRESS, AttachmentSpec
from scionlab.user_ases.pages.attachment_point_field import AttachmentPointField, Choice

_PORT_HINT = f"Enter a whole number from {MIN_PORT} to {MAX_PORT}, for example {DEFAULT_PORT}."


class LoginForm(AuthenticationForm):
    """Email address and password."""

    error_messages = {
        "invalid_login": "The email address or the password is wrong. The password is case-sensitive.",
        "inactive": "This account is disabled. Ask the administrators.",
    }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["username"].label = "Email address"
        self.fields["username"].widget = forms.EmailInput(attrs={"autocomplete": "username", "autofocus": True})
        self.fields["username"].error_messages["required"] = "Enter your email address."
        self.fields["password"].error_messages["required"] = "Enter your password."


# --- fields -------------------------------------------------------------------------------------------------


class RuleField(forms.CharField):
    """Text parsed by `parse`, whose errors are shown."""

    def __init__(self, parse: Callable[[str], Any], **kwargs: Any) -> None:
        super().__init__(required=False, **kwargs)
        self.parse = parse

    def to_python(self, value: Any) -> Any:
        text = super().to_python(value)
        try:
            return self.parse(text or "")
        except RuleError as exc:
            raise forms.ValidationError(exc.message, code=exc.code) from exc

    def run_validators(self, value: Any) -> None:
        """`parse` has already validated; CharField's validators would check a number's length."""


def text_input(**attrs: str) -> forms.TextInput:
    """Without autocompletion and correction."""
    return forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false", **attrs})


class TimeInput(forms.TextInput):
    """A browser's datetime control in the reader's zone. Values that it cannot hold stay text: an offset, and an
    ambiguous time when clocks are set back."""

    input_type = "datetime-local"

    def get_context(self, name: str, value: Any, attrs: dict[str, Any] | None) -> dict[str, Any]:
        context = super().get_context(name, value, {"autocomplete": "off", **(attrs or {})})
        widget, text = context["widget"], str(value or "").strip()
        said = control_value(text, timezone.get_current_timezone()) if text else ""
        if said is None:
            widget["type"] = "text"
        elif said:
            widget["value"] = said
        return context


def parse_port(text: str) -> int:
    """Raises `RuleError` (`port_required`, `port_invalid`, `port_range`)."""
    if text == "":
        raise RuleError("port_required", f"A port is missing. {_PORT_HINT}")
    if not re.fullmatch(r"-?[0-9]{1,20}", text, flags=re.ASCII):
        shown = text if len(text) <= 40 else text[:37] + "..."
        raise RuleError("port_invalid", f'"{shown}" is not a port number. {_PORT_HINT}')
    check_port(int(text))
    return int(text)


def _optional(parse: Callable[[str], Any]) -> Callable[[str], Any]:
    return lambda text: None if text == "" else parse(text)


def _ip(text: str) -> str:
    return str(parse_ip(text))


# --- forms --------------------------------------------------------------------------------------------------


class UserASForm(forms.Form):
    """Fields of the AS itself. `links.user_as` validates."""

    label = forms.CharField(
        required=False,
        help_text="Optional short name for your AS, for example “Office”.",
        widget=forms.TextInput(attrs={"autocomplete": "off"}),
    )
    installation_type = forms.CharField(
        required=False,
        label="Installation type",
        initial=UserAS.Installation.VM,
        widget=forms.RadioSelect(choices=UserAS.Installation.choices),
    )
    scion_packages = forms.CharField(
        required=False,
        label="SCION packages",
        initial=Host.ScionPackages.SCIONLAB,
        help_text="The packages installed on your machine. Their systemd units have different names.",
        widget=forms.RadioSelect(choices=Host.ScionPackages.choices),
    )

    def clean_scion_packages(self) -> str | None:
        """None keeps them, also for a page without the field."""
        return self.cleaned_data["scion_packages"] or None


class AttachmentForm(forms.Form):
    """One attachment: a provider Link to an attachment point. Fields as in figure 5.1 of the thesis."""

    link_id = forms.IntegerField(required=False, widget=forms.HiddenInput)
    active = forms.BooleanField(
        label="Active", required=False, initial=True, help_text="An inactive link is kept but is in no configuration."
    )
    attachment_point = forms.Field()  # an AttachmentPointField, created with the current choices
    bandwidth_kbit = RuleField(
        parse_bandwidth_text,
        label="Upper limit for the bandwidth usable for this AS [kbit/s]",
        widget=text_input(),
    )
    from_user_kbit = RuleField(
        lambda text: None if text == "" else parse_bandwidth_text(text),
        label="Upper limit from your AS [kbit/s]",
        help_text="If set, the number above is the limit to your AS. Leave empty for the same limit in both "
        "directions.",
        widget=text_input(),
    )
    use_vpn = forms.BooleanField(
        label="Use VPN",
        required=False,
        help_text="Connect to the attachment point over its OpenVPN. The VPN assigns your address.",
    )
    public_ip = RuleField(
        _optional(_ip),
        label="Public IP address",
        help_text="The attachment point sends the packets of this link here. Leave empty with the VPN.",
        widget=text_input(placeholder="192.0.2.7"),
    )
    public_port = RuleField(
        parse_port,
        label="Public port (UDP)",
        initial=str(DEFAULT_PORT),
        help_text=f"From {MIN_PORT} to {MAX_PORT}. One port for each link on the same address.",
        widget=text_input(inputmode="numeric"),
    )
    bind_ip = RuleField(
        _optional(_ip),
        label="Bind IP address",
        help_text=f"The address your border router binds to, if it differs. In a virtual machine leave it empty: "
        f"an IPv4 link then uses {VM_ADDRESS}, the address behind the NAT of VirtualBox.",
        widget=text_input(),
    )
    bind_port = RuleField(
        _optional(parse_port),
        label="Bind port (UDP)",
        help_text="The port your border router binds to, if it differs.",
        widget=text_input(inputmode="numeric"),
    )

    def __init__(self, *args: Any, choices: Sequence[Choice], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.stored: Limits | None = None  # of the edited Link, if known
        self.exception_kbit: int | None = None  # likewise
        self.by_value = {str(choice.id): choice for choice in choices}
        self.fields["attachment_point"] = AttachmentPointField(choices)
        self.fields["bandwidth_kbit"].help_text = format_html(
            "<span data-limit>{}</span> Per direction; you can also enter 1.5M or 10 Mbit/s. 0 blocks the link; "
            "below {} SCION finds no new paths.",
            self._limit_hint(),
            format_kbit(NEW_PATHS_MINIMUM_KBIT),
        )

    def _limit_hint(self) -> str:
        """Names the attachment point, so that it stays true when another is chosen without JavaScript."""
        if self.chosen is None:
            return "The list shows the maximum of each attachment point."
        return f"Initial value and maximum at {self.chosen.name}: {format_exact_kbit(self.chosen.maximum_kbit)}."

    @property
    def chosen(self) -> Choice | None:
        return self.by_value.get(str(self["attachment_point"].value()))

    @property
    def maximum_kbit(self) -> int:
        """Of the chosen attachment point, or by an exception of the edited Link."""
        if self.chosen is None:
            return MAX_BANDWIDTH_KBIT
        return with_exception(self.chosen.maximum_kbit, self.exception_kbit)

    @property
    def is_stored(self) -> bool:
        """An existing attachment."""
        return bool(self["link_id"].value())

    @property
    def has_bind(self) -> bool:
        """Open the rarely used fields if they have a value or an error."""
        return any(self[name].value() or self[name].errors for name in ("bind_ip", "bind_port"))

    @property
    def is_divided(self) -> bool:
        """Open the second number if it has a value or an error."""
        return bool(self["from_user_kbit"].value() or self["from_user_kbit"].errors)

    @property
    def understood(self) -> Limits | None:
        """The limits as parsed, None if one is invalid."""
        try:
            to_user = parse_bandwidth_text(self["bandwidth_kbit"].value())
            other = self["from_user_kbit"].value()
            return Limits(to_user, parse_bandwidth_text(other) if other else to_user)
        except RuleError:
            return None

    @property
    def limit_errors(self) -> list[str]:
        """Errors of the bandwidths, also of an unsubmitted row: parsing, and the maximum."""
        limits = self.understood
        if limits is not None:
            return [error.message for error in check_change(self.stored, limits, self.maximum_kbit).values()]
        messages = []
        for name in ("bandwidth_kbit", "from_user_kbit"):
            written = self[name].value()
            try:
                if written or name == "bandwidth_kbit":
                    parse_bandwidth_text(written)
            except RuleError as exc:
                messages.append(exc.message)
        return messages

    @property
    def warning(self) -> str | None:
        """About an allowed but surprising bandwidth."""
        limits = self.understood
        if limits is None:
            return None
        if self.is_stored and max(limits) > self.maximum_kbit:
            return (
                f"Above the maximum: clamped to {format_kbit(self.maximum_kbit)}. The requested limit is "
                "kept and applies again when the maximum is raised."
            )
        return limits_warning(limits)

    @property
    def counted(self) -> str | None:
        """What the limits count, and leave for SCION; None without an address, which a VPN assigns."""
        limits = self.understood
        try:
            address = _ip(self["public_ip"].value())
        except RuleError:
            return None
        if limits is None or self["use_vpn"].value():
            return None
        return counted_sentence(limits, underlay_ip=address, is_vpn=False, mtu=link_mtu_bytes(address))

    def spec(self) -> AttachmentSpec:
        """The form must be valid."""
        data = self.cleaned_data
        return AttachmentSpec(
            attachment_point_id=data["attachment_point"],
            use_vpn=data["use_vpn"],
            public_ip=data["public_ip"],
            public_port=data["public_port"],
            bandwidth_kbit=data["bandwidth_kbit"],
            from_user_kbit=data["from_user_kbit"],
            bind_ip=data["bind_ip"],
            bind_port=data["bind_port"],
            link_id=data["link_id"],
            active=data["active"] or data["link_id"] is None,
        )


# --- errors for the summary on top ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Problem:
    """An error in the summary: target, name, message."""

    target: str
    name: str
    message: str


def problems_of(form: forms.Form, prefix: str) -> Iterable[Problem]:
    if not form.is_bound:
        return
    for name in (NON_FIELD_ERRORS, *form.fields):
        messages = [str(message) for message in form.errors.get(name) or ()]
        if name == NON_FIELD_ERRORS:
            target, label = f"{form.prefix or 'as'}-errors", prefix.removesuffix(": ")
        else:
            target, label = form[name].id_for_label or form[name].auto_id, f"{prefix}{form[name].label}"
        for message in messages:
            yield Problem(str(target), str(label), message)
