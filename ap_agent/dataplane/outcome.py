"""Result of one pass of the engine: planned, done, and the kernel's state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ap_agent.common.problem import Problem
from ap_agent.dataplane.tc import Readback
from ap_agent.dataplane.tree import Operation, Tree, limits_of
from ap_agent.dataplane.writing import shown_id
from bandwidth_config import Limits

__all__ = ["LinkChange", "Outcome", "Plan", "Readback", "plan_of"]


class LinkChange(NamedTuple):
    """`interface_id` 0 is unmatched traffic. None: not limited. Both equal: parts of it are missing."""

    interface_id: int
    now: Limits | None
    then: Limits | None


@dataclass(frozen=True)
class Plan:
    """`devices`: what changes, in words, by name."""

    links: tuple[LinkChange, ...] = ()
    devices: Mapping[str, str] = field(default_factory=dict)
    operations: tuple[Operation, ...] = ()

    @property
    def is_empty(self) -> bool:
        return not self.operations


@dataclass(frozen=True)
class Outcome:
    """`writes`: operations that the kernel accepted. `failed`: links that are not enforced, with reasons; key 0:
    unmatched traffic. `devices`: where packets are to be classified; `classifying`: those of them where the kernel has
    our filters. `ports`: of the netlink socket, which the kernel puts into the events that we cause. `readback` (to the
    user, from the user; key 0: unmatched traffic): None for what the kernel lacks. After a settled pass it only has
    changed links."""

    plan: Plan
    writes: int = 0
    problems: tuple[Problem, ...] = ()
    failed: Mapping[int, str] = field(default_factory=dict)
    readback: Mapping[int, tuple[Readback | None, Readback | None]] = field(default_factory=dict)
    devices: tuple[str, ...] = ()
    classifying: tuple[str, ...] = ()
    is_ok: bool = True
    ports: frozenset[int] = frozenset()


def plan_of(operations: Sequence[Operation], now: Tree, then: Tree) -> Plan:
    touched = sorted({link for one in operations for link in one.links})
    links = tuple(LinkChange(shown_id(one), limits_of(now, one), limits_of(then, one)) for one in touched)
    return Plan(links, _devices(operations), tuple(operations))


_NOUNS = {
    "ifb": "device",
    "stray": "renamed device",
    "root": "root qdisc",
    "class": "class",
    "leaf": "queue",
    "hook": "hook",
    "clsact": "clsact qdisc",
}


def _devices(operations: Iterable[Operation]) -> dict[str, str]:
    counted: dict[str, Counter[str]] = {}
    for one in operations:
        if one.device:
            counted.setdefault(one.device, Counter())[f"{one.kind} {{}} {_NOUNS[one.table]}"] += 1
    return {
        name: ", ".join(_plural(said.format(count), count) for said, count in counts.items())
        for name, counts in counted.items()
    }


def _plural(noun: str, count: int) -> str:
    return noun if count == 1 else noun + ("es" if noun.endswith("s") else "s")
