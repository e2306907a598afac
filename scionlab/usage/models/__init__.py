"""Models."""

from scionlab.usage.models.usage import (
    UsageBatch,
    UsageCounter,
    UsageDay,
    UsageLock,
    UsageMonth,
    UsageSamples,
    UsageSeries,
    UsageSlot,
    UsageUplink,
)

__all__ = [
    "UsageBatch",
    "UsageCounter",
    "UsageDay",
    "UsageLock",
    "UsageMonth",
    "UsageSamples",
    "UsageSeries",
    "UsageSlot",
    "UsageUplink",
]
