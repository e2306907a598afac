"""What runs beside the loop and takes no part in enforcing: it hears what happens, and says when something is due.

A companion works in the loop's thread and never waits; what takes time is an errand. Whatever it finds wrong is a
problem in `agent.extra`, and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ap_agent.correspondence import Correspondence, Uniform
from ap_agent.enforcing import Enforced
from ap_agent.waiting import Errands


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
