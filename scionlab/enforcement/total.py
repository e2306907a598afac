"""The total of an attachment point: the maximum of all its Links together, and whether it is enforced."""

from __future__ import annotations

from dataclasses import dataclass

from bandwidth_config import Limits, format_kbit
from scionlab.enforcement.agents import Agent, no_report_since
from scionlab.enforcement.models import HostReceipt
from scionlab.enforcement.words import WORDS, State
from scionlab.platform.notation.local_time import say_time
from scionlab.testbed.models import AttachmentPoint
from scionlab.web.admin.columns import Tone


@dataclass(frozen=True)
class TotalStatus:
    """`wanted_kbit` is None if no total is set but the agent still has one. `in_force` is that of the newest receipt
    that counts, None if there is none in either direction. `why` has no full stop, and is empty if the total is
    enforced."""

    wanted_kbit: int | None
    in_force: Limits | None
    state: State
    why: str

    @property
    def is_in_force(self) -> bool:
        return self.state == "enforced"

    @property
    def tone(self) -> Tone:
        return WORDS[self.state].tone

    @property
    def remark(self) -> str:
        """Return `not enforced: not supported by this agent`; empty if enforced."""
        return "" if self.is_in_force else f"not enforced: {self.why}"

    @property
    def text(self) -> str:
        """Return one sentence."""
        if self.wanted_kbit is None:
            return f"There is no total, but {self.why}."
        what = f"All links together carry at most {format_kbit(self.wanted_kbit)} in each direction"
        return f"{what}." if self.is_in_force else f"{what} ({self.remark})."


def total_status(ap: AttachmentPoint, agent: Agent, *, generation: int) -> TotalStatus | None:
    """Judge the total; no SQL statement. None if there is none, wanted or in force."""
    wanted, receipt = ap.total_kbit, agent.receipt
    found = _in_force(receipt) if receipt is not None and _counts(agent, receipt, generation) else None
    if wanted is None:
        if found is None:
            return None
        state = _on_its_way(agent) if agent.is_behind(generation) else "failed"
        return TotalStatus(None, found, state, f"the agent still enforces one of {found}")
    if found == Limits.both(wanted):
        return TotalStatus(wanted, found, "enforced", "")
    state, why = _why_unknown(agent) or _unconfirmed(ap, agent, found, generation)
    return TotalStatus(wanted, found, state, why)


def _counts(agent: Agent, receipt: HostReceipt, generation: int) -> bool:
    """Whether the receipt is recent, about a document of ours, from an agent that knows its kernel."""
    is_ours = receipt.generation == generation and not agent.is_foreign
    return is_ours and not agent.is_silent and agent.removed_at is None and agent.voided_by is None


def _in_force(receipt: HostReceipt) -> Limits | None:
    if receipt.observe_only or receipt.total_to_user_kbit is None or receipt.total_from_user_kbit is None:
        return None
    return Limits(receipt.total_to_user_kbit, receipt.total_from_user_kbit)


def _why_unknown(agent: Agent) -> tuple[State, str] | None:
    if agent.receipt is None:
        return "waiting", "no agent reports what is enforced"
    if agent.removed_at is not None:
        return "failed", f"the operator removed the limits at {say_time(agent.removed_at)}"
    if agent.is_silent:
        return "no_report", _small(no_report_since(agent))
    return None if agent.voided_by is None else ("failed", agent.voided_by.in_words)


def _unconfirmed(ap: AttachmentPoint, agent: Agent, found: Limits | None, generation: int) -> tuple[State, str]:
    receipt = agent.receipt
    if agent.is_foreign:
        return "delivered", "the agent reports limits that this service did not issue"
    if receipt is None or not receipt.says_total:
        return "failed", "not supported by this agent"
    if receipt.observe_only:
        return "observed", "observed only" if ap.observe_only else "the operator set it to observe only"
    if agent.is_behind(generation):
        state = _on_its_way(agent)
        return state, "not confirmed yet" if state == "delivered" else "not fetched yet"
    return "failed", "the agent reports no total" if found is None else f"the agent reports {found}"


def _on_its_way(agent: Agent) -> State:
    host = agent.host
    return "delivered" if host.delivered_limits_version >= host.limits_version else "waiting"


def _small(sentence: str) -> str:
    return sentence[0].lower() + sentence[1:]
