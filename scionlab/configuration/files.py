"""What is made elsewhere for a host's tarball, by paths from the root: keys, certificates and TRCs; OpenVPN's files."""

from __future__ import annotations

from scion_files import COMPLETE
from scionlab.models import Host
from scionlab.trust import credentials, vpn


def trust_files(host: Host) -> dict[str, bytes]:
    """No certificates where the ISD has no core AS, nothing where the configuration has topology.json alone."""
    return credentials.files_for(host) if host.configuration_format >= COMPLETE else {}


def vpn_files(host: Host) -> dict[str, bytes]:
    """Empty for a host that is in no VPN, and for one whose configuration has topology.json alone."""
    return vpn.files_for(host) if host.configuration_format >= COMPLETE else {}
