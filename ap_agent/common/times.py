"""Times as text for programs: UTC, ISO 8601, with a Z."""

from __future__ import annotations

from datetime import UTC, datetime


def time_text(moment: datetime, timespec: str = "seconds") -> str:
    """`2028-11-21T00:00:00Z`; `timespec` is that of `datetime.isoformat`. strftime would write the year 1 as `1`."""
    return moment.astimezone(UTC).isoformat(timespec=timespec).replace("+00:00", "Z")
