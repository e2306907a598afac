"""The address of a client: for counting logins and API requests, and for the audit log.

`TRUSTED_PROXIES` is the number of our proxies in front. Only the X-Forwarded-For entries that these added are trusted:
the client may have made up everything further left.
"""

from __future__ import annotations

import ipaddress
from contextvars import ContextVar

from django.conf import settings
from django.http import HttpRequest

IPV6_PREFIX = 64  # the smallest allocation of a customer (RFC 6177): an attacker has 2^64 addresses within it


def client_address(request: HttpRequest) -> str | None:
    """Return None if unknown (a server on a Unix socket without a proxy)."""
    proxies: int = settings.TRUSTED_PROXIES
    forwarded = request.META.get("HTTP_X_FORWARDED_FOR", "").split(",") if proxies else []
    told = forwarded[-min(proxies, len(forwarded))] if forwarded else ""
    return _canonical(told) or _canonical(request.META.get("REMOTE_ADDR", ""))


def client_network(request: HttpRequest) -> str | None:
    """The key for counting: an IPv4 address, or the first address of an IPv6 /64."""
    address = client_address(request)
    if address is None or ":" not in address:
        return address
    return str(ipaddress.ip_network((address, IPV6_PREFIX), strict=False).network_address)


def wider_networks(network: str | None) -> list[tuple[int, str]]:
    """The /56 and /48 around an IPv6 /64, as prefix and first address: a provider gives either to one customer."""
    if network is None or ":" not in network:
        return []
    wider = [(prefix, ipaddress.ip_network((network, prefix), strict=False)) for prefix in (56, 48)]
    return [(prefix, str(one.network_address)) for prefix, one in wider]


def widest_network(address: str | None) -> str | None:
    """What one party can have at most: an IPv4 address, or the first address of an IPv6 /48."""
    if address is None or ":" not in address:
        return address
    return wider_networks(address)[-1][1]


def _canonical(written: str) -> str | None:
    try:
        address = ipaddress.ip_address(written.strip().strip("[]").partition("%")[0])
    except ValueError:
        return None  # a proxy that writes "unknown" or a port
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address)


# Address of the request that makes a change, for the audit. Set by the web tier, None in workers and commands.
from_address: ContextVar[str | None] = ContextVar("from_address", default=None)
