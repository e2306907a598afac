"""The bandwidth domain and the wire contract between the Coordination Service and the AP agent.

Here live the units, the bounds, the rules about a Link's bandwidth and addresses, and the `LinkInfo`
document (`link_info.json`): how it is made from a host, and how it is read back. Both programs import
this module; it uses the standard library only and does no I/O.

Not here: how a limit is enforced (`ap_agent`), how it is stored (`scionlab.models`), how it is packed
(`config_tar`).

Units: a bandwidth is an integer number of kbit/s, 1 kbit = 1000 bit. 0 means *blocked*, never "unlimited".
"""

from __future__ import annotations

import ipaddress
import json
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

MIN_BANDWIDTH_KBIT = 0
MBIT_FROM_KBIT = 10_000  # people read larger bandwidths in Mbit/s
MAX_BANDWIDTH_KBIT = 100_000_000  # 100 Gbit/s; no administrator's maximum may be above this (DOMAIN section 2)
INITIAL_DEFAULT_BANDWIDTH_KBIT = 1_000  # the thesis' default bandwidth, used until an administrator sets another

# A border router sends a BFD packet of 134 (IPv4) or 178 bytes (IPv6) every 150 to 200 ms in each direction (RFC 5880
# section 6.8.7 shortens intervals by up to a quarter): 5.4 to 9.5 kbit/s. At 32 kbit/s and 20-fold overload all
# arrived (docs/adr/0003).
HEARTBEAT_MINIMUM_KBIT = 32
# At 48 kbit/s SCION v0.15.1 found its first path in all runs, at 32 in none (docs/running-as.md).
NEW_PATHS_MINIMUM_KBIT = 48

MIN_TOTAL_KBIT, MAX_TOTAL_KBIT = 1, MAX_BANDWIDTH_KBIT  # of all Links of an attachment point together

MIN_INTERFACE_ID = 1
MAX_INTERFACE_ID = 4094  # interface ids are tc class minors in the agent (docs/adr/0002)
MIN_PORT = 1024
MAX_PORT = 65_535

MAX_STEPS = 200  # of one timed limit
MIN_STEP_S = 1
MAX_TIMED_S = 30 * 24 * 3600  # who forgets a timed limit has the standing one back within a month
MAX_TIMED_AHEAD_S = 90 * 24 * 3600
MAX_TIMED_PER_LINK = 20  # that have not ended
# With these and 4094 links link_info.json has 5.4 MB, a third of what an agent reads (agent/bundle.py).
MAX_STEPS_PER_HOST = 50_000

LINK_INFO_SCHEMA = 1
LINK_INFO_PATH = "etc/scion/link_info.json"
TO_USER_KEY, FROM_USER_KEY, TIMED_KEY = "Bandwidth-To-User", "Bandwidth-From-User", "Timed"
OBSERVE_KEY = "Observe"
_THESIS_KEYS = ("AS_ID", "IsUserAS", "Bandwidth", "IP-Address")
_MAX_NAMED = 20  # entries in one message
_MAX_STEP_NUMBER = 2**53  # longer numbers are no offsets and no bandwidths
_TIME_FORMAT = "%Y-%m-%dT%H:%M:%SZ"
_TIME = re.compile(r"20[0-9]{2}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z", flags=re.ASCII)

_BANDWIDTH_HINT = "Enter a whole number of kbit/s, for example 500."


class RuleError(ValueError):
    """A value breaks a rule of the domain.

    `code` is stable and names the rule, `message` is one sentence with the value, the limit and the remedy;
    forms, API and admin show the same sentence.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class LinkInfoError(RuleError):
    """A link_info.json document that must not be enforced; `code` names the rule that it breaks."""


# --- units and display ------------------------------------------------------------------------------------


def format_number(value: int) -> str:
    """`120000` -> `120 000`, with spaces that do not break across lines."""
    return f"{value:,}".replace(",", "\N{NO-BREAK SPACE}")


def format_exact_kbit(bandwidth_kbit: int) -> str:
    """`120000` -> `120 000 kbit/s`: beside what people type, which counts kbit/s."""
    return f"{format_number(bandwidth_kbit)}\N{NO-BREAK SPACE}kbit/s"


def format_kbit(bandwidth_kbit: int) -> str:
    """For people: `500` -> `500 kbit/s`; from 10 000 kbit/s on in Mbit/s, not rounded: `12345` -> `12.345 Mbit/s`."""
    if bandwidth_kbit < MBIT_FROM_KBIT:
        return format_exact_kbit(bandwidth_kbit)
    whole, rest = divmod(bandwidth_kbit, 1000)
    decimals = f".{rest:03}".rstrip("0") if rest else ""
    return f"{format_number(whole)}{decimals}\N{NO-BREAK SPACE}Mbit/s"


def bytes_per_second(bandwidth_kbit: int) -> int:
    """kbit/s -> byte/s; exact, because 1000 bit are 125 byte."""
    return bandwidth_kbit * 125


# --- the bandwidth of a Link ------------------------------------------------------------------------------


def parse_bandwidth(text: object) -> int:
    """What a person or an API client wrote -> kbit/s. Raises `RuleError` (`bandwidth_required`, ...).

    Only plain decimal digits count: `1e3`, `1.5`, `+5` and `0x10` have several readings, so none is guessed.
    Bounds are the business of `check_bandwidth`.
    """
    if text is None or text == "":
        raise RuleError("bandwidth_required", f"A bandwidth is missing. {_BANDWIDTH_HINT}")
    if isinstance(text, int) and not isinstance(text, bool):
        return text
    written = str(text).strip()
    if not re.fullmatch(r"-?[0-9]+", written, flags=re.ASCII):
        shown = written if len(written) <= 40 else written[:37] + "..."
        raise RuleError("bandwidth_invalid", f'"{shown}" is not a whole number of kbit/s. {_BANDWIDTH_HINT}')
    if len(written) > 20:  # more digits than any 64-bit number has: refuse before int() works on it
        raise RuleError(
            "bandwidth_too_high",
            f"A bandwidth of {len(written)} digits is above the greatest possible one of "
            f"{format_exact_kbit(MAX_BANDWIDTH_KBIT)}. {_BANDWIDTH_HINT}",
        )
    return int(written)


def check_bandwidth(bandwidth_kbit: int, maximum_kbit: int = MAX_BANDWIDTH_KBIT) -> None:
    """A Link's bandwidth lies in [0, x], x being the default in force (DOMAIN section 2).

    Raises `RuleError` (`bandwidth_negative`, `bandwidth_too_high`).
    """
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
            limit = "this attachment point's maximum"
            remedy = f"Choose at most {format_number(maximum_kbit)}, or ask the administrators to raise it."
        raise RuleError(
            "bandwidth_too_high",
            f"Bandwidth {format_exact_kbit(bandwidth_kbit)} is above {limit} of "
            f"{format_exact_kbit(maximum_kbit)}. {remedy}",
        )


def check_total(total_kbit: int) -> None:
    """The most that all Links of an attachment point may carry together, in each direction.

    Raises `RuleError` (`total_range`): 0 is none, because it would block every Link.
    """
    if not MIN_TOTAL_KBIT <= total_kbit <= MAX_TOTAL_KBIT:
        raise RuleError(
            "total_range",
            f"A total of {format_exact_kbit(total_kbit)} is not between {format_exact_kbit(MIN_TOTAL_KBIT)} and "
            f"{format_exact_kbit(MAX_TOTAL_KBIT)}. Enter another number, or leave it empty for no total.",
        )


def default_in_force(site_default_kbit: int, ap_default_kbit: int | None) -> int:
    """x of one attachment point: its own default where it has one (0 counts as one), else the site's."""
    return site_default_kbit if ap_default_kbit is None else ap_default_kbit


def enforced_bandwidth(requested_kbit: int, maximum_kbit: int) -> int:
    """What the AP enforces: the user's choice, clamped to x. The choice itself is kept (DOMAIN section 2)."""
    return min(requested_kbit, maximum_kbit)


def bandwidth_warning(bandwidth_kbit: int, direction: str = "") -> str | None:
    """A sentence for a bandwidth that is allowed but surprising, else None.

    `direction` is `to the user AS` or `from the user AS`; without it the bandwidth is that of both.
    """
    where = f" {direction}" if direction else ""
    if bandwidth_kbit == 0 and direction:
        return (
            f"0 blocks the direction {direction}. SCION's heartbeats do not pass there either, so the border routers "
            "declare the link down."
        )
    if bandwidth_kbit == 0:
        return "0 blocks the link: nothing passes in either direction."
    if bandwidth_kbit < HEARTBEAT_MINIMUM_KBIT:
        return (
            f"Below {format_kbit(HEARTBEAT_MINIMUM_KBIT)}{where} SCION's heartbeats may not fit, so the border routers "
            f"may declare the link down; below {format_kbit(NEW_PATHS_MINIMUM_KBIT)} SCION finds no new paths."
        )
    if bandwidth_kbit < NEW_PATHS_MINIMUM_KBIT:
        return (
            f"Below {format_kbit(NEW_PATHS_MINIMUM_KBIT)}{where} SCION finds no new paths over this link. Paths that "
            "it has work until they expire, after 6 hours at most."
        )
    return None


# --- limits of both directions, and for a time ---------------------------------------------------------------


class Limits(NamedTuple):
    """What a Link may carry in each direction [kbit/s]; 0 blocks that direction, and only that."""

    to_user_kbit: int
    from_user_kbit: int

    @classmethod
    def both(cls, bandwidth_kbit: int) -> Limits:
        return cls(bandwidth_kbit, bandwidth_kbit)

    @property
    def is_symmetric(self) -> bool:
        return self.to_user_kbit == self.from_user_kbit

    @property
    def lowest_kbit(self) -> int:
        """What a reader that knows one number may enforce in both directions without breaking a promise."""
        return min(self)

    def clamped(self, maximum_kbit: int) -> Limits:
        """`enforced_bandwidth` of each direction."""
        return Limits(*(enforced_bandwidth(one, maximum_kbit) for one in self))

    def __str__(self) -> str:
        return format_limits(self)


def format_limits(limits: Limits) -> str:
    """For people: one number where both directions have the same."""
    if limits.is_symmetric:
        return format_kbit(limits.to_user_kbit)
    return f"{format_kbit(limits.to_user_kbit)} to the user AS and {format_kbit(limits.from_user_kbit)} from it"


def check_limits(limits: Limits, maximum_kbit: int = MAX_BANDWIDTH_KBIT) -> None:
    """`check_bandwidth` of each direction. Raises `RuleError` (`bandwidth_negative`, `bandwidth_too_high`)."""
    for one in limits:
        check_bandwidth(one, maximum_kbit)


def check_change(old: Limits | None, new: Limits, maximum_kbit: int) -> dict[str, RuleError]:
    """Which directions of `new` must not be stored at a Link, by their names in `Limits`; none: it may be stored.

    A number that is new lies in [0, maximum]. One that is stored already (`old`; None: nothing is) may stay, although a
    lowered default clamps it by now: it is the user's choice. What is the same in both directions is one number on
    every page, and one error: that of `to_user_kbit`.
    """
    errors: dict[str, RuleError] = {}
    for name, was, kbit in zip(Limits._fields, old or (None, None), new, strict=True):
        if kbit != was:
            try:
                check_bandwidth(kbit, maximum_kbit)
            except RuleError as exc:
                errors.setdefault(Limits._fields[0] if new.is_symmetric else name, exc)
    return errors


class LinkStep(NamedTuple):
    """From `offset_s` after the beginning of a timed limit on these limits hold, until its next step or its end."""

    offset_s: int
    limits: Limits


def check_steps(steps: Sequence[LinkStep], duration_s: int) -> None:
    """The steps of a timed limit: 1 to 200 of at least a second each, from 0 on without a gap, for 30 days at most.

    Raises `RuleError` (`timed_steps`, `timed_step_short`, `timed_long`).
    """
    if not 1 <= len(steps) <= MAX_STEPS:
        raise RuleError(
            "timed_steps", f"{len(steps)} steps are not between 1 and {MAX_STEPS}. Choose fewer, longer steps."
        )
    if steps[0].offset_s != 0:
        raise RuleError("timed_steps", f"The first step begins after {steps[0].offset_s} s. Begin with a step at 0 s.")
    edges = [*(step.offset_s for step in steps), duration_s]
    shortest = min(later - earlier for earlier, later in pairwise(edges))
    if shortest < MIN_STEP_S:
        raise RuleError(
            "timed_step_short",
            f"A step of {shortest} s is shorter than {MIN_STEP_S} s. Every step must last at least {MIN_STEP_S} s.",
        )
    if duration_s > MAX_TIMED_S:
        raise RuleError(
            "timed_long",
            f"{format_number(duration_s)} s exceed the {MAX_TIMED_S // 86400} days that a temporary limit may "
            "last. Choose an earlier end, or change the regular limit of the link.",
        )


@dataclass(frozen=True, slots=True, order=True)
class TimedLimits:
    """Limits that hold from `begins_at` until `ends_at` (aware, UTC, whole seconds) instead of a Link's own."""

    begins_at: datetime
    ends_at: datetime
    steps: tuple[LinkStep, ...]

    @property
    def duration_s(self) -> int:
        return (self.ends_at - self.begins_at) // _SECOND

    def at(self, when: datetime) -> Limits | None:
        """None before and after. The end is not part of it."""
        if not self.begins_at <= when < self.ends_at:
            return None
        return self.steps[self._step_at(when)].limits

    def next_change(self, after: datetime) -> datetime | None:
        """The first moment later than `after` at which a step begins or the last one ends; None when all is over."""
        if after < self.begins_at:
            return self.begins_at
        if after >= self.ends_at:
            return None
        following = self._step_at(after) + 1
        if following == len(self.steps):
            return self.ends_at
        return self.begins_at + self.steps[following].offset_s * _SECOND

    def last_change(self, until: datetime) -> datetime | None:
        """The last moment not later than `until` at which a step began or the last one ended; None before the first."""
        if until < self.begins_at:
            return None
        if until >= self.ends_at:
            return self.ends_at
        return self.begins_at + self.steps[self._step_at(until)].offset_s * _SECOND

    def clamped(self, maximum_kbit: int) -> TimedLimits:
        steps = tuple(LinkStep(offset_s, limits.clamped(maximum_kbit)) for offset_s, limits in self.steps)
        return TimedLimits(self.begins_at, self.ends_at, steps)

    def _step_at(self, when: datetime) -> int:
        return bisect_right(self.steps, (when - self.begins_at) // _SECOND, key=_offset_s) - 1


_SECOND = timedelta(seconds=1)


def _offset_s(step: LinkStep) -> int:
    return step.offset_s


# --- addresses and ports of the underlay --------------------------------------------------------------------

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address


@lru_cache(maxsize=16_384)
def _address(text: str) -> IPAddress:
    """One object for each address: to compare the documents of thousands of links takes a third of the time then."""
    return ipaddress.ip_address(text)


def parse_ip(text: object) -> IPAddress:
    """Raises `RuleError` (`address_invalid`). Zone ids (`fe80::1%eth0`) mean nothing elsewhere."""
    if isinstance(text, str) and "%" not in text:
        try:
            return _address(text)
        except ValueError:
            pass
    shown = str(text) if len(str(text)) <= 60 else str(text)[:57] + "..."
    raise RuleError(
        "address_invalid", f'"{shown}" is not an IP address. Enter one like 192.0.2.7 or 2001:db8::7, without a port.'
    )


def _not_a_host(address: IPAddress) -> str | None:
    """What an address is that no single other host can have, None for all others."""
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return "an IPv4 address written as IPv6"
    if address == ipaddress.IPv4Address("255.255.255.255"):
        return "the broadcast address"
    reserved = (ipaddress.IPv4Network("0.0.0.0/8"), ipaddress.IPv4Network("240.0.0.0/4"))
    kinds = (
        ("a loopback address", address.is_loopback),
        ("the unspecified address", address.is_unspecified),
        ("a multicast address", address.is_multicast),
        ("a reserved address", address.version == 4 and any(address in network for network in reserved)),
    )
    return next((what for what, is_so in kinds if is_so), None)


def check_underlay_address(
    text: object, *, global_only: bool = False, own: Iterable[str] = (), family: int | None = None
) -> IPAddress:
    """The remote address of a link: a unicast address of another host (DOMAIN section 9).

    `global_only` refuses private and documentation addresses too; `own` are the attachment point's addresses;
    `family` is 4 or 6 when the other end has only that one.
    Raises `RuleError` (`address_invalid`, `address_refused`, `address_own`, `address_family`, `address_not_global`).
    """
    address = parse_ip(text)
    what = _not_a_host(address)
    if what is not None:
        raise RuleError(
            "address_refused",
            f"{address} is {what}; other hosts cannot reach it. Use the address of this AS as seen by the "
            "attachment point.",
        )
    if any(address == ipaddress.ip_address(one) for one in own):
        raise RuleError(
            "address_own",
            f"{address} is the attachment point's own address. Use the address of the user AS as seen by the "
            "attachment point.",
        )
    if family is not None and address.version != family:
        raise RuleError(
            "address_family",
            f"{address} is an IPv{address.version} address, but the other end of the link only has IPv{family}. "
            f"Use an IPv{family} address.",
        )
    if global_only and not address.is_global:
        raise RuleError(
            "address_not_global",
            f"{address} is not reachable from the internet. Use a public address, or choose the VPN.",
        )
    return address


def check_internal_address(text: object, *, alone: bool) -> IPAddress:
    """Where the hosts of an AS reach each other's border routers and services.

    A host that is `alone` in its AS visits only itself, so it may have a loopback address.
    Raises `RuleError` (`address_invalid`, `address_refused`).
    """
    address = parse_ip(text)
    what = _not_a_host(address)
    if what is not None and not (alone and address.is_loopback):
        raise RuleError(
            "address_refused",
            f"{address} is {what}; other hosts of the AS cannot reach it. Use an address of this host in the AS's "
            "own network.",
        )
    return address


def check_bind_address(text: object, *, family: int | None = None) -> IPAddress:
    """The address of a host's own socket where a NAT translates the public one: private ones are usual.

    Raises `RuleError` (`address_invalid`, `address_refused`, `address_family`).
    """
    address = parse_ip(text)
    what = _not_a_host(address)
    if what is not None:
        raise RuleError(
            "address_refused",
            f"{address} is {what}; a socket bound to it cannot reach other hosts. Use an address of a network "
            "card of the host, or leave the bind IP empty.",
        )
    if family is not None and address.version != family:
        raise RuleError(
            "address_family",
            f"{address} is an IPv{address.version} address, but the public address is IPv{family}. Use an "
            f"IPv{family} address.",
        )
    return address


def check_port(port: int) -> None:
    """The underlay port of a user AS. Raises `RuleError` (`port_range`)."""
    if not MIN_PORT <= port <= MAX_PORT:
        raise RuleError(
            "port_range",
            f"Port {port} is outside {MIN_PORT} to {MAX_PORT}. Choose a port in that range, for example 50000.",
        )


# --- link_info.json -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, order=True)
class LinkInfo:
    """One entry of link_info.json: a Link as the AP's host sees it (DOMAIN section 3).

    `bandwidth_kbit` is the lower of both directions' limits. `remote_port`, `local_ip`, `local_port` and `vpn` are None
    where the document does not have them: then the link is matched by its remote address alone.
    `is_user_as` is true only where this host's AS is the provider of a user AS: only these links are limited.
    `directions` is None where both have the same limit; `timed` are in the order of their time and do not overlap.
    `is_observed`: the link is measured, and nothing of it is refused.
    """

    interface_id: int
    as_id: int
    is_user_as: bool
    bandwidth_kbit: int
    remote_ip: IPAddress
    isd_as: str | None = None
    remote_port: int | None = None
    local_ip: IPAddress | None = None
    local_port: int | None = None
    vpn: bool | None = None
    directions: Limits | None = None
    timed: tuple[TimedLimits, ...] = ()
    is_observed: bool = False

    @property
    def limits(self) -> Limits:
        """What holds while no timed limit does."""
        return self.directions if self.directions is not None else Limits.both(self.bandwidth_kbit)

    def limits_at(self, when: datetime) -> Limits:
        """What is to be enforced at a moment (aware)."""
        return limits_at(self.limits, self.timed, when)

    def next_change(self, after: datetime) -> datetime | None:
        """The first moment later than `after` at which a timed limit begins, steps or ends; None when there is none."""
        return next((one.next_change(after) for one in self.timed if after < one.ends_at), None)

    def with_limits(self, limits: Limits) -> LinkInfo:
        """The same link with these limits at all times."""
        directions = None if limits.is_symmetric else limits
        return replace(self, bandwidth_kbit=limits.lowest_kbit, directions=directions, timed=())

    def at(self, when: datetime) -> LinkInfo:
        """The link with what is to be enforced at a moment, as if it were so at all times; itself if it is."""
        return self.with_limits(self.limits_at(when)) if self.timed else self


def limits_at(standing: Limits, timed: Iterable[TimedLimits], when: datetime) -> Limits:
    """The timed limit that runs at `when`, else the standing limits."""
    return next((limits for one in timed if (limits := one.at(when)) is not None), standing)


class LinkEnd(Protocol):
    """What `generate_link_info` needs to know of one active Link, seen from the host's side."""

    @property
    def interface_id(self) -> int: ...
    @property
    def remote_isd_as(self) -> str: ...
    @property
    def is_limited(self) -> bool:
        """The remote AS is a user AS and this host's AS is its provider on this Link."""

    @property
    def bandwidth_kbit(self) -> int:
        """Stored at the Link: what the user asked for, towards the user AS."""

    @property
    def from_user_kbit(self) -> int | None:
        """What the user asked for in the other direction, None for the same."""

    @property
    def timed(self) -> Sequence[TimedLimits]:
        """As asked for, in any order."""

    @property
    def is_observed(self) -> bool:
        """An administrator wants this Link measured and not limited."""

    @property
    def maximum_kbit(self) -> int:
        """The default in force at this attachment point; not used where the Link is not limited."""

    @property
    def remote_ip(self) -> str: ...
    @property
    def remote_port(self) -> int: ...
    @property
    def local_ip(self) -> str: ...
    @property
    def local_port(self) -> int: ...
    @property
    def is_vpn(self) -> bool: ...


class HostWithLinks(Protocol):
    """A host with the active Links that end on it."""

    @property
    def link_ends(self) -> Iterable[LinkEnd]: ...


def as_id_of(isd_as: str) -> int:
    """Low 16 bits of the AS number: `17-ffaa:1:b6` -> 0xb6. The groups are hexadecimal."""
    return int(isd_as.rpartition(":")[2], 16)


def generate_link_info(host: HostWithLinks) -> dict[str, dict[str, Any]]:
    """The link_info.json document of a host, keyed by its interface ids in numerical order."""
    return {str(end.interface_id): _entry(end) for end in sorted(host.link_ends, key=lambda end: end.interface_id)}


def standing_limits(end: LinkEnd) -> Limits:
    """What holds at a limited Link while no timed limit runs: what the user asked for, clamped to x."""
    return requested_limits(end.bandwidth_kbit, end.from_user_kbit).clamped(end.maximum_kbit)


def _entry(end: LinkEnd) -> dict[str, Any]:
    # Not limited: never 0, which a careless reader could take for "block the uplink". The provider blocks it.
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
        entry[TIMED_KEY] = [_timed_entry(one.clamped(end.maximum_kbit)) for one in sorted(end.timed)]
    if end.is_limited and end.is_observed:
        entry[OBSERVE_KEY] = True
    return entry


def requested_limits(bandwidth_kbit: int, from_user_kbit: int | None) -> Limits:
    """The two numbers that are stored at a Link; the second is None where it is the same as the first."""
    return Limits(bandwidth_kbit, bandwidth_kbit if from_user_kbit is None else from_user_kbit)


def _timed_entry(timed: TimedLimits) -> dict[str, Any]:
    return {
        "From": _time_text(timed.begins_at),
        "Until": _time_text(timed.ends_at),
        "Steps": [[offset_s, *limits] for offset_s, limits in timed.steps],
    }


def _time_text(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime(_TIME_FORMAT)


# Of one document: its entries as they stand there, and what they say, by their keys.
KnownEntries = dict[str, tuple[Mapping[str, Any], LinkInfo]]


def parse_link_info(
    document: bytes | str, *, max_bytes: int = 16 * 1024 * 1024, known: KnownEntries | None = None
) -> dict[int, LinkInfo]:
    """Read link_info.json. Raises only `LinkInfoError`, whatever the bytes; a document is taken whole or not at all.

    Entries with only the thesis' four keys are read; unknown keys are ignored (DOMAIN section 3). `known` are the
    entries of the document before, which are not checked again where they are the same; it has those of this document
    afterwards.
    """
    if len(document) > max_bytes:
        raise LinkInfoError("too_large", f"link_info.json has {len(document)} bytes, more than {max_bytes}.")
    try:
        text = document.decode("utf-8") if isinstance(document, bytes) else document
        loaded = json.loads(text, object_pairs_hook=_no_duplicates, parse_constant=_no_constant)
    except LinkInfoError:
        raise
    except UnicodeDecodeError as exc:
        raise LinkInfoError("not_utf8", f"link_info.json is not UTF-8: {exc.reason} at byte {exc.start}.") from exc
    except json.JSONDecodeError as exc:
        raise LinkInfoError(
            "not_json", f"link_info.json is not JSON: {exc.msg} at line {exc.lineno}, column {exc.colno}."
        ) from exc
    except RecursionError as exc:
        raise LinkInfoError("not_json", "link_info.json cannot be read: it is nested too deeply.") from exc
    except ValueError as exc:
        raise LinkInfoError("not_json", "link_info.json cannot be read: a number has thousands of digits.") from exc
    return check_link_info(loaded, known=known)


def check_link_info(document: object, *, known: KnownEntries | None = None) -> dict[int, LinkInfo]:
    """The same for a document that is already loaded."""
    if not isinstance(document, Mapping):
        raise LinkInfoError(
            "not_an_object",
            f"link_info.json holds {_kind(document)} at the top; expected an object keyed by interface ids.",
        )
    _check_keys(document)
    before = known if known is not None else {}
    found: KnownEntries = {}
    for key, value in document.items():
        former = before.get(key)
        if former is not None and _is_same(value, former[0]):
            found[key] = former
        else:
            interface_id = _interface_id(key)
            found[key] = (value, _link_info(interface_id, value))
    if known is not None:
        known.clear()
        known.update(found)
    links = {link.interface_id: link for _, link in found.values()}
    return {number: links[number] for number in sorted(links)}


def _check_keys(document: Mapping[Any, Any]) -> None:
    """The thesis' four keys, in all entries at once: who writes a file by hand mends it once."""
    lacking: list[str] = []
    for key, value in document.items():
        if isinstance(value, Mapping) and (missing := [f'"{one}"' for one in _THESIS_KEYS if one not in value]):
            names = " and ".join(", ".join(missing).rsplit(", ", 1))
            verb = "is" if len(missing) == 1 else "are"
            lacking.append(f"interface {str(key)[:20]}: {names} {verb} missing")
    if lacking:
        more = f"; and {len(lacking) - _MAX_NAMED} more" if len(lacking) > _MAX_NAMED else ""
        raise LinkInfoError("missing_key", f"link_info.json, {'; '.join(lacking[:_MAX_NAMED])}{more}.")


def _is_same(value: Any, former: Mapping[str, Any]) -> bool:
    """Whether an entry reads as it did. Python takes `true` for 1, so types count too; what is nested is read anew."""
    return (
        type(value) is type(former)
        and value == former
        and TIMED_KEY not in former
        and list(map(type, value.values())) == list(map(type, former.values()))
    )


def _interface_id(key: object) -> int:
    if (
        not isinstance(key, str)
        or not re.fullmatch(r"[1-9][0-9]{0,3}", key, flags=re.ASCII)
        or int(key) > MAX_INTERFACE_ID
    ):
        raise LinkInfoError(
            "interface_id",
            f"link_info.json has the key {_shown(key)}; keys are interface ids from {MIN_INTERFACE_ID} to "
            f"{MAX_INTERFACE_ID}, in decimal without leading zeros.",
        )
    return int(key)


def _link_info(interface_id: int, value: object) -> LinkInfo:
    where = f"link_info.json, interface {interface_id}"
    if not isinstance(value, Mapping):
        raise LinkInfoError("entry", f"{where}: {_kind(value)} instead of an object.")

    def integer(key: str, low: int, high: int) -> int:
        found = value.get(key)
        if isinstance(found, bool) or not isinstance(found, int):
            raise LinkInfoError(
                "wrong_type", f'{where}: "{key}" is {_shown(found)}, not an integer from {low} to {high}.'
            )
        if not low <= found <= high:
            raise LinkInfoError("out_of_range", f'{where}: "{key}" is {_shown(found)}, outside {low} to {high}.')
        return found

    def boolean(key: str) -> bool:
        found = value.get(key)
        if not isinstance(found, bool):
            raise LinkInfoError("wrong_type", f'{where}: "{key}" is {_shown(found)}, not true or false.')
        return found

    def address(key: str) -> IPAddress:
        try:
            # Only a limited link's address becomes a filter; what infrastructure does is the operator's business.
            return check_underlay_address(value.get(key)) if is_user_as else parse_ip(value.get(key))
        except RuleError as exc:
            raise LinkInfoError(exc.code, f'{where}: "{key}": {exc.message}') from exc

    is_user_as = boolean("IsUserAS")
    isd_as = value.get("ISD-AS")
    if isd_as is not None and (not isinstance(isd_as, str) or len(isd_as) > 24):
        raise LinkInfoError("wrong_type", f'{where}: "ISD-AS" is {_shown(isd_as)}, not a short text.')
    info = LinkInfo(
        interface_id=interface_id,
        as_id=integer("AS_ID", 0, 0xFFFF),
        is_user_as=is_user_as,
        bandwidth_kbit=integer("Bandwidth", MIN_BANDWIDTH_KBIT, MAX_BANDWIDTH_KBIT),
        remote_ip=address("IP-Address"),
        isd_as=isd_as,
        remote_port=integer("Port", 1, MAX_PORT) if value.get("Port") is not None else None,
        local_ip=address("Local-IP") if value.get("Local-IP") is not None else None,
        local_port=integer("Local-Port", 1, MAX_PORT) if value.get("Local-Port") is not None else None,
        vpn=boolean("VPN") if value.get("VPN") is not None else None,
        directions=_directions(value, integer, where),
        timed=_timed(value.get(TIMED_KEY), where),
        is_observed=value.get(OBSERVE_KEY) is not None and boolean(OBSERVE_KEY),
    )
    if info.local_ip is not None and info.local_ip.version != info.remote_ip.version:
        raise LinkInfoError(
            "address_family", f"{where}: {info.local_ip} and {info.remote_ip} are not of one address family."
        )
    return info


def _directions(value: Mapping[str, Any], integer: Callable[[str, int, int], int], where: str) -> Limits | None:
    given = [key for key in (TO_USER_KEY, FROM_USER_KEY) if value.get(key) is not None]
    if not given:
        return None
    to_user, from_user = (integer(key, MIN_BANDWIDTH_KBIT, MAX_BANDWIDTH_KBIT) for key in (TO_USER_KEY, FROM_USER_KEY))
    limits = Limits(to_user, from_user)
    if limits.lowest_kbit != value["Bandwidth"]:
        raise LinkInfoError(
            "bandwidth_mismatch",
            f'{where}: "Bandwidth" is {_shown(value["Bandwidth"])}, not the lower of {to_user} and {from_user}.',
        )
    return None if limits.is_symmetric else limits


def _timed(value: object, where: str) -> tuple[TimedLimits, ...]:
    if value is None:
        return ()
    if not isinstance(value, list):
        raise LinkInfoError("wrong_type", f'{where}: "{TIMED_KEY}" is {_kind(value)}, not a list.')
    if len(value) > MAX_TIMED_PER_LINK:
        raise LinkInfoError(
            "timed_many", f'{where}: "{TIMED_KEY}" has {len(value)} entries, more than {MAX_TIMED_PER_LINK}.'
        )
    timed = tuple(_one_timed(one, f'{where}, "{TIMED_KEY}" {index}') for index, one in enumerate(value))
    for earlier, later in pairwise(timed):
        if later.begins_at < earlier.ends_at:
            raise LinkInfoError(
                "timed_overlap",
                f'{where}: "{TIMED_KEY}" has an entry from {_time_text(later.begins_at)} behind one until '
                f"{_time_text(earlier.ends_at)}; they must be in order and not overlap.",
            )
    return timed


def _one_timed(value: object, where: str) -> TimedLimits:
    if not isinstance(value, Mapping):
        raise LinkInfoError("wrong_type", f"{where}: {_kind(value)} instead of an object.")
    begins_at, ends_at = (_moment(value.get(key), f'{where}: "{key}"') for key in ("From", "Until"))
    steps = value.get("Steps")
    if not isinstance(steps, list):
        raise LinkInfoError("wrong_type", f'{where}: "Steps" is {_kind(steps)}, not a list.')
    timed = TimedLimits(begins_at, ends_at, tuple(_step(step, where) for step in steps[: MAX_STEPS + 1]))
    try:
        check_steps(timed.steps, timed.duration_s)
        for step in timed.steps:
            check_limits(step.limits)
    except RuleError as exc:
        raise LinkInfoError(exc.code, f"{where}: {exc.message}") from exc
    return timed


def _step(value: object, where: str) -> LinkStep:
    numbers: list[Any] = value if isinstance(value, list) and len(value) == 3 else [None]
    if not all(type(number) is int and abs(number) <= _MAX_STEP_NUMBER for number in numbers):
        raise LinkInfoError(
            "wrong_type", f"{where}: a step is {_kind(value)}, not three integers: [offset in s, to user, from user]."
        )
    offset_s, to_user_kbit, from_user_kbit = numbers
    return LinkStep(offset_s, Limits(to_user_kbit, from_user_kbit))


def _moment(value: object, where: str) -> datetime:
    if isinstance(value, str) and _TIME.fullmatch(value):
        try:
            return datetime.strptime(value, _TIME_FORMAT).replace(tzinfo=UTC)
        except ValueError:  # the 31st of February
            pass
    raise LinkInfoError("wrong_type", f"{where} is {_shown(value)}, not a time like 2026-11-21T23:00:00Z.")


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for index, key in enumerate(keys) if key in keys[:index])
        raise LinkInfoError("duplicate_key", f"link_info.json has the key {_shown(twice)} twice; it is ambiguous.")
    return found


def _no_constant(name: str) -> Any:
    raise LinkInfoError("not_json", f"link_info.json holds {name}, which is not JSON.")


def _kind(value: object) -> str:
    names = {
        list: "a list",
        dict: "an object",
        str: "a text",
        bool: "a truth value",
        int: "a number",
        float: "a number",
    }
    return "nothing" if value is None else names.get(type(value), type(value).__name__)


def _shown(value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 128:
        return "a number of more than 38 digits"
    text = json.dumps(value) if isinstance(value, str | int | float | bool | type(None)) else _kind(value)
    return text if len(text) <= 60 else text[:57] + "..."
