"""Form field for an attachment point."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django import forms

from bandwidth_config import format_kbit
from scionlab.testbed.models import AttachmentPoint, BandwidthPolicy, UserAS


@dataclass(frozen=True)
class Choice:
    """An attachment point in the list."""

    id: int
    isd_as: str
    label: str
    maximum_kbit: int
    ip_versions: str
    has_vpn: bool
    is_possible: bool  # disabled: in another ISD, or this AS itself

    @classmethod
    def of(cls, ap: AttachmentPoint, policy: BandwidthPolicy, *, user_as: UserAS | None = None) -> Choice:
        versions = [name for name, ip in (("IPv4", ap.host.public_ipv4), ("IPv6", ap.host.public_ipv6)) if ip]
        return cls(
            id=ap.pk,
            isd_as=ap.AS.isd_as,
            label=ap.AS.label,
            maximum_kbit=ap.default_in_force(policy),
            ip_versions=" or ".join(versions),
            has_vpn=hasattr(ap.host, "vpn"),
            is_possible=user_as is None or (ap.AS.isd_id == user_as.isd_id and ap.AS_id != user_as.pk),
        )

    @property
    def isd(self) -> str:
        return self.isd_as.partition("-")[0]

    @property
    def name(self) -> str:
        return self.isd_as + (f" ({self.label})" if self.label else "")

    def __str__(self) -> str:
        ways = " or ".join(way for way in (self.ip_versions, "VPN" if self.has_vpn else "") if way)
        return f"{self.name}: at most {format_kbit(self.maximum_kbit)}, {ways or 'not reachable'}"


class AttachmentPointSelect(forms.Select):
    """Each option carries its maximum, so that the page's script can update the hint of the bandwidth."""

    by_value: Mapping[str, Choice] = {}

    def create_option(self, name: str, value: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
        option: dict[str, Any] = super().create_option(name, value, *args, **kwargs)
        choice = self.by_value.get(str(value))
        if choice is not None:
            option["attrs"]["data-maximum"] = str(choice.maximum_kbit)
            option["attrs"]["data-name"] = choice.name
            option["attrs"]["disabled"] = not choice.is_possible
        return option


class AttachmentPointField(forms.TypedChoiceField):
    """An attachment point, grouped by ISD: all attachments of an AS are in one."""

    def __init__(self, choices: Sequence[Choice]) -> None:
        groups: dict[str, list[tuple[str, str]]] = {}
        for choice in choices:
            groups.setdefault(f"ISD {choice.isd}", []).append((str(choice.id), str(choice)))
        widget = AttachmentPointSelect()
        widget.by_value = {str(choice.id): choice for choice in choices}
        super().__init__(
            label="Attachment point",
            coerce=int,
            choices=list(groups.items()),
            widget=widget,
            help_text="This infrastructure AS will be the provider of your AS.",
            error_messages={
                "required": "The attachment point is missing. Choose one from the list.",
                "invalid_choice": "Attachment point %(value)s does not exist. Choose one from the list.",
            },
        )
