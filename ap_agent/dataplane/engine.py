"""Applies the wanted state to the kernel: observe, compare, apply, observe again, verify.

One thread at a time, in the network namespace in which the engine was created.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ap_agent.common.errors import NotPermittedError
from ap_agent.common.problem import Problem
from ap_agent.dataplane import obstacles
from ap_agent.dataplane.claim import Claim
from ap_agent.dataplane.devices import DIRECTIONS, IFB_NAMES, Host, lowest_devices, read_devices, read_host
from ap_agent.dataplane.outcome import Outcome, Plan, Readback, plan_of
from ap_agent.dataplane.program import MOST_LANES, OBJECT, Program
from ap_agent.dataplane.reading import Observed, Reader
from ap_agent.dataplane.rtsocket import RtSocket
from ap_agent.dataplane.tree import UNMATCHED, Hook, Operation, Target, Tree, difference, minor_of
from ap_agent.dataplane.wanted import Wanted
from ap_agent.dataplane.writing import OnClosed, Writer, shown_id
from ap_agent.document.state import Counters, Direction

ATTEMPTS = 4
_DIRECTION_NAMES: tuple[Direction, Direction] = ("to_user", "from_user")
_LANE_NAMES = [(shown_id(lane >> 1), _DIRECTION_NAMES[lane & 1]) for lane in range(MOST_LANES)]


@dataclass
class _Pass:
    """One call: planned operations, rejections of the kernel, and obstacles."""

    wanted: Wanted
    plan: Plan | None = None
    writes: int = 0
    refused: dict[Operation, str] = field(default_factory=dict)
    devices: tuple[str, ...] = ()
    classifying: tuple[str, ...] = ()
    problems: list[Problem] = field(default_factory=list)
    failed: dict[int, str] = field(default_factory=dict)

    @property
    def is_needed(self) -> bool:
        """Without anything to limit, nothing of ours should exist."""
        return bool(self.wanted.links) or self.wanted.unmatched_kbit is not None

    @property
    def ids(self) -> list[int]:
        return [*self.wanted.links, *([UNMATCHED] if self.wanted.unmatched_kbit is not None else [])]


class Engine:
    def __init__(
        self,
        maps_dir: Path,
        *,
        object_file: Path = OBJECT,
        on_closed: OnClosed = lambda _: None,
    ) -> None:
        """No effect yet. `maps_dir`: where program and maps are pinned. `on_closed` gets the last counters of lanes
        before they are dropped: after a kill in between they are reported again, with the same segment."""
        self.on_closed = on_closed
        self._maps_dir, self._object_file = maps_dir, object_file
        self._socket = RtSocket()
        self._claim = Claim()
        self._reader = Reader(self._socket)
        self._program: Program | None = None
        self._target = Target()
        self._settled: tuple[Wanted, Observed] | None = None  # result of the last pass

    def host(self) -> Host:
        """Raises `AgentError`."""
        return read_host(self._socket)

    def xdp(self) -> frozenset[tuple[str, str]]:
        """(Device, how and which) of every XDP program. Raises `AgentError`."""
        return frozenset((one.name, words) for one in read_devices(self._socket) for words in one.xdp)

    def plan(self, wanted: Wanted) -> Outcome:
        """What `enforce` would do. Read-only. Raises `AgentError`."""
        target, done, is_hidden = Target(), _Pass(wanted), False
        target.update(wanted)
        try:
            self._open(may_make=False)
        except NotPermittedError as exc:
            done.problems.append(Problem("no_bpf_right", "limiter", exc.message))
            is_hidden = True
        seen = self._reader.observe(self._program)
        if is_hidden:  # then only what is readable without rights counts
            for table in ("lane", "key", "unmatched"):
                seen.tree[table, ""] = target.tree[table, ""]
        then = self._wanted_tree(seen, target.tree, done, is_hidden=is_hidden)
        done.plan = plan_of(difference(seen.tree, then, seen.names), seen.tree, then)
        return self._outcome(done, seen, done.ids)

    def enforce(self, wanted: Wanted, *, is_settled: bool = False) -> Outcome:
        """Apply `wanted`. `is_settled`: nothing else changed since the last call, so only differences to the last
        `wanted` are written and read back, and nothing is dumped. Raises `AgentError` if the state is unknown:
        `NotPermittedError`, `ProgramError` and others; `LockHeldError` if another limiter manages this network."""
        self._claim.take()
        done, writer = _Pass(wanted), Writer(self._socket, self.on_closed)
        if is_settled and (outcome := self._enforce_changed(done, writer)) is not None:
            return outcome
        self._settled = None
        self._target.update(wanted)
        self._open(may_make=done.is_needed)
        last: list[Operation] = []
        for attempt in range(ATTEMPTS + 1):
            seen = self._reader.observe(self._program)
            then = self._wanted_tree(seen, self._target.tree, done)
            left = [] if seen.taken_names else difference(seen.tree, then, seen.names)
            done.plan = done.plan or plan_of(left, seen.tree, then)
            if not left or left == last or attempt == ATTEMPTS:
                break
            self._apply(writer, left, seen, done)
            last = left
        _add_refusals(done, left)
        if not left and not seen.taken_names:
            self._settled = wanted, seen
            if self._program is not None:
                self._program.finish(self._target.tree["key", ""], writer.keep if done.is_needed else None)
        return self._outcome(done, seen, done.ids)

    def _enforce_changed(self, done: _Pass, writer: Writer) -> Outcome | None:
        """None if everything has to be compared."""
        settled, self._settled = self._settled, None
        if settled is None or self._program is None or not settled[1].ifbs or not done.is_needed:
            return None
        if done.wanted.interfaces != settled[0].interfaces:
            return None
        seen = settled[1]
        before, after = self._target.update(done.wanted)
        operations = difference(before, after, {})
        done.plan = plan_of(operations, before, after)
        self._apply(writer, operations, seen, done)
        changed = {number // 2 for number in before["lane", ""].keys() | after["lane", ""].keys()}
        lanes = self._program.lanes
        is_as_wanted = all(lanes.packed(number) == packed for number, packed in after["lane", ""].items())
        for direction, ifb in zip(DIRECTIONS, IFB_NAMES, strict=True):
            minors = [minor_of(one, direction) for one in changed]
            self._reader.read_again(seen, ifb, minors)
            found = {one: seen.tree["class", ifb][one] for one in minors if one in seen.tree["class", ifb]}
            is_as_wanted = is_as_wanted and found == after["class", ifb]
        if done.refused or not is_as_wanted:
            return None
        self._program.finish(self._target.tree["key", ""], None)
        self._settled = done.wanted, seen
        self._wanted_tree(seen, self._target.tree, done)
        return self._outcome(done, seen, [one for one in changed if one in done.ids])

    def _apply(self, writer: Writer, operations: Sequence[Operation], seen: Observed, done: _Pass) -> None:
        answers = writer.apply(operations, seen, self._program)
        done.refused = {one: said for one, said in zip(operations, answers, strict=True) if said is not None}
        done.writes += len(operations) - len(done.refused)

    def reset(self) -> Outcome:
        """Remove everything of ours, including the pins of program and maps. Raises `AgentError`."""
        outcome = self.enforce(Wanted())
        if outcome.is_ok:
            self._let_go()
            Program.remove_names(self._maps_dir)
        return outcome

    # --- the program's memory ---

    def _open(self, *, may_make: bool) -> None:
        """Raises `ProgramError`, `NotPermittedError`."""
        if self._program is None or (may_make and not self._program.is_whole):
            self._let_go()
            self._program = Program.opened(self._maps_dir, self._object_file, may_make=may_make)

    def counters(self, links: Iterable[int] | None = None) -> Mapping[tuple[int, Direction], tuple[int, Counters]]:
        """(Segment, counters) of each direction of each link, or of these `links`; (0, ...) is unmatched traffic. Reads
        memory only."""
        if self._program is None:
            return {}
        lanes = self._program.lanes
        if links is None:
            found = lanes.counted()
        else:
            found = lanes.counted_of(2 * (link or UNMATCHED) + way for link in links for way in (0, 1))
        return {_LANE_NAMES[lane]: both for lane, both in found.items()}

    def readback(self, links: Iterable[int]) -> dict[int, tuple[Readback | None, Readback | None]]:
        """HTB's state of these links, read now; nothing if the last pass left work to do. Raises `AgentError`."""
        if self._settled is None or (seen := self._settled[1]).ifbs.keys() != set(IFB_NAMES):
            return {}
        links = tuple(links)
        for direction, ifb in zip(DIRECTIONS, IFB_NAMES, strict=True):
            self._reader.read_again(seen, ifb, [minor_of(one, direction) for one in links])
        return {one: self._readback(seen, one) for one in links}

    def set_factors(self, to_user: float, from_user: float) -> None:
        """Multiply every charge; 1.0: no cap of the attachment point."""
        if self._program is not None:
            self._program.set_factors(to_user, from_user)

    def close(self) -> None:
        """The limits stay."""
        self._let_go()
        self._claim.close()
        self._socket.close()

    def _let_go(self) -> None:
        if self._program is not None:
            self._program.close()
        self._program = self._settled = None

    # --- wanted tree on this host, and obstacles --------

    def _wanted_tree(self, seen: Observed, tree: Tree, done: _Pass, *, is_hidden: bool = False) -> Tree:
        """`tree` with its hooks on existing devices. Adds obstacles to `done`."""
        devices, missing = (
            lowest_devices(seen.devices, done.wanted.interfaces, seen.hooked) if done.is_needed else ((), ())
        )
        fatal = list(obstacles.of_names(seen)) if done.is_needed else []
        notes = [
            Problem("interface_missing", one, f"Interface {one} does not exist; correct `interfaces`, or wait for it.")
            for one in missing
        ]
        now, hooks, clsacts = seen.tree, {}, {}
        for device in devices:
            ifindex = device.ifindex
            if ifindex in now["clsact", ""]:
                clsacts[ifindex] = True
            at_hooks = (now["hook", ""].get((ifindex, direction)) for direction in DIRECTIONS)
            is_ours = ifindex not in seen.ingress or any(one is not None and one.is_with_clsact for one in at_hooks)
            for direction in DIRECTIONS:
                if (obstacle := obstacles.of_hook(seen, device, direction)) is not None:
                    fatal.append(obstacle)
                elif is_hidden and (hook := now["hook", ""].get((ifindex, direction))) and hook.is_redirected:
                    hooks[ifindex, direction] = hook
                else:
                    ids = self._program.ids if self._program is not None else {}
                    numbers = ids.get(_DIRECTION_NAMES[direction], 0), ids.get("admitted", 0)
                    hooks[ifindex, direction] = Hook(*numbers, is_redirected=True, is_with_clsact=is_ours)
            fatal += obstacles.in_front(seen, device)
            notes += obstacles.behind(seen, device)
        reasons = [one.message for one in fatal]
        if done.is_needed and not devices:
            reasons.append("None of the configured interfaces exists.")
        done.devices = tuple(one.name for one in devices)
        done.classifying = tuple(
            one.name
            for one in devices
            if all(hooks.get((one.ifindex, way), 0) == now["hook", ""].get((one.ifindex, way)) for way in DIRECTIONS)
        )
        done.problems = [*(one for one in done.problems if one.code == "no_bpf_right"), *fatal, *notes]
        done.failed = {shown_id(one): " ".join(reasons) for one in done.ids} if reasons else {}
        return {**tree, ("hook", ""): hooks, ("clsact", ""): clsacts}

    def _outcome(self, done: _Pass, seen: Observed, ids: Sequence[int]) -> Outcome:
        return Outcome(
            done.plan or Plan(),
            done.writes,
            tuple(sorted(set(done.problems))),
            done.failed,
            {shown_id(one): self._readback(seen, one) for one in ids},
            done.devices,
            done.classifying,
            not done.failed,
            frozenset({self._socket.port}),
        )

    def _readback(self, seen: Observed, link: int) -> tuple[Readback | None, Readback | None]:
        to_user = seen.readbacks[IFB_NAMES[0]].get(link) or self._blocked(2 * link)
        return to_user, seen.readbacks[IFB_NAMES[1]].get(minor_of(link, 1)) or self._blocked(2 * link + 1)

    def _blocked(self, lane: int) -> Readback | None:
        return Readback(0, 0, 0) if self._program is not None and self._program.lanes.is_blocked(lane) else None


def _add_refusals(done: _Pass, left: Sequence[Operation]) -> None:
    for one in left:
        said = done.refused.get(one)
        code = "verify_failed" if said is None else "apply_failed"
        end = "the kernel does not show it" if said is None else f"the kernel rejected it with {said}"
        message = f"Not done: {one}; {end}."
        for link in one.links or done.wanted.links:
            if link in done.wanted.links or link == UNMATCHED:
                done.failed.setdefault(shown_id(link), message)
        subject = ", ".join(str(shown_id(link)) for link in one.links) or one.device or "limiter"
        done.problems.append(Problem(code, subject, message))
