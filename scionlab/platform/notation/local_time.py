"""Parses and formats times in the zone of a profile, to and from UTC.

When clocks change, an hour may not exist or occur twice. Both are rejected with the possible readings. An offset in the
text (`+02:00`, `Z`) decides, whatever the zone.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo

from django.utils.timezone import localtime

from bandwidth_config import RuleError

_EXAMPLE = "2026-11-22 18:30"
_WRITTEN = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})[T ]+([0-9]{2}):([0-9]{2})(?::([0-9]{2}))?\s*(Z|UTC|[+-][0-9]{2}:[0-9]{2})?",
    flags=re.ASCII,
)


def zone_of(user: object) -> ZoneInfo:
    """The zone of a profile; UTC if none, or unknown on this machine."""
    try:
        return ZoneInfo(getattr(user, "time_zone", "") or "UTC")
    except (KeyError, ValueError, OSError):
        return ZoneInfo("UTC")


def parse_local_time(text: object, zone: ZoneInfo) -> datetime:
    """Parse `2026-11-22 18:30` in `zone` (or with an offset, or a browser's format) -> UTC, whole seconds. Raises
    `RuleError` (`time_required`, `time_invalid`, `time_nonexistent`, `time_ambiguous`)."""
    written = str(text or "").strip()
    if not written:
        raise RuleError("time_required", f"A time is missing. Enter one like {_EXAMPLE}.")
    match = _WRITTEN.fullmatch(written)
    shown = written if len(written) <= 40 else written[:37] + "..."
    invalid = RuleError("time_invalid", f'"{shown}" is not a date and time. Enter one like {_EXAMPLE}.')
    if match is None or not 1970 <= int(match[1]) < 9999:  # shown in any zone, it stays in the calendar
        raise invalid
    try:
        naive = datetime(*(int(part or 0) for part in match.groups()[:6]))  # type: ignore[arg-type]  # six numbers
        offset = _offset(match[7]) if match[7] else None
        found = [naive.replace(tzinfo=offset)] if offset else readings(naive, zone)
        utc = [moment.astimezone(UTC) for moment in found]
    except (ValueError, OverflowError) as exc:
        raise invalid from exc
    if not utc:
        raise _nonexistent(naive, zone)
    if len(utc) > 1:
        raise _ambiguous(naive, found, zone)
    return utc[0]


def readings(naive: datetime, zone: tzinfo) -> list[datetime]:
    """The moments at which `zone` shows this time, in order: one, or none or two around a change of clocks."""
    found: list[datetime] = []
    for fold in (0, 1):
        moment = naive.replace(tzinfo=zone, fold=fold)
        is_real = moment.astimezone(UTC).astimezone(zone).replace(tzinfo=None) == naive
        if is_real and (not found or moment.utcoffset() != found[0].utcoffset()):
            found.append(moment)
    return found


def say_time(at: datetime, zone: tzinfo | None = None) -> str:
    """Return `2026-11-22 18:30:00 CET`, in `zone` or the reader's. Pages activate the reader's zone
    (`web.pages.own_pages.own_page`); the API, tasks and commands use UTC."""
    return f"{localtime(at, zone):%Y-%m-%d %H:%M:%S %Z}"


_SAID_IN_UTC = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2} UTC", flags=re.ASCII)


def localized(text: str) -> str:
    """Convert the UTC times in a stored sentence to the reader's zone."""
    return _SAID_IN_UTC.sub(_localized, text)


def _localized(match: re.Match[str]) -> str:
    try:
        return say_time(datetime.strptime(match[0], "%Y-%m-%d %H:%M:%S UTC").replace(tzinfo=UTC))
    except (ValueError, OverflowError):  # no such date
        return match[0]


def write_local_time(at: datetime, zone: ZoneInfo) -> str:
    """For a field, so that it can be parsed again: with an offset if the time is ambiguous."""
    local = at.astimezone(zone)
    text = f"{local:%Y-%m-%d %H:%M}" + (f":{local:%S}" if local.second else "")
    return text if len(readings(local.replace(tzinfo=None, fold=0), zone)) == 1 else f"{text}{_written_offset(local)}"


def control_value(text: str, zone: tzinfo) -> str | None:
    """Return `2026-11-22 18:30` for a browser's datetime control; None if it cannot hold the value: with an offset,
    ambiguous, or invalid."""
    match = _WRITTEN.fullmatch(text.strip())
    try:
        naive = datetime(*(int(part or 0) for part in match.groups()[:6])) if match else None  # type: ignore[arg-type]  # six
        if match is None or match[7] or naive is None or len(readings(naive, zone)) > 1:
            return None
    except (ValueError, OverflowError):
        return None
    return f"{naive:%Y-%m-%dT%H:%M}" + (f":{naive:%S}" if naive.second else "")


def _offset(text: str) -> timezone:
    if text in {"Z", "UTC"}:
        return UTC
    hours, minutes = int(text[1:3]), int(text[4:6])
    if minutes > 59:
        raise ValueError(text)
    return timezone((-1 if text[0] == "-" else 1) * timedelta(hours=hours, minutes=minutes))


def _written_offset(moment: datetime) -> str:
    text = moment.strftime("%z")
    return f"{text[:3]}:{text[3:5]}"


def _ambiguous(naive: datetime, found: list[datetime], zone: ZoneInfo) -> RuleError:
    choices = " or ".join(
        f"{naive:%Y-%m-%d %H:%M}{_written_offset(one)} ({which}, {one.astimezone(UTC):%H:%M} UTC)"
        for which, one in zip(("the first", "the second"), found, strict=True)
    )
    return RuleError(
        "time_ambiguous",
        f"{naive:%Y-%m-%d %H:%M} occurs twice in {zone.key}, because clocks are set back. Enter {choices}.",
    )


def _nonexistent(naive: datetime, zone: ZoneInfo) -> RuleError:
    # Read with the offset from before the change, the moment is as far after the change as the text is into the gap.
    after = naive.replace(tzinfo=zone, fold=0).astimezone(UTC).astimezone(zone)
    before = naive.replace(tzinfo=zone, fold=1).astimezone(UTC).astimezone(zone)
    return RuleError(
        "time_nonexistent",
        f"{naive:%Y-%m-%d %H:%M} does not exist in {zone.key}, because clocks are set forward. Enter "
        f"{before:%Y-%m-%d %H:%M} or {after:%Y-%m-%d %H:%M}.",
    )
