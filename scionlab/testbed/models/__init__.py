"""Models."""

from scionlab.testbed.models.attachment_point import AttachmentPoint, BandwidthPolicy
from scionlab.testbed.models.audit import BandwidthChange
from scionlab.testbed.models.host import BorderRouter, Host
from scionlab.testbed.models.installed import DeletedHost, InstalledFiles
from scionlab.testbed.models.isd_as import AS, ISD, UserAS
from scionlab.testbed.models.link import Interface, Link
from scionlab.testbed.models.link_ends import HeldLinkEnd, RestartBudget
from scionlab.testbed.models.service_state import ServiceState
from scionlab.testbed.models.timed_limit import TimedLimit
from scionlab.testbed.models.vpn import VPN, VPNClient, VPNClientKeys, VPNServerKeys

__all__ = [
    "AS",
    "ISD",
    "VPN",
    "AttachmentPoint",
    "BandwidthChange",
    "BandwidthPolicy",
    "BorderRouter",
    "DeletedHost",
    "HeldLinkEnd",
    "Host",
    "InstalledFiles",
    "Interface",
    "Link",
    "RestartBudget",
    "ServiceState",
    "TimedLimit",
    "UserAS",
    "VPNClient",
    "VPNClientKeys",
    "VPNServerKeys",
]
