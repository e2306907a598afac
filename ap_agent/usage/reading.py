"""The kernel's counters of our classes: one dump per device, decoded without making an object for each class.

A life of an inner class is recognised by its birthmark: a random number where a leaf class has its quantum. The kernel
keeps that number for the class's whole life and neither uses nor changes it once the class has children (sch_htb.c;
measured on 6.18), so it says without any memory of ours whether this is still the class that was counted before.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

from ap_agent import tcmsg
from ap_agent.dataplane.rtsocket import RefusedError, RtSocket
from ap_agent.messages import IFLA_IFNAME
from ap_agent.model import DATA_OFFSET, HEARTBEAT_OFFSET, IFB_MAJOR, IFB_NAME, NIC_MAJOR, Direction
from bandwidth_config import MAX_INTERFACE_ID

Key = tuple[int, Direction]  # interface id, direction
DIRECTION_OF: Mapping[int, Direction] = {NIC_MAJOR: "to_user", IFB_MAJOR: "from_user"}

RTM_GETLINK = 18
_TCA_STATS_PKT64 = 8  # only there once the 32 bits of TCA_STATS_BASIC do not hold the packets
_HEADER_BYTES, _TCMSG_BYTES = 16, 20
_SMALLEST_BYTES = 48  # headers, the kind, the header of the options
_QUANTUM_IN_PARMS = 32  # tc_htb_opt: two rates of 12 bytes, buffer, cbuffer, quantum
_RATE_IN_PARMS = 8  # tc_ratespec: the rate is its last field

_ATTRIBUTE = struct.Struct("=HH")
_LENGTH_AND_HANDLE = struct.Struct("=IH18xI")  # nlmsghdr: length, type; tcmsg: handle, 24 bytes from the begin
_IFINFO = struct.Struct("=BxHiII")
_U32, _U64 = struct.Struct("=I"), struct.Struct("=Q")
_BASIC = struct.Struct("=QI")
_QUEUE = struct.Struct("=4xII")  # after the length of the queue: its bytes, what was dropped
_OPTIONS_LENGTH = struct.Struct("=44xH")  # of TCA_OPTIONS, which follows the four letters "htb\0"


class Counted(NamedTuple):
    """One direction of a link as the kernel has it now. A leaf class that is not there has no drops (None).

    `refused` were dropped in front of the leaves since this process began (whole datagrams; no dump tells of them).
    """

    mark: int
    rate_bytes_s: int
    bytes: int
    packets: int
    heartbeat_drops: int | None
    data_drops: int | None
    backlog_bytes: int
    refused: int = 0


class Farewell(NamedTuple):
    """What the kernel said of a class in the moment of its deletion."""

    ifindex: int
    key: Key
    part: Literal["inner", "heartbeat", "data"]
    mark: int
    rate_bytes_s: int
    bytes: int
    packets: int
    drops: int


class _Layout(NamedTuple):
    """Where a class message keeps what is wanted; 0: it has none."""

    parms: int
    rate64: int
    basic: int
    packets64: int
    queue: int


class Layouts:
    """Of the few kinds of messages that there are, by their lengths: each is walked through once."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], _Layout] = {}

    def at(self, piece: bytes, start: int, length: int) -> _Layout:
        key = length, _OPTIONS_LENGTH.unpack_from(piece, start)[0]
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = _layout(piece[start : start + length])
        return found


def _layout(message: bytes) -> _Layout:
    top = _places(message, _HEADER_BYTES + _TCMSG_BYTES, len(message))
    options = _places(message, *top.get(tcmsg.TCA_OPTIONS, (0, 0)))
    stats = _places(message, *top.get(tcmsg.TCA_STATS2, (0, 0)))
    nowhere = (0, 0)
    return _Layout(
        parms=options.get(tcmsg.TCA_HTB_PARMS, nowhere)[0],
        rate64=options.get(tcmsg.TCA_HTB_RATE64, nowhere)[0],
        basic=stats.get(tcmsg.TCA_STATS_BASIC, nowhere)[0],
        packets64=stats.get(_TCA_STATS_PKT64, nowhere)[0],
        queue=stats.get(tcmsg.TCA_STATS_QUEUE, nowhere)[0],
    )


def _places(message: bytes, position: int, end: int) -> dict[int, tuple[int, int]]:
    found = {}
    while position + _ATTRIBUTE.size <= end:
        length, number = _ATTRIBUTE.unpack_from(message, position)
        if length < _ATTRIBUTE.size or position + length > end:
            break
        found[number & 0x3FFF] = (position + _ATTRIBUTE.size, position + length)
        position += length + 3 & ~3
    return found


def _parms(piece: bytes, start: int, layout: _Layout) -> tuple[int, int]:
    """Mark and rate in byte/s."""
    parms = start + layout.parms
    mark = _U32.unpack_from(piece, parms + _QUANTUM_IN_PARMS)[0]
    if layout.rate64:
        return mark, _U64.unpack_from(piece, start + layout.rate64)[0]
    return mark, _U32.unpack_from(piece, parms + _RATE_IN_PARMS)[0]


def _passed(piece: bytes, start: int, layout: _Layout) -> tuple[int, int]:
    size, packets = _BASIC.unpack_from(piece, start + layout.basic) if layout.basic else (0, 0)
    if layout.packets64:
        packets = _U64.unpack_from(piece, start + layout.packets64)[0]
    return size, packets


def decode(pieces: Iterable[bytes], major: int, layouts: Layouts) -> dict[int, Counted]:
    """The links' inner classes of one device's dump, by interface id, with what their leaves dropped and hold."""
    inner: dict[int, tuple[int, int, int, int]] = {}
    leaves: dict[int, tuple[int, int]] = {}
    for piece in pieces:
        position, end = 0, len(piece)
        while position + _HEADER_BYTES + _TCMSG_BYTES <= end:
            length, kind, handle = _LENGTH_AND_HANDLE.unpack_from(piece, position)
            start, position = position, position + (length + 3 & ~3)
            if length < _HEADER_BYTES or start + length > end:
                break
            minor = handle & 0xFFFF
            if kind != tcmsg.RTM_NEWTCLASS or length < _SMALLEST_BYTES:
                continue
            if handle >> 16 != major or minor >= HEARTBEAT_OFFSET + 0x1000:
                continue
            layout = layouts.at(piece, start, length)
            if minor < DATA_OFFSET:
                if layout.parms:
                    inner[minor] = *_parms(piece, start, layout), *_passed(piece, start, layout)
            elif layout.queue:
                leaves[minor] = _QUEUE.unpack_from(piece, start + layout.queue)
    found = {}
    for number, (mark, rate, size, packets) in inner.items():
        if not 1 <= number <= MAX_INTERFACE_ID:
            continue
        beats, data = leaves.get(HEARTBEAT_OFFSET + number), leaves.get(DATA_OFFSET + number)
        backlog = (beats[0] if beats else 0) + (data[0] if data else 0)
        found[number] = Counted(
            mark, rate, size, packets, beats[1] if beats else None, data[1] if data else None, backlog
        )
    return found


def farewell(body: bytes, layouts: Layouts) -> Farewell | None:
    """Of a message RTM_DELTCLASS, without its header. None for a class that is no link's."""
    if len(body) < _SMALLEST_BYTES - _HEADER_BYTES:
        return None
    ifindex, handle = tcmsg.ifindex_of(body), _U32.unpack_from(body, 8)[0]
    direction, minor = DIRECTION_OF.get(handle >> 16), handle & 0xFFFF
    number, offset = minor & 0xFFF, minor & ~0xFFF
    part: Literal["inner", "heartbeat", "data"] | None = {
        0: "inner",
        DATA_OFFSET: "data",
        HEARTBEAT_OFFSET: "heartbeat",
    }.get(offset)  # type: ignore[assignment]  # mypy takes the literals for any text
    if direction is None or part is None or not 1 <= number <= MAX_INTERFACE_ID:
        return None
    message = bytes(_HEADER_BYTES) + body
    layout = layouts.at(message, 0, len(message))
    if not layout.parms or not layout.basic:
        return None
    drops = _QUEUE.unpack_from(message, layout.queue)[1] if layout.queue else 0
    return Farewell(
        ifindex, (number, direction), part, *_parms(message, 0, layout), *_passed(message, 0, layout), drops
    )


class Device(NamedTuple):
    """The classes of one device, as they were dumped."""

    name: str
    ifindex: int
    pieces: Sequence[bytes]

    @property
    def major(self) -> int:
        return IFB_MAJOR if self.name == IFB_NAME else NIC_MAJOR


class UsageReader:
    """Dumps of classes over a socket of its own, in the network namespace of the thread that makes it.

    For one thread at a time. After an error it is of no use any longer.
    """

    def __init__(self) -> None:
        self._socket = RtSocket()

    def close(self) -> None:
        self._socket.close()

    def read(self, names: Iterable[str]) -> list[Device]:
        """A device that is gone is left out. Raises `AgentError`, `OSError`."""
        found = []
        for name in names:
            ifindex = self._ifindex(name)
            if ifindex is None:
                continue
            try:
                pieces = self._socket.dump(tcmsg.RTM_GETTCLASS, tcmsg.tcmsg(ifindex))
            except RefusedError:  # it disappeared in this moment
                continue
            found.append(Device(name, ifindex, pieces))
        return found

    def _ifindex(self, name: str) -> int | None:
        question = _IFINFO.pack(0, 0, 0, 0, 0) + tcmsg.text(IFLA_IFNAME, name)
        try:
            answer = self._socket.ask(RTM_GETLINK, question)
        except RefusedError:
            return None
        return int(_IFINFO.unpack_from(answer)[2])
