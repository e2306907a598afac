"""Models."""

from scionlab.enforcement.models.enforcement import HostReceipt, IssuedLimits, LinkEnforcement, ReportGap
from scionlab.enforcement.models.notice import Notice, NoticeWatch

__all__ = ["HostReceipt", "IssuedLimits", "LinkEnforcement", "Notice", "NoticeWatch", "ReportGap"]
