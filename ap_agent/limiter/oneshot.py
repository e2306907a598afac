"""Single passes for the command lines. A caller that changes the kernel holds the limiter's lock."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from ap_agent.common.errors import NotPermittedError
from ap_agent.common.log import get_logger
from ap_agent.common.settings import Settings
from ap_agent.dataplane.engine import Engine
from ap_agent.dataplane.outcome import Outcome
from ap_agent.document.handover import Configuration
from ap_agent.document.state import LimiterState
from ap_agent.limiter.documents import Documents
from ap_agent.limiter.enforcing import Enforcer
from ap_agent.limiter.report import Extras, Report, state_of


def newest(settings: Settings, now: datetime) -> Documents:
    """`accepted` is what `run` would enforce now: the handed over document if acceptable, otherwise the own copy.
    Nothing is written before `keep`."""
    documents = Documents(settings, lambda: now)
    documents.load()
    documents.take()
    return documents


def plan(settings: Settings, engine: Engine, configuration: Configuration, now: datetime) -> Outcome:
    """What `enforce` would change; links without keys are among its `failed` and `problems`. Raises `AgentError`."""
    enforcer, _ = _parts(settings, engine, now)
    enforcer.plan(configuration)
    return replace(enforcer.outcome, failed=enforcer.errors, problems=enforcer.problems, is_ok=enforcer.is_ok)


def observe(settings: Settings, engine: Engine, configuration: Configuration, now: datetime) -> LimiterState:
    """The kernel's state and counters of a configuration, while no limiter runs. Read-only. Raises `AgentError`."""
    enforcer, report = _parts(settings, engine, now)
    report.take_up(enforcer)
    enforcer.plan(configuration)
    for problem in enforcer.problems:
        if problem.code == "no_bpf_right":
            raise NotPermittedError(problem.message, code=problem.code)
    outcome = enforcer.outcome
    differs = "The limits in the kernel differ from the requested ones; start the limiter."
    missing = {one.interface_id: differs for one in outcome.plan.links}
    enforcer.outcome = replace(outcome, failed={**missing, **outcome.failed})
    return replace(state_of(enforcer, Extras(), now), is_running=False)


def enforce(
    settings: Settings, engine: Engine, configuration: Configuration, now: datetime
) -> tuple[LimiterState, Outcome]:
    """One pass, recorded in the state file. Errors are in the state."""
    enforcer, report = _parts(settings, engine, now)
    report.take_up(enforcer)
    enforcer.enforce(configuration)
    enforcer.set_factors(1.0, 1.0)  # this process does not stay to follow the traffic
    return report.write(enforcer, is_running=False), enforcer.outcome


def reset(settings: Settings, engine: Engine, reason: str, now: datetime) -> tuple[LimiterState, Outcome]:
    """Remove everything of ours from the kernel, recorded in the state file with `reason`. Raises `AgentError`."""
    enforcer, report = _parts(settings, engine, now)
    report.take_up(enforcer)
    is_done = enforcer.reset()
    return report.write(enforcer, reset_reason=reason if is_done else None, is_running=False), enforcer.outcome


def _parts(settings: Settings, engine: Engine, now: datetime) -> tuple[Enforcer, Report]:
    report = Report(settings.limiter_run_dir, get_logger(), lambda: now)
    return Enforcer(settings, engine, get_logger(), report.keep, now=lambda: now), report
