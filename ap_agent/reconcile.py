"""One cycle: observe, plan, apply, observe, verify. No loop and no sleep here.

Every cycle starts from what the kernel says now. "No error" is not proof: what is reported was read back.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import groupby
from operator import attrgetter
from typing import Protocol

from ap_agent.desired import desired
from ap_agent.errors import AgentError, ApplyError, NotPermittedError, VerifyError
from ap_agent.linkstate import link_states
from ap_agent.model import Desired, EngineSettings, Finding, Handle, LinkState, Problem, TcState
from ap_agent.netlink import RtNetlink, has_net_admin, ifb_in_service
from ap_agent.ops import FilterAdd, IfbAdd, Op, RootAdd, TableAdd
from ap_agent.placement import Placements, Route, RouteQuery, limited, place, route_queries
from ap_agent.plan import Plan, plan
from bandwidth_config import LinkInfo

__all__ = ["CycleResult", "Kernel", "ifb_in_service", "plan_cycle", "plan_reset", "read_links", "reconcile", "reset"]

# Somebody may change the kernel between our look and our step, and some objects show only when they are in the way.
ATTEMPTS = 4
TableName = tuple[str, Handle, int]  # of a device, at a hook
WARNINGS = frozenset({"foreign_filter_in_front"})  # worth saying, but nothing was left undone


class Kernel(Protocol):
    """What a cycle needs of a kernel; `netlink.RtNetlink` is the real one."""

    def observe(self) -> TcState: ...

    def routes(self, queries: Sequence[RouteQuery]) -> Sequence[Route]:
        """One answer for each question, in order."""

    def apply(self, ops: Sequence[Op]) -> Sequence[ApplyError | None]:
        """Carry out all in order; for each the refusal, or None where it was done."""


@dataclass(frozen=True)
class CycleResult:
    """`plan` is what was found to do at the start, `writes` the operations that the kernel took.

    `links` has every limited link as the kernel has it at the end; `ok` is false if anything was not done. `ifb` is the
    number of our IFB at the end if it was there and up, as `ifb_in_service` says it later. `devices` are the interfaces
    that are managed, by number, and `ports` the netlink ports that the writes came from: both for whoever listens to
    the kernel's events.
    """

    plan: Plan
    writes: int
    links: tuple[LinkState, ...]
    problems: tuple[Problem, ...]
    ok: bool
    ifb: int | None = None
    devices: frozenset[int] = frozenset()
    ports: frozenset[int] = frozenset()


def plan_cycle(links: Mapping[int, LinkInfo], settings: EngineSettings, *, kernel: Kernel | None = None) -> CycleResult:
    """What a cycle would do now; touches nothing."""
    with _opened(kernel) as opened:
        look = _look(opened, links, settings)
        return _result(look, look.plan, 0, [])


def reconcile(links: Mapping[int, LinkInfo], settings: EngineSettings, *, kernel: Kernel | None = None) -> CycleResult:
    """Make the kernel agree, and say what it has then.

    Raises `AgentError` when nothing sensible can be said: no permission, no htb or ifb in the kernel, unreadable.
    """
    _require_net_admin(kernel)
    with _opened(kernel) as opened:
        look = first = _look(opened, links, settings)
        writes, failures, avoid = 0, _Failures(), set[TableName]()
        for _ in range(ATTEMPTS):
            if look.plan.is_empty:
                break
            failures = _Failures()
            writes += _apply(opened, look.plan, failures)
            avoid |= failures.unseen_tables
            before, look = look, _look(opened, links, settings, frozenset(avoid))
            if look.plan == before.plan:  # no progress: the same again would be refused again
                break
        result = _result(look, first.plan, writes, failures.errors)
        return replace(result, ports=getattr(opened, "ports", frozenset()))  # a test's kernel has none


def reset(settings: EngineSettings, *, kernel: Kernel | None = None) -> CycleResult:
    """Remove everything of ours and nothing else."""
    return reconcile({}, settings, kernel=kernel)


def plan_reset(settings: EngineSettings, *, kernel: Kernel | None = None) -> CycleResult:
    return plan_cycle({}, settings, kernel=kernel)


def read_links(
    settings: EngineSettings, links: Mapping[int, LinkInfo], *, kernel: Kernel | None = None
) -> tuple[LinkState, ...]:
    """What the kernel has now."""
    return plan_cycle(links, settings, kernel=kernel).links


# --- one look --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Look:
    links: list[LinkInfo]
    state: TcState
    wanted: Desired
    placements: Placements
    plan: Plan

    @property
    def findings(self) -> Iterable[Finding]:
        return (*self.placements.findings, *self.plan.findings)


def _look(
    kernel: Kernel,
    links: Mapping[int, LinkInfo],
    settings: EngineSettings,
    avoid: frozenset[TableName] = frozenset(),
) -> _Look:
    state = kernel.observe()
    queries = route_queries(links, state)
    routes = dict(zip(queries, kernel.routes(queries), strict=True))
    placements = place(links, state, routes.__getitem__, settings)
    wanted = desired(placements.placed, placements.managed, settings)
    return _Look(limited(links), state, wanted, placements, plan(state, wanted, avoid))


def _result(look: _Look, first: Plan, writes: int, failures: list[Problem]) -> CycleResult:
    problems = [finding.problem for finding in look.findings]
    remaining = () if look.plan is first and not writes and not failures else look.plan.ops
    problems += failures if remaining else []
    if remaining and not failures:
        error = VerifyError(look.plan.render_text())
        problems.append(Problem("verify_failed", "kernel", error.message))
    states = link_states(look.links, look.state, look.wanted, look.plan.ops, list(look.findings))
    unique = tuple(dict.fromkeys(problems))
    ifb = look.state.ifb.ifindex if look.state.ifb is not None and look.state.ifb.is_up else None
    ok = all(one.code in WARNINGS for one in unique)
    devices = frozenset(one.ifindex for one in look.placements.managed)
    return CycleResult(first, writes, states, unique, ok=ok, ifb=ifb, devices=devices)


# --- applying --------------------------------------------------------------------------------------------------


@dataclass
class _Failures:
    """What went wrong, and what therefore must not be done."""

    errors: list[Problem] = field(default_factory=list)
    links: set[int] = field(default_factory=set)
    devices: set[str] = field(default_factory=set)
    unseen_tables: set[TableName] = field(default_factory=set)

    def add(self, op: Op, error: ApplyError) -> None:
        """A refusal that follows from one before it (a leaf of a class that was refused) is not said again."""
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


def _apply(kernel: Kernel, todo: Plan, failures: _Failures) -> int:
    """Send what may be sent together, and look at the answers before anything that rests on it."""
    writes = 0
    for _, run in groupby(todo.ops, key=attrgetter("stage")):
        ops = [op for op in run if not failures.forbid(op)]
        for op, error in zip(ops, kernel.apply(ops), strict=True):
            if error is None:
                writes += 1
                continue
            _raise_if_hopeless(op, error)
            failures.add(op, error)
    return writes


def _raise_if_hopeless(op: Op, error: ApplyError) -> None:
    """Nothing can be limited without permission, without htb, without ifb."""
    if error.errno in (errno.EPERM, errno.EACCES):
        raise _not_permitted() from error
    if isinstance(op, RootAdd) and error.errno == errno.ENOENT:
        raise AgentError("This kernel has no htb queueing discipline; load or build the module sch_htb.") from error
    if isinstance(op, IfbAdd) and error.errno == errno.EOPNOTSUPP:
        raise AgentError("This kernel has no ifb devices; load or build the module ifb.") from error


def _not_permitted() -> NotPermittedError:
    return NotPermittedError("Changing traffic control is not permitted; run the agent as root or with CAP_NET_ADMIN.")


def _require_net_admin(kernel: Kernel | None) -> None:
    if kernel is None and not has_net_admin():
        raise _not_permitted()


@contextmanager
def _opened(kernel: Kernel | None) -> Iterator[Kernel]:
    if kernel is not None:
        yield kernel
        return
    with RtNetlink() as own:
        yield own
