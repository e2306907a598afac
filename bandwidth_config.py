"""The bandwidth domain and the wire contract between the Coordination Service and the AP agent.

Units, bounds, rules of a Link's bandwidth, and the writer of a host's `link_info.json` (`link_info` is its reader).
Both programs import this module; it uses the standard library only and does no I/O.

Units: a bandwidth is an integer number of kbit/s, 1 kbit = 1000 bit. 0 means *blocked*, never "unlimited".
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, Protocol

MIN_BANDWIDTH_KBIT = 0
MBIT_FROM_KBIT = 10_000  # larger bandwidths are shown in Mbit/s
MAX_BANDWIDTH_KBIT = 100_000_000  # 100 Gbit/s; upper bound of any maximum (DOMAIN section 2)
INITIAL_DEFAULT_BANDWIDTH_KBIT = 1_000  # the thesis' default bandwidth, the initial site default

# A border router sends a BFD packet of 134 (IPv4) or 178 bytes (IPv6) every 150 to 200 ms in each direction (RFC 5880
# section 6.8.7 shortens intervals by up to a quarter): 5.4 to 9.5 kbit/s. At 32 kbit/s and 20-fold overload all
# arrived (DOMAIN section 7).
HEARTBEAT_MINIMUM_KBIT = 32
# At 48 kbit/s SCION v0.15.1 found its first path in all runs, at 32 in none (docs/running-as.md).
NEW_PATHS_MINIMUM_KBIT = 48

MIN_TOTAL_KBIT, MAX_TOTAL_KBIT = 1, MAX_BANDWIDTH_KBIT  # of all Links of an attachment point together

LINK_INFO_SCHEMA, LINK_INFO_PATH = 1, "etc/scion/link_info.json"
TO_USER_KEY, FROM_USER_KEY, TIMED_KEY = "Bandwidth-To-User", "Bandwidth-From-User", "Timed"
OBSERVE_KEY, TESTS_KEY = "Observe", "Tests"
TIME_FORMAT = "%Y-%m-%dT%H:%M:%SZ"

_BANDWIDTH_HINT = "Enter a whole number of kbit/s, for example 500."


class RuleError(ValueError):
    """A value breaks a rule of the domain. `code` is stable and names the rule, `message` is one sentence with the
    value, the limit and the remedy; form, API and admin show the same message."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def format_number(value: int) -> str:
    """`120000` -> `120 000`, with non-breaking spaces."""
    return f"{value:,}".replace(",", "\N{NO-BREAK SPACE}")


def format_exact_kbit(bandwidth_kbit: int) -> str:
    """`120000` -> `120 000 kbit/s`: for use beside input fields."""
    return f"{format_number(bandwidth_kbit)}\N{NO-BREAK SPACE}kbit/s"


def format_kbit(bandwidth_kbit: int) -> str:
    """For people: `500` -> `500 kbit/s`; from 10 000 kbit/s on in Mbit/s, not rounded: `12345` -> `12.345 Mbit/s`."""
    if bandwidth_kbit < MBIT_FROM_KBIT:
        return format_exact_kbit(bandwidth_kbit)
    whole, rest = divmod(bandwidth_kbit, 1000)
    decimals = f".{rest:03}".rstrip("0") if rest else ""
    return f"{format_number(whole)}{decimals}\N{NO-BREAK SPACE}Mbit/s"


# --- the bandwidth of a Link ------------------------------------------------------------------------------


def parse_bandwidth(text: object) -> int:
    """Parse kbit/s from a form or API. Raises `RuleError` (`bandwidth_required`, ...). Only plain decimal digits are
    accepted: `1e3`, `1.5`, `+5` and `0x10` are ambiguous. `check_bandwidth` checks the bounds."""
    if text is None or text == "":
        raise RuleError("bandwidth_required", f"A bandwidth is missing. {_BANDWIDTH_HINT}")
    if isinstance(text, int) and not isinstance(text, bool):
        return text
    written = str(text).strip()
    if not re.fullmatch(r"-?[0-9]+", written, flags=re.ASCII):
        shown = written if len(written) <= 40 else written[:37] + "..."
        raise RuleError("bandwidth_invalid", f'"{shown}" is not a whole number of kbit/s. {_BANDWIDTH_HINT}')
    if len(written) > 20:  # more digits than any 64-bit number: reject before int() processes them
        raise RuleError(
            "bandwidth_too_high",
            f"A bandwidth of {len(written)} digits is above the greatest possible one of "
            f"{format_exact_kbit(MAX_BANDWIDTH_KBIT)}. {_BANDWIDTH_HINT}",
        )
    return int(written)


def check_bandwidth(bandwidth_kbit: int, maximum_kbit: int = MAX_BANDWIDTH_KBIT) -> None:
    """Check that a Link's bandwidth lies in [0, x], x being the default in force (DOMAIN section 2). Raises `RuleError`
    (`bandwidth_negative`, `bandwidth_too_high`)."""
    if bandwidth_kbit < MIN_BANDWIDTH_KBIT:
        raise RuleError(
            "bandwidth_negative",
            f"Bandwidth {format_exact_kbit(bandwidth_kbit)} is below 0. Choose 0 to block the link, or a number up to "
            f"{format_number(maximum_kbit)}.",
        )
    if bandwidth_kbit > maximum_kbit:
        if maximum_kbit >= MAX_BANDWIDTH_KBIT:
            limit, remedy = "the greatest possible bandwidth", f"Choose at most {format_number(maximum_kbit)}."
        else:
            limit = "this link's maximum"
            remedy = f"Choose at most {format_number(maximum_kbit)}, or ask the administrators to raise it."
        raise RuleError(
            "bandwidth_too_high",
            f"Bandwidth {format_exact_kbit(bandwidth_kbit)} is above {limit} of "
            f"{format_exact_kbit(maximum_kbit)}. {remedy}",
        )


def check_total(total_kbit: int) -> None:
    """Check the maximum of all Links of an attachment point together, in each direction. Raises `RuleError`
    (`total_range`): 0 is not allowed, because it would block every Link."""
    if not MIN_TOTAL_KBIT <= total_kbit <= MAX_TOTAL_KBIT:
        raise RuleError(
            "total_range",
            f"A total of {format_exact_kbit(total_kbit)} is not between {format_exact_kbit(MIN_TOTAL_KBIT)} and "
            f"{format_exact_kbit(MAX_TOTAL_KBIT)}. Enter another number, or leave it empty for no total.",
        )


def default_in_force(site_default_kbit: int, ap_default_kbit: int | None) -> int:
    """x of one attachment point: its own default (which may be 0), otherwise the site's."""
    return site_default_kbit if ap_default_kbit is None else ap_default_kbit


class Limits(NamedTuple):
    """Limits of a Link in each direction [kbit/s]; 0 blocks that direction only."""

    to_user_kbit: int
    from_user_kbit: int

    @classmethod
    def both(cls, bandwidth_kbit: int) -> Limits:
        return cls(bandwidth_kbit, bandwidth_kbit)

    @classmethod
    def of_columns(cls, to_user_kbit: int, from_user_kbit: int | None) -> Limits:
        """From the two stored numbers; the second is None if equal to the first."""
        return cls(to_user_kbit, to_user_kbit if from_user_kbit is None else from_user_kbit)

    def to_columns(self) -> tuple[int, int | None]:
        return self.to_user_kbit, None if self.is_symmetric else self.from_user_kbit

    @property
    def is_symmetric(self) -> bool:
        return self.to_user_kbit == self.from_user_kbit

    @property
    def lowest_kbit(self) -> int:
        """For a reader with a single number for both directions: never above either limit."""
        return min(self)

    def clamped(self, maximum_kbit: int) -> Limits:
        """What the AP enforces if x is lower. The user's choice is kept (DOMAIN section 2)."""
        return Limits(*(min(one, maximum_kbit) for one in self))

    def __str__(self) -> str:
        """For people: one number if both directions are equal."""
        if self.is_symmetric:
            return format_kbit(self.to_user_kbit)
        return f"{format_kbit(self.to_user_kbit)} to the user AS and {format_kbit(self.from_user_kbit)} from it"


def check_limits(limits: Limits, maximum_kbit: int = MAX_BANDWIDTH_KBIT) -> None:
    """`check_bandwidth` of each direction. Raises `RuleError` (`bandwidth_negative`, `bandwidth_too_high`)."""
    for one in limits:
        check_bandwidth(one, maximum_kbit)


def check_change(old: Limits | None, new: Limits, maximum_kbit: int) -> dict[str, RuleError]:
    """Return the directions of `new` that must not be stored at a Link, by name in `Limits`, with their errors. A new
    number lies in [0, maximum]. A stored one (`old`; None: nothing stored) may stay although a lowered default clamps
    it: it is the user's choice. Equal directions are one number on every page, and one error, that of
    `to_user_kbit`."""
    errors: dict[str, RuleError] = {}
    for name, was, kbit in zip(Limits._fields, old or (None, None), new, strict=True):
        if kbit != was:
            try:
                check_bandwidth(kbit, maximum_kbit)
            except RuleError as exc:
                errors.setdefault(Limits._fields[0] if new.is_symmetric else name, exc)
    return errors


_SECOND = timedelta(seconds=1)


class LinkStep(NamedTuple):
    """Limits from `offset_s` after the start of a timed limit until its next step or end."""

    offset_s: int
    limits: Limits


@dataclass(frozen=True, slots=True, order=True)
class TimedLimits:
    """Limits that replace a Link's own from `begins_at` until `ends_at` (aware, UTC, whole seconds)."""

    begins_at: datetime
    ends_at: datetime
    steps: tuple[LinkStep, ...]

    @property
    def duration_s(self) -> int:
        return (self.ends_at - self.begins_at) // _SECOND

    def at(self, when: datetime) -> Limits | None:
        """The limits at `when`, None before and after; the end is exclusive."""
        if not self.begins_at <= when < self.ends_at:
            return None
        return self.steps[self._step_at(when)].limits

    def next_change(self, after: datetime) -> datetime | None:
        """The first moment after `after` at which a step begins or the last one ends; None if it is over."""
        if after < self.begins_at:
            return self.begins_at
        return None if after >= self.ends_at else self._change(self._step_at(after) + 1)

    def last_change(self, until: datetime) -> datetime | None:
        """The last moment until `until` (inclusive) at which a step began or the last one ended; None before the
        first."""
        if until < self.begins_at:
            return None
        return self.ends_at if until >= self.ends_at else self._change(self._step_at(until))

    def _step_at(self, when: datetime) -> int:
        return bisect_right(self.steps, (when - self.begins_at) // _SECOND, key=lambda step: step.offset_s) - 1

    def _change(self, step: int) -> datetime:
        """Start of a step; the index after the last is the end."""
        return self.begins_at + self.steps[step].offset_s * _SECOND if step < len(self.steps) else self.ends_at


def limits_at(standing: Limits, timed: Iterable[TimedLimits], when: datetime) -> Limits:
    """The timed limit that runs at `when`, otherwise the regular limits."""
    return next((limits for one in timed if (limits := one.at(when)) is not None), standing)


@dataclass(frozen=True, kw_only=True)
class LinkEnd:
    """An active Link as `generate_link_info` reads it, from the host's side. `is_limited`: the remote AS is a user AS
    and this host's AS is its provider on this Link. `bandwidth_kbit` (to the user AS), `from_user_kbit` (None: the
    same) and `timed` (in any order) are as requested; `maximum_kbit` clamps them. `observe_only`: measured and not
    limited. `tests`: as `link_tests` writes them."""

    interface_id: int
    remote_isd_as: str
    remote_ip: str
    remote_port: int
    local_ip: str
    local_port: int
    is_vpn: bool
    is_limited: bool
    bandwidth_kbit: int
    maximum_kbit: int
    from_user_kbit: int | None = None
    timed: Sequence[TimedLimits] = ()
    observe_only: bool = False
    tests: Sequence[Mapping[str, str | int]] = ()


class HostWithLinks(Protocol):
    """A host with the active Links that end on it."""

    @property
    def link_ends(self) -> Iterable[LinkEnd]: ...


def as_id_of(isd_as: str) -> int:
    """Low 16 bits of the AS number: `17-ffaa:1:b6` -> 0xb6. The groups are hexadecimal."""
    return int(isd_as.rpartition(":")[2], 16)


def generate_link_info(host: HostWithLinks) -> dict[str, dict[str, Any]]:
    """Build the link_info.json document of a host, keyed by its interface ids in numerical order."""
    return {str(end.interface_id): _entry(end) for end in sorted(host.link_ends, key=lambda end: end.interface_id)}


def standing_limits(end: LinkEnd) -> Limits:
    """Limits of a limited Link without a timed limit: the request, clamped to x."""
    return Limits.of_columns(end.bandwidth_kbit, end.from_user_kbit).clamped(end.maximum_kbit)


def _entry(end: LinkEnd) -> dict[str, Any]:
    # Not limited: never 0, which could be read as "block the uplink". The provider blocks it.
    limits = standing_limits(end) if end.is_limited else Limits.both(max(1, end.bandwidth_kbit))
    entry = {
        "AS_ID": as_id_of(end.remote_isd_as),
        "IsUserAS": end.is_limited,
        "Bandwidth": limits.lowest_kbit,
        "IP-Address": end.remote_ip,
        "ISD-AS": end.remote_isd_as,
        "Port": end.remote_port,
        "Local-IP": end.local_ip,
        "Local-Port": end.local_port,
        "VPN": end.is_vpn,
    }
    if not limits.is_symmetric:
        entry |= {TO_USER_KEY: limits.to_user_kbit, FROM_USER_KEY: limits.from_user_kbit}
    if end.is_limited and end.timed:
        entry[TIMED_KEY] = [
            {
                "From": time_text(one.begins_at),
                "Until": time_text(one.ends_at),
                "Steps": [[offset_s, *limits.clamped(end.maximum_kbit)] for offset_s, limits in one.steps],
            }
            for one in sorted(end.timed)
        ]
    if end.is_limited and end.observe_only:
        entry[OBSERVE_KEY] = True
    if end.is_limited and end.tests:
        entry[TESTS_KEY] = [dict(one) for one in end.tests]
    return entry


def time_text(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime(TIME_FORMAT)
