"""What is said about each limited link, from what was read back. Pure.

"enforced" is a statement about the kernel: classes, leaves and filters of both directions are exactly as wanted, which
is the same as: no operation that concerns this link remains to be done, and nothing foreign stands in its way.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import TypeVar

from ap_agent.model import (
    EMPTY_TREE,
    IFB_MAJOR,
    IFB_NAME,
    NIC_MAJOR,
    Counters,
    Desired,
    Device,
    Direction,
    DirectionState,
    Finding,
    Handle,
    LinkState,
    TcState,
    Tree,
    data_class,
    heartbeat_class,
    inner_class,
    is_inner,
)
from ap_agent.ops import ListDel, Op, Stage
from ap_agent.readback import is_uncounted, sums
from bandwidth_config import Limits, LinkInfo

Refusals = Mapping[tuple[int, Direction], int]  # packets that whole datagrams cost, by interface id and direction
NO_REFUSALS: Refusals = {}


@dataclass(frozen=True)
class Place:
    """Where one direction of a link is in the kernel, and its rate; the counters are read there, later."""

    ifindex: int
    dev: str
    rate_kbit: int
    inner: Handle
    parts: tuple[Handle, Handle]

    def state(self, counters: Mapping[Handle, Counters], refused: int = 0) -> DirectionState:
        """Drops and queues are those of the leaves; `refused` packets were dropped in front of them."""
        size, packets, drops, backlog_bytes = sums(counters, self.inner, self.parts)
        return DirectionState(self.dev, self.rate_kbit, size, packets, drops + refused, backlog_bytes)


@dataclass(frozen=True)
class Verdict:
    """What is to be said about a link, but for its counters."""

    interface_id: int
    limits: Limits
    problem: str | None
    to_user: Place | None
    from_user: Place | None


def link_states(said: Iterable[Verdict], state: TcState, refused: Refusals = NO_REFUSALS) -> tuple[LinkState, ...]:
    """With the counters of `state`, which has the trees that the verdicts are about, and with what was refused."""
    counters = {ifindex: tree.counters for ifindex, tree in state.trees.items()}

    def direction(number: int, name: Direction, place: Place | None) -> DirectionState | None:
        if place is None:
            return None
        return place.state(counters[place.ifindex], refused.get((number, name), 0))

    return tuple(
        LinkState(
            one.interface_id,
            one.limits,
            "enforced" if one.problem is None else "error",
            one.problem,
            direction(one.interface_id, "to_user", one.to_user),
            direction(one.interface_id, "from_user", one.from_user),
        )
        for one in said
    )


S = TypeVar("S", Verdict, LinkState)


def with_news(said: tuple[S, ...], news: Iterable[S]) -> tuple[S, ...]:
    """Some replaced by newer ones of the same link; all are in the order of their links."""
    result = list(said)
    for one in news:
        result[bisect_left(result, one.interface_id, key=attrgetter("interface_id"))] = one
    return tuple(result)


class StateMemory:
    """The link states of the last cycle, which hold as long as nothing changed and nothing was counted."""

    def __init__(self) -> None:
        self._said: tuple[Verdict, ...] = ()
        self._counters: list[Mapping[Handle, Counters]] = []
        self._states: tuple[LinkState, ...] = ()
        self._refused: Refusals = NO_REFUSALS

    def link_states(
        self, said: tuple[Verdict, ...], state: TcState, refused: Refusals = NO_REFUSALS
    ) -> tuple[LinkState, ...]:
        """As the function of this name."""
        counters = [tree.counters for tree in state.trees.values()]
        is_known = said is self._said and len(counters) == len(self._counters) and refused == self._refused
        if not is_known or not all(map(is_uncounted, counters, self._counters)):
            self._states = link_states(said, state, refused)
        self._said, self._counters, self._refused = said, counters, refused
        return self._states

    def with_news(
        self,
        said: tuple[Verdict, ...],
        news: tuple[Verdict, ...],
        part: TcState,
        refused: Refusals = NO_REFUSALS,
    ) -> tuple[LinkState, ...]:
        """Some links anew, with the counters of `part`; the others as they were. `said` is what holds for all now."""
        self._states = with_news(self._states, link_states(news, part, refused))
        self._said, self._counters = said, []
        return self._states


def verdicts(
    links: Iterable[LinkInfo], state: TcState, wanted: Desired, remaining: Sequence[Op], findings: Iterable[Finding]
) -> tuple[Verdict, ...]:
    """`remaining` is what a plan made from `state` would still do."""
    sentences = _sentences(findings)
    by_link, structural = _remaining_of(remaining)
    homes = _homes(state, wanted)
    ifb = _View(state.ifb, state.trees.get(state.ifb.ifindex, EMPTY_TREE), IFB_MAJOR) if state.ifb else None
    said = []
    for link in links:
        number = link.interface_id
        home = homes.get(number)
        to_user = home.place(number) if home is not None else None
        from_user = ifb.place(number) if ifb is not None else None
        problem = sentences.get(number) or by_link.get(number) or structural
        if problem is None and (to_user is None or from_user is None):
            problem = "The kernel has no class for this link."
        said.append(Verdict(number, link.limits, problem, to_user, from_user))
    return tuple(said)


def _sentences(findings: Iterable[Finding]) -> dict[int, str]:
    found: dict[int, str] = {}
    for finding in findings:
        for number in finding.links:
            found.setdefault(number, finding.problem.message)
    return found


def _remaining_of(remaining: Sequence[Op]) -> tuple[dict[int, str], str | None]:
    """Per link, and for all: an operation without links concerns the device that they all depend on."""
    by_link: dict[int, str] = {}
    structural = None
    for op in remaining:
        is_structural = not op.links and structural is None and not _concerns_nobody(op)
        unnamed = [number for number in op.links if number not in by_link]
        if unnamed or is_structural:
            sentence = f"Not enforced yet: {op}."
            by_link.update(dict.fromkeys(unnamed, sentence))
            structural = sentence if is_structural else structural
    return by_link, structural


def _concerns_nobody(op: Op) -> bool:
    """Whether no limit depends on it: a table that nothing leads to, a preference without filters, whole datagrams."""
    return op.stage is Stage.CLEAR or (isinstance(op, ListDel) and op.count == 0) or not op.is_needed


def _homes(state: TcState, wanted: Desired) -> dict[int, _View]:
    """The interface where each link has its class, the wanted one if it is on several."""
    wanted_at = {one.handle.minor: tree.device.ifindex for tree in wanted.nics for one in tree.classes}
    found: dict[int, _View] = {}
    for device in state.devices:
        if device.ifindex not in state.trees or device.name == IFB_NAME:
            continue
        view = _View(device, state.trees[device.ifindex], NIC_MAJOR)
        for handle in view.classes:
            if is_inner(handle) and (handle.minor not in found or wanted_at.get(handle.minor) == device.ifindex):
                found[handle.minor] = view
    return found


class _View:
    """One device's tree, by handle."""

    def __init__(self, device: Device, tree: Tree, major: int) -> None:
        self.device, self.major = device, major
        self.classes = {one.handle: one for one in tree.classes}
        self.limits = {one.parent: one.limit_bytes for one in tree.leaves}

    def place(self, number: int) -> Place | None:
        """The rate is the inner class's; 0 if both leaves drop everything."""
        inner = self.classes.get(inner_class(self.major, number))
        if inner is None:
            return None
        parts = (heartbeat_class(self.major, number), data_class(self.major, number))
        is_blocked = all(self.limits.get(part) == 0 for part in parts)
        rate_kbit = 0 if is_blocked else inner.rate_bytes_s * 8 // 1000
        return Place(self.device.ifindex, self.device.name, rate_kbit, inner.handle, parts)
