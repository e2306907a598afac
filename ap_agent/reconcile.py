"""One cycle: observe, plan, apply, observe, verify. No loop and no sleep here.

Every cycle starts from what the kernel says now. "No error" is not proof: what is reported was read back.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import TracebackType

from ap_agent.applying import Failures, apply_plan, not_permitted, refused_again
from ap_agent.common.errors import VerifyError
from ap_agent.common.progress import Progress
from ap_agent.linkstate import Refusals, StateMemory
from ap_agent.look import Kernel, Look, TableName, take_look
from ap_agent.model import EngineSettings, LinkState, Problem, TcState
from ap_agent.netlink import RtNetlink, has_net_admin, ifb_in_service
from ap_agent.plan import Plan
from ap_agent.shortcut import Changed, change_limits
from ap_agent.whole.elsewhere import refused_elsewhere
from ap_agent.whole.hooks import CODE as WHOLE_DATAGRAMS_UNAVAILABLE
from ap_agent.whole.programs import Programs
from bandwidth_config import LinkInfo

__all__ = [
    "CycleResult",
    "Kernel",
    "TcEngine",
    "ifb_in_service",
    "plan_cycle",
    "plan_reset",
    "read_links",
    "reconcile",
    "reset",
]

# Somebody may change the kernel between our look and our step, and some objects show only when they are in the way.
ATTEMPTS = 4
# Worth saying, but every limit is in force.
WARNINGS = frozenset({"foreign_filter_in_front", WHOLE_DATAGRAMS_UNAVAILABLE})


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


class TcEngine:
    """Cycles of one agent. Between them it keeps its sockets and what the kernel said, so that a cycle in which nothing
    happened costs little more than reading the kernel.

    For one thread at a time, in one network namespace: the one in which its first method is called. After an error it
    starts afresh. Without a `kernel` it opens the real one. `progress` hears how far a cycle's steps are, and
    `before_loss`, if somebody set it, which devices are about to lose all their classes at once.
    """

    def __init__(
        self, kernel: Kernel | None = None, progress: Progress | None = None, programs: Programs | None = None
    ) -> None:
        self._given = kernel
        self._programs = programs if programs is not None else Programs()
        self._progress = progress
        self.before_loss: Callable[[Sequence[str]], None] | None = None
        self._own: RtNetlink | None = None
        self._last: Look | None = None
        self._good: Look | None = None  # the last at which there was nothing to do: what a repair leads back to
        self._states = StateMemory()

    def __enter__(self) -> TcEngine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give up the sockets, the programs, and all that was remembered; the next cycle opens new ones."""
        self._forget()
        self._programs.close()

    def _forget(self) -> None:
        self._last, self._good, self._states = None, None, StateMemory()
        if self._own is not None:
            self._own.close()
            self._own = None

    # --- cycles ---

    def plan_cycle(self, links: Mapping[int, LinkInfo], settings: EngineSettings) -> CycleResult:
        """What a cycle would do now; touches nothing."""
        with self._kernel() as kernel:
            look = self._possible_look(kernel, links, settings)
            return self._result(look, look.plan, 0, [])

    def refused(self) -> Refusals:
        """Packets that whole datagrams cost each link since this engine was made; from any thread."""
        return self._programs.refused()

    def reconcile(
        self, links: Mapping[int, LinkInfo], settings: EngineSettings, *, is_settled: bool = False
    ) -> CycleResult:
        """Make the kernel agree, and say what it has then.

        `is_settled`: nobody else changed anything since the last cycle, so far as the kernel's events say. Then a few
        new limits are set without reading everything else, whose state and counters are those of the last cycle.

        Raises `AgentError` when nothing sensible can be said: no permission, no htb or ifb in the kernel, unreadable.
        """
        with self._kernel() as kernel:
            changed = Changed(Plan(), 0)
            if is_settled and self._last is not None:
                changed = change_limits(kernel, self._last, links, self._possible(settings))
            if changed.look is not None and changed.part is not None:
                return self._result_of_change(changed, changed.look, changed.part)
            self._require_net_admin()
            result = self._whole_cycle(kernel, links, settings)
            if not changed.writes:
                return result
            done = Plan((*changed.plan.ops, *result.plan.ops), result.plan.findings)
            return replace(result, plan=done, writes=changed.writes + result.writes)

    def _whole_cycle(self, kernel: Kernel, links: Mapping[int, LinkInfo], settings: EngineSettings) -> CycleResult:
        look, writes = self._prepared_look(kernel, links, settings)
        first, failures, avoid = look, Failures(), set[TableName]()
        for _ in range(ATTEMPTS):
            if look.plan.is_empty:
                break
            failures = Failures()
            writes += apply_plan(kernel, look.plan, failures, self._progress, self.before_loss)
            avoid |= failures.unseen_tables
            before = look
            look, changed = self._prepared_look(kernel, links, settings, frozenset(avoid))
            if (refusal := refused_again(look.plan, failures)) is not None:
                self._programs.give_up(refusal)
                look, changed = self._prepared_look(kernel, links, settings, frozenset(avoid))
            writes += changed
            if look.plan == before.plan:  # no progress: the same again would be refused again
                break
        return self._result(look, first.plan, writes, failures.errors)

    def _prepared_look(
        self,
        kernel: Kernel,
        links: Mapping[int, LinkInfo],
        settings: EngineSettings,
        avoid: frozenset[TableName] = frozenset(),
    ) -> tuple[Look, int]:
        """A look whose plan can be applied, and how many entries of programs were written: a program is filled before
        it is attached, since an address that it does not know it lets through."""
        look = self._possible_look(kernel, links, settings, avoid)
        writes = self._programs.put(look.wanted)
        if look.settings.whole_datagrams and self._programs.problem is not None:
            look = self._possible_look(kernel, links, settings, avoid)
            writes += self._programs.put(look.wanted)
        return look, writes

    def reset(self, settings: EngineSettings) -> CycleResult:
        """Remove everything of ours and nothing else."""
        return self.reconcile({}, replace(settings, whole_datagrams=False))

    def plan_reset(self, settings: EngineSettings) -> CycleResult:
        return self.plan_cycle({}, replace(settings, whole_datagrams=False))

    def read_links(self, settings: EngineSettings, links: Mapping[int, LinkInfo]) -> tuple[LinkState, ...]:
        """What the kernel has now."""
        with self._kernel() as kernel:
            look = take_look(kernel, links, settings)
            refused = self._programs.refused() or refused_elsewhere(look.state, look.wanted)
            return self._states.link_states(look.verdicts, look.state, refused)

    def ifb_in_service(self) -> int | None:
        """The number of our IFB while it is there and up; one question, whatever the number of links."""
        if self._own is None:
            return ifb_in_service()
        with self._kernel():
            return self._own.ifb_in_service()

    def own_ports(self) -> frozenset[int]:
        """The netlink ports that the events of our own changes name; another set after an error."""
        return self._own.ports if self._own is not None else frozenset()

    # --- inside ---

    @contextmanager
    def _kernel(self) -> Iterator[Kernel]:
        """After an error answers may be outstanding on the sockets, and nothing that was remembered is certain."""
        # Hundreds of thousands of small values are made and kept: looking for circles among them took a quarter of the
        # time of a first build, and there are none.
        was_collecting = gc.isenabled()
        gc.disable()
        try:
            if self._given is None and self._own is None:
                self._own = RtNetlink()
            kernel = self._given or self._own
            assert kernel is not None  # noqa: S101 - for the type checker: opened above
            yield kernel
        except BaseException:
            self._forget()
            raise
        finally:
            if was_collecting:
                gc.enable()

    def _look(
        self,
        kernel: Kernel,
        links: Mapping[int, LinkInfo],
        settings: EngineSettings,
        avoid: frozenset[TableName] = frozenset(),
    ) -> Look:
        others = [self._good] if self._good is not self._last else []
        earlier = [one for one in (self._last, *others) if one is not None]
        self._last = take_look(kernel, links, settings, avoid, earlier, load=self._programs.loaded)
        if self._last.plan.is_empty:
            self._good = self._last
        return self._last

    def _possible_look(
        self,
        kernel: Kernel,
        links: Mapping[int, LinkInfo],
        settings: EngineSettings,
        avoid: frozenset[TableName] = frozenset(),
    ) -> Look:
        """One that wants no program which this process cannot have, nor the deeper leaf behind it."""
        look = self._look(kernel, links, self._possible(settings), avoid)
        if look.settings.whole_datagrams and self._programs.problem is not None:
            look = self._look(kernel, links, self._possible(settings), avoid)
        return look

    def _possible(self, settings: EngineSettings) -> EngineSettings:
        """Without whole datagrams where this process cannot have them; every limit is enforced all the same."""
        if not settings.whole_datagrams:
            self._programs.do_without()
            return settings
        is_possible = self._programs.unavailable() is None
        return settings if is_possible else replace(settings, whole_datagrams=False)

    def _require_net_admin(self) -> None:
        if self._given is None and not has_net_admin():
            raise not_permitted()

    def _result(self, look: Look, first: Plan, writes: int, failures: list[Problem]) -> CycleResult:
        problems = [finding.problem for finding in look.findings]
        remaining = () if look.plan is first and not writes and not failures else look.plan.ops
        problems += failures if remaining else []
        if remaining and not failures:
            error = VerifyError(look.plan.render_text())
            problems.append(Problem("verify_failed", "kernel", error.message))
        states = self._states.link_states(look.verdicts, look.state, self._programs.refused())
        return self._told(look, first, writes, problems, states)

    def _result_of_change(self, changed: Changed, look: Look, part: TcState) -> CycleResult:
        self._last = look
        writes = changed.writes + self._programs.change(changed.admitted, changed.addresses)
        problems = [finding.problem for finding in look.findings]
        refused = self._programs.refused(is_fresh=False)
        states = self._states.with_news(look.verdicts, changed.verdicts, part, refused)
        return self._told(look, changed.plan, writes, problems, states)

    def _told(
        self, look: Look, first: Plan, writes: int, problems: list[Problem], states: tuple[LinkState, ...]
    ) -> CycleResult:
        own = [self._programs.problem] if self._programs.problem is not None else []
        unique = tuple(dict.fromkeys([*own, *problems]))
        ifb = look.state.ifb
        return CycleResult(
            plan=first,
            writes=writes,
            links=states,
            problems=unique,
            ok=all(one.code in WARNINGS for one in unique),
            ifb=ifb.ifindex if ifb is not None and ifb.is_up else None,
            devices=frozenset(one.ifindex for one in look.placements.managed),
            ports=self.own_ports(),
        )


# --- one shot: an engine for a single call ---------------------------------------------------------------------


def plan_cycle(links: Mapping[int, LinkInfo], settings: EngineSettings, *, kernel: Kernel | None = None) -> CycleResult:
    with TcEngine(kernel) as engine:
        return engine.plan_cycle(links, settings)


def reconcile(links: Mapping[int, LinkInfo], settings: EngineSettings, *, kernel: Kernel | None = None) -> CycleResult:
    with TcEngine(kernel) as engine:
        return engine.reconcile(links, settings)


def reset(settings: EngineSettings, *, kernel: Kernel | None = None) -> CycleResult:
    with TcEngine(kernel) as engine:
        return engine.reset(settings)


def plan_reset(settings: EngineSettings, *, kernel: Kernel | None = None) -> CycleResult:
    with TcEngine(kernel) as engine:
        return engine.plan_reset(settings)


def read_links(
    settings: EngineSettings, links: Mapping[int, LinkInfo], *, kernel: Kernel | None = None
) -> tuple[LinkState, ...]:
    with TcEngine(kernel) as engine:
        return engine.read_links(settings, links)
