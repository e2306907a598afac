"""Operations on the filters that admit whole datagrams. A limit never rests on them: they fail without consequence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ap_agent.model import EGRESS_HOOK, Handle, LoadedProgram
from ap_agent.ops import Op, Stage


def _where(hook: Handle) -> str:
    return f"{'egress' if hook == EGRESS_HOOK else 'ingress'} ({hook})"


@dataclass(frozen=True)
class AdmissionAttach(Op):
    """The filter with its program, or another program into the filter that is there: no packet passes in between.

    `old` is the number of the program that it replaces.
    """

    hook: Handle
    program: LoadedProgram
    old: int | None = None
    kind: ClassVar[str] = "admission-set"
    is_needed: ClassVar[bool] = False

    @property
    def stage(self) -> Stage:
        return Stage.SWITCH

    @property
    def what(self) -> str:
        if self.old is None:
            return f"admit whole datagrams at {_where(self.hook)}"
        return f"load anew what admits whole datagrams at {_where(self.hook)}"


@dataclass(frozen=True)
class AdmissionDetach(Op):
    hook: Handle
    kind: ClassVar[str] = "admission-del"
    is_needed: ClassVar[bool] = False

    @property
    def what(self) -> str:
        return f"no longer admit whole datagrams at {_where(self.hook)}"
