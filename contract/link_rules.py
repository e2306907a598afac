"""Rules of a Link besides its bandwidth: addresses, ports, interface ids, exceptions, timed limits.

Uses the standard library and `bandwidth_config`; both programs import it.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from itertools import pairwise

from bandwidth_config import TIME_FORMAT, LinkStep, RuleError, format_number

MIN_INTERFACE_ID = 1
MAX_INTERFACE_ID = 4094  # interface ids are tc class minors in the agent (docs/adr/0028)
MIN_PORT = 1024
MAX_PORT = 65_535

AT_LIMIT_PERCENT = 95  # a link is at its limit from this share on

MAX_STEPS = 200  # of one timed limit
MIN_STEP_S = 1
MAX_TIMED_S = 30 * 24 * 3600  # a forgotten timed limit ends within a month
MAX_TIMED_AHEAD_S = 90 * 24 * 3600
MAX_TIMED_PER_LINK = 20  # that have not ended
# With these and 4094 links link_info.json has 5.4 MB, a third of what an agent reads (agent/bundle.py).
MAX_STEPS_PER_HOST = 50_000

_TIME = re.compile(r"20[0-9]{2}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z", flags=re.ASCII)


def with_exception(maximum_kbit: int, exception_kbit: int | None) -> int:
    """x of one Link if x of its attachment point is `maximum_kbit`: an exception raises it and never lowers it."""
    return max(maximum_kbit, exception_kbit or 0)


def read_time(value: object) -> datetime | None:
    """Inverse of `bandwidth_config.time_text`; None for anything else."""
    if isinstance(value, str) and _TIME.fullmatch(value):
        try:
            return datetime.strptime(value, TIME_FORMAT).replace(tzinfo=UTC)
        except ValueError:  # the 31st of February
            pass
    return None


def check_steps(steps: Sequence[LinkStep], duration_s: int) -> None:
    """Check the steps of a timed limit: 1 to 200 of at least a second each, from 0 on without a gap, for at most 30
    days. Raises `RuleError` (`timed_steps`, `timed_step_short`, `timed_long`)."""
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


# --- addresses and ports of the underlay --------------------------------------------------------------------

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address


@lru_cache(maxsize=16_384)
def _address(text: str) -> IPAddress:
    """One object per address, which makes comparing documents of thousands of links three times as fast."""
    return ipaddress.ip_address(text)


def parse_ip(text: object) -> IPAddress:
    """Raises `RuleError` (`address_invalid`). Zone ids (`fe80::1%eth0`) are rejected: they are local."""
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
    """Why an address is not that of a single other host; None if it is."""
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


def _host_address(text: object, remedy: str, *, may_be_loopback: bool = False) -> IPAddress:
    """Raises `RuleError` (`address_invalid`, `address_refused`)."""
    address = parse_ip(text)
    what = _not_a_host(address)
    if what is not None and not (may_be_loopback and address.is_loopback):
        raise RuleError("address_refused", f"{address} is {what}; {remedy}")
    return address


def check_underlay_address(
    text: object, *, global_only: bool = False, own: Iterable[str] = (), family: int | None = None
) -> IPAddress:
    """Check the remote address of a link: a unicast address of another host (DOMAIN section 9). `global_only` also
    rejects private and documentation addresses; `own` are the attachment point's addresses; `family` is 4 or 6 if the
    other end only has that one. Raises `RuleError` (`address_invalid`, `address_refused`, `address_own`,
    `address_family`, `address_not_global`)."""
    address = _host_address(
        text, "other hosts cannot reach it. Use the address of this AS as seen by the attachment point."
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
    """Check the address at which other hosts of the AS reach border routers and services. A host that is `alone` in its
    AS may have a loopback address. Raises `RuleError` (`address_invalid`, `address_refused`)."""
    remedy = "other hosts of the AS cannot reach it. Use an address of this host in the AS's own network."
    return _host_address(text, remedy, may_be_loopback=alone)


def check_bind_address(text: object, *, family: int | None = None) -> IPAddress:
    """Check the address of a host's own socket behind a NAT: usually private. Raises `RuleError` (`address_invalid`,
    `address_refused`, `address_family`)."""
    address = _host_address(
        text,
        "a socket bound to it cannot reach other hosts. Use an address of a network card of the host, or leave the "
        "bind IP empty.",
    )
    if family is not None and address.version != family:
        raise RuleError(
            "address_family",
            f"{address} is an IPv{address.version} address, but the public address is IPv{family}. Use an "
            f"IPv{family} address.",
        )
    return address


def bind_ip_for(public_ip: str, bind_ip: str | None) -> str | None:
    """Bind address for a socket with this public address; None for the other family."""
    if bind_ip is None or ipaddress.ip_address(bind_ip).version != ipaddress.ip_address(public_ip).version:
        return None
    return bind_ip


def check_port(port: int) -> None:
    """The underlay port of a user AS. Raises `RuleError` (`port_range`)."""
    if not MIN_PORT <= port <= MAX_PORT:
        raise RuleError(
            "port_range",
            f"Port {port} is outside {MIN_PORT} to {MAX_PORT}. Choose a port in that range, for example 50000.",
        )
