"""What is said about each limited link, from what was read back. Pure.

"enforced" is a statement about the kernel: classes, leaves and filters of both directions are exactly as wanted, which
is the same as: no operation that concerns this link remains to be done, and nothing foreign stands in its way.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ap_agent.model import (
    EMPTY_TREE,
    IFB_MAJOR,
    IFB_NAME,
    NIC_MAJOR,
    Counters,
    Desired,
    Device,
    DirectionState,
    Finding,
    LinkState,
    TcState,
    Tree,
    data_class,
    heartbeat_class,
    inner_class,
    is_inner,
)
from ap_agent.ops import Op
from bandwidth_config import LinkInfo


def link_states(
    links: Iterable[LinkInfo], state: TcState, wanted: Desired, remaining: Sequence[Op], findings: Iterable[Finding]
) -> tuple[LinkState, ...]:
    """`remaining` is what a plan made from `state` would still do."""
    sentences = _sentences(findings)
    by_link, structural = _remaining_of(remaining)
    homes = _homes(state, wanted)
    ifb = _View(state.ifb, state.trees.get(state.ifb.ifindex, EMPTY_TREE), IFB_MAJOR) if state.ifb else None
    states = []
    for link in links:
        number = link.interface_id
        home = homes.get(number)
        to_user = home.direction(number) if home is not None else None
        from_user = ifb.direction(number) if ifb is not None else None
        problem = sentences.get(number) or by_link.get(number) or structural
        if problem is None and (to_user is None or from_user is None):
            problem = "The kernel has no class for this link."
        is_enforced = problem is None
        states.append(
            LinkState(number, link.bandwidth_kbit, "enforced" if is_enforced else "error", problem, to_user, from_user)
        )
    return tuple(states)


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
        sentence = f"Not enforced yet: {op}."
        for number in op.links:
            by_link.setdefault(number, sentence)
        if not op.links and structural is None:
            structural = sentence
    return by_link, structural


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
        self.device, self.major, self.counters = device, major, tree.counters
        self.classes = {one.handle: one for one in tree.classes}
        self.limits = {one.parent: one.limit_bytes for one in tree.leaves}

    def direction(self, number: int) -> DirectionState | None:
        """The rate is the inner class's; 0 if both leaves drop everything. Drops and queues are those of the leaves."""
        inner = self.classes.get(inner_class(self.major, number))
        if inner is None:
            return None
        parts = (heartbeat_class(self.major, number), data_class(self.major, number))
        is_blocked = all(self.limits.get(part) == 0 for part in parts)
        passed = self.counters.get(inner.handle, Counters())
        queues = [self.counters.get(part, Counters()) for part in parts]
        return DirectionState(
            dev=self.device.name,
            rate_kbit=0 if is_blocked else inner.rate_bytes_s * 8 // 1000,
            bytes=passed.bytes,
            packets=passed.packets,
            drops=sum(one.drops for one in queues),
            backlog_bytes=sum(one.backlog_bytes for one in queues),
        )
