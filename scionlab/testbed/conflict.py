"""Conflicts with a concurrent save of a user AS or a Link, in the words of their pages."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from scionlab.accounts.models import User
from scionlab.testbed.locks import storable_ids
from scionlab.testbed.models import AttachmentPoint, Host, UserAS
from scionlab.web.pages.conflict import Conflict, conflict_of
from scionlab.web.pages.stale_pages import StalePageError

NAMES = {
    "label": "Label",
    "installation_type": "Installation type",
    "scion_packages": "SCION packages",
    "attachment_point_id": "Attachment point",
    "use_vpn": "Use VPN",
    "public_ip": "Public IP address",
    "public_port": "Public port (UDP)",
    "bandwidth_kbit": "Bandwidth",
    "from_user_kbit": "Bandwidth from the user AS",
    "default_bandwidth_kbit": "Default bandwidth",
    "bind_ip": "Bind IP address",
    "bind_port": "Bind port (UDP)",
    "active": "Active",
}
_CHOICES = {
    "installation_type": {value: str(label) for value, label in UserAS.Installation.choices},
    "scion_packages": {value: str(label) for value, label in Host.ScionPackages.choices},
}


def conflict_on_page(error: StalePageError, *, reader: User) -> Conflict:
    return conflict_of(error, reader=reader, labels=NAMES, choices=_CHOICES, places=_names_of)


def _names_of(keys: Collection[int]) -> Mapping[int, str]:
    rows = AttachmentPoint.objects.select_related("AS__isd").filter(pk__in=storable_ids(keys))
    return {ap.pk: ap.AS.isd_as for ap in rows}
