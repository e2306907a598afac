"""A kernel of one dictionary: what the agent's delivery side needs of the engine, without root.

It keeps the rate of each link, so that "the second cycle writes nothing" and "the kernel kept the old limit" mean
something here too. Failures are injected by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ap_agent.model import Device, DirectionState, EngineSettings, Handle, HtbClass, LinkState, Problem
from ap_agent.ops import ClassAdd, ClassChange, ClassDel, Op
from ap_agent.plan import Plan
from ap_agent.reconcile import CycleResult

from link_info import LinkInfo

NIC = Device(2, "eth0")


@dataclass
class FakeEngine:
    """`kernel` maps interface ids to kbit/s. `error` is raised by everything that looks or writes, if set."""

    kernel: dict[int, int] = field(default_factory=dict)
    error: Exception | None = None
    refused: frozenset[int] = frozenset()  # links that the kernel does not take
    calls: list[str] = field(default_factory=list)
    settings: list[EngineSettings] = field(default_factory=list)
    settled: list[bool] = field(default_factory=list)  # what was said of each reconcile
    ifb: int | None = None  # its number while it is there and up
    glances: int = 0

    def plan_cycle(self, links: Mapping[int, LinkInfo], settings: EngineSettings) -> CycleResult:
        self._called("plan_cycle", settings)
        ops = self._ops(links)
        return self._result(links, ops, 0)

    def reconcile(
        self, links: Mapping[int, LinkInfo], settings: EngineSettings, *, is_settled: bool = False
    ) -> CycleResult:
        self._called("reconcile", settings)
        self.settled.append(is_settled)
        ops = self._ops(links)
        wanted = {number: link.bandwidth_kbit for number, link in links.items() if link.is_user_as}
        kept = {number: kbit for number, kbit in self.kernel.items() if number in self.refused}
        self.kernel = {number: kbit for number, kbit in wanted.items() if number not in self.refused} | kept
        self.ifb = (self.ifb or 3 + len(self.calls)) if self.kernel else None
        return self._result(links, ops, len(ops))

    def plan_reset(self, settings: EngineSettings) -> CycleResult:
        return self.plan_cycle({}, settings)

    def reset(self, settings: EngineSettings) -> CycleResult:
        self.calls.append("reset")
        return self.reconcile({}, settings)

    def read_links(self, settings: EngineSettings, links: Mapping[int, LinkInfo]) -> tuple[LinkState, ...]:
        self._called("read_links", settings)
        return self._states(links)

    def ifb_in_service(self) -> int | None:
        self.glances += 1
        if self.error is not None:
            raise self.error
        return self.ifb

    def _called(self, name: str, settings: EngineSettings) -> None:
        self.calls.append(name)
        self.settings.append(settings)
        if self.error is not None and not (name == "read_links" and isinstance(self.error, ValueError)):
            raise self.error

    def _ops(self, links: Mapping[int, LinkInfo]) -> tuple[Op, ...]:
        wanted = {number: link.bandwidth_kbit for number, link in links.items() if link.is_user_as}
        ops: list[Op] = []
        for number, kbit in wanted.items():
            if number in self.refused:
                continue
            if number not in self.kernel:
                ops.append(ClassAdd(NIC, frozenset({number}), _class(number, kbit)))
            elif self.kernel[number] != kbit:
                old, new = _class(number, self.kernel[number]), _class(number, kbit)
                ops.append(ClassChange(NIC, frozenset({number}), old, new))
        ops += [ClassDel(NIC, frozenset({number}), Handle(1, number)) for number in self.kernel if number not in wanted]
        return tuple(ops)

    def _states(self, links: Mapping[int, LinkInfo]) -> tuple[LinkState, ...]:
        states = []
        for number, link in sorted(links.items()):
            if not link.is_user_as:
                continue
            kbit = self.kernel.get(number)
            direction = None if kbit is None else DirectionState("eth0", kbit, 1200, 9, 0, 0)
            good = kbit == link.bandwidth_kbit
            problem = None if good else f"The kernel has {kbit} kbit/s for link {number}."
            states.append(
                LinkState(number, link.limits, "enforced" if good else "error", problem, direction, direction)
            )
        return tuple(states)

    def _result(self, links: Mapping[int, LinkInfo], ops: tuple[Op, ...], writes: int) -> CycleResult:
        states = self._states(links)
        problems = tuple(
            Problem("apply_failed", f"links {number}", f"The kernel refused link {number}.")
            for number in sorted(self.refused & set(links))
        )
        return CycleResult(Plan(ops), writes, states, problems, ok=not problems, ifb=self.ifb)


def _class(number: int, kbit: int) -> HtbClass:
    rate = kbit * 125
    return HtbClass(Handle(1, number), Handle(1), rate, rate, 3028, 3028)
