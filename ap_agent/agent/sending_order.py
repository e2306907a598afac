"""The order for the sending end of a test: statement of the document, key of the run, and address to bind."""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path

from contract.link_info import LinkInfo
from contract.link_rules import IPAddress
from contract.link_tests import TCP, LinkTest, run_key

_ADDRESSES = Path("/proc/self/net/if_inet6")  # address, interface number, ...; both without 0x


def order_of(link: LinkInfo, test: LinkTest, secret: str, interfaces: tuple[str, ...]) -> dict[str, object]:
    """One JSON object. `interfaces` are those of the configuration."""
    return {
        "id": test.test_id,
        "key": run_key(secret, test.test_id).hex(),
        "port": test.port,
        "local_ip": _own(link.local_ip),
        "remote_ip": str(link.remote_ip),
        "ifindex": _interface(link, interfaces),
        "from_ms": round(test.begins_at.timestamp() * 1000),
        "until_ms": round(test.ends_at.timestamp() * 1000),
        "max_kbit": test.kbit,
        "max_bytes": test.max_bytes,
        "tcp": test.kind == TCP,
    }


def _own(address: IPAddress | None) -> str | None:
    """None if this host lacks the address: behind a NAT packets carry another one. A link-local one needs its
    interface."""
    if address is None or address.is_link_local:
        return None
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.bind((str(address), 0))
        return str(address)
    return None


def _interface(link: LinkInfo, interfaces: tuple[str, ...]) -> int:
    """For a user's link-local address: the interface with the local address, or the only configured one. 0: any."""
    if link.remote_ip.version == 4 or not link.remote_ip.is_link_local:
        return 0
    with contextlib.suppress(OSError):
        local = link.local_ip.packed.hex() if link.local_ip is not None else None
        rows = [line.split() for line in _ADDRESSES.read_text().splitlines()]
        found = {int(row[1], 16) for row in rows if row[0] == local}
        if len(found) == 1:
            return found.pop()
        if len(interfaces) == 1:
            return socket.if_nametoindex(interfaces[0])
    return 0
