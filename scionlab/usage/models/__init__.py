"""Models."""

from scionlab.usage.models.usage import (
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

__all__ = [
    "UsageBatch",
    "UsageCounter",
    "UsageDay",
    "UsageMonth",
    "UsageProgress",
    "UsageSamples",
    "UsageSeries",
    "UsageSlot",
    "UsageUplink",
]
