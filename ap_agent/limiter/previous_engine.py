"""Removes what the first engine (commit 90d5377 and before) left in a kernel, once our own limits are in force.

    each card   root 1: htb default fffe, classes 1:<link>, leaf classes 1:<1000+link>, 1:<2000+link>     to the users
                hooks: u32 filters that redirect to its IFB, a program, a note that the clsact is its own
    an IFB      slbw0, alias "scionlab-bw", root 3: htb default fffe, the same classes                  from the users

`make_way` renames its IFB, whose name ours has. Then our engine builds and verifies its objects in front of the old
ones. `remove` makes all packets bypass the old classes, with one filter in front of theirs, lets their queues drain,
reads their last counters, and deletes them. A root or IFB with foreign objects in it stays.
"""

from __future__ import annotations

import errno
import os
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from socket import htons
from typing import Final, NamedTuple

from ap_agent.common.problem import Problem
from ap_agent.dataplane import tc
from ap_agent.dataplane.attributes import ADD, CHANGE, Message, attribute, number_of, text, text_of, u32
from ap_agent.dataplane.devices import IFB_ALIAS, IFB_NAMES, RTM_SETLINK, Device, pack_removal, read_devices
from ap_agent.dataplane.engine import Engine
from ap_agent.dataplane.outcome import Outcome
from ap_agent.dataplane.rtsocket import RtSocket
from ap_agent.dataplane.wanted import Wanted
from ap_agent.document.state import ClosedSegment, Counters, Direction
from ap_agent.limiter.previous_objects import (
    BPF_NAME,
    KIND,
    OPTIONS,
    PREFERENCES,
    U32_CLASSID,
    U32_LINK,
    U32_SELECTOR,
    Kernel,
    OldClass,
    OldFilter,
)
from link_rules import MAX_INTERFACE_ID

CODE: Final = "previous_engine"
IFB_NAME, PARKED_NAME, PARKED_ALIAS = IFB_NAMES[0], "slbwold", "scionlab-bw-old"
CARD_ROOT, IFB_ROOT, DEFAULT_MINOR, EXEMPT_MINOR = 0x1_0000, 0x3_0000, 0xFFFE, 0xFFFD
DATA, HEARTBEATS = 0x1000, 0x2000  # + link: the minors of leaf classes
PROGRAM_PREFERENCE, PROGRAM_NAME = 105, "slbw-whole"
DRAIN_S = 3.0  # longer queues belong to links of a few kbit/s, and are dropped
BUSY_S = 1.0  # the kernel releases classes and tables shortly after their filters
_POLL_S = 0.02

_IFLA_IFNAME, _IFLA_IFALIAS, _IFF_UP = 3, 20, 1  # linux/if_link.h
_ETH_P_ALL, _EGRESS, _INGRESS = 3, tc.HOOKS[0], tc.HOOKS[1]
_IFINFO = struct.Struct("=BxHiII")

Closed = tuple[ClosedSegment, ...]
Lanes = Mapping[tuple[int, Direction], tuple[int, Counters]]  # link and direction -> segment, counters


class Removed(NamedTuple):
    """`closed`: the last counters of the old classes; `segment` is their mark of 31 bits. `problems`: what stays."""

    closed: Closed
    problems: tuple[Problem, ...]


def replace_by(
    previous: PreviousEngine, engine: Engine, wanted: Wanted, keep: Callable[[Closed], None]
) -> tuple[Outcome, Removed | None]:
    """A pass of our engine, after which the old objects are removed if it succeeds. None: they had to stay, as a
    problem says."""
    previous.make_way()
    first = engine.enforce(wanted)
    if not first.is_ok:
        previous.close()
        subject = ", ".join(sorted(previous.names[one] for one in previous.roots)) or "limiter"
        message = "The limits of the first engine stay until ours are set; see the other problems for the cause."
        return replace(first, problems=(*first.problems, Problem(CODE, subject, message))), None
    keep(first.closed)
    removed = previous.remove(engine.counters, keep)
    then = engine.enforce(wanted)  # their filters behind ours were problems that are resolved
    return replace(then, plan=first.plan, writes=first.writes + then.writes), removed


def find() -> PreviousEngine | None:
    """Objects of the first engine: usually None. Raises `AgentError`, `RefusedError`."""
    kernel = Kernel(RtSocket())
    devices = {one.ifindex: one for one in read_devices()}
    root_of, hooked = kernel.qdiscs()
    ifb = next((one.ifindex for one in devices.values() if _is_old_ifb(one, root_of.get(one.ifindex))), None)
    roots = {
        ifindex: root[0]
        for ifindex, root in root_of.items()
        if root == (IFB_ROOT if ifindex == ifb else CARD_ROOT, DEFAULT_MINOR)
    }
    places = [*roots.items(), *((ifindex, hook) for ifindex in hooked for hook in (_INGRESS, _EGRESS))]
    filters = tuple(one for place in places for one in kernel.filters(*place))
    names = {ifindex: one.name for ifindex, one in devices.items()}
    found = PreviousEngine(kernel, names, ifb, roots, filters)
    is_there = ifb is not None or roots or any(one.rank == 0 and found.is_ours(one) for one in filters)
    if not is_there and not found.lonely_notes():
        found.close()
        return None
    if ifb is not None and ifb not in roots and ifb in root_of:
        found.kept[ifb] = f"The first engine's IFB has a foreign root qdisc; delete it (ip link del {PARKED_NAME})."
    return found


@dataclass
class PreviousEngine:
    """Result of `find`: roots by device, and the filters there and at all hooks. First `make_way`, then `remove`."""

    kernel: Kernel
    names: dict[int, str]
    ifb: int | None
    roots: dict[int, int]
    filters: tuple[OldFilter, ...]
    before: dict[tuple[int, int], OldClass] = field(default_factory=dict)  # by device and class id
    kept: dict[int, str] = field(default_factory=dict)  # why something stays, by device

    def close(self) -> None:
        self.kernel.socket.close()

    def make_way(self) -> None:
        """Rename its IFB. Redirects continue: filters refer to the device, not its name."""
        if self.ifb is None or self.names[self.ifb] == PARKED_NAME:  # done by a limiter that was killed since
            return
        self.before = {(dev, handle): one for dev in self.roots for handle, one in self.kernel.classes(dev).items()}
        named = text(_IFLA_IFNAME, PARKED_NAME) + attribute(_IFLA_IFALIAS, PARKED_ALIAS.encode())
        rename = (RTM_SETLINK, CHANGE, _IFINFO.pack(0, 0, self.ifb, 0, 0) + named)
        (refusal,) = self.kernel.socket.send([[rename]])
        if refusal is not None and refusal.number == errno.EBUSY:  # before Linux 6.2 only a device that is down
            down, up = ((RTM_SETLINK, CHANGE, _IFINFO.pack(0, 0, self.ifb, flag, _IFF_UP)) for flag in (0, _IFF_UP))
            self.kernel.socket.send([[down, rename, up]])
        self.names[self.ifb] = PARKED_NAME

    def remove(self, lanes: Callable[[], Lanes], keep: Callable[[Closed], None] = lambda _: None) -> Removed:
        """`lanes` reads our counters, so that bytes that passed both are reported once. `keep` gets the last counters
        before the classes are deleted: after a kill in between, the next start finds them again. Takes up to
        `DRAIN_S`."""
        past = list(self._ways_past())
        ours = next((one.ifindex for one in read_devices() if one.name == IFB_NAME), None)
        # Read queues before packets bypass them: what leaves later is only ours. One right after the other: what both
        # count meanwhile is billed twice.
        twice = self._counted_twice(lanes(), self.kernel.classes(ours) if ours is not None else {})
        self.kernel.send(past)
        for place in {(one.ifindex, one.parent) for one in self.filters if one.parent in (_INGRESS, _EGRESS)}:
            self._clear(*place)
        self._drain()
        closed = tuple(self._closed(twice))
        keep(closed)
        for ifindex, root in self.roots.items():
            self._delete_root(ifindex, root)
        if self.ifb is not None and self.ifb not in self.kept:
            self._delete(self.ifb, pack_removal(self.ifb))
        self._delete_clsacts()
        self.close()
        return Removed(closed, tuple(Problem(CODE, self.names[one], why) for one, why in sorted(self.kept.items())))

    # --- filters ---

    def is_ours(self, one: OldFilter) -> bool:
        """As the first engine identified its own: at its places, with nothing that it could not have made."""
        if one.chain or one.preference not in PREFERENCES or one.kind not in ("u32", "bpf"):
            return False
        if one.kind == "bpf":
            has_name = one.handle == 0 or text_of(one.options.get(BPF_NAME, b"")) == PROGRAM_NAME
            return has_name and one.preference == PROGRAM_PREFERENCE and one.parent in (_INGRESS, _EGRESS)
        if one.rank or U32_LINK in one.options:  # rules that lead to a table
            return True
        if one.parent == _INGRESS:
            return one.targets in ((self.ifb,), (0,))
        class_id = number_of(one.options.get(U32_CLASSID))
        return class_id == one.parent or (class_id >> 16 == one.parent >> 16 and _is_old_class(class_id))

    def _ways_past(self) -> Iterator[Message]:
        """For each card a filter in front of all others that makes every packet bypass the old classes; not on a card
        with foreign classes, whose filters decide."""
        for ifindex, root in self.roots.items():
            used = {one.preference for one in self.filters if (one.ifindex, one.parent) == (ifindex, root)}
            free = [one for one in range(1, PREFERENCES[0]) if one not in used]
            if ifindex != self.ifb and free and not self._why_kept(ifindex, root):
                any_packet = struct.pack("=BxBx28x", 1, 1)  # terminal, with an empty key
                options = attribute(OPTIONS, attribute(U32_SELECTOR, any_packet) + u32(U32_CLASSID, root))
                head = tc.tcmsg(ifindex, 0, root, free[-1] << 16 | htons(_ETH_P_ALL))
                yield tc.RTM_NEWTFILTER, ADD, head + text(KIND, "u32") + options

    def _clear(self, ifindex: int, parent: int) -> None:
        """Our objects there, by rank: a list deleted before its tables would hide them."""

        def of_lowest_rank() -> Iterable[Message]:
            found = [one for one in self.kernel.filters(ifindex, parent) if not one.is_note]
            shared = {(one.chain, one.info) for one in found if not self.is_ours(one)}
            ours = [one for one in found if self.is_ours(one) and (one.rank < 2 or (one.chain, one.info) not in shared)]
            rank = min((one.rank for one in ours), default=None)
            return dict.fromkeys(one.removal() for one in ours if one.rank == rank)  # a list is found twice

        for _ in range(3):
            self._send_until_taken(of_lowest_rank)

    def _send_until_taken(self, messages: Callable[[], Iterable[Message]]) -> None:
        until = time.monotonic() + BUSY_S
        while any(self.kernel.send(messages())) and time.monotonic() < until:
            time.sleep(_POLL_S)

    # --- counters ---

    @staticmethod
    def _counted_twice(lanes: Lanes, classes: Mapping[int, OldClass]) -> dict[tuple[int, Direction], tuple[int, int]]:
        """Bytes and packets counted by our lanes and then by the old classes: to the user, what left our queue; from
        the user, what did not pass our IFB. Rounded down, so that nothing is billed that did not pass."""
        queues = {handle & 0xFFFF: one for handle, one in classes.items()}
        found = {}
        for (link, direction), (_, one) in lanes.items():
            queue = queues.get(link, OldClass())
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
        now_ms, nothing = int(time.time() * 1000), OldClass()
        for ifindex, root in self.roots.items():
            found = self.kernel.classes(ifindex)
            direction: Direction = "from_user" if ifindex == self.ifb else "to_user"
            for link in sorted(handle - root for handle in found if 1 <= handle - root <= MAX_INTERFACE_ID):
                one = found[root + link]
                before = self.before.get((ifindex, root + link), nothing)
                data, beats = (found.get(root + kind + link, nothing) for kind in (DATA, HEARTBEATS))
                again = twice.get((link, direction), (0, 0))
                counters = Counters(
                    # What the class counted before our engine started is only its own.
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
                self._delete(ifindex, (tc.RTM_DELQDISC, CHANGE, tc.tcmsg(ifindex, root, tc.AT_ROOT)))
            return
        self.kept[ifindex] = why
        self._clear(ifindex, root)

        def leaf_classes_first() -> Iterable[Message]:
            ours = sorted(filter(_is_old_class, self.kernel.classes(ifindex)), reverse=True)
            return [(tc.RTM_DELTCLASS, CHANGE, tc.tcmsg(ifindex, one)) for one in ours]

        self._send_until_taken(leaf_classes_first)

    def _why_kept(self, ifindex: int, root: int) -> str | None:
        """Foreign objects in a root, or redirects to the IFB, and the remedy."""
        name, others = self.names[ifindex], [one for one in self.filters if not self.is_ours(one)]
        found = {
            "filters": any((one.ifindex, one.parent) == (ifindex, root) for one in others),
            "classes": any(not _is_old_class(handle) for handle in self.kernel.classes(ifindex)),
            "redirects to it": ifindex == self.ifb and any(ifindex in one.targets for one in others),
        }
        what = " and ".join(name for name, is_there in found.items() if is_there)
        remedy = f"ip link del {name}" if ifindex == self.ifb else f"tc qdisc del dev {name} root"
        message = (
            f"The root {root >> 16:x}: of the first engine stays on {name}, because it has foreign {what}; move "
            f"those and remove it ({remedy}). It no longer limits any link."
        )
        return message if what else None

    def _delete(self, ifindex: int, message: Message) -> None:
        (refusal,) = self.kernel.send([message])
        if refusal is not None and refusal.number not in (errno.ENODEV, errno.ENOENT, errno.EINVAL):
            reason = refusal.text or os.strerror(refusal.number)
            self.kept[ifindex] = f"What the first engine made stays ({reason}); start the limiter again."

    def _delete_clsacts(self) -> None:
        """Those that the first engine made. If ours uses them they keep the mark: for a reset."""
        for ifindex in self.lonely_notes():
            message = tc.tcmsg(ifindex, tc.CLSACT_HANDLE, tc.AT_INGRESS) + text(KIND, "clsact")
            self._delete(ifindex, (tc.RTM_DELQDISC, CHANGE, message))

    def lonely_notes(self) -> set[int]:
        """Devices with only the mark left."""
        noted = {one.ifindex for one in self.filters if one.is_note}
        found = {dev: self.kernel.filters(dev, _INGRESS) + self.kernel.filters(dev, _EGRESS) for dev in noted}
        return {dev for dev, some in found.items() if all(one.is_note for one in some)}


def _is_old_ifb(one: Device, root: tuple[int, int] | None) -> bool:
    """Ours has the same name and alias, but another root."""
    who = one.kind, one.name, one.alias
    is_first = who == ("ifb", IFB_NAME, IFB_ALIAS) and root != (tc.OWN_ROOT, 0)
    return is_first or who == ("ifb", PARKED_NAME, PARKED_ALIAS)


def _is_old_class(class_id: int) -> bool:
    minor = class_id & 0xFFFF
    is_link = minor < 0x3000 and 1 <= minor & 0xFFF <= MAX_INTERFACE_ID
    return is_link or minor in (DEFAULT_MINOR, EXEMPT_MINOR)
