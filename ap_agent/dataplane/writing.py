"""Executes operations in order: netlink messages in large pieces, memory and maps of the program singly."""

from __future__ import annotations

import errno
import time
from collections.abc import Callable, Sequence
from itertools import groupby

from ap_agent.common.errors import AgentError, NotPermittedError
from ap_agent.dataplane import tc
from ap_agent.dataplane.attributes import ADD, CHANGE, Message
from ap_agent.dataplane.devices import IFB_NAMES, TO_USER, pack_ifb, pack_removal, pack_up, read_devices
from ap_agent.dataplane.program import Program
from ap_agent.dataplane.reading import Observed
from ap_agent.dataplane.rtsocket import RtSocket
from ap_agent.dataplane.tree import UNMATCHED, Operation
from ap_agent.document.state import ClosedSegment, Counters

# A packet that found its key before the deletion is counted within microseconds, unless its CPU was stopped.
LAST_PACKET_S = 0.005

OnClosed = Callable[[tuple[ClosedSegment, ...]], None]
Answers = list[str | None]  # the error of each operation; None: done


class Writer:
    """`on_closed` gets the last counters of lanes before they are dropped, so that they survive a kill."""

    def __init__(self, asker: RtSocket, on_closed: OnClosed) -> None:
        self._asker, self._on_closed = asker, on_closed

    def apply(self, operations: Sequence[Operation], seen: Observed, program: Program | None) -> Answers:
        ways = {"memory": self._write, "lanes gone": self._close, "ifbs": self._make_ifbs, "netlink": self._send}
        answers: Answers = []
        for way, run in groupby(operations, key=_way):
            answers += ways[way](list(run), seen, program)
        return answers

    def _make_ifbs(self, operations: list[Operation], seen: Observed, program: Program | None) -> Answers:
        answers = self._send(operations, seen, program)
        seen.ifbs = {
            one.name: one.ifindex for one in read_devices(self._asker) if one.is_our_ifb and one.name in IFB_NAMES
        }
        return answers

    def _send(self, operations: list[Operation], seen: Observed, program: Program | None) -> Answers:
        """Raises `NotPermittedError`."""
        answers = self._asker.send([_messages(one, seen, program) for one in operations])
        if any(one is not None and one.number == errno.EPERM for one in answers):
            raise NotPermittedError("The kernel lets this process change nothing. Run as root or with CAP_NET_ADMIN.")
        return [None if one is None else str(one) for one in answers]

    def _write(self, operations: list[Operation], _: Observed, program: Program | None) -> Answers:
        return [_written(one, program) for one in operations if program is not None]

    def _close(self, operations: list[Operation], _: Observed, program: Program | None) -> Answers:
        if program is not None:
            time.sleep(LAST_PACKET_S)
            self.keep(program.lanes.ended([one.name for one in operations]))
            for one in operations:
                program.lanes.forget(one.name)
        return [None] * len(operations)

    def keep(self, ended: Sequence[tuple[int, int, int, Counters]]) -> None:
        """These lanes, with rate and segment, have ended."""
        now_ms = time.time_ns() // 1_000_000
        self._on_closed(
            tuple(
                ClosedSegment(
                    shown_id(lane // 2), "from_user" if lane % 2 else "to_user", segment, rate_kbit, now_ms, counters
                )
                for lane, rate_kbit, segment, counters in ended
            )
        )


def shown_id(interface_id: int) -> int:
    return 0 if interface_id == UNMATCHED else interface_id


def _way(one: Operation) -> str:
    if one.table == "lane" and one.kind == "remove":
        return "lanes gone"
    if one.table in ("lane", "key", "unmatched"):
        return "memory"
    return "ifbs" if (one.table, one.kind) == ("ifb", "add") else "netlink"


def _written(one: Operation, program: Program) -> str | None:
    try:
        match one.table:
            case "lane" if one.now is None:
                program.lanes.take(one.name, one.then)
            case "lane":
                program.lanes.put(one.name, one.then)
            case "key" if one.then is None:
                program.remove_link(one.name)
            case "key":
                program.put_link(one.name, one.then)
            case _:
                program.unmatched = one.then
    except AgentError as exc:
        return exc.message
    return None


def _messages(one: Operation, seen: Observed, program: Program | None) -> list[Message]:
    """An IFB that could not be created has number 0, and the kernel rejects operations on it."""
    if one.table == "leaf":
        return tc.pack_leaf(seen.ifbs.get(one.device, 0), one.name, one.then, now=one.now)
    if one.table == "hook":
        return _hook_messages(one, seen, program)
    if (one.table, one.kind) == ("ifb", "add"):
        return pack_ifb(one.name)
    return [_message(one, seen.ifbs.get(one.device, 0))]


def _message(one: Operation, ifb: int) -> Message:
    match one.table, one.kind:
        case "root", _:
            found = tc.pack_root(ifb)
        case "class", "remove":
            found = tc.RTM_DELTCLASS, CHANGE, tc.pack_class_name(ifb, one.name)
        case "class", _:
            found = tc.pack_class(ifb, one.name, one.then, is_new=one.now is None)
        case "clsact", _:
            found = tc.RTM_DELQDISC, CHANGE, tc.pack_clsact(one.name)
        case "ifb", "change":
            found = pack_up(ifb)
        case _:
            found = pack_removal(one.name if one.table == "stray" else ifb)
    return found


def _hook_messages(one: Operation, seen: Observed, program: Program | None) -> list[Message]:
    ifindex, direction = one.name
    if one.kind == "remove":
        prefs = [(tc.PROGRAM_PREF, one.now.program), (tc.ADMITTED_PREF, one.now.admitted)]
        return [tc.pack_filter_removal(ifindex, direction, pref) for pref, number in prefs if number]
    if program is None:
        return []  # filters without a program are pointless
    # A clsact of ours is created with the filters that mark it, so that a kill leaves no unmarked one.
    clsact = [(tc.RTM_NEWQDISC, ADD, tc.pack_clsact(ifindex))] if ifindex not in seen.ingress else []
    seen.ingress.setdefault(ifindex, "clsact")
    ifb = seen.ifbs.get(IFB_NAMES[direction], 0)
    if direction == TO_USER:
        program.ifb = ifb
    return clsact + tc.pack_filters(
        ifindex,
        direction,
        program_fd=program.fds["to_user" if direction == TO_USER else "from_user"],
        admitted_fd=program.fds["admitted"],
        ifb=ifb,
        name=tc.NAME_WITH_CLSACT if one.then.is_with_clsact else tc.NAME,
    )
