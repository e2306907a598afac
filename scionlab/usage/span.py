"""Parses a period and its step from a request."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final, NamedTuple

from django.utils.dateparse import parse_datetime

from bandwidth_config import RuleError
from scionlab.usage.series import STEPS_MS, Step

USUAL: Final = timedelta(days=1)


class Span(NamedTuple):
    begins_at: datetime
    ends_at: datetime
    step: Step | None


def read_span(*, begins_at: str, ends_at: str, step: str, now: datetime) -> Span:
    """Empty texts: the last day, with a fitting step. Raises `RuleError` (`time_invalid`, `usage_step_unknown`)."""
    if step and step not in STEPS_MS:
        raise RuleError("usage_step_unknown", f'Step "{step[:20]}" is not known. Use one of {", ".join(STEPS_MS)}.')
    end = _time(ends_at) if ends_at else now
    begin = _time(begins_at) if begins_at else end - USUAL
    return Span(begin, end, step or None)


def _time(written: str) -> datetime:
    try:
        found = parse_datetime(written)
    except ValueError:  # the 31st of February
        found = None
    # An unescaped "+" of an offset arrives as a space.
    if found is None or found.tzinfo is None or not 1970 <= found.year < 9999:
        raise RuleError(
            "time_invalid",
            f'"{written[:40]}" is not a time with a time zone. Use one like 2026-11-21T06:00:00Z.',
        )
    return found
