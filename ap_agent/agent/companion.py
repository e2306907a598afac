"""What runs beside the loop and takes no part in enforcing: it hears what happens, and says when something is due.

A companion works in the loop's thread and never waits; what takes time is an errand. Whatever it finds wrong is a
problem in `agent.extra`, and nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from ap_agent.agent.correspondence import Correspondence, Uniform, loudly
from ap_agent.agent.cycle import Agent
from ap_agent.agent.waiting import Errands
from ap_agent.common.log import Logger
from ap_agent.enforcing import Enforced

REST_S = 60.0

T = TypeVar("T")


@dataclass(frozen=True)
class Surroundings:
    """What the loop lends its companions."""

    errands: Callable[[], Errands]
    monotonic: Callable[[], float]
    uniform: Uniform


class Companion:
    """One that does nothing."""

    has_outcome: bool = False  # an errand has ended: the loop's wait ends, and `finish` is called

    def attach(self, around: Surroundings) -> None:
        """Before anything else."""

    def plan_anew(self) -> None:
        """The agent has other settings."""

    def expect(self, version: str | None) -> None:
        """The kernel is about to be made to agree with this configuration (G.H)."""

    def enforced(self, version: str | None, enforced: Enforced | None, seconds: float) -> None:
        """That is over, after so long; None where it failed or there is no configuration."""

    def hear(self, farewells: Sequence[bytes]) -> None:
        """What the kernel said of classes that were deleted."""

    def finish(self) -> None:
        """Take up what errands have brought."""

    def step(self, service: Correspondence) -> None:
        """Begin whatever is due."""

    def moments(self, service: Correspondence) -> Sequence[float]:  # noqa: ARG002  # the others' signature
        """At which something is due."""
        return ()

    def drop(self) -> None:
        """The loop ends."""

    def health(self) -> Mapping[str, object]:
        """What the health file says about it."""
        return {}


class Guarded(Companion):
    """One whose faults keep nobody from the kernel: it rests for a minute, with a problem that says why, and goes on.

    A rest and not only the next step: what fails and is due at once would fail again at once, without an end.
    """

    def __init__(self, inner: Companion, agent: Agent, logger: Logger) -> None:
        self._inner = inner
        self._agent = agent
        self._log = logger
        self._monotonic: Callable[[], float] = lambda: 0.0
        self._rests_until = -math.inf

    def _do(self, call: Callable[[], T], otherwise: T, *, even_at_rest: bool = False) -> T:
        is_at_rest = self._monotonic() < self._rests_until
        if is_at_rest and not even_at_rest:
            return otherwise
        found, is_done = otherwise, False
        # What goes well at rest is no reason to forget why it rests.
        with loudly(self._agent, self._log, f"{type(self._inner).__name__}{', at rest' if is_at_rest else ''}"):
            found, is_done = call(), True
        if not is_done:
            self._rests_until = self._monotonic() + REST_S
        return found

    @property
    def has_outcome(self) -> bool:  # type: ignore[override]  # asked, not kept
        return self._do(lambda: self._inner.has_outcome, otherwise=False)

    def attach(self, around: Surroundings) -> None:
        self._monotonic = around.monotonic
        self._do(lambda: self._inner.attach(around), None)

    def plan_anew(self) -> None:
        self._rests_until = -math.inf  # other settings may be what it needs
        self._do(self._inner.plan_anew, None)

    def expect(self, version: str | None) -> None:
        self._do(lambda: self._inner.expect(version), None, even_at_rest=True)

    def enforced(self, version: str | None, enforced: Enforced | None, seconds: float) -> None:
        self._do(lambda: self._inner.enforced(version, enforced, seconds), None, even_at_rest=True)

    def hear(self, farewells: Sequence[bytes]) -> None:
        self._do(lambda: self._inner.hear(farewells), None)

    def finish(self) -> None:
        self._do(self._inner.finish, None)

    def step(self, service: Correspondence) -> None:
        self._do(lambda: self._inner.step(service), None)

    def moments(self, service: Correspondence) -> Sequence[float]:
        nothing: Sequence[float] = ()
        found = self._do(lambda: self._inner.moments(service), nothing)
        return [self._rests_until] if self._monotonic() < self._rests_until else found

    def drop(self) -> None:
        self._do(self._inner.drop, None, even_at_rest=True)

    def health(self) -> Mapping[str, object]:
        nothing: Mapping[str, object] = {}
        return self._do(self._inner.health, nothing)
