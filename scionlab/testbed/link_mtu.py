"""The MTU of a Link, and its activation."""

from __future__ import annotations

from contract.scion_files import MTU_BYTES, MTU_OVER_IPV6_BYTES, link_mtu_bytes
from scionlab.testbed.models import Link


def link_switch(link: Link, *, active: bool) -> None:
    """Activate or deactivate. Activating restarts SCION at both ends anyway, so the MTU is then set to fit the
    addresses."""
    if active and not link.active:
        link.mtu = fitting_mtu_bytes(link)
    link.active = active
    link.save(update_fields=["active", "mtu"])


def fitting_mtu_bytes(link: Link) -> int:
    """An MTU that is not one of ours was set by hand and is only lowered."""
    fitting = link_mtu_bytes(link.interface_b.public_ip)
    return fitting if link.mtu in {MTU_BYTES, MTU_OVER_IPV6_BYTES} else min(link.mtu, fitting)
