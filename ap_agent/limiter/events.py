"""Notifications of the kernel: changes of devices, addresses and traffic control.

Events only trigger a comparison; the kernel's state then decides (docs/adr/0004). So a message is parsed just enough to
decide whether it is relevant, and a lost message triggers a comparison, too.

Routes and rules do not matter: a limit applies on whatever device a link's packets use.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ap_agent.common.errors import AgentError
from ap_agent.dataplane.devices import (
    IFB_ALIAS,
    IFB_NAMES,
    RTM_DELADDR,
    RTM_DELLINK,
    RTM_NEWADDR,
    RTM_NEWLINK,
    Device,
    address_of,
    device_of,
)
from ap_agent.dataplane.libbpf import BPF_TCX_EGRESS, BPF_TCX_INGRESS, attached
from ap_agent.dataplane.rtsocket import SO_RCVBUFFORCE, enlarge, messages_of
from ap_agent.dataplane.tc import ADMITTED_PREF, PROGRAM_PREF

_GROUPS = (1, 4, 5, 9)  # <linux/rtnetlink.h>: RTNLGRP_LINK, TC, IPV4_IFADDR, IPV6_IFADDR
_SOL_NETLINK, _NETLINK_ADD_MEMBERSHIP = 270, 1
RECEIVE_BUFFER_BYTES = 32 * 1024 * 1024
_READ_BYTES = 64 * 1024  # a link with many virtual functions is the largest message
_MESSAGES_AT_ONCE = 4096  # about 10 ms, so that a flood does not delay signals
_DRAINS = 16  # more than the receive buffer holds

_TC = {36: "qdisc", 37: "qdisc", 40: "class", 41: "class", 44: "filter", 45: "filter"}
_DELQDISC = 37
_TCMSG = struct.Struct("=BxxxIIII")  # family, index, handle, parent, info: of filters preference and protocol
_SHARED_BLOCK = 0xFFFF_FFFF  # in the place of an index
_AT_ROOT, _HOOKS = 0xFFFF_FFFF, 0xFFFF_0000  # parents: the root; from here on clsact, ingress and their hooks
_DEVICE = "device"
_TCX = (BPF_TCX_INGRESS, BPF_TCX_EGRESS)


@dataclass(frozen=True, order=True)
class Change:
    """A foreign change of a device, or of an address (device empty). `is_undoing`: of an object that is ours if we have
    any there: the clsact qdisc, a filter with a preference of ours, anything at an IFB of ours."""

    device: str
    what: str
    is_undoing: bool = False


@dataclass(frozen=True)
class Notifications:
    """The relevant changes. `is_lost`: the kernel dropped messages, so anything may have changed. `is_all`: no message
    is left."""

    changes: frozenset[Change] = frozenset()
    is_lost: bool = False
    is_all: bool = True

    @property
    def concerns_us(self) -> bool:
        return bool(self.changes) or self.is_lost


def unannounced(devices: Iterable[str], maps_dir: Path, xdp: Iterable[tuple[str, str]] = ()) -> frozenset[Change]:
    """State that no event covers: tcx programs at the hooks of these devices, names in `maps_dir`, XDP programs of
    devices (name, program)."""
    found = {Change(device, one) for device, one in xdp}
    for device in devices:
        with contextlib.suppress(OSError):  # gone; that is an event
            ifindex = socket.if_nametoindex(device)
            found |= {Change(device, f"tcx programs {kind}: {attached(ifindex, kind)}") for kind in _TCX}
    with contextlib.suppress(OSError):
        found |= {Change("", f"map {one}") for one in os.listdir(maps_dir)}  # noqa: PTH208  # names alone
    return frozenset(found)


class Listener:
    """The socket, for the calling thread's network namespace."""

    def __init__(self) -> None:
        """Raises `AgentError`."""
        try:
            self._socket = socket.socket(
                socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK, socket.NETLINK_ROUTE
            )
            enlarge(self._socket, SO_RCVBUFFORCE, RECEIVE_BUFFER_BYTES // 2)  # the kernel doubles it (socket(7))
            self._socket.bind((0, 0))
            for group in _GROUPS:
                self._socket.setsockopt(_SOL_NETLINK, _NETLINK_ADD_MEMBERSHIP, group)
        except OSError as exc:
            raise AgentError(f"The kernel's events cannot be listened to: {exc.strerror}.") from exc
        self._buffer = memoryview(bytearray(_READ_BYTES))
        self._devices: dict[int, Device] = {}  # as last announced
        self._addresses: set[tuple[bytes, int]] = set()  # known to exist
        self._ifbs: dict[str, bool] = {}  # of announced ones: whether it is ours, and up

    def close(self) -> None:
        self._socket.close()

    def fileno(self) -> int:
        return self._socket.fileno()

    def drain_own(self, own_ports: frozenset[int]) -> Notifications:
        """Consume pending messages after our own changes: those from these netlink ports are ours, and so are those
        about our IFBs, unless they differ from what we made."""
        heard = Notifications()
        for _ in range(_DRAINS):
            more = self.drain(own_ports, is_after_work=True)
            heard = Notifications(heard.changes | more.changes, heard.is_lost or more.is_lost, more.is_all)
            if more.is_all:
                break
        return heard

    def drain(self, own_ports: frozenset[int] = frozenset(), *, is_after_work: bool = False) -> Notifications:
        """Consume pending messages without waiting; bounded, so that nothing else waits long."""
        changes: set[Change] = set()
        messages, is_lost = 0, False
        self._ifbs.clear()
        for _ in range(_MESSAGES_AT_ONCE):
            try:
                size = self._socket.recv_into(self._buffer)
            except BlockingIOError:
                break
            except OSError as exc:
                if exc.errno != errno.ENOBUFS:
                    raise
                is_lost = True
                self._devices.clear()  # messages about them may be lost, too
                self._addresses.clear()
                continue
            messages += 1
            changes.update(self._changes(bytes(self._buffer[:size]), own_ports))
        if is_after_work:
            changes = {one for one in changes if not (one.what.startswith(_DEVICE) and self._ifbs.get(one.device))}
        return Notifications(frozenset(changes), is_lost, messages < _MESSAGES_AT_ONCE - is_lost)

    def _changes(self, data: bytes, own_ports: frozenset[int]) -> Iterator[Change]:
        for kind, _, start, end in messages_of(data):
            body, (port,) = data[start:end], struct.unpack_from("=I", data, start - 4)
            with contextlib.suppress(struct.error):  # too short: not from the kernel
                if kind in {RTM_NEWLINK, RTM_DELLINK}:
                    yield from self._of_device(kind, body)
                elif kind in {RTM_NEWADDR, RTM_DELADDR}:
                    yield from self._of_address(kind, body)
                elif kind in _TC and port not in own_ports:
                    yield from self._of_traffic_control(kind, body)

    def _of_device(self, kind: int, body: bytes) -> Iterator[Change]:
        """A device that differs from its last announcement. Most messages about devices repeat it, and have no port
        (kernel 6.18), so our own changes to our IFBs are recognised by their result."""
        if body[:1] != b"\0":  # of a family: a bridge announces its ports with the same message types
            return
        now = device_of(body)._replace(xdp=())  # not all are announced: see `unannounced`
        before = self._devices.pop(now.ifindex, None)
        if now.name in IFB_NAMES:
            self._ifbs[now.name] = kind == RTM_NEWLINK and now.alias == IFB_ALIAS and now.is_up
        is_undoing = now.name in IFB_NAMES and not self._ifbs[now.name]
        if kind == RTM_DELLINK:
            yield Change(now.name, f"{_DEVICE} deleted", is_undoing)
            return
        self._devices[now.ifindex] = now
        if now != before:
            yield Change(now.name, _DEVICE, is_undoing)

    def _of_address(self, kind: int, body: bytes) -> Iterator[Change]:
        """An added or removed address; router advertisements repeat existing ones."""
        address = _, ifindex = address_of(body)
        is_known = address in self._addresses
        if kind == RTM_NEWADDR:
            self._addresses.add(address)
        else:
            self._addresses.discard(address)
        name = self._devices[ifindex].name if ifindex in self._devices else _name(ifindex)
        if (kind == RTM_DELADDR or not is_known) and name not in IFB_NAMES:  # they have one while they are up
            yield Change("", "address")

    def _of_traffic_control(self, kind: int, body: bytes) -> Iterator[Change]:
        """At a hook, or on one of our IFBs; changes at the root of a card do not matter."""
        _, ifindex, _, parent, info = _TCMSG.unpack_from(body)
        name, what = _name(ifindex), _TC[kind]
        is_at_hook = _HOOKS <= parent < _AT_ROOT
        is_of_ours = kind == _DELQDISC or (what == "filter" and info >> 16 in (PROGRAM_PREF, ADMITTED_PREF))
        if name in IFB_NAMES or ifindex == _SHARED_BLOCK or is_at_hook:
            yield Change(name, what, name in IFB_NAMES or (is_at_hook and is_of_ours))


def _name(ifindex: int) -> str:
    try:
        return socket.if_indextoname(ifindex)
    except (OSError, OverflowError):  # already gone, or a shared block
        return f"device {ifindex}"
