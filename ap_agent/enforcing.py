"""Enforcing some links, wherever they come from: one reconcile, its outcome as a value, its lines in the log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol

from ap_agent.agent.problems import problem_of
from ap_agent.agent.receipt import unread_links
from ap_agent.common.errors import AgentError
from ap_agent.common.log import Logger
from ap_agent.common.settings import Settings
from ap_agent.document.timetable import links_at
from ap_agent.model import EngineSettings, LinkState, Problem
from bandwidth_config import LinkInfo

if TYPE_CHECKING:
    from ap_agent.reconcile import CycleResult

_LOGGED_WRITES = 200  # of one cycle, one line each; the first build of 1000 links has ten thousand


class Engine(Protocol):
    """The tc engine, as `ap_agent.reconcile` offers it. Only these functions touch the kernel."""

    def plan_cycle(self, links: Mapping[int, LinkInfo], settings: EngineSettings) -> CycleResult: ...
    def reconcile(
        self, links: Mapping[int, LinkInfo], settings: EngineSettings, *, is_settled: bool = False
    ) -> CycleResult: ...
    def plan_reset(self, settings: EngineSettings) -> CycleResult: ...
    def reset(self, settings: EngineSettings) -> CycleResult: ...
    def read_links(self, settings: EngineSettings, links: Mapping[int, LinkInfo]) -> tuple[LinkState, ...]: ...
    def ifb_in_service(self) -> int | None: ...


@dataclass(frozen=True)
class Enforced:
    """What the kernel has after a cycle, read back. `result` is None where the engine could not finish."""

    observed_at: datetime
    links: tuple[LinkState, ...]
    problems: tuple[Problem, ...]
    writes: int
    ok: bool
    result: CycleResult | None = None
    error: AgentError | None = None
    is_step: bool = False  # nothing but the clock made it necessary, and nothing else was looked at


def enforce_links(
    engine: Engine,
    links: Mapping[int, LinkInfo],
    settings: Settings,
    *,
    is_settled: bool = False,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> Enforced:
    """One reconcile with its outcome as a value, of the limits that the links have now. A programming error is not
    caught here: it must be seen."""
    links = links_at(links, now())
    try:
        result = engine.reconcile(links, settings.engine(), is_settled=is_settled)
    except AgentError as exc:
        problem = problem_of(exc, "kernel")
        states = _read_anyway(engine, links, settings, problem)
        return Enforced(now(), states, (problem,), writes=0, ok=False, error=exc)
    return Enforced(now(), result.links, result.problems, result.writes, result.ok, result)


def _read_anyway(
    engine: Engine, links: Mapping[int, LinkInfo], settings: Settings, problem: Problem
) -> tuple[LinkState, ...]:
    """After a failed cycle the kernel may still have every limit: say what it has, not what went wrong."""
    try:
        return engine.read_links(settings.engine(), links)
    except AgentError:
        return unread_links(links, problem.message)


def log_enforced(logger: Logger, enforced: Enforced, ms: int, **context: object) -> None:
    """One line for the cycle and one for each write; at DEBUG when nothing was written."""
    if enforced.result is None:
        return  # the problem is logged where it begins
    ops = list(enforced.result.plan.ops)
    for op in ops[:_LOGGED_WRITES]:
        logger.info("kernel.write", op=str(op))
    if len(ops) > _LOGGED_WRITES:
        logger.info("kernel.write", more=len(ops) - _LOGGED_WRITES)
    counts = {**dict.fromkeys(("added", "changed", "removed"), 0), **count_ops(ops)}
    say = logger.info if ops or enforced.writes else logger.debug
    say("reconcile.done", **context, **counts, writes=enforced.writes, links=len(enforced.links), ms=ms)


def count_ops(ops: list[Any]) -> dict[str, int]:
    """Operations by what they do to the kernel's objects: added, changed, removed."""
    words = {"add": "added", "del": "removed"}
    return dict(Counter(words.get(op.kind.rpartition("-")[2], "changed") for op in ops))
