"""Files of a host's tarball that other modules make: keys, certificates and TRCs; files of OpenVPN. Keyed by path."""

from __future__ import annotations

from scion_files import COMPLETE
from scionlab.scion_config import credentials, vpn
from scionlab.testbed.models import Host


def trust_files(host: Host) -> dict[str, bytes]:
    """No certificates if the ISD has no core AS; empty if the configuration only has topology.json."""
    return credentials.files_for(host) if host.configuration_format >= COMPLETE else {}


def vpn_files(host: Host) -> dict[str, bytes]:
    """Empty for a host in no VPN, and if its configuration only has topology.json."""
    return vpn.files_for(host) if host.configuration_format >= COMPLETE else {}
