"""Checks whether replies leave by the uplink where requests arrive, by interface counters and the kernel's route
lookups.

Counters cannot distinguish flows, and lookups say nothing about actual packets: both must agree. Pure, but for `watch`.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from ipaddress import ip_address
from typing import Final, Literal, NamedTuple

from ap_agent.routes import kernel
from ap_agent.routes.plan import Device
from ap_agent.routes.uplinks import Uplink
from contract.link_rules import IPAddress

ENOUGH_PACKETS: Final = 20  # below that it may be only neighbour discovery
_UNANSWERED: Final = 0.1  # of the received packets: TCP acknowledges at least every second full segment
# Benchmark networks (RFC 2544, RFC 5180), to which no attachment point has its own route.
_FAR: Final = {4: ip_address("198.18.0.1"), 6: ip_address("2001:2::1")}

_ABSENT: Final = Device(0, False)
Word = Literal["right", "elsewhere", "unanswered", "no traffic"]


class Verdict(NamedTuple):
    """`detours`: (source, destination, device): packets that would leave by another device, None: by none."""

    name: str
    dev: str
    word: Word
    counted: Device
    detours: tuple[tuple[IPAddress, IPAddress, str | None], ...] = ()
    left_by: str = ""

    @property
    def is_right(self) -> bool:
        return self.word == "right" and not self.detours


def watch(uplinks: Iterable[Uplink], seconds: float, remotes: Mapping[str, Iterable[IPAddress]]) -> list[Verdict]:
    """`remotes`: uplink -> remote addresses of its links. Raises `AgentError`."""
    uplinks = list(uplinks)
    before = kernel.read().devices
    time.sleep(seconds)
    after = kernel.read().devices
    counted = {name: _difference(after[name], before[name]) for name in after.keys() & before.keys()}
    verdicts = []
    for one in uplinks:
        word, left_by = judge(one.dev, counted)
        own, detours = counted.get(one.dev, _ABSENT), _detours(one, remotes.get(one.name, ()))
        verdicts.append(Verdict(one.name, one.dev, word, own, detours, left_by))
    return verdicts


def _detours(uplink: Uplink, remotes: Iterable[IPAddress]) -> tuple[tuple[IPAddress, IPAddress, str | None], ...]:
    found = []
    for source in uplink.addresses:
        for destination in dict.fromkeys([*remotes, _FAR[source.version]]):
            if destination.version == source.version:
                dev = kernel.device_towards(destination, source)
                if dev != uplink.dev:
                    found.append((source, destination, dev))
    return tuple(found)


def _difference(after: Device, before: Device) -> Device:
    return Device(after.ifindex, after.is_up, *(one - other for one, other in zip(after[2:], before[2:], strict=True)))


def judge(dev: str, counted: Mapping[str, Device]) -> tuple[Word, str]:
    """Judge the counters, and find the device by which replies left: one that sent more than it received, while this
    one received more than it sent."""
    own = counted.get(dev, _ABSENT)
    if own.received_packets < ENOUGH_PACKETS:
        return "no traffic", ""
    if own.sent_packets >= _UNANSWERED * own.received_packets:
        return "right", ""
    surplus = {
        name: one.sent_packets - one.received_packets for name, one in counted.items() if name not in (dev, "lo")
    }
    first = max(surplus, key=lambda name: surplus[name], default="")
    if first and surplus[first] >= _UNANSWERED * own.received_packets:
        return "elsewhere", first
    return "unanswered", ""
