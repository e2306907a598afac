"""Addresses that are never limited without a port: a limit on all their packets would cut this host off from its
operator or from the correction of that limit.

They are the operator's `protect`, default gateways, the other ends of log-ins from elsewhere (SSH; only those that
succeeded, or a user would open a connection to be rid of his limit), and the service: as far as `url` names an address,
and where the agent is connected or tries to connect. The limiter has no network and resolves no names.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterable, Iterator, Mapping
from ipaddress import IPv6Address, ip_address
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from ap_agent.common.problem import Problem
from ap_agent.common.settings import Settings
from ap_agent.dataplane.devices import Host
from ap_agent.dataplane.program import Address
from contract.link_info import LinkInfo

_TABLES = (Path("/proc/thread-self/net/tcp"), Path("/proc/thread-self/net/tcp6"))
_SESSIONS = Path("/run/systemd/sessions")
_MOST_BYTES = 4 * 1024 * 1024
_PORTS = {"http": 80, "https": 443}


class Peer(NamedTuple):
    """The other end of a TCP connection of this host, whatever its state; `uid` is its owner here."""

    address: Address
    port: int
    uid: int


def peers() -> Iterator[Peer]:
    """In the network namespace of the thread; none where /proc does not show them."""
    for table in _TABLES:
        with contextlib.suppress(OSError, ValueError, IndexError):
            with table.open() as lines:
                text = lines.read(_MOST_BYTES)
            for line in text.splitlines()[1:]:
                fields = line.split()
                yield Peer(*_end(fields[2]), int(fields[7]))


def logged_in_from(folder: Path = _SESSIONS) -> Iterator[Address]:
    """Addresses of remote sessions, as systemd-logind keeps them; none without it."""
    with contextlib.suppress(OSError):
        for path in folder.iterdir():
            with contextlib.suppress(OSError, ValueError):
                lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
                said = dict(line.partition("=")[::2] for line in lines)
                yield ip_address(said.get("REMOTE_HOST", "").partition("%")[0])


def _end(text: str) -> tuple[Address, int]:
    """As in /proc/net/tcp: words of an address in the order of this processor, and a port."""
    words, _, port = text.partition(":")
    packed = b"".join(struct.pack("=I", int(words[at : at + 8], 16)) for at in range(0, len(words), 8))
    address = ip_address(packed)
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address, int(port, 16)


def protected(
    settings: Settings, host: Host, connections: Iterable[Peer], sessions: Iterable[Address]
) -> dict[Address, str]:
    """Addresses, and what they are."""
    found = dict.fromkeys(host.gateways, "the default gateway of this host")
    service, agent = urlsplit(settings.url or ""), _owner_of(settings.state_dir)
    with contextlib.suppress(ValueError):
        found[ip_address(service.hostname or "")] = "the address of the service"
    port = service.port or _PORTS.get(service.scheme)
    for one in connections:
        if one.uid == agent and one.port == port:
            found[one.address] = "the address of the service"
    return {**found, **dict.fromkeys(sessions, "where somebody is logged in from")}


def _owner_of(folder: Path) -> int:
    try:
        return folder.stat().st_uid
    except OSError:
        return -1


def refused(
    portless: Iterable[int], links: Mapping[int, LinkInfo], settings: Settings, special: Mapping[Address, str]
) -> dict[int, Problem]:
    """Of the links without a port those that must not be limited, and why."""
    found = {}
    for number in portless:
        address = links[number].remote_ip
        what = special.get(address)
        if what is None and any(address in network for network in settings.protect):
            what = "in `protect`"
        if what is not None:
            message = (
                f"Link {number} to {address} is not limited: that is {what}, and without a port the limit would apply "
                "to all packets of this host to and from it. Give the link its port, or correct its address."
            )
            found[number] = Problem("protected_address", f"link {number}", message)
    return found
