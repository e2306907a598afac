"""The data of the Coordination Service, one module per noun of the field."""

from scionlab.models.api_request import ApiRequest
from scionlab.models.attachment_point import AttachmentPoint, BandwidthPolicy
from scionlab.models.audit import BandwidthChange, Mail, ServiceState
from scionlab.models.bulk_change import BulkChange
from scionlab.models.enforcement import HostReceipt, LinkEnforcement
from scionlab.models.host import BorderRouter, Host
from scionlab.models.isd_as import AS, ISD, UserAS
from scionlab.models.link import Interface, Link
from scionlab.models.signing import EnrolmentToken, SigningKey
from scionlab.models.timed_limit import TimedLimit
from scionlab.models.usage import (
    UsageBatch,
    UsageCounter,
    UsageDay,
    UsageMonth,
    UsageSamples,
    UsageSeries,
    UsageSlot,
)
from scionlab.models.user import User
from scionlab.models.vpn import VPN, VPNClient

__all__ = [
    "AS",
    "ISD",
    "VPN",
    "ApiRequest",
    "AttachmentPoint",
    "BandwidthChange",
    "BandwidthPolicy",
    "BorderRouter",
    "BulkChange",
    "EnrolmentToken",
    "Host",
    "HostReceipt",
    "Interface",
    "Link",
    "LinkEnforcement",
    "Mail",
    "ServiceState",
    "SigningKey",
    "TimedLimit",
    "UsageBatch",
    "UsageCounter",
    "UsageDay",
    "UsageMonth",
    "UsageSamples",
    "UsageSeries",
    "UsageSlot",
    "User",
    "UserAS",
    "VPNClient",
]
