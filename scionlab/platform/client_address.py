"""Whose request it is, as an address: what log-ins and API requests are counted under, and what the audit notes.

`TRUSTED_PROXIES` says how many proxies of ours stand in front. Of X-Forwarded-For only the entries that these wrote are
believed: everything further left is whatever the client made up.
"""

from __future__ import annotations

import ipaddress
from contextvars import ContextVar

from django.conf import settings
from django.http import HttpRequest

IPV6_PREFIX = 64  # what one customer is given at least (RFC 6177): inside of it an attacker has 2^64 addresses


def client_address(request: HttpRequest) -> str | None:
    """The address of the client; None where there is none (a server on a Unix socket, and no proxy that tells)."""
    proxies: int = settings.TRUSTED_PROXIES
    forwarded = request.META.get("HTTP_X_FORWARDED_FOR", "").split(",") if proxies else []
    told = forwarded[-min(proxies, len(forwarded))] if forwarded else ""
    return _canonical(told) or _canonical(request.META.get("REMOTE_ADDR", ""))


def client_network(request: HttpRequest) -> str | None:
    """What attempts are counted under: an IPv4 address, or the first address of an IPv6 /64."""
    address = client_address(request)
    if address is None or ":" not in address:
        return address
    return str(ipaddress.ip_network((address, IPV6_PREFIX), strict=False).network_address)


def _canonical(written: str) -> str | None:
    try:
        address = ipaddress.ip_address(written.strip().strip("[]").partition("%")[0])
    except ValueError:
        return None  # a proxy that writes "unknown" or a port: not worth an error page
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address)


# Where the request comes from that changes something; None in workers and commands. Set by the web tier, so that no
# service has to hand it on.
from_address: ContextVar[str | None] = ContextVar("from_address", default=None)
