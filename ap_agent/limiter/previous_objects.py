"""Reads objects of the first engine: roots, classes with counters, u32 filters (see `previous_engine`)."""

from __future__ import annotations

import errno
import struct
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from ap_agent.dataplane import tc
from ap_agent.dataplane.attributes import CHANGE, Message, attributes, number_of, text, text_of
from ap_agent.dataplane.rtsocket import Refusal, RefusedError, RtSocket, messages_of

PREFERENCES: Final = range(100, 160)
NOTE_CHAIN: Final = 0x736C62

# linux/pkt_sched.h, pkt_cls.h, tc_act/tc_mirred.h
KIND, OPTIONS, _STATS2, _CHAIN = 1, 2, 7, 11
_HTB_PARMS, _HTB_INIT, _HTB_RATE64, _BASIC, _QUEUE, _PACKETS64 = 1, 2, 6, 1, 3, 8
U32_CLASSID, U32_LINK, _U32_DIVISOR, U32_SELECTOR, BPF_NAME = 1, 3, 4, 5, 7
_ACTIONS_OF_KIND = {"u32": 7, "matchall": 2, "flower": 3, "basic": 3, "bpf": 1, "fw": 4, "flow": 9}
_FIRST_TABLE_OF_LISTS, _INGRESS = 0x800, tc.HOOKS[1]
_TCMSG = struct.Struct("=BxxxiIII")


class OldClass(NamedTuple):
    mark: int = 0
    rate_kbit: int = 0
    bytes: int = 0
    packets: int = 0
    waiting_bytes: int = 0
    waiting_packets: int = 0
    drops: int = 0


class OldFilter(NamedTuple):
    """`info`: preference and protocol. `targets`: the devices that it redirects to; 0 is a deleted one."""

    ifindex: int
    parent: int
    info: int
    chain: int
    kind: str
    handle: int
    options: Mapping[int, bytes]
    targets: tuple[int, ...]

    @property
    def preference(self) -> int:
        return self.info >> 16

    @property
    def rank(self) -> int:
        """Rules are removed first (0), then tables (1), then lists (2); the first table of a list comes and goes with
        it."""
        if self.handle and _U32_DIVISOR not in self.options:
            return 0
        return 1 if self.handle and self.handle >> 20 < _FIRST_TABLE_OF_LISTS else 2

    @property
    def is_note(self) -> bool:
        """Marks the clsact that it is in as the first engine's."""
        return (self.parent, self.chain, self.kind, self.preference) == (_INGRESS, NOTE_CHAIN, "u32", PREFERENCES[0])

    def removal(self) -> Message:
        handle = self.handle if self.rank < 2 else 0
        body = tc.tcmsg(self.ifindex, handle, self.parent, self.info) + text(KIND, self.kind)
        return tc.RTM_DELTFILTER, CHANGE, body


class Kernel:
    """Queries of the kernel for this module."""

    def __init__(self, socket: RtSocket) -> None:
        self.socket = socket

    def send(self, messages: Iterable[Message]) -> list[Refusal | None]:
        return self.socket.send([[one] for one in messages])

    def _dump(self, kind: int, body: bytes) -> Iterator[tuple[tuple[int, ...], dict[int, bytes]]]:
        """Header and attributes of each; nothing for a deleted device."""
        try:
            pieces = self.socket.dump(kind, body)
        except RefusedError as exc:
            if exc.number in (errno.ENODEV, errno.EINVAL, errno.ENOENT):
                return
            raise
        for piece in pieces:
            for answer, _, start, end in messages_of(piece):
                if answer == kind - 2:  # RTM_NEW... of RTM_GET...
                    yield _TCMSG.unpack_from(piece, start), dict(attributes(piece[start + _TCMSG.size : end]))

    def qdiscs(self) -> tuple[dict[int, tuple[int, int]], list[int]]:
        """Handle and, for an HTB, default class of each root; devices with hooks."""
        roots, hooked = {}, []
        for (_, ifindex, handle, parent, _), one in self._dump(tc.RTM_GETQDISC, tc.tcmsg(0)):
            if parent == tc.AT_ROOT and handle:
                is_htb = text_of(one.get(KIND, b"")) == "htb"
                init = dict(attributes(one.get(OPTIONS, b""))).get(_HTB_INIT, b"") if is_htb else b""
                roots[ifindex] = (handle, number_of(init[8:12]))
            elif parent == tc.AT_INGRESS:
                hooked.append(ifindex)
        return roots, hooked

    def classes(self, ifindex: int) -> dict[int, OldClass]:
        """HTB's, by class id."""
        found = {}
        for (_, _, handle, _, _), one in self._dump(tc.RTM_GETTCLASS, tc.tcmsg(ifindex)):
            options, stats = (dict(attributes(one.get(name, b""))) for name in (OPTIONS, _STATS2))
            if text_of(one.get(KIND, b"")) != "htb" or _HTB_PARMS not in options:
                continue
            rate, mark = (number_of(options[_HTB_PARMS][at:]) for at in (8, 32))
            if _HTB_RATE64 in options:
                (rate,) = struct.unpack("=Q", options[_HTB_RATE64])
            size, packets = struct.unpack_from("=QI", stats.get(_BASIC, bytes(12)))
            if _PACKETS64 in stats:
                (packets,) = struct.unpack_from("=Q", stats[_PACKETS64])
            waiting_packets, waiting_bytes, drops = struct.unpack_from("=III", stats.get(_QUEUE, bytes(12)))
            found[handle] = OldClass(mark, rate * 8 // 1000, size, packets, waiting_bytes, waiting_packets, drops)
        return found

    def filters(self, ifindex: int, parent: int) -> list[OldFilter]:
        found = []
        for (_, _, handle, _, info), one in self._dump(tc.RTM_GETTFILTER, tc.tcmsg(ifindex, 0, parent)):
            kind, options = text_of(one.get(KIND, b"")), dict(attributes(one.get(OPTIONS, b"")))
            targets = tuple(_targets(options.get(_ACTIONS_OF_KIND.get(kind, -1), b"")))
            found.append(OldFilter(ifindex, parent, info, number_of(one.get(_CHAIN)), kind, handle, options, targets))
        return found


def _targets(actions: bytes) -> Iterator[int]:
    for _, action in attributes(actions):
        parts = dict(attributes(action))
        parms = dict(attributes(parts.get(2, b""))).get(2, b"")  # TCA_ACT_OPTIONS, TCA_MIRRED_PARMS
        if text_of(parts.get(1, b"")) == "mirred" and len(parms) >= 28:
            yield number_of(parms[24:])
