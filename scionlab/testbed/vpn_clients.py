"""Clients of the VPNs: one address for each host."""

from __future__ import annotations

from typing import Final

from bandwidth_config import RuleError
from scionlab.testbed.life import LIVES
from scionlab.testbed.models import VPN, Host, VPNClient, numbers

# Each is a file of the server's tarball, of which agents accept 1000; half of them are left for routers (at most 253),
# TRCs, keys and settings.
MAX_CLIENTS: Final = 500


def vpn_client_for(vpn: VPN, host: Host) -> VPNClient:
    """The host's client in this VPN; created if missing, with the smallest free address. Call it with the
    attachment point's row locked. Raises `RuleError` (`vpn_full`)."""
    client = VPNClient.objects.filter(vpn=vpn, host=host).first()
    if client is not None:
        return client
    ip, count = numbers.free_vpn_address(vpn, host), vpn.clients.count()
    if ip is None or count >= MAX_CLIENTS:
        of = f"the VPN of {vpn.host.AS.isd_as if vpn.host.AS else vpn.host}"
        why = f"All addresses of {of} ({vpn.subnet}) are in use."
        if count >= MAX_CLIENTS:
            why = f"{count} clients are in {of}, and {MAX_CLIENTS} is the most."
        raise RuleError("vpn_full", f"{why} Give a public IP, or choose another attachment point.")
    client = VPNClient.objects.create(vpn=vpn, host=host, ip=ip)
    for life in LIVES:
        life.vpn_clients_made([client])
    return client
