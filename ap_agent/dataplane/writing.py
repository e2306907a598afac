"""Carries out operations in their order: netlink messages in large pieces, memory and maps of the program singly."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

from ap_agent.common.errors import AgentError, NotPermittedError
from ap_agent.common.progress import Progress
from ap_agent.dataplane import tc
from ap_agent.dataplane.attributes import ADD, CHANGE, Message
from ap_agent.dataplane.devices import (
    DIRECTIONS,
    IFB_NAMES,
    TO_USER,
    pack_ifb,
    pack_removal,
    pack_up,
    read_devices,
)
from ap_agent.dataplane.program import Program
from ap_agent.dataplane.reading import Observed
from ap_agent.dataplane.rtsocket import Refusal, RtSocket
from ap_agent.dataplane.tree import UNMATCHED, Operation
from ap_agent.document.state import ClosedSegment

# A packet that found its key before that was deleted is counted within microseconds, unless its processor was stopped.
LAST_PACKET_S = 0.005
_AT_ONCE = 2000  # operations between two words of progress

OnClosed = Callable[[tuple[ClosedSegment, ...]], None]
_IN_MEMORY = ("lane", "key", "address", "unmatched")


class Writer:
    """`on_closed` gets the last counters of lanes before they are forgotten: what it keeps survives a kill."""

    def __init__(self, asker: RtSocket, on_closed: OnClosed, progress: Progress | None) -> None:
        self._asker, self._on_closed, self._progress = asker, on_closed, progress

    def apply(
        self, operations: Sequence[Operation], seen: Observed, program: Program | None
    ) -> tuple[list[str | None], tuple[ClosedSegment, ...]]:
        """For each operation why it was refused, None if it was done; and the lanes that ended."""
        answers: list[str | None] = []
        closed: list[ClosedSegment] = []
        for table, run in groupby(
            operations, key=lambda one: "lanes gone" if _is_end(one) else one.table in _IN_MEMORY
        ):
            for some in _pieces(list(run), _AT_ONCE):
                if table == "lanes gone" and program is not None:
                    closed += self._close(some, program)
                    answers += [None] * len(some)
                elif table and program is not None:
                    answers += [_write(one, program) for one in some]
                else:
                    answers += self._send(some, seen, program)
                if self._progress is not None:
                    self._progress(len(answers), len(operations))
        return answers, tuple(closed)

    def _send(self, operations: list[Operation], seen: Observed, program: Program | None) -> list[str | None]:
        answers: list[str | None] = []
        for is_ifb, run in groupby(operations, key=lambda one: one.table == "ifb" and one.kind == "add"):
            some = list(run)
            answers += [_said(one) for one in self._asker.send([_messages(one, seen, program) for one in some])]
            if is_ifb:
                numbers = {one.name: one.ifindex for one in read_devices(self._asker) if one.is_our_ifb}
                seen.ifbs = {one: numbers[IFB_NAMES[one]] for one in DIRECTIONS if IFB_NAMES[one] in numbers}
        return answers

    def _close(self, operations: list[Operation], program: Program) -> list[ClosedSegment]:
        time.sleep(LAST_PACKET_S)
        closed = [closed_segment(program, one.name) for one in operations]
        self._on_closed(tuple(closed))
        for one in operations:
            program.lanes.forget(one.name)
        return closed


def closed_segment(program: Program, lane: int) -> ClosedSegment:
    """As of now; interface id 0 is what no link has."""
    rate_kbit, segment, counters = program.lanes.counters(lane)
    interface_id = 0 if lane // 2 == UNMATCHED else lane // 2
    direction = "from_user" if lane % 2 else "to_user"
    return ClosedSegment(interface_id, direction, segment, rate_kbit, time.time_ns() // 1_000_000, counters)  # type: ignore[arg-type]


def _pieces(operations: list[Operation], size: int) -> Iterator[list[Operation]]:
    for at in range(0, len(operations), size):
        yield operations[at : at + size]


def _is_end(one: Operation) -> bool:
    return one.table == "lane" and one.kind == "remove"


def _said(refusal: Refusal | None) -> str | None:
    """Raises `NotPermittedError`."""
    if refusal is None:
        return None
    if refusal.number == errno.EPERM:
        raise NotPermittedError("The kernel lets this process change nothing. Run as root or with CAP_NET_ADMIN.")
    name = errno.errorcode.get(refusal.number, str(refusal.number))
    return f"{name} ({refusal.text or os.strerror(refusal.number)})"


def _write(one: Operation, program: Program) -> str | None:
    try:
        match one.table:
            case "lane" if one.now is None:
                program.lanes.take(one.name, one.then)
            case "lane":
                program.lanes.put(one.name, one.then)
            case "key" if one.then is None:
                program.links.delete(one.name)
            case "key":
                program.put_link(one.name, one.then)
            case "address" if one.then is None:
                program.remove_address(one.name)
            case "address":
                program.put_address(one.name, one.then, is_new=one.now is None)
            case _:
                program.unmatched = 2 * UNMATCHED if one.then else None
    except AgentError as exc:
        return exc.message
    return None


def _messages(one: Operation, seen: Observed, program: Program | None) -> list[Message]:
    if one.table == "hook":
        return _hook_messages(one, seen, program)
    if one.table == "clsact":
        kind, flags = (tc.RTM_DELQDISC, CHANGE) if one.kind == "remove" else (tc.RTM_NEWQDISC, ADD)
        return [(kind, flags, tc.pack_clsact(one.name))]
    if one.table == "ifb" and one.kind == "add":
        return pack_ifb(one.name)
    if one.table == "ifb":
        number = seen.ifbs[one.name]
        return [pack_up(number) if one.kind == "change" else pack_removal(number)]
    return [pack_removal(one.name)] if one.table == "stray" else _tree_messages(one, seen)


def _tree_messages(one: Operation, seen: Observed) -> list[Message]:
    """An IFB that could not be made has number 0, and the kernel refuses what is to be done there."""
    if one.table == "root":
        return [tc.pack_root(seen.ifbs.get(one.name, 0))]
    direction, minor = one.name
    ifb = seen.ifbs.get(direction, 0)
    if one.table == "leaf":
        return tc.pack_leaf(ifb, minor, one.then, is_change=one.now is not None and one.now >= 0)
    if one.kind == "remove":
        return [(tc.RTM_DELTCLASS, CHANGE, tc.pack_class_name(ifb, minor))]
    return [tc.pack_class(ifb, minor, one.then, is_new=one.now is None)]


def _hook_messages(one: Operation, seen: Observed, program: Program | None) -> list[Message]:
    ifindex, direction = one.name
    if one.kind == "remove":
        prefs = [(tc.PROGRAM_PREF, one.now.program), (tc.ADMITTED_PREF, one.now.admitted)]
        return [tc.pack_filter_removal(ifindex, direction, pref) for pref, number in prefs if number]
    if program is None:
        return []  # nobody wants filters without a program
    is_own = ifindex in seen.with_clsact or ifindex not in seen.ingress
    return tc.pack_filters(
        ifindex,
        direction,
        program_fd=program.fds["to_user" if direction == TO_USER else "from_user"],
        admitted_fd=program.fds["admitted"],
        ifb=seen.ifbs.get(direction, 0),
        name=tc.NAME_WITH_CLSACT if is_own else tc.NAME,
    )
