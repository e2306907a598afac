"""What the command lines do once. Who changes the kernel holds the limiter's lock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

from ap_agent.common.log import get_logger
from ap_agent.common.problem import Problem
from ap_agent.common.settings import Settings
from ap_agent.dataplane.engine import Engine
from ap_agent.dataplane.outcome import Outcome
from ap_agent.document.handover import Configuration
from ap_agent.document.state import LimiterState
from ap_agent.document.timetable import links_at
from ap_agent.limiter.documents import Documents
from ap_agent.limiter.enforcing import Enforcer, Extras, not_in_force
from ap_agent.limiter.matching import match


def newest(settings: Settings, now: datetime) -> tuple[Configuration | None, tuple[Problem, ...]]:
    """What `run` would enforce now: the handed document if it is acceptable, else the own copy. Writes nothing."""
    documents = Documents(settings, lambda: now)
    documents.load()
    documents.take()
    return (documents.accepted.configuration if documents.accepted is not None else None), documents.problems


def plan(settings: Settings, engine: Engine, configuration: Configuration, now: datetime) -> Outcome:
    """What `enforce` would change; what no packets can be told for is among its `failed` and `problems`. Raises
    `AgentError`."""
    links = links_at(configuration.links, now)
    matching = match(links, engine.host(), settings, is_observe_only=configuration.is_observe_only)
    outcome = engine.plan(matching.wanted)
    failed = {**outcome.failed, **matching.errors}
    return replace(
        outcome,
        failed=failed,
        problems=(*outcome.problems, *matching.problems),
        is_ok=outcome.is_ok and not failed,
    )


def enforce(
    settings: Settings, engine: Engine, configuration: Configuration, now: datetime
) -> tuple[LimiterState, Outcome]:
    """One pass, told in the state file. What goes wrong is said in the state."""
    enforcer = _enforcer(settings, engine, lambda: now)
    enforcer.enforce(configuration)
    enforcer.set_factors(1.0, 1.0)  # nobody stays to follow what the links send
    enforcer.extras = Extras(total=not_in_force(configuration))
    return enforcer.write(is_running=False), enforcer.outcome


def reset(settings: Settings, engine: Engine, reason: str, now: datetime) -> tuple[LimiterState, Outcome]:
    """Remove everything of ours from the kernel, told in the state file with `reason`. Raises `AgentError`."""
    enforcer = _enforcer(settings, engine, lambda: now)
    return enforcer.reset(reason), enforcer.outcome


def _enforcer(settings: Settings, engine: Engine, now: Callable[[], datetime]) -> Enforcer:
    enforcer = Enforcer(settings, engine, get_logger(), now=now)
    enforcer.take_up_closed()
    return enforcer
