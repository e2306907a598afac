"""Models of the Coordination Service, one module per noun."""

from scionlab.models.account import AccountRequest
from scionlab.models.api_request import ApiRequest
from scionlab.models.api_token import ApiToken
from scionlab.models.attachment_point import AttachmentPoint, BandwidthPolicy
from scionlab.models.audit import BandwidthChange, Mail, ServiceState
from scionlab.models.default_change import DefaultChange
from scionlab.models.enforcement import HostReceipt, IssuedLimits, LinkEnforcement, ReportGap
from scionlab.models.host import BorderRouter, Host
from scionlab.models.installed import DeletedHost, InstalledFiles
from scionlab.models.isd_as import AS, ISD, UserAS
from scionlab.models.joint_test import JointTest
from scionlab.models.link import Interface, Link
from scionlab.models.link_ends import HeldLinkEnd, RestartBudget
from scionlab.models.link_test import LinkTest, TestPolicy, TestResult
from scionlab.models.maximum_exception import MaximumException
from scionlab.models.notice import Notice, NoticeWatch
from scionlab.models.signing import EnrolmentToken, SigningKey
from scionlab.models.timed_limit import TimedLimit
from scionlab.models.trust import TRC, ASKeys, Certificate
from scionlab.models.usage import (
    UsageBatch,
    UsageCounter,
    UsageDay,
    UsageMonth,
    UsageProgress,
    UsageSamples,
    UsageSeries,
    UsageSlot,
    UsageUplink,
)
from scionlab.models.user import MailKind, User
from scionlab.models.vpn import VPN, VPNClient, VPNClientKeys, VPNServerKeys

__all__ = [
    "AS",
    "ISD",
    "TRC",
    "VPN",
    "ASKeys",
    "AccountRequest",
    "ApiRequest",
    "ApiToken",
    "AttachmentPoint",
    "BandwidthChange",
    "BandwidthPolicy",
    "BorderRouter",
    "Certificate",
    "DefaultChange",
    "DeletedHost",
    "EnrolmentToken",
    "HeldLinkEnd",
    "Host",
    "HostReceipt",
    "InstalledFiles",
    "Interface",
    "IssuedLimits",
    "JointTest",
    "Link",
    "LinkEnforcement",
    "LinkTest",
    "Mail",
    "MailKind",
    "MaximumException",
    "Notice",
    "NoticeWatch",
    "ReportGap",
    "RestartBudget",
    "ServiceState",
    "SigningKey",
    "TestPolicy",
    "TestResult",
    "TimedLimit",
    "UsageBatch",
    "UsageCounter",
    "UsageDay",
    "UsageMonth",
    "UsageProgress",
    "UsageSamples",
    "UsageSeries",
    "UsageSlot",
    "UsageUplink",
    "User",
    "UserAS",
    "VPNClient",
    "VPNClientKeys",
    "VPNServerKeys",
]
