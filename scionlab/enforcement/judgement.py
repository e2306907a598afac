"""The judgement of a Link: the only definition of "enforced"."""

from __future__ import annotations

from typing import Literal, NamedTuple

from scionlab.enforcement.agents import Agent
from scionlab.enforcement.facts import Facts
from scionlab.enforcement.words import State

# Stable codes of the API (docs/api.md).
Stage = Literal["inactive", "waiting", "delivered", "enforced", "not_verified", "failed", "silent", "observed"]


class Verdict(NamedTuple):
    stage: Stage
    state: State


def judge(agent: Agent, facts: Facts) -> Verdict:
    """Judge a Link that the attachment point of `agent` limits."""
    stage = _stage(agent, facts)
    return Verdict(stage, _state(stage, facts))


def _stage(agent: Agent, facts: Facts) -> Stage:
    if not facts.is_active:
        return "inactive"
    if agent.receipt is None:
        return _without_receipts(agent, facts)
    if agent.removed_at is not None:
        return "failed"
    if agent.is_silent:
        return "silent"
    if agent.voided_by is not None and facts.is_covered:
        return "failed"
    return _by_receipt(facts) if facts.is_covered and not agent.is_foreign else _on_its_way(facts)


def _by_receipt(facts: Facts) -> Stage:
    """What the kernel has decides: a limit in force is called enforced."""
    if facts.is_observed:
        return "observed" if facts.is_to_observe else "failed"
    if not facts.is_as_wanted:
        return "failed"
    return "delivered" if facts.is_step_open else "enforced"


def _on_its_way(facts: Facts) -> Stage:
    return "delivered" if facts.is_delivered else "waiting"


def _without_receipts(agent: Agent, facts: Facts) -> Stage:
    if facts.is_delivered:
        return "not_verified" if facts.is_deployed else "delivered"
    # The stock client fetches only when H rises: nothing will fetch these limits.
    return "failed" if agent.is_stock_client and facts.is_config_delivered else "waiting"


def _state(stage: Stage, facts: Facts) -> State:
    if stage == "enforced":
        return "blocked" if facts.is_blocked else "clamped" if facts.is_clamped else "enforced"
    if stage == "silent":
        return "no_report"
    return "delivered" if stage == "not_verified" else stage
