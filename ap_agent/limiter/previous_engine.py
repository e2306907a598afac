"""Takes the objects of the first engine (up to commit 90d5377) off a host, while the limits of ours already hold.

    each NIC   root 1: htb default fffe, classes 1:<link> with leaf classes 1:<1000+link>, 1:<2000+link>    to the users
               ingress hook: u32 filters that redirect to its IFB; a program at both hooks; a note in a chain of its own
    one IFB    slbw0, alias "scionlab-bw", root 3: htb default fffe, the same classes                      from the users

`make_way` renames its IFB, whose name ours has. Then the engine builds and verifies its own objects; what it admits passes
the old ones as well, which are no faster. `remove` leads every packet past the old classes with one filter in front of
theirs, lets their queues drain, reads their last counters, and deletes them. What is not theirs keeps what it sits in.
"""

from __future__ import annotations

import errno
import os
import struct
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from socket import htons
from typing import Final, NamedTuple

from ap_agent.common.problem import Problem
from ap_agent.dataplane.rtsocket import Refusal, RefusedError, RtSocket, messages_of
from ap_agent.document.state import ClosedSegment, Counters, Direction
from ap_agent.messages import Message
from ap_agent.tcmsg import attribute, attributes, tcmsg, text, text_of, u32
from bandwidth_config import MAX_INTERFACE_ID

CODE: Final = "previous_engine"
IFB_NAME, PARKED_NAME, ALIAS = "slbw0", "slbwold", "scionlab-bw"
NIC_ROOT, IFB_ROOT, DEFAULT_MINOR, EXEMPT_MINOR = 0x1_0000, 0x3_0000, 0xFFFE, 0xFFFD
DIRECTION_OF: Final[Mapping[int, Direction]] = {NIC_ROOT: "to_user", IFB_ROOT: "from_user"}
DATA, HEARTBEATS = 0x1000, 0x2000  # + link: the minors of leaf classes
PREFERENCES = range(100, 160)
NOTE_CHAIN, PROGRAM_PREFERENCE, PROGRAM_NAME = 0x736C62, 105, "slbw-whole"
DRAIN_S = 3.0  # what waits longer is of a link of a few kbit/s, and is dropped
BUSY_S = 1.0
_POLL_S = 0.02

# linux/rtnetlink.h, if_link.h, pkt_sched.h, pkt_cls.h, tc_act/tc_mirred.h
_NEWLINK, _DELLINK, _GETLINK, _SETLINK = 16, 17, 18, 19
_NEWQDISC, _DELQDISC, _GETQDISC, _NEWTCLASS, _DELTCLASS, _GETTCLASS = 36, 37, 38, 40, 41, 42
_NEWTFILTER, _DELTFILTER, _GETTFILTER = 44, 45, 46
_ADD = 0x600  # NLM_F_CREATE | NLM_F_EXCL
_IFLA_IFNAME, _IFLA_LINKINFO, _IFLA_IFALIAS, _INFO_KIND, _IFF_UP = 3, 18, 20, 1, 1
_KIND, _OPTIONS, _STATS2, _CHAIN = 1, 2, 7, 11
_HTB_PARMS, _HTB_INIT, _HTB_RATE64, _BASIC, _QUEUE, _PACKETS64 = 1, 2, 6, 1, 3, 8
_U32_CLASSID, _U32_LINK, _U32_DIVISOR, _U32_SELECTOR, _BPF_NAME = 1, 3, 4, 5, 7
_ACTIONS_OF_KIND = {"u32": 7, "matchall": 2, "flower": 3, "basic": 3, "bpf": 1, "fw": 4, "flow": 9}
_ETH_P_ALL, _FIRST_OF_LISTS = 3, 0x800
_AT_ROOT, _CLSACT, _AT_CLSACT, _INGRESS, _EGRESS = 0xFFFF_FFFF, 0xFFFF_0000, 0xFFFF_FFF1, 0xFFFF_FFF2, 0xFFFF_FFF3
_TCMSG, _IFINFO = struct.Struct("=BxxxiIII"), struct.Struct("=BxHiII")

Lanes = Mapping[tuple[int, Direction], tuple[int, Counters]]  # link (0: unmatched) and direction -> segment, counters


class Removed(NamedTuple):
    """`closed`: the last counters of the old classes; `segment` is the mark of 31 bits that each has as its quantum.
    `problems`: what had to stay, and why."""

    closed: tuple[ClosedSegment, ...]
    problems: tuple[Problem, ...]


class _Device(NamedTuple):
    name: str
    is_old_ifb: bool


class _Qdisc(NamedTuple):
    ifindex: int
    handle: int
    parent: int
    kind: str
    options: bytes


class _Class(NamedTuple):
    mark: int = 0
    rate_kbit: int = 0
    bytes: int = 0
    packets: int = 0
    waiting_bytes: int = 0
    waiting_packets: int = 0
    drops: int = 0


class _Filter(NamedTuple):
    """`info`: preference and protocol. `targets`: the devices that it redirects to; 0 is one that is gone."""

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
    def is_rule(self) -> bool:
        """Neither a list nor a table of its rules."""
        return self.handle != 0 and _U32_DIVISOR not in self.options

    @property
    def is_table(self) -> bool:
        """One that somebody made: the first of each list comes and goes with it."""
        return _U32_DIVISOR in self.options and self.handle >> 20 < _FIRST_OF_LISTS

    @property
    def place(self) -> tuple[int, int, int, int]:
        return self.ifindex, self.parent, self.chain, self.info


def find() -> PreviousEngine | None:
    """What the first engine left on this host; None almost always. Raises `AgentError`, `RefusedError`."""
    kernel = _Kernel(RtSocket())
    devices, qdiscs = kernel.devices(), kernel.qdiscs()
    ifb = next((ifindex for ifindex, one in devices.items() if one.is_old_ifb), None)
    roots = {
        one.ifindex: one.handle
        for one in qdiscs
        if one.parent == _AT_ROOT and one.handle == (IFB_ROOT if one.ifindex == ifb else NIC_ROOT) and _is_old_root(one)
    }
    hooks = [(one.ifindex, hook) for one in qdiscs if one.parent == _AT_CLSACT for hook in (_INGRESS, _EGRESS)]
    filters = tuple(each for place in (*roots.items(), *hooks) for each in kernel.filters(*place))
    names = {ifindex: one.name for ifindex, one in devices.items()}
    found = PreviousEngine(kernel, names, ifb, roots, qdiscs, filters)
    if ifb is None and not roots and not any(one.is_rule and found.is_ours(one) for one in filters):
        kernel.socket.close()
        return None
    return found


@dataclass
class PreviousEngine:
    """What `find` found: `roots` by device, filters of these and of all hooks. First `make_way`, then `remove`."""

    kernel: _Kernel
    names: dict[int, str]
    ifb: int | None
    roots: dict[int, int]
    qdiscs: list[_Qdisc]
    filters: tuple[_Filter, ...]
    before: dict[tuple[int, int], _Class] = field(default_factory=dict)
    kept: dict[str, str] = field(default_factory=dict)  # why something stays, by device

    def make_way(self) -> None:
        """Rename its IFB. What is redirected there goes on: filters hold the device, not its name."""
        self.before = {(dev, handle): one for dev in self.roots for handle, one in self.kernel.classes(dev).items()}
        if self.ifb is None or self.names[self.ifb] != IFB_NAME:
            return
        rename = (_SETLINK, 0, _IFINFO.pack(0, 0, self.ifb, 0, 0) + text(_IFLA_IFNAME, PARKED_NAME))
        (refusal,) = self.kernel.socket.send([[rename]])
        if refusal is not None and refusal.number == errno.EBUSY:  # before Linux 6.2 only a device that is down
            down, up = ((_SETLINK, 0, _IFINFO.pack(0, 0, self.ifb, flag, _IFF_UP)) for flag in (0, _IFF_UP))
            self.kernel.socket.send([[down, rename, up]])
        self.names[self.ifb] = PARKED_NAME

    def close(self) -> None:
        self.kernel.socket.close()

    def waiting(self) -> Problem:
        """While ours does not stand."""
        where = ", ".join(sorted(self.names[one] for one in self.roots)) or "kernel"
        message = (
            "The limits of the first engine stay as they were until the new ones are in the kernel; "
            "the other problems say what is in the way."
        )
        return Problem(CODE, where, message)

    def remove(self, lanes: Callable[[], Lanes]) -> Removed:
        """`lanes` tells what ours counted: bytes that passed both are told once. Takes up to `DRAIN_S`."""
        self.kernel.send([*self._ways_past()])
        for ifindex, hook in {(one.ifindex, one.parent) for one in self.filters if one.parent in (_INGRESS, _EGRESS)}:
            self._clear(ifindex, hook)
        twice = self._counted_twice(lanes())
        self._drain()
        closed = tuple(self._closed(twice))
        for ifindex, root in self.roots.items():
            self._delete_root(ifindex, root)
        if self.ifb is not None and self.names[self.ifb] not in self.kept:
            self._delete(self.ifb, (_DELLINK, 0, _IFINFO.pack(0, 0, self.ifb, 0, 0)))
        self._delete_clsacts()
        self.close()
        return Removed(closed, tuple(Problem(CODE, name, why) for name, why in sorted(self.kept.items())))

    # --- filters ---

    def is_ours(self, one: _Filter) -> bool:
        """As the first engine knew its own: at its places, and nothing that it could not have made."""
        if one.chain == NOTE_CHAIN:
            return one.parent == _INGRESS and one.kind == "u32" and one.preference == PREFERENCES[0]
        if one.chain or one.preference not in PREFERENCES:
            return False
        if one.kind == "bpf":
            has_name = one.handle == 0 or text_of(one.options.get(_BPF_NAME, b"")) == PROGRAM_NAME
            return has_name and one.preference == PROGRAM_PREFERENCE and one.parent in (_INGRESS, _EGRESS)
        if one.kind != "u32":
            return False
        if one.handle == 0 or _U32_DIVISOR in one.options or _U32_LINK in one.options:
            return True  # a list, a table, what leads to one
        if one.parent == _INGRESS:
            return one.targets in ((self.ifb,), (0,))
        class_id = struct.unpack("=I", one.options.get(_U32_CLASSID, bytes(4)))[0]
        return class_id == one.parent or (class_id >> 16 == one.parent >> 16 and _is_old_class(class_id))

    def _ways_past(self) -> Iterator[Message]:
        """For each NIC a filter in front of all others that lets every packet pass the old classes; not where somebody
        else has classes, for which his own filters decide."""
        for ifindex, root in self.roots.items():
            used = {one.preference for one in self.filters if (one.ifindex, one.parent) == (ifindex, root)}
            free = [one for one in range(1, PREFERENCES[0]) if one not in used]
            if ifindex != self.ifb and free and not self._why_kept(ifindex, root):
                any_packet = struct.pack(
                    "=BBBxHHhhIIIii", 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0
                )  # terminal, one empty key
                options = attribute(_OPTIONS, attribute(_U32_SELECTOR, any_packet) + u32(_U32_CLASSID, root))
                head = tcmsg(ifindex, 0, root, free[-1] << 16 | htons(_ETH_P_ALL))
                yield _NEWTFILTER, _ADD, head + text(_KIND, "u32") + options

    def _clear(self, ifindex: int, parent: int) -> None:
        """What is ours there: rules, then tables, which the kernel calls busy for a moment after the last rule that led
        there, then lists. A list that goes before its tables leaves them behind, unseen, where others have lists too."""
        until = time.monotonic() + BUSY_S
        while time.monotonic() < until:
            found = self.kernel.filters(ifindex, parent)
            ours = [one for one in found if self.is_ours(one)]
            shared = {one.place for one in found if not self.is_ours(one)}
            stages = (
                [one for one in ours if one.is_rule],
                [one for one in ours if one.is_table],
                [one for one in ours if one.handle == 0 and one.place not in shared],
            )
            doomed = next((some for some in stages if some), [])
            if not doomed:
                return
            if any(self.kernel.send([_delete_filter(one) for one in doomed])):
                time.sleep(_POLL_S)

    # --- counters ---

    def _counted_twice(self, lanes: Lanes) -> dict[tuple[int, Direction], tuple[int, int]]:
        """Bytes and packets that our lanes counted, and the old classes after them: to the user what left our queue,
        from the user what did not go through our IFB."""
        ours = next((ifindex for ifindex, one in self.kernel.devices().items() if one.name == IFB_NAME), None)
        queues = {handle & 0xFFFF: one for handle, one in self.kernel.classes(ours).items()} if ours is not None else {}
        found = {}
        for (link, direction), (_, one) in lanes.items():
            queue = queues.get(link, _Class())
            found[link, direction] = (
                (one.heartbeat_bytes, one.heartbeat_packets)
                if direction == "from_user"
                else (one.passed_bytes - queue.waiting_bytes, one.passed_packets - queue.waiting_packets)
            )
        return found

    def _drain(self) -> None:
        until = time.monotonic() + DRAIN_S
        while time.monotonic() < until and any(
            one.waiting_bytes for dev in self.roots for one in self.kernel.classes(dev).values()
        ):
            time.sleep(_POLL_S)

    def _closed(self, twice: Mapping[tuple[int, Direction], tuple[int, int]]) -> Iterator[ClosedSegment]:
        now_ms, nothing = int(time.time() * 1000), _Class()
        for ifindex, root in self.roots.items():
            found, direction = self.kernel.classes(ifindex), DIRECTION_OF[root]
            for link in range(1, MAX_INTERFACE_ID + 1):
                one = found.get(root + link)
                if one is None:
                    continue
                before = self.before.get((ifindex, root + link), one)
                data, beats = (found.get(root + kind + link, nothing) for kind in (DATA, HEARTBEATS))
                again = twice.get((link, direction), (0, 0))
                counters = Counters(
                    # What the class had before ours was there is nobody else's.
                    passed_bytes=one.bytes - max(0, min(again[0], one.bytes - before.bytes)),
                    passed_packets=one.packets - max(0, min(again[1], one.packets - before.packets)),
                    refused_bytes=0,
                    refused_packets=data.drops + beats.drops,
                    heartbeat_bytes=beats.bytes,
                    heartbeat_packets=beats.packets,
                )
                yield ClosedSegment(link, direction, one.mark, one.rate_kbit, now_ms, counters)

    # --- what goes ---

    def _delete_root(self, ifindex: int, root: int) -> None:
        why = self._why_kept(ifindex, root)
        if why is None:
            if ifindex != self.ifb:
                self._delete(ifindex, (_DELQDISC, 0, tcmsg(ifindex, root, _AT_ROOT)))
            return
        self.kept[self.names[ifindex]] = why
        self._clear(ifindex, root)
        until = time.monotonic() + BUSY_S  # the kernel lets go of classes a moment after their filters
        while time.monotonic() < until:
            ours = sorted(
                (one for one in self.kernel.classes(ifindex) if _is_old_class(one)), reverse=True
            )  # leaves first
            refusals = self.kernel.send([(_DELTCLASS, 0, tcmsg(ifindex, one)) for one in ours])
            if not any(refusals):
                return
            time.sleep(_POLL_S)

    def _why_kept(self, ifindex: int, root: int) -> str | None:
        """What else sits in a root, or leads to the IFB, and what to do about it."""
        name, found = self.names[ifindex], []
        others = [one for one in self.filters if not self.is_ours(one)]
        if any((one.ifindex, one.parent) == (ifindex, root) for one in others):
            found.append("filters")
        if any(not _is_old_class(handle) for handle in self.kernel.classes(ifindex)):
            found.append("classes")
        if ifindex == self.ifb and any(ifindex in one.targets for one in others):
            found.append("redirects to it")
        if not found:
            return None
        remedy = f"ip link del {name}" if ifindex == self.ifb else f"tc qdisc del dev {name} root"
        return (
            f"The root {root >> 16:x}: of the first engine stays on {name}, because it has {' and '.join(found)} of "
            f"somebody else; move those and remove it ({remedy}). It limits no link any more."
        )

    def _delete(self, ifindex: int, message: Message) -> None:
        (refusal,) = self.kernel.send([message])
        if refusal is not None and refusal.number not in (errno.ENODEV, errno.ENOENT, errno.EINVAL):
            reason = refusal.text or os.strerror(refusal.number)
            self.kept[self.names[ifindex]] = f"What the first engine made stays ({reason}); start the limiter again."

    def _delete_clsacts(self) -> None:
        """Those that the first engine made and in which nothing is left: not when ours is there, but after a reset."""
        for ifindex in {one.ifindex for one in self.filters if one.chain == NOTE_CHAIN and self.is_ours(one)}:
            if not any(self.kernel.filters(ifindex, hook) for hook in (_INGRESS, _EGRESS)):
                self._delete(ifindex, (_DELQDISC, 0, tcmsg(ifindex, _CLSACT, _AT_CLSACT) + text(_KIND, "clsact")))


class _Kernel:
    """The questions and answers that this needs."""

    def __init__(self, socket: RtSocket) -> None:
        self.socket = socket

    def send(self, messages: list[Message]) -> list[Refusal | None]:
        return self.socket.send([[one] for one in messages])

    def _dump(
        self, kind: int, body: bytes, layout: struct.Struct
    ) -> Iterator[tuple[tuple[int, ...], dict[int, bytes]]]:
        """Header and attributes of each; nothing of a device that is gone."""
        try:
            pieces = self.socket.dump(kind, body)
        except RefusedError as exc:
            if exc.number in (errno.ENODEV, errno.EINVAL, errno.ENOENT):
                return
            raise
        for piece in pieces:
            for answer, _, start, end in messages_of(piece):
                if answer == kind - 2:  # RTM_NEW... of RTM_GET...
                    yield layout.unpack_from(piece, start), dict(attributes(piece[start + layout.size : end]))

    def devices(self) -> dict[int, _Device]:
        found = {}
        for (_, _, ifindex, _, _), one in self._dump(_GETLINK, _IFINFO.pack(0, 0, 0, 0, 0), _IFINFO):
            info = dict(attributes(one.get(_IFLA_LINKINFO, b"")))
            name, alias = text_of(one.get(_IFLA_IFNAME, b"")), text_of(one.get(_IFLA_IFALIAS, b""))
            is_ifb = text_of(info.get(_INFO_KIND, b"")) == "ifb"
            found[ifindex] = _Device(name, is_ifb and alias == ALIAS and name in (IFB_NAME, PARKED_NAME))
        return found

    def qdiscs(self) -> list[_Qdisc]:
        return [
            _Qdisc(head[1], head[2], head[3], text_of(one.get(_KIND, b"")), one.get(_OPTIONS, b""))
            for head, one in self._dump(_GETQDISC, tcmsg(0), _TCMSG)
        ]

    def classes(self, ifindex: int) -> dict[int, _Class]:
        """HTB's, by class id."""
        found = {}
        for (_, _, handle, _, _), one in self._dump(_GETTCLASS, tcmsg(ifindex), _TCMSG):
            options, stats = (dict(attributes(one.get(name, b""))) for name in (_OPTIONS, _STATS2))
            if text_of(one.get(_KIND, b"")) != "htb" or _HTB_PARMS not in options:
                continue
            rate, mark = (struct.unpack_from("=I", options[_HTB_PARMS], at)[0] for at in (8, 32))
            if _HTB_RATE64 in options:
                (rate,) = struct.unpack("=Q", options[_HTB_RATE64])
            size, packets = struct.unpack_from("=QI", stats.get(_BASIC, bytes(12)))
            if _PACKETS64 in stats:
                (packets,) = struct.unpack_from("=Q", stats[_PACKETS64])
            waiting = struct.unpack_from("=III", stats.get(_QUEUE, bytes(12)))
            found[handle] = _Class(mark, rate * 8 // 1000, size, packets, waiting[1], waiting[0], waiting[2])
        return found

    def filters(self, ifindex: int, parent: int) -> list[_Filter]:
        found = []
        for (_, _, handle, _, info), one in self._dump(_GETTFILTER, tcmsg(ifindex, 0, parent), _TCMSG):
            kind, options = text_of(one.get(_KIND, b"")), dict(attributes(one.get(_OPTIONS, b"")))
            (chain,) = struct.unpack("=I", one.get(_CHAIN, bytes(4)))
            targets = tuple(_targets(options.get(_ACTIONS_OF_KIND.get(kind, -1), b"")))
            found.append(_Filter(ifindex, parent, info, chain, kind, handle, options, targets))
        return found


def _delete_filter(one: _Filter) -> Message:
    chain = u32(_CHAIN, one.chain) if one.chain else b""
    return _DELTFILTER, 0, tcmsg(one.ifindex, one.handle, one.parent, one.info) + text(_KIND, one.kind) + chain


def _targets(actions: bytes) -> Iterator[int]:
    for _, action in attributes(actions):
        parts = dict(attributes(action))
        parms = dict(attributes(parts.get(2, b""))).get(2, b"")  # TCA_ACT_OPTIONS, TCA_MIRRED_PARMS
        if text_of(parts.get(1, b"")) == "mirred" and len(parms) >= 28:
            yield struct.unpack_from("=I", parms, 24)[0]


def _is_old_root(one: _Qdisc) -> bool:
    init = dict(attributes(one.options)).get(_HTB_INIT, b"") if one.kind == "htb" else b""
    return len(init) >= 12 and struct.unpack_from("=I", init, 8)[0] == DEFAULT_MINOR


def _is_old_class(class_id: int) -> bool:
    minor = class_id & 0xFFFF
    is_link = minor < 0x3000 and 1 <= minor & 0xFFF <= MAX_INTERFACE_ID
    return is_link or minor in (DEFAULT_MINOR, EXEMPT_MINOR)
