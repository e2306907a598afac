"""Parse and format bandwidths, durations and times. Ambiguous input is rejected with a hint."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, tzinfo
from decimal import Decimal
from typing import Final

from scionlab_bw.errors import UsageError

_FACTORS: Final = {
    "": Decimal(1),
    "k": Decimal(10) ** 3,
    "m": Decimal(10) ** 6,
    "g": Decimal(10) ** 9,
    "t": Decimal(10) ** 12,
}
_SPACE = "[ \u00a0\u202f]"
_BANDWIDTH = re.compile(
    rf"(?P<number>(?:[0-9]{{1,3}}(?:{_SPACE}[0-9]{{3}})+|[0-9]{{1,15}})(?:\.[0-9]{{1,15}})?){_SPACE}*"
    r"(?:(?P<prefix>[kmgt])(?P<unit>b|bps|b/s|bits?|bits?/s|bits?/sec)?|bps|b/s|bits?/s|bits?/sec|)",
    flags=re.ASCII | re.IGNORECASE,
)
_BYTES = re.compile(r"[kKmMgGtT]?(?:B|BPS|Bps|B/s|B/S|[bB]ytes?(?:/s|ps)?)")
_DURATION = re.compile(
    r"(?:([0-9]{1,6})d)?(?:([0-9]{1,6})h)?(?:([0-9]{1,6})m(?:in)?)?(?:([0-9]{1,8})s)?", flags=re.ASCII
)
_HINT = "Write 500 (kbit/s), 1.5M or 10 Mbit/s."
MAX_DURATION_S: Final = 3660 * 86_400
MBIT_FROM_KBIT: Final = 10_000


def parse_bandwidth(text: str) -> int:
    """`500`, `1.5M`, `10 Mbit/s` -> whole kbit/s; a plain number is kbit/s. Raises `UsageError`. Like the service's
    pages, with shorter messages: commas, bytes and binary prefixes are ambiguous and rejected."""
    written = text.strip()
    match = _BANDWIDTH.fullmatch(written)
    if match is None or _is_bytes(written, match):
        raise UsageError(f'"{written[:40]}" is not a bandwidth, or is ambiguous. {_HINT} Units are bits, not bytes.')
    number = Decimal(re.sub(_SPACE, "", match["number"]))
    unit = written[match.end("number") :].strip()
    kbit = number * _FACTORS[(match["prefix"] or "").lower()] / 1000 if unit else number
    if kbit != kbit.to_integral_value():
        raise UsageError(f'"{written}" is {kbit.normalize():f} kbit/s, which is not a whole number of kbit/s. {_HINT}')
    return int(kbit)


def _is_bytes(written: str, match: re.Match[str]) -> bool:
    return _BYTES.fullmatch(written[match.end("number") :].strip(" \u00a0\u202f")) is not None


def parse_duration(text: str) -> int:
    """`90` (seconds), `30s`, `15m`, `2h`, `1d`, `1h30m` -> seconds. Raises `UsageError`."""
    written = text.strip().lower()
    if re.fullmatch(r"[0-9]{1,8}", written, flags=re.ASCII):
        seconds = int(written)
    else:
        match = _DURATION.fullmatch(written) if written else None
        if match is None:
            raise UsageError(f'"{text[:40]}" is not a duration. Write 90, 30s, 15m, 2h, 1d or 1h30m.')
        days, hours, minutes, rest = (int(one or 0) for one in match.groups())
        seconds = ((days * 24 + hours) * 60 + minutes) * 60 + rest
    if not 1 <= seconds <= MAX_DURATION_S:
        raise UsageError(f'"{text[:40]}" is not 1 second to {MAX_DURATION_S // 86_400} days. Choose another duration.')
    return seconds


def parse_moment(text: str, *, now: datetime, zone: tzinfo | None = None) -> datetime:
    """`18:30` (today, or tomorrow if past; the present minute or second is `now`), `2026-11-22 18:30`, with
    an offset or Z, or in `zone` -> UTC. `now` is aware. `zone` None: this machine's. Raises
    `UsageError`, also for nonexistent or ambiguous local times."""
    written = text.strip()
    local_now = now.astimezone(zone)
    clock = re.fullmatch(r"([0-9]{1,2}):([0-9]{2})(?::([0-9]{2}))?", written, flags=re.ASCII)
    try:
        if clock is not None:
            hour, minute, second = (int(one or 0) for one in clock.groups())
            found = datetime(local_now.year, local_now.month, local_now.day, hour, minute, second)
            present = local_now.replace(second=0) if clock[3] is None else local_now
            if found == present.replace(microsecond=0, tzinfo=None, fold=0):
                return now
            if _aware(found, zone) <= now:
                found += timedelta(days=1)
        else:
            found = datetime.fromisoformat(written)
        return _aware(found, zone).astimezone(UTC)
    except (ValueError, OverflowError) as exc:
        raise UsageError(f'"{text[:40]}" is not a time. Write 18:30, 2026-11-22 18:30 or 2026-11-22T18:30Z.') from exc


def iso(found: datetime) -> str:
    return found.isoformat(timespec="seconds").replace("+00:00", "Z")


def _aware(found: datetime, zone: tzinfo | None) -> datetime:
    if found.tzinfo is not None:
        return found
    early, late = (_local(found.replace(fold=fold), zone) for fold in (0, 1))
    back = early.astimezone(UTC).astimezone(early.tzinfo if zone is not None else None).replace(tzinfo=None, fold=0)
    if back != found.replace(fold=0):
        raise UsageError(f"{found:%Y-%m-%d %H:%M} does not exist: clocks are set forward. Choose another time.")
    if early.utcoffset() != late.utcoffset():
        readings = " or ".join(one.isoformat(timespec="minutes") for one in (early, late))
        raise UsageError(f"{found:%Y-%m-%d %H:%M} occurs twice: clocks are set back. Write {readings}.")
    return early


def _local(naive: datetime, zone: tzinfo | None) -> datetime:
    return naive.replace(tzinfo=zone) if zone is not None else naive.astimezone()


def format_number(value: int | None) -> str:
    """`120000` -> `120 000`; `-` for None."""
    return "-" if value is None else f"{value:,}".replace(",", " ")


def format_bandwidth(kbit: int) -> str:
    """`500` -> `500 kbit/s`; from 10 000 kbit/s on in Mbit/s, exactly: `12345` -> `12.345 Mbit/s`."""
    if kbit < MBIT_FROM_KBIT:
        return f"{format_number(kbit)} kbit/s"
    whole, rest = divmod(kbit, 1000)
    return f"{format_number(whole)}{f'.{rest:03}'.rstrip('0') if rest else ''} Mbit/s"


def format_seconds(seconds: float) -> str:
    """`5400` -> `1 h 30 min`: the two largest units."""
    left, parts = round(seconds), []
    for name, size in (("d", 86400), ("h", 3600), ("min", 60), ("s", 1)):
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count} {name}")
    return " ".join(parts[:2]) or "0 s"


def format_bytes(count: int) -> str:
    """`1234567` -> `1.23 MB`, powers of 1000."""
    value, units = float(count), ["B", "kB", "MB", "GB", "TB", "PB"]
    while float(f"{value:.3g}") >= 1000 and len(units) > 1:
        value /= 1000
        units.pop(0)
    return f"{count} B" if units[0] == "B" else f"{value:.3g} {units[0]}"
