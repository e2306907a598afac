"""POST to a user-supplied URL: reaches no internal service, follows no redirects, and is bounded in time.

The name is resolved once, all its addresses must be public, and the connection goes to one of these, so that a changed
DNS answer has no effect.
"""

from __future__ import annotations

import contextlib
import http.client
import re
import socket
import ssl
import threading
from collections.abc import Mapping
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import Final
from urllib.parse import SplitResult, urlsplit

from bandwidth_config import RuleError

CONNECT_S: Final = 5.0
TOTAL_S: Final = 10.0  # of handshake, request and response, after the connection
MAX_URL: Final = 500
READ_BYTES: Final = 4096  # of the response's body, so that the receiver of a short one is not cut off
_NAT64: Final = IPv6Network("64:ff9b::/96")


class NotDeliveredError(Exception):
    """Why the delivery failed, for people."""


def checked_url(url: str, *, is_http_allowed: bool) -> SplitResult:
    """Raises `RuleError` (`url_invalid`)."""
    schemes = ("https", "http") if is_http_allowed else ("https",)
    try:
        parts = urlsplit(url)
        is_right = parts.port != 0 and bool(parts.hostname) and parts.scheme in schemes
    except ValueError:  # an invalid port or IPv6 address
        is_right = False
    if not is_right or not re.fullmatch(rf"[!-~]{{1,{MAX_URL}}}", url) or parts.username is not None or parts.fragment:
        form = " or ".join(f"{scheme}://" for scheme in schemes)
        text = (
            f"This is not a URL that begins with {form}, without a user name and a fragment, of {MAX_URL} characters."
        )
        raise RuleError("url_invalid", text)
    return parts


def is_public(address: str) -> bool:
    """Not loopback, private, link-local, multicast or reserved, also not embedded in an IPv6 address."""
    found: IPv4Address | IPv6Address = ip_address(address.partition("%")[0])
    if isinstance(found, IPv6Address):
        inner = found.ipv4_mapped or found.sixtofour
        found = inner or (IPv4Address(found.packed[-4:]) if found in _NAT64 else found)
    return found.is_global and not found.is_multicast


def post(
    url: str, body: bytes, headers: Mapping[str, str], *, is_http_allowed: bool = False, is_inside_allowed: bool = False
) -> int:
    """Return the status, 200 to 299. Raises `NotDeliveredError`, `RuleError` (`url_invalid`)."""
    parts = checked_url(url, is_http_allowed=is_http_allowed)
    host, is_tls = parts.hostname or "", parts.scheme == "https"
    port = parts.port or (443 if is_tls else 80)
    try:
        address = _address_of(host, port, is_inside_allowed=is_inside_allowed)
        with socket.create_connection((address, port), timeout=CONNECT_S) as plain:
            plain.settimeout(TOTAL_S)
            line: socket.socket = plain
            if is_tls:
                context = ssl.create_default_context()
                line = context.wrap_socket(plain, server_hostname=host, do_handshake_on_connect=False)
            status = _exchange(line, parts, body, headers)
    except (OSError, http.client.HTTPException) as exc:
        raise NotDeliveredError(f"{type(exc).__name__}: {exc}"[:150]) from exc
    if not 200 <= status < 300:
        hint = "; redirects are not followed" if 300 <= status < 400 else ""
        raise NotDeliveredError(f"The receiver answered {status}{hint}.")
    return status


def _address_of(host: str, port: int, *, is_inside_allowed: bool) -> str:
    """Raises `OSError`, `NotDeliveredError`."""
    found = [str(one[4][0]) for one in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
    inside = [] if is_inside_allowed else [one for one in found if not is_public(one)]
    if inside:
        raise NotDeliveredError(f"{host} has the address {inside[0]}, which is not public.")
    return found[0]


def _exchange(line: socket.socket, parts: SplitResult, body: bytes, headers: Mapping[str, str]) -> int:
    """Aborted after TOTAL_S, however slow the other end is."""
    end = threading.Timer(TOTAL_S, _cut, [line])
    end.daemon = True
    end.start()
    try:
        if isinstance(line, ssl.SSLSocket):
            line.do_handshake()
        connection = http.client.HTTPConnection(parts.hostname or "", timeout=TOTAL_S)
        connection.sock = line
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        connection.request("POST", target, body, {**headers, "Host": parts.netloc, "Connection": "close"})
        answer = connection.getresponse()
        answer.read(READ_BYTES)
        return answer.status
    finally:
        end.cancel()
        line.close()


def _cut(line: socket.socket) -> None:
    with contextlib.suppress(OSError):  # already closed
        line.shutdown(socket.SHUT_RDWR)
