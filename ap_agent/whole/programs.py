"""The programs of one engine: loaded when they are wanted, filled by difference, and what they refused counted by link.

A process cannot take over the program of another one (that would need CAP_SYS_ADMIN), so each loads its own once and
puts it in the other's place. Nothing here keeps a limit from being enforced: what fails is a `Problem`.
"""

from __future__ import annotations

import errno
import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Protocol

from ap_agent.common.errors import ApplyError
from ap_agent.linkstate import Refusals
from ap_agent.model import FROM_USER_SLOT, Desired, LoadedProgram, Problem
from ap_agent.whole.admission import Admission, BpfUnavailableError, Direction
from ap_agent.whole.entry import Entry, Refused
from ap_agent.whole.hooks import CODE
from ap_agent.whole.wanted import Wanted
from bandwidth_config import IPAddress

REST_S = 600.0  # after something was refused: each try makes maps of megabytes, queues deeper, and all of it undone


class Program(Protocol):
    """What is needed of an `Admission`."""

    @property
    def program_fd(self) -> int: ...
    @property
    def program_id(self) -> int: ...
    def set(self, entries: Mapping[IPAddress, Entry]) -> int: ...
    def put(self, address: IPAddress, entry: Entry) -> bool: ...
    def refused(self) -> dict[IPAddress, Refused]: ...
    def close(self) -> None: ...


class Programs:
    """For one thread at a time, but for `refused`, which any thread may ask."""

    def __init__(
        self, load: Callable[[Direction], Program] = Admission, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._load = load
        self._monotonic = monotonic
        self._loaded: dict[int, Program] = {}  # by slot
        self._filled: dict[int, Wanted] = {}
        self._seen: dict[tuple[int, IPAddress], int] = {}
        self._totals: Counter[tuple[int, Direction]] = Counter()
        self._lock = threading.Lock()
        self._rests_until = -math.inf
        self._problem: Problem | None = None

    def close(self) -> None:
        """What is attached goes on working without us."""
        with self._lock:
            self._keep(())

    def do_without(self) -> None:
        """Nobody wants any: what went wrong is forgotten."""
        self.close()
        self._problem, self._rests_until = None, -math.inf

    # --- programs ---------------------------------------------------------------------------------------------------

    def unavailable(self) -> Problem | None:
        """Why this process cannot have any, or None; it tries, but for a while after something was refused."""
        if self._monotonic() >= self._rests_until:
            self._problem = None
            self.loaded((FROM_USER_SLOT,))
        return self._problem

    @property
    def problem(self) -> Problem | None:
        """What went wrong since `unavailable` was asked; it says so from then on."""
        return self._problem

    def loaded(self, slots: Iterable[int]) -> dict[int, LoadedProgram]:
        """Those of these slots that could be loaded; `problem` says afterwards why others could not."""
        found = {}
        for slot in slots:
            try:
                program = self._loaded[slot] if slot in self._loaded else self._load_into(slot)
            except BpfUnavailableError as exc:
                self._rest(f"{exc.message}.")
                continue
            found[slot] = LoadedProgram(program.program_id, program.program_fd)
        return found

    def _load_into(self, slot: int) -> Program:
        program = self._load(_direction(slot))
        with self._lock:
            self._loaded[slot] = program
        return program

    def give_up(self, error: ApplyError) -> None:
        """The kernel refused to attach one: do without any for a while."""
        self.close()
        hint = "this kernel has no cls_bpf; load or build it" if error.errno == errno.ENOENT else "it is tried again"
        self._rest(f"{error.message.rstrip('.')}; {hint}.")

    def _rest(self, why: str) -> None:
        self._rests_until = self._monotonic() + REST_S
        self._problem = Problem(CODE, "kernel", f"Datagrams are not admitted whole. {why}")

    # --- entries ----------------------------------------------------------------------------------------------------

    def put(self, wanted: Desired) -> int:
        """Give each program what it is to admit, and close those that are not wanted. Returns what was changed."""
        trees = {FROM_USER_SLOT: wanted.ifb} if wanted.ifb is not None else {}
        trees |= {one.device.ifindex: one for one in wanted.nics}
        entries = {slot: tree.admitted for slot, tree in trees.items() if tree is not None and tree.admitted}
        with self._lock:
            self._keep((*entries, FROM_USER_SLOT))  # the one that tells whether any can be had
            return sum(self._fill(slot, admitted) for slot, admitted in entries.items() if slot in self._loaded)

    def change(self, admitted: Mapping[int, Wanted], addresses: Iterable[IPAddress]) -> int:
        """The same where only these addresses differ from what was put; nothing is closed, nor filled that was not."""
        some = list(addresses)
        with self._lock:
            return sum(self._refill(slot, found, some) for slot, found in admitted.items() if slot in self._filled)

    def _refill(self, slot: int, admitted: Wanted, addresses: Iterable[IPAddress]) -> int:
        before, changed = self._filled[slot], 0
        differing = [one for one in addresses if before.get(one) != admitted.get(one)]
        if any(one not in admitted for one in differing):
            self._count(slot)  # its counter goes with it
        try:
            for address in differing:
                entry = admitted[address].entry if address in admitted else replace(before[address].entry, kbit=0)
                changed += self._loaded[slot].put(address, entry)
                if address not in admitted:
                    self._seen.pop((slot, address), None)
        except (BpfUnavailableError, OSError) as exc:
            self._lose(slot, exc)
            return changed
        self._filled[slot] = admitted
        return changed

    def _fill(self, slot: int, admitted: Wanted) -> int:
        before = self._filled.get(slot, {})
        if admitted is before:
            return 0
        if any(address not in admitted or admitted[address].link != one.link for address, one in before.items()):
            self._count(slot)  # what it refused so far was another link's, or goes with its address
        try:
            changed = self._loaded[slot].set({address: one.entry for address, one in admitted.items()})
        except (BpfUnavailableError, OSError) as exc:
            self._lose(slot, exc)
            return 0
        for address in before.keys() - admitted.keys():
            self._seen.pop((slot, address), None)
        self._filled[slot] = admitted
        return changed

    def _lose(self, slot: int, exc: Exception) -> None:
        """Nobody knows what it has now; after a rest another is loaded."""
        self._rest(f"{exc}; it is tried again.")
        self._drop(slot)

    def _keep(self, slots: Iterable[int]) -> None:
        for slot in self._loaded.keys() - set(slots):
            self._drop(slot)

    def _drop(self, slot: int) -> None:
        self._count(slot)
        self._loaded.pop(slot).close()
        self._filled.pop(slot, None)
        self._seen = {key: count for key, count in self._seen.items() if key[0] != slot}

    # --- what was refused -------------------------------------------------------------------------------------------

    def refused(self, *, is_fresh: bool = True) -> Refusals:
        """Packets since this process began, over all the programs that it loaded; `is_fresh`: as of now."""
        with self._lock:
            if is_fresh:
                for slot in list(self._loaded):
                    self._count(slot)
            return dict(self._totals)

    def _count(self, slot: int) -> None:
        """Add what is new to the links' sums."""
        owners = self._filled.get(slot, {})
        if not owners:
            return
        try:
            found = self._loaded[slot].refused()
        except (BpfUnavailableError, OSError):  # then it is counted the next time
            return
        for address, one in found.items():
            if not one.packets:  # most of thousands, and looking each up takes milliseconds
                continue
            before = self._seen.get((slot, address), 0)
            owner = owners.get(address)
            if owner is not None and one.packets != before:
                # An address that left and came back begins at 0.
                self._totals[owner.link, _direction(slot)] += one.packets - (before if one.packets > before else 0)
            self._seen[slot, address] = one.packets


def _direction(slot: int) -> Direction:
    return "from_user" if slot == FROM_USER_SLOT else "to_user"
