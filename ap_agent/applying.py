"""Carrying out a plan: what is sent together, and what is left out because a step before it was refused."""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter

from ap_agent.common.errors import AgentError, ApplyError, NotPermittedError
from ap_agent.look import Kernel, TableName
from ap_agent.model import Problem
from ap_agent.ops import FilterAdd, IfbAdd, IfbDel, Op, RootAdd, RootDel, TableAdd
from ap_agent.plan import Plan

STEPS_AT_ONCE = 2000  # more is not faster, and of more nothing would be heard for seconds


@dataclass
class Failures:
    """What went wrong, and what therefore must not be done."""

    errors: list[Problem] = field(default_factory=list)
    links: set[int] = field(default_factory=set)
    devices: set[str] = field(default_factory=set)
    unseen_tables: set[TableName] = field(default_factory=set)
    refused_programs: dict[Op, ApplyError] = field(default_factory=dict)  # nothing rests on these

    def add(self, op: Op, error: ApplyError) -> None:
        """A refusal that follows from one before it (a leaf of a class that was refused) is not said again."""
        if not op.is_needed:
            self.refused_programs[op] = error
            return
        if isinstance(op, TableAdd) and error.errno == errno.EEXIST:  # no dump shows a table whose list is gone
            self.unseen_tables.add((op.device.name, op.new.hook, op.new.table))
        if not op.links or not op.links <= self.links:
            served = f"links {', '.join(map(str, sorted(op.links)))}" if op.links else op.device.name
            self.errors.append(Problem("apply_failed", served, f"{error.message} The next cycle tries again."))
        if op.links:
            self.links |= op.links
        else:
            self.devices.add(op.device.name)

    def forbid(self, op: Op) -> bool:
        """Steps that rest on one that failed: of the same link, or on a device that lacks its structure."""
        if op.device.name in self.devices:
            return True
        if isinstance(op, FilterAdd) and op.new.redirect_to in self.devices:
            return True
        return op.is_blocked_by(frozenset(self.links))


def apply_plan(
    kernel: Kernel,
    todo: Plan,
    failures: Failures,
    progress: Callable[[int, int], None] | None = None,
    before_loss: Callable[[Sequence[str]], None] | None = None,
) -> int:
    """Send what may be sent together, and look at the answers before anything that rests on it.

    `progress` hears how many steps are done, of how many. `before_loss` hears which devices are about to lose all their
    classes at once, of whose counters the kernel then says no last word.
    """
    writes = done = 0
    for _, group in groupby(todo.ops, key=attrgetter("stage")):
        run = list(group)
        for start in range(0, len(run), STEPS_AT_ONCE):
            steps = run[start : start + STEPS_AT_ONCE]
            ops = [op for op in steps if not failures.forbid(op)]
            losing = sorted({op.device.name for op in ops if isinstance(op, RootDel | IfbDel)})
            if losing and before_loss is not None:
                before_loss(losing)
            for op, error in zip(ops, kernel.apply(ops), strict=True):
                if error is None:
                    writes += 1
                    continue
                if op.is_needed:
                    _raise_if_hopeless(op, error)
                failures.add(op, error)
            done += len(steps)
            if progress is not None:
                progress(done, len(todo.ops))
    return writes


def refused_again(todo: Plan, failures: Failures) -> ApplyError | None:
    """Why the kernel takes no program, where trying again would end as before: the same step, nothing else amiss there.

    An interface that went in the meantime, or somebody who deleted our qdisc under it, is no reason: such a step is
    not in the next plan, or not alone.
    """
    if not failures.refused_programs:
        return None
    structure = {op.device for op in todo.ops if op.is_needed and not op.links}
    again = (op for op in todo.ops if op in failures.refused_programs and op.device not in structure)
    return next(map(failures.refused_programs.__getitem__, again), None)


def _raise_if_hopeless(op: Op, error: ApplyError) -> None:
    """Nothing can be limited without permission, without htb, without ifb."""
    if error.errno in (errno.EPERM, errno.EACCES):
        raise not_permitted() from error
    if isinstance(op, RootAdd) and error.errno == errno.ENOENT:
        raise AgentError("This kernel has no htb queueing discipline; load or build the module sch_htb.") from error
    if isinstance(op, IfbAdd) and error.errno == errno.EOPNOTSUPP:
        raise AgentError("This kernel has no ifb devices; load or build the module ifb.") from error


def not_permitted() -> NotPermittedError:
    return NotPermittedError("Changing traffic control is not permitted; run the agent as root or with CAP_NET_ADMIN.")
