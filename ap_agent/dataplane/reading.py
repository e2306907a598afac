"""Reads what the kernel has of ours, and what of others stands at the hooks. Changes nothing; needs no right."""

from __future__ import annotations

import errno
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

from ap_agent.common.errors import AgentError
from ap_agent.dataplane import tc
from ap_agent.dataplane.devices import DIRECTIONS, FROM_USER, IFB_NAMES, TO_USER, Device, Direction, read_devices
from ap_agent.dataplane.libbpf import BPF_TCX_EGRESS, BPF_TCX_INGRESS, attached
from ap_agent.dataplane.program import Program
from ap_agent.dataplane.rtsocket import NLM_F_DUMP_INTR, RefusedError, RtSocket
from ap_agent.dataplane.tc import ClassStats, Filter, TreeReader
from ap_agent.dataplane.tree import UNMATCHED, Clsact, Hook, Ifb, Tree

_DUMP_ATTEMPTS = 5
_TCX = {TO_USER: BPF_TCX_EGRESS, FROM_USER: BPF_TCX_INGRESS}


@dataclass
class Observed:
    """`ifbs`: interface numbers of ours. `ingress`: the kind of what sits at a device's ingress, `clsact` or `ingress`.
    `foreign`: filters that are not ours, by device and hook. `taken_names`: of our IFBs, which somebody else has."""

    devices: tuple[Device, ...]
    tree: Tree = field(default_factory=Tree)
    stats: dict[Direction, dict[int, ClassStats]] = field(default_factory=lambda: {0: {}, 1: {}})
    ifbs: dict[Direction, int] = field(default_factory=dict)
    ingress: dict[int, str] = field(default_factory=dict)
    foreign: dict[tuple[int, Direction], list[Filter]] = field(default_factory=dict)
    taken_names: tuple[str, ...] = ()
    with_clsact: set[int] = field(default_factory=set)  # where a filter of ours says that the clsact came with it

    @property
    def names(self) -> dict[int, str]:
        return {one.ifindex: one.name for one in self.devices}

    @property
    def hooked(self) -> set[int]:
        """Numbers of the devices that have filters of ours."""
        return {ifindex for ifindex, _ in self.tree.hooks}


class Reader:
    def __init__(self, asker: RtSocket) -> None:
        self._asker = asker
        self._trees = TreeReader()

    def observe(self, program: Program | None) -> Observed:
        """Without `program` there is nothing in its maps. Raises `AgentError`."""
        try:
            return self._observe(program)
        except RefusedError as exc:
            name = errno.errorcode.get(exc.number, str(exc.number))
            raise AgentError(
                f"The kernel does not say what it has ({name} {exc.text}); try again.", retryable=True
            ) from exc

    def _observe(self, program: Program | None) -> Observed:
        seen = Observed(read_devices(self._asker))
        tree = seen.tree
        by_name = {one.name: one for one in seen.devices}
        ours = {one: by_name[IFB_NAMES[one]] for one in DIRECTIONS if IFB_NAMES[one] in by_name}
        seen.taken_names = tuple(one.name for one in ours.values() if not one.is_our_ifb)
        ours = {direction: one for direction, one in ours.items() if one.is_our_ifb}
        seen.ifbs = {direction: one.ifindex for direction, one in ours.items()}
        renamed = [one for one in seen.devices if one.is_our_ifb and one not in ours.values()]
        qdiscs = tc.parse_qdiscs(self._dump(tc.RTM_GETQDISC), frozenset(seen.ifbs.values()))
        tree.strays = {one.ifindex: one.name for one in renamed if one.ifindex in qdiscs.roots}
        seen.ingress = qdiscs.ingress
        for direction, device in ours.items():
            tree.ifbs[direction] = Ifb(device.is_up, device.ifindex in qdiscs.roots)
            if device.ifindex in qdiscs.roots:
                pieces = self._dump(tc.RTM_GETTCLASS, device.ifindex)
                tree.classes[direction], seen.stats[direction] = self._trees.classes(pieces)
                tree.leaves[direction] = qdiscs.leaves.get(device.ifindex, {})
        for ifindex, kind in qdiscs.ingress.items():
            if ifindex not in seen.ifbs.values():
                self._read_hooks(seen, ifindex, kind)
        if program is not None:
            tree.lanes = program.lanes.used()
            tree.keys = program.links.numbers()
            tree.addresses = program.addresses.numbers()
            tree.is_unmatched_limited = program.unmatched == 2 * UNMATCHED
        return seen

    def _read_hooks(self, seen: Observed, ifindex: int, kind: str) -> None:
        for direction in DIRECTIONS if kind == "clsact" else (FROM_USER,):
            filters = list(tc.parse_filters(self._dump(tc.RTM_GETTFILTER, ifindex, tc.HOOKS[direction])))
            ours = {one.pref: one for one in filters if one.is_ours and one.chain == 0 and one.handle == 1}
            others = [one for one in filters if one not in ours.values()]
            if others:
                seen.foreign[ifindex, direction] = others
            if ours:
                admit, redirect = (ours.get(pref) for pref in (tc.PROGRAM_PREF, tc.ADMITTED_PREF))
                seen.tree.hooks[ifindex, direction] = Hook(
                    0 if admit is None else admit.program if admit.is_direct else -1,
                    redirect.program if redirect is not None else 0,
                    redirect is not None and redirect.redirect == seen.ifbs.get(direction, -1),
                )
                if any(one.name == tc.NAME_WITH_CLSACT for one in ours.values()):
                    seen.with_clsact.add(ifindex)
        if kind == "clsact":
            is_alone = not any((ifindex, one) in seen.foreign for one in DIRECTIONS)
            seen.tree.clsacts[ifindex] = Clsact(ifindex in seen.with_clsact and is_alone)

    def _dump(self, kind: int, ifindex: int = 0, parent: int = 0) -> list[bytes]:
        """Nothing of a device that disappeared meanwhile: the next look sees that."""
        for _ in range(_DUMP_ATTEMPTS):
            try:
                pieces = self._asker.dump(kind, tc.tcmsg(ifindex, parent=parent))
            except RefusedError as exc:
                if exc.number in (errno.ENODEV, errno.EINVAL, errno.ENOENT):
                    return []
                raise
            if not any(struct.unpack_from("=H", piece, 6)[0] & NLM_F_DUMP_INTR for piece in pieces):
                return pieces
        raise AgentError("The kernel's traffic control changes faster than it can be read; try again.", retryable=True)

    def read_classes(self, ifb: int, minors: Sequence[int]) -> tuple[dict[int, tc.HtbClass], dict[int, ClassStats]]:
        """These classes of one IFB."""
        questions = [tc.pack_class_name(ifb, one) for one in minors]
        answers = [one for one in self._asker.ask_all(tc.RTM_GETTCLASS, questions) if isinstance(one, bytes)]
        header = struct.Struct("=IHHII")
        whole = [header.pack(16 + len(one), tc.RTM_NEWTCLASS, 0, 0, 0) + one for one in answers]
        return self._trees.classes(whole)


# --- others at the hooks ---------------------------------------------------------------------------------------


def obstructions(seen: Observed, device: Device) -> dict[Direction, str]:
    """At which hooks of a device our filters cannot sit, and why; a sentence's end with the remedy."""
    found: dict[Direction, str] = {}
    if seen.ingress.get(device.ifindex) == "ingress":
        found[TO_USER] = 'it has an "ingress" qdisc of somebody else, which excludes clsact; let its owner use clsact'
    for direction in DIRECTIONS:
        for one in seen.foreign.get((device.ifindex, direction), []):
            if one.chain == 0 and one.pref in (tc.PROGRAM_PREF, tc.ADMITTED_PREF):
                found[direction] = f"a filter of somebody else has preference {one.pref}; let its owner move it"
    return found


def in_front(seen: Observed, device: Device) -> list[str]:
    """What may take packets before we see them, in words."""
    found = []
    for direction in DIRECTIONS:
        others = seen.foreign.get((device.ifindex, direction), [])
        prefs = sorted({one.pref for one in others if one.chain == 0 and one.pref < tc.PROGRAM_PREF})
        hook = tc.HOOK_NAMES[direction]
        found += [f"a filter with preference {one} at {hook}" for one in prefs]
        if programs := attached(device.ifindex, _TCX[direction]):
            found.append(f"{programs} tcx program{'s' if programs > 1 else ''} at {hook}")
    return found


def behind(seen: Observed, device: Device) -> list[str]:
    """Filters of others that never see limited packets, in words. At egress their programs do: packets come again."""
    found = []
    for direction in DIRECTIONS:
        others = seen.foreign.get((device.ifindex, direction), [])
        prefs = sorted(
            {
                one.pref
                for one in others
                if one.pref > tc.ADMITTED_PREF and not (direction == TO_USER and one.kind == "bpf" and one.is_direct)
            }
        )
        found += [f"preference {one} at {tc.HOOK_NAMES[direction]}" for one in prefs]
    return found
