"""Models."""

from scionlab.enforcement.models.enforcement import HostReceipt, LinkEnforcement, ReportGap
from scionlab.enforcement.models.notice import Notice, NoticeWatch

__all__ = ["HostReceipt", "LinkEnforcement", "Notice", "NoticeWatch", "ReportGap"]
