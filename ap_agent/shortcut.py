"""A few limits changed among thousands, and nothing else: only these links are read, changed in place and read back.

That takes milliseconds, a whole look at 4000 links a tenth of a second. It is allowed right after a look that found
everything as it should be, and only for what that look says: as soon as anything is unlike expected, the caller takes
the whole way.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress
from typing import Protocol, runtime_checkable

from ap_agent.applying import Failures, apply_plan
from ap_agent.desired import PlacedLink, desired
from ap_agent.linkstate import Verdict, verdicts, with_news
from ap_agent.look import Kernel, Look
from ap_agent.model import (
    Desired,
    DesiredTree,
    EngineSettings,
    Handle,
    TcState,
    Tree,
    link_of_class,
)
from ap_agent.ops import ClassChange, LeafChange, LeafReplace
from ap_agent.plan import Plan, plan
from ap_agent.whole.wanted import Wanted
from bandwidth_config import IPAddress, Limits, LinkInfo

MAX_CHANGED = 1000  # beyond, reading everything of 4000 links costs less (docs/adr/0013)
MAX_SHARING = 2000  # links behind the addresses of the changed ones, whose filters are worked out
_IN_PLACE = (ClassChange, LeafChange, LeafReplace)


@runtime_checkable
class PartReader(Protocol):
    """A kernel that can be asked for single objects."""

    def ifb_in_service(self) -> int | None: ...

    def read_part(self, names: Mapping[int, Sequence[Handle]]) -> dict[int, Tree]:
        """These classes with their leaves, by device; what is not there is left out."""


@dataclass(frozen=True)
class Changed:
    """What was done, and the look as it would be found now; its counters of other links are those of the look before.

    `look` is None where the whole way must be gone.
    """

    plan: Plan
    writes: int
    look: Look | None = None
    part: TcState | None = None
    verdicts: tuple[Verdict, ...] = ()
    admitted: Mapping[int, Wanted] = field(default_factory=dict)  # of programs, by slot, where something is another
    addresses: frozenset[IPAddress] = frozenset()  # of the changed links


def change_limits(kernel: Kernel, last: Look, links: Mapping[int, LinkInfo], settings: EngineSettings) -> Changed:
    """Raises what the kernel raises."""
    nothing = Changed(Plan(), 0)
    numbers = changed_limits(last.links, links)
    if not numbers or not isinstance(kernel, PartReader) or settings != last.settings or not last.plan.is_empty:
        return nothing
    wanted = _wanted(last, links, numbers)
    ifb = last.state.ifb
    if wanted is None or ifb is None or kernel.ifb_in_service() != ifb.ifindex:
        return nothing
    names = {tree.device.ifindex or ifb.ifindex: _handles(tree) for tree in _trees(wanted)}
    todo = plan(_part(last, kernel.read_part(names)), wanted)
    if todo.findings or not all(isinstance(op, _IN_PLACE) and op.links <= numbers for op in todo.ops):
        return nothing
    failures = Failures()
    writes = apply_plan(kernel, todo, failures)
    part = _part(last, kernel.read_part(names))
    left = plan(part, wanted)
    if failures.errors or left.ops or left.findings:
        return Changed(todo, writes)
    said = verdicts([links[number] for number in sorted(numbers)], part, wanted, (), ())
    look = _look_after(last, links, part, said)
    addresses = frozenset(last.links[number].remote_ip for number in numbers)
    look, admitted = _admitting(look, wanted, addresses)
    return Changed(todo, writes, look, part, said, admitted, addresses)


def changed_limits(before: Mapping[int, LinkInfo], after: Mapping[int, LinkInfo]) -> frozenset[int]:
    """The user ASes' links that differ, if they differ in nothing but their limit; else none at all."""
    if before.keys() != after.keys():
        return frozenset()
    # Most are the very same objects when a timed limit makes a step, and only equal ones after a new document.
    others = compress(after, map(operator.is_not, after.values(), map(before.__getitem__, after)))
    changed = [number for number in others if after[number] != before[number]]
    if len(changed) > MAX_CHANGED:
        return frozenset()
    for number in changed:
        new = after[number]
        if not new.is_user_as or before[number].with_limits(new.limits) != new:
            return frozenset()
    return frozenset(changed)


# --- what should be there --------------------------------------------------------------------------------------


def _wanted(last: Look, links: Mapping[int, LinkInfo], numbers: frozenset[int]) -> Desired | None:
    """Classes and leaves of the changed links alone. None where more than these would change: a link without a place,
    or filters, because fragments go to the strictest link of their address."""
    addresses = {last.links[number].remote_ip for number in numbers}
    sharing = {one for address in addresses for one in last.sharing.get(address, ())}
    # What was found about a link of these addresses may be about its limit: which of two alike is the stricter.
    troubled = {last.links[number].remote_ip for finding in last.findings for number in finding.links}
    if len(sharing) > MAX_SHARING or not numbers <= sharing or addresses & troubled:
        return None
    before = [last.placed[number] for number in sorted(sharing)]
    after = [_with_limits(one, links[one.link.interface_id].limits) for one in before]
    managed = last.placements.managed
    old, new = (desired(those, managed, last.settings, last.obstructed) for those in (before, after))
    if _filters(old) != _filters(new):
        return None
    if not {slot for tree in new.nics for slot in tree.programs.values()} <= last.programs.keys():
        return None
    return Desired(
        nics=tuple(tree for one in new.nics if (tree := _only(one, numbers)).classes),
        ifb=_only(new.ifb, numbers) if new.ifb is not None else None,
    )


def _with_limits(one: PlacedLink, limits: Limits) -> PlacedLink:
    return replace(one, link=one.link.with_limits(limits))


def _filters(wanted: Desired) -> list[object]:
    return [(one.filters, one.indexes, one.redirects, one.redirect_indexes) for one in _trees(wanted)]


def _trees(wanted: Desired) -> Iterable[DesiredTree]:
    return (*wanted.nics, *([wanted.ifb] if wanted.ifb is not None else []))


def _only(tree: DesiredTree, numbers: frozenset[int]) -> DesiredTree:
    return DesiredTree(
        device=tree.device,
        major=tree.major,
        has_root=True,
        classes=tuple(one for one in tree.classes if link_of_class(one.handle) in numbers),
        leaves=tuple(one for one in tree.leaves if link_of_class(one.parent) in numbers),
        admitted=tree.admitted,
    )


def _handles(tree: DesiredTree) -> list[Handle]:
    return [one.handle for one in tree.classes]


def _admitting(look: Look, wanted: Desired, addresses: frozenset[IPAddress]) -> tuple[Look, dict[int, Wanted]]:
    """The look with what is admitted of these addresses now, and that by program; all else is as it was."""
    news = {tree.device.ifindex: tree.admitted for tree in _trees(wanted)}
    nics = tuple(_with_admitted(tree, news.get(tree.device.ifindex, {}), addresses) for tree in look.wanted.nics)
    ifb = look.wanted.ifb
    ifb = _with_admitted(ifb, news.get(ifb.device.ifindex, {}), addresses) if ifb is not None else None
    before = _trees(look.wanted)
    look = replace(look, wanted=Desired(nics, ifb))
    changed = {
        new.device.ifindex: new.admitted for old, new in zip(before, _trees(look.wanted), strict=True) if old is not new
    }
    return look, changed


def _with_admitted(tree: DesiredTree, news: Wanted, addresses: frozenset[IPAddress]) -> DesiredTree:
    if all(tree.admitted.get(address) == news.get(address) for address in addresses):
        return tree
    admitted = dict(tree.admitted)  # copied as a whole: hashing thousands of addresses anew takes milliseconds
    for address in addresses:
        admitted.pop(address, None)
        if address in news:
            admitted[address] = news[address]
    return replace(tree, admitted=admitted)


# --- what is there ---------------------------------------------------------------------------------------------


def _part(last: Look, found: Mapping[int, Tree]) -> TcState:
    """As if the host had nothing but these links."""
    trees = {ifindex: replace(tree, root=last.state.trees[ifindex].root) for ifindex, tree in found.items()}
    return TcState(last.state.devices, trees=trees)


def _look_after(last: Look, links: Mapping[int, LinkInfo], part: TcState, said: Iterable[Verdict]) -> Look:
    """The last look with these links as they were read back, so that the next whole look need not plan anew."""
    news = tuple(said)
    placed = dict(last.placed)
    for one in news:
        placed[one.interface_id] = _with_limits(placed[one.interface_id], links[one.interface_id].limits)
    return replace(
        last,
        links=links,
        placed=placed,
        verdicts=with_news(last.verdicts, news),
        overlay=_laid_over(last.overlay, part.trees),
    )


def _laid_over(old: Mapping[int, Tree], new: Mapping[int, Tree]) -> dict[int, Tree]:
    """The parts of several changes as one, the newest on top."""
    merged = dict(old)
    for ifindex, tree in new.items():
        below = old.get(ifindex, Tree())
        classes = {one.handle: one for one in (*below.classes, *tree.classes)}
        leaves = {one.parent: one for one in (*below.leaves, *tree.leaves)}
        merged[ifindex] = replace(tree, classes=tuple(classes.values()), leaves=tuple(leaves.values()))
    return merged
