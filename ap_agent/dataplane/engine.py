"""Makes the kernel agree with what is wanted: observe, compare, apply, observe again, verify.

One thread at a time, in the network namespace in which the engine was made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ap_agent.common.errors import NotPermittedError
from ap_agent.common.problem import Problem
from ap_agent.common.progress import Progress
from ap_agent.dataplane import reading
from ap_agent.dataplane.devices import DIRECTIONS, FROM_USER, TO_USER, Device, Direction, Host, looked_at, read_host
from ap_agent.dataplane.outcome import Outcome, Plan, Readback, plan_of, shown_id
from ap_agent.dataplane.program import OBJECT, MissingError, Program
from ap_agent.dataplane.reading import Observed, Reader
from ap_agent.dataplane.rtsocket import RtSocket
from ap_agent.dataplane.tc import ClassStats, HtbClass
from ap_agent.dataplane.tree import UNMATCHED, Clsact, Hook, Operation, Target, Tree, difference, minor_of
from ap_agent.dataplane.wanted import Wanted
from ap_agent.dataplane.writing import OnClosed, Writer
from ap_agent.document.state import ClosedSegment, Counters
from ap_agent.document.state import Direction as DirectionName

ATTEMPTS = 4
_DIRECTION_NAMES: tuple[DirectionName, DirectionName] = ("to_user", "from_user")
_SHOWN = {TO_USER: "to the user ASes", FROM_USER: "from the user ASes"}


@dataclass
class _Pass:
    """What one call of `enforce` has done so far."""

    plan: Plan | None = None
    writes: int = 0
    closed: tuple[ClosedSegment, ...] = ()
    refused: dict[Operation, str] = field(default_factory=dict)


class Engine:
    def __init__(
        self,
        maps_dir: Path,
        *,
        object_file: Path = OBJECT,
        progress: Progress | None = None,
        on_closed: OnClosed = lambda _: None,
    ) -> None:
        """Nothing happens yet. `maps_dir`: where the program and its maps have their names. `on_closed` gets the last
        counters of lanes before they are forgotten: a kill in between gives them again, with the same segment."""
        self.on_closed = on_closed
        self._maps_dir, self._object_file = maps_dir, object_file
        self._socket = RtSocket()
        self._reader = Reader(self._socket)
        self._writer = Writer(self._socket, lambda closed: self.on_closed(closed), progress)
        self._program: Program | None = None
        self._target = Target()
        self._settled: tuple[Wanted, Observed] | None = None  # what the last pass found to be so

    def host(self) -> Host:
        """Raises `AgentError`."""
        return read_host(self._socket)

    def plan(self, wanted: Wanted) -> Outcome:
        """What `enforce` would do. Changes nothing. Raises `AgentError`."""
        target = Target()
        target.update(wanted)
        problems: tuple[Problem, ...] = ()
        program, is_hidden = self._program, False
        try:
            program = program or self._existing()
        except NotPermittedError as exc:
            problems, is_hidden = (Problem("no_bpf_right", "limiter", exc.message),), True
        seen = self._reader.observe(program)
        if is_hidden:  # then only what everybody may see counts
            for table in ("lanes", "keys", "addresses", "is_unmatched_limited"):
                setattr(seen.tree, table, getattr(target.tree, table))
        then, found, failed = _wanted_tree(seen, wanted, target.tree, program, is_hidden=is_hidden)
        plan = plan_of(difference(seen.tree, then, seen.names), seen.tree, then)
        if program is not None and program is not self._program:
            program.close()
        return self._outcome(_Pass(plan), wanted, seen, (*problems, *found), failed)

    def enforce(self, wanted: Wanted, *, is_settled: bool = False) -> Outcome:
        """Make it so. `is_settled`: nobody else changed anything since the last call, so that only what differs between
        the last `wanted` and this one is written and read back, and nothing is dumped.

        Raises `AgentError` where nothing sensible can be said: `NotPermittedError`, `ProgramError` and others.
        """
        done = _Pass()
        if is_settled and (outcome := self._enforce_changed(wanted, done)) is not None:
            return outcome
        self._settled = None
        self._target.update(wanted)
        self._program = self._program or (self._existing() if not _is_needed(wanted) else self._made())
        last: list[Operation] = []
        for attempt in range(ATTEMPTS + 1):
            seen = self._reader.observe(self._program)
            then, problems, failed = _wanted_tree(seen, wanted, self._target.tree, self._program)
            left = [] if seen.taken_names else difference(seen.tree, then, seen.names)
            done.plan = done.plan or plan_of(left, seen.tree, then)
            if not left or left == last or attempt == ATTEMPTS:
                break
            self._apply(left, seen, done)
            last = left
        problems, failed = _with_refusals(done, left, wanted, problems, failed)
        if not left and not seen.taken_names:
            self._finish(wanted, seen)
        return self._outcome(done, wanted, seen, problems, failed)

    def _enforce_changed(self, wanted: Wanted, done: _Pass) -> Outcome | None:
        """None where all of it has to be looked at."""
        if self._settled is None or self._program is None or not self._settled[1].ifbs or not _is_needed(wanted):
            return None
        before_wanted, seen = self._settled
        if wanted.interfaces != before_wanted.interfaces:
            return None
        self._settled = None
        before, after = self._target.update(wanted)
        operations = difference(before, after, {})
        done.plan = plan_of(operations, before, after)
        self._apply(operations, seen, done)
        changed = {number // 2 for number in before.lanes.keys() | after.lanes.keys()}
        found = self._read_changed(seen, changed)
        if done.refused or not _is_as(found, after, self._program):
            return None
        self._settled = wanted, seen
        _, problems, failed = _wanted_tree(seen, wanted, self._target.tree, self._program)
        return self._outcome(done, wanted, seen, problems, failed, only=changed)

    def _read_changed(self, seen: Observed, changed: set[int]) -> dict[int, dict[int, HtbClass]]:
        found: dict[int, dict[int, HtbClass]] = {}
        for direction in DIRECTIONS:
            minors = [minor_of(one, direction) for one in changed]
            classes, stats = self._reader.read_classes(seen.ifbs[direction], minors)
            found[direction] = classes
            for minor in minors:
                seen.stats[direction].pop(minor, None)
                seen.tree.classes[direction].pop(minor, None)
            seen.stats[direction].update(stats)
            seen.tree.classes[direction].update(classes)
        return found

    def _apply(self, operations: Sequence[Operation], seen: Observed, done: _Pass) -> None:
        answers, closed = self._writer.apply(operations, seen, self._program)
        done.refused = {one: said for one, said in zip(operations, answers, strict=True) if said is not None}
        done.writes += len(operations) - len(done.refused)
        done.closed += closed

    def _finish(self, wanted: Wanted, seen: Observed) -> None:
        self._settled = wanted, seen
        if self._program is not None:
            self._program.set_known(self._target.tree.addresses)
            if _is_needed(wanted):
                self._program.forget_older()

    def reset(self) -> Outcome:
        """Remove everything of ours, the names of program and maps too. Raises `AgentError`."""
        outcome = self.enforce(Wanted())
        if outcome.is_ok:
            self._let_go()
            Program.remove_names(self._maps_dir)
        return outcome

    # --- the program's memory ---

    def _existing(self) -> Program | None:
        if not Program.is_there(self._maps_dir):
            return None
        try:
            return Program(self._maps_dir, self._object_file, may_make=False)
        except MissingError:
            return None

    def _made(self) -> Program:
        return Program(self._maps_dir, self._object_file)

    def counters(self) -> Mapping[tuple[int, DirectionName], tuple[int, Counters]]:
        """(Segment, counters) of each direction of each link, (0, ...) of what no link has. Memory only."""
        if self._program is None:
            return {}
        found = self._program.lanes.all_counters(2 * UNMATCHED + 2)
        return {
            (shown_id(number >> 1), _DIRECTION_NAMES[number & 1]): (row[1], Counters._make(row[2:]))
            for number, row in enumerate(found)
            if row[1]
        }

    def set_factors(self, to_user: float, from_user: float) -> None:
        """Every charge is multiplied; 1.0: no cap of the attachment point."""
        if self._program is not None:
            self._program.set_factors(to_user, from_user)

    def close(self) -> None:
        """Limits stay."""
        self._let_go()
        self._socket.close()

    def _let_go(self) -> None:
        if self._program is not None:
            self._program.close()
            self._program = None
        self._settled = None

    # --- what to say ---

    def _outcome(
        self,
        done: _Pass,
        wanted: Wanted,
        seen: Observed,
        problems: tuple[Problem, ...],
        failed: Mapping[int, str],
        *,
        only: set[int] | None = None,
    ) -> Outcome:
        ids = [*wanted.links, *([UNMATCHED] if wanted.unmatched_kbit is not None else [])]
        readback = {shown_id(one): _readback(seen, self._program, one) for one in ids if only is None or one in only}
        devices = looked_at(seen.devices, wanted.interfaces, seen.hooked)[0] if _is_needed(wanted) else ()
        return Outcome(
            done.plan or Plan(),
            done.writes,
            tuple(sorted(set(problems))),
            failed,
            readback,
            done.closed,
            tuple(one.name for one in devices),
            not failed,
            frozenset({self._socket.port}),
        )


def _is_needed(wanted: Wanted) -> bool:
    return bool(wanted.links) or wanted.unmatched_kbit is not None


def _wanted_tree(
    seen: Observed, wanted: Wanted, tree: Tree, program: Program | None, *, is_hidden: bool = False
) -> tuple[Tree, tuple[Problem, ...], dict[int, str]]:
    """(The tree with its hooks on the devices that are there, what stands in the way, links that fail by it)."""
    devices, missing = looked_at(seen.devices, wanted.interfaces, seen.hooked) if _is_needed(wanted) else ((), ())
    problems = [
        Problem("interface_missing", one, f"There is no interface {one}; correct `interfaces`, or wait for it.")
        for one in missing
    ]
    reasons: list[str] = []
    for name in seen.taken_names if _is_needed(wanted) else ():
        reasons.append(f"A device {name} is there that is not ours. Rename it, the limiter needs this name.")
        problems.append(Problem("foreign_device", name, reasons[-1]))
    hooks: dict[tuple[int, Direction], Hook] = {}
    for device in devices:
        obstructed = reading.obstructions(seen, device)
        for direction, why in obstructed.items():
            reasons.append(f"Packets {_SHOWN[direction]} on {device.name} cannot be limited: {why}.")
            problems.append(Problem("hook_obstructed", device.name, reasons[-1]))
        for direction in DIRECTIONS:
            if direction not in obstructed:
                now = seen.tree.hooks.get((device.ifindex, direction))
                hooks[device.ifindex, direction] = _wanted_hook(now, direction, program, is_hidden)
        problems += _notes(seen, device)
    if devices == () and _is_needed(wanted):
        reasons.append("None of the interfaces that are to be limited is there.")
    clsacts = {one.ifindex: Clsact(True) for one in devices if seen.ingress.get(one.ifindex) != "ingress"}
    failed = {one: " ".join(reasons) for one in wanted.links} if reasons else {}
    return replace(tree, hooks=hooks, clsacts=clsacts), tuple(problems), failed


def _wanted_hook(now: Hook | None, direction: int, program: Program | None, is_hidden: bool) -> Hook:
    if is_hidden and now is not None and now.is_redirected:
        return now
    numbers = program.ids if program is not None else {}
    return Hook(numbers.get(_DIRECTION_NAMES[direction], 0), numbers.get("admitted", 0), True)


def _notes(seen: Observed, device: Device) -> list[Problem]:
    notes = [
        Problem(
            "hook_obstructed",
            device.name,
            f"On {device.name} {one} is in front of ours, and what it takes is not limited. Let its owner move it.",
        )
        for one in reading.in_front(seen, device)
    ]
    behind = reading.behind(seen, device)
    if behind:
        message = f"On {device.name} filters behind ours ({', '.join(behind)}) never see limited packets."
        notes.append(Problem("filter_behind", device.name, message))
    return notes


def _with_refusals(
    done: _Pass, left: Sequence[Operation], wanted: Wanted, problems: tuple[Problem, ...], failed: Mapping[int, str]
) -> tuple[tuple[Problem, ...], dict[int, str]]:
    """What the kernel did not take, by link."""
    found, of_links = list(problems), dict(failed)
    for one in left:
        said = done.refused.get(one)
        code = "verify_failed" if said is None else "apply_failed"
        end = "the kernel does not show it" if said is None else f"the kernel refused it with {said}"
        message = f"Not done: {one}; {end}."
        links = one.links
        for link in links or wanted.links:
            of_links.setdefault(shown_id(link), message)
        found.append(
            Problem(code, ", ".join(str(shown_id(link)) for link in links) or one.device or "limiter", message)
        )
    return tuple(found), {link: why for link, why in of_links.items() if link in wanted.links or link == 0}


def _is_as(found: Mapping[int, Mapping[int, HtbClass]], after: Tree, program: Program) -> bool:
    lanes = program.lanes
    return all(found[one] == after.classes[one] for one in DIRECTIONS) and all(
        lanes.packed(number) == packed for number, packed in after.lanes.items()
    )


def _readback(seen: Observed, program: Program | None, link: int) -> tuple[Readback | None, Readback | None]:
    both: list[Readback | None] = []
    for direction in DIRECTIONS:
        minor = minor_of(link, direction)
        found = seen.tree.classes[direction].get(minor)
        if found is not None:
            both.append(Readback(found.rate_kbit, *seen.stats[direction].get(minor, ClassStats(0, 0))))
        else:
            is_blocked = program is not None and program.lanes.is_blocked(2 * link + direction)
            both.append(Readback(0, 0, 0) if is_blocked else None)
    return both[0], both[1]
