"""One look at the kernel: what it has, what it should have, what there is to do. Nothing is changed here.

Every look reads the kernel. What follows from what was read is a pure function of it, so where the kernel has, but for
counters, what it had at the look before, the conclusions of that look hold: planning for 4000 links takes seconds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Protocol

from ap_agent.common.errors import ApplyError
from ap_agent.desired import PlacedLink, desired
from ap_agent.linkstate import Verdict, verdicts
from ap_agent.model import (
    Desired,
    EngineSettings,
    Finding,
    Handle,
    HtbClass,
    LoadedProgram,
    Qdisc,
    TcState,
    Tree,
    is_admission,
)
from ap_agent.ops import Op
from ap_agent.placement import Placements, Route, RouteQuery, limited, place, route_queries
from ap_agent.plan import Plan, plan
from ap_agent.whole.hooks import Hook, obstructed_hooks, obstructions
from bandwidth_config import IPAddress, LinkInfo

TableName = tuple[str, Handle, int]  # of a device, at a hook
LoadPrograms = Callable[[Iterable[int]], Mapping[int, LoadedProgram]]


class Kernel(Protocol):
    """What a cycle needs of a kernel; `netlink.RtNetlink` is the real one."""

    def observe(self) -> TcState: ...

    def routes(self, queries: Sequence[RouteQuery]) -> Sequence[Route]:
        """One answer for each question, in order."""

    def apply(self, ops: Sequence[Op]) -> Sequence[ApplyError | None]:
        """Carry out all in order; for each the refusal, or None where it was done."""


@dataclass(frozen=True)
class Look:
    """What was asked for and read, and what follows from it."""

    links: Mapping[int, LinkInfo]
    settings: EngineSettings
    state: TcState
    queries: Sequence[RouteQuery]
    routes: Sequence[Route]
    avoid: frozenset[TableName]
    placements: Placements
    wanted: Desired  # what follows from the placements
    plan: Plan
    verdicts: tuple[Verdict, ...]
    placed: Mapping[int, PlacedLink]
    sharing: Mapping[IPAddress, tuple[int, ...]]  # the numbers of the placed links behind each address
    overlay: Mapping[int, Tree] = field(default_factory=dict)  # read since, in parts
    obstructed: Mapping[Hook, str] = field(default_factory=dict)  # where whole datagrams cannot be admitted
    programs: Mapping[int, LoadedProgram] = field(default_factory=dict)  # that should be attached

    @property
    def findings(self) -> tuple[Finding, ...]:
        found = obstructions(self.placements.managed, self.obstructed) if self.wanted.ifb is not None else ()
        return (*self.placements.findings, *self.plan.findings, *found)


def take_look(
    kernel: Kernel,
    links: Mapping[int, LinkInfo],
    settings: EngineSettings,
    avoid: frozenset[TableName] = frozenset(),
    earlier: Sequence[Look] = (),
    *,
    load: LoadPrograms | None = None,
) -> Look:
    """`avoid` are table numbers that the kernel refused; `earlier` are looks at the same kernel. `load` gives the
    programs that admit whole datagrams; without it those that are attached will do, if there are any.
    """
    state = kernel.observe()
    if load is None and settings.whole_datagrams and not _has_admission(state):
        settings = replace(settings, whole_datagrams=False)
    obstructed = obstructed_hooks(state) if settings.whole_datagrams else {}
    earlier = [_settled(one) for one in earlier]
    alike = [one for one in earlier if links == one.links and state.addresses == one.state.addresses]
    queries = alike[0].queries if alike else route_queries(links, state)
    routes = tuple(kernel.routes(queries))
    for one in alike:
        is_same = (settings, routes, avoid, obstructed) == (one.settings, one.routes, one.avoid, one.obstructed)
        if is_same and _loaded(load, one.wanted) == one.programs and _is_same_but_counters(state, one.state):
            return replace(one, state=state)
    placements = place(links, state, dict(zip(queries, routes, strict=True)).__getitem__, settings)
    key = (settings, placements, obstructed)
    known = next((one.wanted for one in earlier if key == (one.settings, one.placements, one.obstructed)), None)
    wanted = known or desired(placements.placed, placements.managed, settings, obstructed)
    programs = _loaded(load, wanted)
    todo = plan(state, wanted, avoid, programs)
    said = verdicts(limited(links), state, wanted, todo.ops, (*placements.findings, *todo.findings))
    placed = {one.link.interface_id: one for one in placements.placed}
    return Look(
        links,
        settings,
        state,
        queries,
        routes,
        avoid,
        placements,
        wanted,
        todo,
        said,
        placed,
        _sharing(placements.placed),
        obstructed=obstructed,
        programs=programs,
    )


def _has_admission(state: TcState) -> bool:
    return any(is_admission(one) for tree in state.trees.values() for one in tree.filters)


def _loaded(load: LoadPrograms | None, wanted: Desired) -> Mapping[int, LoadedProgram]:
    slots = sorted({slot for tree in wanted.nics for slot in tree.programs.values()})
    return load(slots) if load is not None and slots else {}


def _sharing(placed: Iterable[PlacedLink]) -> dict[IPAddress, tuple[int, ...]]:
    found: dict[IPAddress, list[int]] = defaultdict(list)
    for one in placed:
        found[one.link.remote_ip].append(one.link.interface_id)
    return {address: tuple(numbers) for address, numbers in found.items()}


def _is_same_but_counters(one: TcState, other: TcState) -> bool:
    return (
        one.devices == other.devices
        and one.trees.keys() == other.trees.keys()
        and all(_has_same_objects(tree, other.trees[number]) for number, tree in one.trees.items())
    )


def _has_same_objects(one: Tree, other: Tree) -> bool:
    names = (each.name for each in fields(Tree) if each.name not in ("classes", "leaves", "counters"))
    return (
        all(getattr(one, name) == getattr(other, name) for name in names)
        and _are_same(one.classes, other.classes)
        and _are_same(one.leaves, other.leaves)
    )


def _are_same(some: tuple[HtbClass | Qdisc, ...], others: tuple[HtbClass | Qdisc, ...]) -> bool:
    """In any order: a leaf that was replaced comes elsewhere in the dump."""
    return some == others or (len(some) == len(others) and set(some) == set(others))


def _settled(look: Look) -> Look:
    """With what was read in parts in its place among the rest, to be compared with a whole look."""
    if not look.overlay:
        return look
    trees = dict(look.state.trees)
    for ifindex, tree in look.overlay.items():
        trees[ifindex] = _patched(trees[ifindex], tree)
    return replace(look, state=replace(look.state, trees=trees), overlay={})


def _patched(whole: Tree, part: Tree) -> Tree:
    classes = {one.handle: one for one in part.classes}
    leaves = {one.parent: one for one in part.leaves}
    return replace(
        whole,
        classes=tuple(classes.get(one.handle, one) for one in whole.classes),
        leaves=tuple(leaves.get(one.parent, one) for one in whole.leaves),
    )
