"""Forms of the setup page. The services validate."""

from __future__ import annotations

import re
from typing import Any

from django import forms

from bandwidth_config import RuleError
from scionlab.accounts.models import User
from scionlab.limits.defaults import site_default_set
from scionlab.platform.notation.bandwidth import parse_bandwidth_text
from scionlab.platform.notation.isd_as import MAX_ISD, format_as_id
from scionlab.testbed.first_setup import attachment_point_set_up
from scionlab.testbed.infrastructure import check_isd_id, infrastructure_as_create, infrastructure_as_id
from scionlab.testbed.models import AS
from scionlab.web.pages.forms import RuleField, RulesForm, text_input

_LABEL = "Optional. Shown beside the ISD-AS."


def _as_text(text: str) -> str:
    """Normalize an AS id. Raises `RuleError` (those of `infrastructure_as_id`)."""
    return format_as_id(infrastructure_as_id(text))


def _isd_id(text: str) -> int:
    """Parse an ISD number. Raises `RuleError` (`isd_range`)."""
    if not re.fullmatch(r"-?[0-9]{1,9}", text, flags=re.ASCII):
        raise RuleError("isd_range", f'"{text[:20]}" is not the number of an ISD. Enter one from 1 to {MAX_ISD}.')
    check_isd_id(int(text))
    return int(text)


def _address(family: str, example: str) -> forms.CharField:
    return forms.CharField(
        label=f"Public {family} address",
        required=False,
        max_length=64,
        empty_value=None,
        help_text=f"Of its host, for example {example}. One of the two addresses is needed.",
        widget=text_input(),
    )


class _StepForm(RulesForm):
    """Ids and labels of the forms."""

    def __init__(self, data: Any = None, **kwargs: Any) -> None:
        super().__init__(data, auto_id="setup_%s", label_suffix="", **kwargs)


class SiteDefaultForm(_StepForm):
    default_bandwidth_kbit = RuleField(
        parse_bandwidth_text,
        label="Site default [kbit/s]",
        help_text="Initial value and maximum of every link, unless its attachment point has a default of its own.",
        widget=text_input(),
    )

    def carry_out(self, actor: User) -> str:
        kbit = self.cleaned_data["default_bandwidth_kbit"]
        site_default_set(default_bandwidth_kbit=kbit, actor=actor, reason="Set up the site")
        return f"The site default is {kbit} kbit/s."


class CoreForm(_StepForm):
    isd_id = RuleField(
        _isd_id,
        label="ISD",
        help_text=f"The number of the isolation domain, 1 to {MAX_ISD}, for example 17.",
        widget=text_input(inputmode="numeric"),
    )
    isd_label = forms.CharField(
        label="Name of the ISD", required=False, max_length=64, help_text="Optional, for example Switzerland."
    )
    as_text = RuleField(
        _as_text, label="AS id of the core AS", help_text="For example ffaa:0:1101.", widget=text_input()
    )
    label = forms.CharField(label="Name of the core AS", required=False, max_length=64, help_text=_LABEL)
    public_ipv4 = _address("IPv4", "198.51.100.1")
    public_ipv6 = _address("IPv6", "2001:db8::1")

    def carry_out(self, actor: User) -> str:
        values = {**self.cleaned_data}
        as_ = infrastructure_as_create(isd=values.pop("isd_id"), **values, is_core=True, actor=actor)
        return f"Core AS {as_} was created, with a host, a border router and its keys."


class AttachmentPointForm(_StepForm):
    as_text = RuleField(
        lambda text: _as_text(text) if text else "",
        label="AS id of the attachment point",
        help_text="For example ffaa:0:1107; it gets a link to the core AS. Empty: user ASes attach to the core AS.",
        widget=text_input(),
    )
    label = forms.CharField(label="Name of the attachment point", required=False, max_length=64, help_text=_LABEL)
    public_ipv4 = _address("IPv4", "198.51.100.7")
    public_ipv6 = _address("IPv6", "2001:db8::7")
    vpn_subnet = forms.CharField(
        label="VPN subnet",
        required=False,
        max_length=43,
        empty_value=None,
        help_text="Optional, for example 10.10.1.0/24: user ASes without a public address attach over OpenVPN.",
        widget=text_input(),
    )

    def __init__(self, data: Any = None, *, core: AS) -> None:
        super().__init__(data)
        self.core = core

    def clean(self) -> dict[str, Any]:
        values = super().clean() or self.cleaned_data
        if values.get("as_text") == "":
            text = f"Without an AS id the core AS {self.core} is the attachment point. Enter the AS id, or empty this."
            for name in ("label", "public_ipv4", "public_ipv6"):
                if values.get(name):
                    self.add_error(name, forms.ValidationError(text, code="as_id_missing"))
        return values

    def carry_out(self, actor: User) -> str:
        ap = attachment_point_set_up(core=self.core, **self.cleaned_data, actor=actor)
        return f"{ap} is an attachment point."


# `carry_out` of each calls the service of its step and returns a message for the user. Raises `RuleError`.
SetupForm = SiteDefaultForm | CoreForm | AttachmentPointForm
