"""Forms of a user AS and its attachments.

They parse text and place errors. `editor` handles the rows of the whole page; `bandwidth_config` and `user_as` have the
rules, whose messages are shown unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from ipaddress import ip_address
from typing import Any

from django import forms
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
from contract.link_rules import MAX_PORT, MIN_PORT, check_port, parse_ip, with_exception
from contract.scion_files import link_mtu_bytes
from scionlab.limits.framing import Framing, counted_sentence
from scionlab.platform.notation.bandwidth import limits_warning, parse_bandwidth_text
from scionlab.testbed.models import Host, UserAS
from scionlab.user_ases.attachments import DEFAULT_PORT, VM_ADDRESS, AttachmentSpec
from scionlab.user_ases.pages.attachment_point_field import AttachmentPointField, Choice
from scionlab.web.pages.forms import RuleField, text_input

_PORT_HINT = f"Enter a whole number from {MIN_PORT} to {MAX_PORT}, for example {DEFAULT_PORT}."


def parse_port(text: str) -> int:
    """Raises `RuleError` (`port_required`, `port_invalid`, `port_range`)."""
    if text == "":
        raise RuleError("port_required", f"A port is missing. {_PORT_HINT}")
    if not re.fullmatch(r"-?[0-9]{1,20}", text, flags=re.ASCII):
        shown = text if len(text) <= 40 else text[:37] + "..."
        raise RuleError("port_invalid", f'"{shown}" is not a port number. {_PORT_HINT}')
    check_port(int(text))
    return int(text)


def _ip(text: str) -> str:
    return str(parse_ip(text))


# --- forms --------------------------------------------------------------------------------------------------


class UserASForm(forms.Form):
    """Fields of the AS itself. `user_ases.user_as` validates."""

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
        parse_bandwidth_text,
        optional=True,
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
        _ip,
        optional=True,
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
        _ip,
        optional=True,
        label="Bind IP address",
        help_text=f"The address your border router binds to, if it differs. In a virtual machine leave it empty: "
        f"an IPv4 link then uses {VM_ADDRESS}, the address behind the NAT of VirtualBox.",
        widget=text_input(),
    )
    bind_port = RuleField(
        parse_port,
        optional=True,
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
        return counted_sentence(limits, Framing(ip_address(address).version, is_vpn=False, mtu=link_mtu_bytes(address)))

    def spec(self) -> AttachmentSpec:
        """The form must be valid."""
        data = {**self.cleaned_data}
        data["active"] |= data["link_id"] is None
        return AttachmentSpec(attachment_point_id=data.pop("attachment_point"), **data)
