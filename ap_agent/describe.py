"""u32 keys in words, for plans and logs: what a person has to read before a kernel is changed.

Only the fields that `classify` looks at have words; every other key is printed as tc prints it.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

from ap_agent.model import ETH_P_ALL, ETH_P_ARP, ETH_P_IP, ETH_P_IPV6, Key

PROTOCOLS = {ETH_P_ALL: "all", ETH_P_IP: "ip", ETH_P_IPV6: "ipv6", ETH_P_ARP: "arp"}
_HEADERS = {0: "hop-by-hop", 17: "udp", 43: "routing", 44: "fragment", 58: "icmpv6", 60: "destination-options"}
_FULL = 0xFFFFFFFF


def describe_keys(protocol: int, keys: tuple[Key, ...]) -> str:
    """`src 192.0.2.1 dst 192.0.2.7 udp sport 50100 dport 50000`; `everything` without keys."""
    left = {key.offset: key for key in keys if key.mask}
    words = list(_ipv4(left) if protocol == ETH_P_IP else _ipv6(left) if protocol == ETH_P_IPV6 else ())
    words += [f"{key.value:08x}/{key.mask:08x}@{key.offset}" for key in left.values()]
    return " ".join(words) or "everything"


def _take(left: dict[int, Key], offset: int, mask: int) -> int | None:
    """The value under exactly this mask, shifted down; the key is done then."""
    key = left.get(offset)
    if key is None or key.mask != mask:
        return None
    del left[offset]
    return key.value >> (mask & -mask).bit_length() - 1


def _ipv4(left: dict[int, Key]) -> Iterator[str]:
    for word, offset in (("src", 12), ("dst", 16)):
        address = _take(left, offset, _FULL)
        if address is not None:
            yield f"{word} {ipaddress.IPv4Address(address)}"
    yield from _header(_take(left, 8, 0x00FF0000))
    if 0 in left and left[0] == Key(0, 0x45000000, 0xFF000000) and left.get(4) == Key(4, 0, 0x1FFF):
        del left[0], left[4]
        yield "with ports"
    yield from _ports(left, 20)
    yield from _heartbeat(left, 32)


def _ipv6(left: dict[int, Key]) -> Iterator[str]:
    for word, start in (("src", 8), ("dst", 24)):
        offsets = range(start, start + 16, 4)
        if all(offset in left and left[offset].mask == _FULL for offset in offsets):
            packed = b"".join(left.pop(offset).value.to_bytes(4) for offset in offsets)
            yield f"{word} {ipaddress.IPv6Address(packed)}"
    header = _take(left, 4, 0x0000FF00)
    yield from _header(header)
    if header in (0, 58):  # what follows is the first byte of the next header
        first = _take(left, 40, 0xFF000000)
        if first is not None:
            yield f"type {first}" if header == 58 else f"before {_HEADERS.get(first, first)}"
    yield from _ports(left, 40)
    yield from _heartbeat(left, 52)


def _header(number: int | None) -> Iterator[str]:
    if number is not None:
        yield _HEADERS.get(number, f"protocol {number}")


def _ports(left: dict[int, Key], offset: int) -> Iterator[str]:
    key = left.get(offset)
    if key is None or key.mask not in (_FULL, 0xFFFF0000, 0x0000FFFF):
        return
    del left[offset]
    if key.mask & 0xFFFF0000:
        yield f"sport {key.value >> 16}"
    if key.mask & 0xFFFF:
        yield f"dport {key.value & 0xFFFF}"


def _heartbeat(left: dict[int, Key], offset: int) -> Iterator[str]:
    if left.get(offset) == Key(offset, 203 << 24, 0xFF000000):
        del left[offset]
        yield "heartbeat"
