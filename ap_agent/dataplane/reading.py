"""Reads our objects in the kernel, and foreign ones at the hooks. Read-only, without rights."""

from __future__ import annotations

import errno
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import zip_longest
from typing import Generic, TypeVar

from ap_agent.common.errors import AgentError
from ap_agent.dataplane import tc
from ap_agent.dataplane.devices import DIRECTIONS, FROM_USER, IFB_NAMES, TO_USER, Device, Direction, read_devices
from ap_agent.dataplane.program import Program
from ap_agent.dataplane.rtsocket import RefusedError, RtSocket
from ap_agent.dataplane.tc import Filter, Readback
from ap_agent.dataplane.tree import Hook, Tree, new_tree

_CLASS_HEADER = struct.Struct("=IHHII")
T = TypeVar("T")


@dataclass
class Observed:
    """`ifbs`: interface numbers of ours by name. `ingress`: kind of the qdisc at a device's ingress, `clsact` or
    `ingress`. `foreign`: foreign filters by device and hook. `taken_names`: names of our IFBs that foreign devices
    have. `readbacks`: by IFB and minor."""

    devices: tuple[Device, ...]
    tree: Tree = field(default_factory=new_tree)
    readbacks: dict[str, dict[int, Readback]] = field(default_factory=lambda: {one: {} for one in IFB_NAMES})
    ifbs: dict[str, int] = field(default_factory=dict)
    ingress: dict[int, str] = field(default_factory=dict)
    foreign: dict[tuple[int, Direction], list[Filter]] = field(default_factory=dict)
    taken_names: tuple[str, ...] = ()

    @property
    def names(self) -> dict[int, str]:
        return {one.ifindex: one.name for one in self.devices}

    @cached_property
    def bonds(self) -> dict[int, Device]:
        return {one.ifindex: one for one in self.devices if one.kind == "bond"}

    @property
    def hooked(self) -> set[int]:
        """Numbers of the devices that have filters of ours."""
        return {ifindex for ifindex, _ in self.tree["hook", ""]}


class _Parsed(Generic[T]):
    """Parses the pieces of a dump; pieces that are identical to the last time are not parsed again."""

    def __init__(self, parse: Callable[[bytes], T]) -> None:
        self._parse = parse
        self._last: list[tuple[bytes, T]] = []

    def __call__(self, pieces: Sequence[bytes]) -> list[T]:
        found = []
        for piece, last in zip_longest(pieces, self._last[: len(pieces)]):
            found.append(last if last is not None and last[0] == piece else (piece, self._parse(piece)))
        self._last = found
        return [parsed for _, parsed in found]


class Reader:
    def __init__(self, asker: RtSocket) -> None:
        self._asker = asker
        self._qdiscs = _Parsed(tc.parse_qdiscs)
        self._classes = {one: _Parsed(tc.parse_classes) for one in IFB_NAMES}

    def observe(self, program: Program | None) -> Observed:
        """Without `program`, its maps count as empty. Raises `AgentError`."""
        try:
            return self._observe(program)
        except RefusedError as exc:
            raise AgentError(f"The state of the kernel cannot be read ({exc}); try again.", retryable=True) from exc

    def _observe(self, program: Program | None) -> Observed:
        seen = Observed(read_devices(self._asker))
        tree = seen.tree
        roots, leaves = self._read_qdiscs(seen)
        for one in seen.devices:
            if one.name in IFB_NAMES and one.is_our_ifb:
                seen.ifbs[one.name] = one.ifindex
                tree["ifb", ""][one.name] = one.is_up
            elif one.name in IFB_NAMES:
                seen.taken_names += (one.name,)
            elif one.is_our_ifb and one.ifindex in roots:
                tree["stray", ""][one.ifindex] = one.name
        for name, ifindex in seen.ifbs.items():
            if ifindex in roots:
                tree["root", ""][name] = True
                tree["leaf", name] = leaves.get(ifindex, {})
                for classes, readbacks in self._classes[name](self._dump(tc.RTM_GETTCLASS, ifindex)):
                    tree["class", name].update(classes)
                    seen.readbacks[name].update(readbacks)
        for ifindex, kind in seen.ingress.items():
            self._read_hooks(seen, ifindex, kind, program)
        if program is not None:
            tree["lane", ""] = program.lanes.used()
            tree["key", ""] = program.links.numbers()
            if program.unmatched is not None:
                tree["unmatched", ""][0] = program.unmatched
        return seen

    def _read_qdiscs(self, seen: Observed) -> tuple[set[int], dict[int, dict[int, int]]]:
        """(Interface numbers with our root, limits of leaves by interface number and minor)."""
        roots: set[int] = set()
        leaves: dict[int, dict[int, int]] = {}
        for piece in self._qdiscs(self._dump(tc.RTM_GETQDISC)):
            roots |= piece.roots
            seen.ingress.update(piece.ingress)
            for ifindex, found in piece.leaves.items():
                leaves.setdefault(ifindex, {}).update(found)
        return roots, leaves

    def _read_hooks(self, seen: Observed, ifindex: int, kind: str, program: Program | None) -> None:
        ifbs = {one: seen.ifbs.get(name, -1) for one, name in zip(DIRECTIONS, IFB_NAMES, strict=True)}
        if program is not None and program.ifb != ifbs[TO_USER]:  # it would not recognise returning packets
            ifbs[TO_USER] = -1
        has_others = is_with_clsact = False
        for direction in DIRECTIONS if kind == "clsact" else (FROM_USER,):
            filters = [
                one
                for piece in self._dump(tc.RTM_GETTFILTER, ifindex, tc.HOOKS[direction])
                for one in tc.parse_filters(piece)
            ]
            ours = {one.pref: one for one in filters if one.is_ours}
            seen.foreign[ifindex, direction] = [one for one in filters if not one.is_ours]
            has_others = has_others or bool(seen.foreign[ifindex, direction])
            if ours:
                admit, redirect = (ours.get(pref) for pref in (tc.PROGRAM_PREF, tc.ADMITTED_PREF))
                hook = seen.tree["hook", ""][ifindex, direction] = Hook(
                    0 if admit is None else admit.program if admit.is_direct else -1,
                    0 if redirect is None else redirect.program,
                    redirect is not None and redirect.redirect == ifbs[direction],
                    any(one.name == tc.NAME_WITH_CLSACT for one in ours.values()),
                )
                is_with_clsact = is_with_clsact or hook.is_with_clsact
        if is_with_clsact and not has_others:
            seen.tree["clsact", ""][ifindex] = True

    def _dump(self, kind: int, ifindex: int = 0, parent: int = 0) -> list[bytes]:
        """Skips devices that disappeared meanwhile: the next pass sees that."""
        try:
            return self._asker.dump(kind, tc.tcmsg(ifindex, parent=parent))
        except RefusedError as exc:
            if exc.number in (errno.ENODEV, errno.EINVAL, errno.ENOENT):
                return []
            raise

    def read_again(self, seen: Observed, ifb: str, minors: Sequence[int]) -> None:
        """Only these classes of one IFB. Raises `AgentError`."""
        classes, readbacks = seen.tree["class", ifb], seen.readbacks[ifb]
        for minor in minors:
            classes.pop(minor, None)
            readbacks.pop(minor, None)
        questions = [tc.pack_class_name(seen.ifbs[ifb], one) for one in minors]
        for body in self._asker.query_all(tc.RTM_GETTCLASS, questions):
            message = _CLASS_HEADER.pack(16 + len(body), tc.RTM_NEWTCLASS, 0, 0, 0) + body
            found = tc.parse_classes(message)
            classes.update(found.classes)
            readbacks.update(found.readbacks)
