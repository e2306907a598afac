"""Parses bandwidths: `500`, `1.5M`, `10 Mbit/s` -> whole kbit/s. For pages only: the REST API, files and agents use
integers.

Ambiguous input is rejected with the possible readings: `1,5M`, `10 MB/s`, `1 MiB/s`. Arithmetic is decimal: 1.1 Mbit/s
is 1100 kbit/s; fractions of kbit/s are rejected, never rounded.
"""

from __future__ import annotations

import re
from decimal import ROUND_FLOOR, Decimal

from bandwidth_config import (
    HEARTBEAT_MINIMUM_KBIT,
    NEW_PATHS_MINIMUM_KBIT,
    Limits,
    RuleError,
    format_kbit,
    format_number,
    parse_bandwidth,
)

_BIT_PER_UNIT = {"": 1, "k": 1_000, "m": 1_000_000, "g": 1_000_000_000, "t": 1_000_000_000_000}
_NAMES = {"": "bit/s", "k": "kbit/s", "m": "Mbit/s", "g": "Gbit/s", "t": "Tbit/s"}
_LONGEST = 40  # characters; nothing valid is longer

# Digits in groups of three as on our pages (120 000), also with non-breaking spaces.
_GROUPED = r"[0-9]{1,3}(?:[ \u00a0\u202f][0-9]{3})+"
_NUMBER = rf"-?(?:{_GROUPED}|[0-9]+)"
_WRITTEN = re.compile(rf"({_NUMBER}(?:\.[0-9]+)?)[ \u00a0\u202f]*([A-Za-z/]*)", flags=re.ASCII)
_WITH_COMMA = re.compile(r"(-?[0-9][0-9., ]*),([0-9]+)[ \u00a0\u202f]*([A-Za-z/]*)", flags=re.ASCII)
_BITS = re.compile(r"([kmgt]?)(?:b|bps|b/s|bit|bits|bit/s|bits/s|bit/sec|bits/sec)?")
_BYTES = re.compile(r"([kKmMgGtT]?)(?:B|Bps|BPS|B/s|B/S|[bB]ytes?(?:/s|ps)?)")
_BINARY = re.compile(r"([kmgt])i(?:b|bps|b/s|bit|bits|bit/s|bits/s)?")


def parse_bandwidth_text(text: object) -> int:
    """Parse text to kbit/s; a plain number is kbit/s. Prefixes k, M, G, T in either case; units bit/s, bit, bps, b/s or
    none after a prefix. `bandwidth_config.check_bandwidth` checks bounds. Raises `RuleError` (`bandwidth_required`,
    `bandwidth_invalid`, `bandwidth_ambiguous`, `bandwidth_not_whole`, `bandwidth_too_high` for more digits than any
    bandwidth has)."""
    written = str(text).strip() if isinstance(text, str) else text
    if not isinstance(written, str) or re.fullmatch(r"-?[0-9]*", written, flags=re.ASCII):
        return parse_bandwidth(written)
    if len(written) > _LONGEST:
        return parse_bandwidth(written)  # rejects it as no number, and cuts it short
    _refuse_ambiguous(written)
    match = _WRITTEN.fullmatch(written)
    if match is None:
        return parse_bandwidth(written)
    number = Decimal(re.sub(r"[ \u00a0\u202f]", "", match[1]))
    prefix = _prefix(match[2])
    if prefix is None:
        return parse_bandwidth(written)
    if match[2] == "":
        return parse_bandwidth(str(number))  # kbit/s; a fraction is rejected with the rule's own message
    return _whole_kbit(number * _BIT_PER_UNIT[prefix], written)


def limits_warning(limits: Limits) -> str | None:
    """A warning about allowed but surprising limits, or one for each direction; otherwise None."""
    if limits.is_symmetric:
        return _warning(limits.to_user_kbit, "")
    directions = zip(limits, ("to the user AS", "from the user AS"), strict=True)
    return " ".join(filter(None, (_warning(kbit, direction) for kbit, direction in directions))) or None


def _warning(kbit: int, direction: str) -> str | None:
    where = f" {direction}" if direction else ""
    if kbit == 0 and direction:
        return (
            f"0 blocks the direction {direction}. SCION's heartbeats do not pass there either, so the border routers "
            "declare the link down."
        )
    if kbit == 0:
        return "0 blocks the link: nothing passes in either direction."
    if kbit < HEARTBEAT_MINIMUM_KBIT:
        return (
            f"Below {format_kbit(HEARTBEAT_MINIMUM_KBIT)}{where} SCION's heartbeats may not fit, so the border routers "
            f"may declare the link down; below {format_kbit(NEW_PATHS_MINIMUM_KBIT)} SCION finds no new paths."
        )
    if kbit < NEW_PATHS_MINIMUM_KBIT:
        return (
            f"Below {format_kbit(NEW_PATHS_MINIMUM_KBIT)}{where} SCION finds no new paths over this link. Paths that "
            "it has work until they expire, after 6 hours at most."
        )
    return None


def _prefix(unit: str) -> str | None:
    """k, m, g, t or ""; None if `unit` is not a unit of bits."""
    match = _BITS.fullmatch(unit.lower())
    return None if match is None or (unit.lower() in {"b", "bit", "bits"}) else match[1]


def _whole_kbit(bit: Decimal, written: str) -> int:
    kbit = bit / 1000
    if kbit == kbit.to_integral_value():
        return int(kbit)
    below = int(kbit.to_integral_value(rounding=ROUND_FLOOR))
    near = [
        format_number(value) for value in (below, below + 1) if value != 0
    ]  # 0 blocks the link: never the meaning of a fraction
    raise RuleError(
        "bandwidth_not_whole",
        f'"{written}" is {kbit.normalize():f}\N{NO-BREAK SPACE}kbit/s, which is not a whole number of kbit/s. Enter '
        f"{' or '.join(near)}.",
    )


def _refuse_ambiguous(written: str) -> None:
    """Raises `RuleError` (`bandwidth_ambiguous`)."""
    comma = _WITH_COMMA.fullmatch(written)
    if comma is not None:
        whole, rest, unit = comma[1], comma[2], _named(comma[3])
        readings = [f"{whole}.{rest} {unit}", f"{whole}{rest} {unit}"]
        if not whole.removeprefix("-").isdigit():  # several separators can only separate thousands
            readings = [f"{re.sub('[^0-9-]', '', whole)}{rest} {unit}"]
        raise RuleError(
            "bandwidth_ambiguous",
            f'"{written}" has a comma, which can be a decimal point or a thousands separator. Enter '
            f"{_usable(readings)}.",
        )
    match = _WRITTEN.fullmatch(written)
    if match is None:
        return
    number, unit = match[1], match[2]
    as_bytes = _BYTES.fullmatch(unit)
    if as_bytes is not None:
        name = _NAMES[as_bytes[1].lower()]
        eight = f"{(Decimal(re.sub(r'[^0-9.-]', '', number)) * 8).normalize():f}"
        raise RuleError(
            "bandwidth_ambiguous",
            f'"{written}" is in bytes; limits are in bits (1 byte has 8 bits). Enter '
            f"{_usable([f'{eight} {name}'])} instead, or {_usable([f'{number} {name}'])} if you meant bits.",
        )
    binary = _BINARY.fullmatch(unit.lower())
    if binary is not None:
        raise RuleError(
            "bandwidth_ambiguous",
            f'"{written}" has a binary prefix; limits use powers of 1000. Enter '
            f"{_usable([f'{number} {_NAMES[binary[1]]}'])}, or the exact number of kbit/s.",
        )


def _usable(readings: list[str]) -> str:
    """Suggestions must be valid input."""
    good = []
    for reading in readings:
        try:
            parse_bandwidth_text(reading)
        except RuleError:
            continue
        good.append(reading)
    return " or ".join(good) or "a whole number of kbit/s"


def _named(unit: str) -> str:
    prefix = _prefix(unit)
    return _NAMES["k"] if not unit else _NAMES.get(prefix or "", unit)


def in_words(limits: Limits) -> str:
    """`to the user AS 500 kbit/s, from it 500 kbit/s`."""
    to_user, from_user = ("blocked" if kbit == 0 else format_kbit(kbit) for kbit in limits)
    return f"to the user AS {to_user}, from it {from_user}"
