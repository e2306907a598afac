"""What each command of `scionlab-bw-limiter` does, as a function from settings to an `Outcome`; the thesis' commands
are doors to these as well. No network, no service, nothing of the agent."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from ap_agent.commands import tables
from ap_agent.commands.link_source import Source, source_of, source_of_file
from ap_agent.commands.show import show_state
from ap_agent.common.errors import AgentError, NotPermittedError
from ap_agent.common.lock import Lock, holder, lock_path
from ap_agent.common.outcome import NOT_DONE, OK, Outcome
from ap_agent.common.problem import Problem
from ap_agent.common.settings import Settings
from ap_agent.common.text import problem_lines, timed_lines
from ap_agent.dataplane.engine import Engine
from ap_agent.dataplane.outcome import Outcome as Enforced
from ap_agent.document.handover import Configuration
from ap_agent.document.state import read_state
from ap_agent.limiter import oneshot

OPERATOR = "The operator of this host removed the limits."
NOTHING_TO_ENFORCE = (
    "There is no configuration to enforce: the agent has handed none over (`scionlab-bw-agent status` says why). Give "
    "--link-info FILE to take the links from a file."
)
_STATUS = Path("/proc/self/status")
_CAPABILITIES = {"CAP_NET_ADMIN": 12, "CAP_BPF": 39}  # <linux/capability.h>


def require_rights(*wanted: str) -> None:
    """Say at once what the kernel would refuse later; without names both rights. Raises `NotPermittedError`."""
    for line in _STATUS.read_text(encoding="ascii", errors="replace").splitlines():
        name, _, value = line.partition(":")
        if name != "CapEff":
            continue
        missing = [one for one in wanted or _CAPABILITIES if not int(value, 16) >> _CAPABILITIES[one] & 1]
        if missing:
            code = "not_permitted" if missing[0] == "CAP_NET_ADMIN" else "no_bpf_right"
            raise NotPermittedError(f"Changing limits needs root ({' and '.join(missing)}); use sudo.", code=code)


def plan(
    settings: Settings, engine: Engine, link_info: Path | None, *, as_json: bool = False, verbose: bool = False
) -> Outcome:
    """What `once` would change. Touches neither kernel nor disk."""
    source, problems = _source(settings, link_info)
    if source is None:
        return Outcome(NOT_DONE, err="\n".join([*problem_lines(problems), NOTHING_TO_ENFORCE]))
    found = oneshot.plan(settings, engine, source.configuration, datetime.now(UTC))
    every = (*problems, *found.problems)
    code = OK if found.is_ok and not found.failed and not problems else NOT_DONE
    changes = _changes(found)
    if as_json:
        return Outcome(code, json.dumps(tables.plan_json(changes, every, source.words), indent=1))
    lines = [f"From {source.words}:", "", *_plan_lines(changes, source, settings, is_done=False, verbose=verbose)]
    return Outcome(code, "\n".join(lines), "\n".join(_error_lines(every, found.failed)))


def once(
    settings: Settings, engine: Engine, link_info: Path | None, *, as_json: bool = False, verbose: bool = False
) -> Outcome:
    """Enforce what was handed over, or a file alone, and write the state file."""
    require_rights()
    with Lock(settings.limiter_run_dir, "limiter", "once"):
        source, problems = _source(settings, link_info)
        if source is None:
            return Outcome(NOT_DONE, err="\n".join([*problem_lines(problems), NOTHING_TO_ENFORCE]))
        return enforce_locked(settings, engine, source, as_json=as_json, verbose=verbose)


def enforce_locked(
    settings: Settings, engine: Engine, source: Source, *, as_json: bool = False, verbose: bool = False
) -> Outcome:
    """The same for a caller who holds the lock. What was handed over is kept then, as `run` keeps it."""
    state, done = oneshot.enforce(settings, engine, source.configuration, datetime.now(UTC))
    if source.documents is not None:
        source.documents.keep()
    problems = source.documents.problems if source.documents is not None else ()
    code = OK if state.is_ok and not problems else NOT_DONE
    changes = _changes(done)
    if as_json:
        return Outcome(
            code, json.dumps(tables.plan_json(changes, (*problems, *state.problems), source.words), indent=1)
        )
    good = sum(one.state != "error" for one in state.links.values())
    lines = [f"From {source.words}: {good} of {len(state.links)} limited links enforced.", ""]
    lines += _plan_lines(changes, source, settings, is_done=True, verbose=verbose)
    return Outcome(code, "\n".join(lines), "\n".join(_error_lines((*problems, *state.problems), done.failed)))


def reset(settings: Settings, engine: Engine, *, reason: str | None = None, verbose: bool = False) -> Outcome:
    """Remove everything of ours from the kernel and say so in the state file; what is stored stays."""
    require_rights()
    with Lock(settings.limiter_run_dir, "limiter", "reset"):
        return reset_locked(settings, engine, reason=reason, verbose=verbose)


def reset_locked(settings: Settings, engine: Engine, *, reason: str | None = None, verbose: bool = False) -> Outcome:
    """The same for a caller who holds the lock."""
    state, done = oneshot.reset(settings, engine, reason or OPERATOR, datetime.now(UTC))
    changes = _changes(done)
    if changes.operations:
        lines = tables.plan_lines(changes, {}, datetime.now(UTC), is_done=True, is_observe_only=False, verbose=verbose)
    else:
        lines = ["There was nothing of ours in the kernel."]
    return Outcome(OK if state.is_ok else NOT_DONE, "\n".join(lines), "\n".join(problem_lines(state.problems)))


def show(settings: Settings, engine: Engine, *, as_json: bool = False, verbose: bool = False) -> Outcome:
    """What the limiter wrote last of the kernel, and how old that is; where none runs, what the kernel has now."""
    state = read_state(settings.limiter_run_dir)
    if state is None:
        return Outcome(NOT_DONE, err=f"Nothing was limited here since the boot: {settings.limiter_run_dir} is empty.")
    is_running = state.is_running and holder(lock_path(settings.limiter_run_dir, "limiter")) is not None
    configuration = _configuration(settings)
    if not is_running and configuration is not None and configuration.limits_digest == state.limits_digest:
        with contextlib.suppress(AgentError):  # without the right to look the last word counts, with its age
            state = oneshot.look(settings, engine, configuration, datetime.now(UTC))
    links = configuration.links if configuration is not None else {}
    return show_state(settings, state, links, is_running=is_running, as_json=as_json, verbose=verbose)


def _configuration(settings: Settings) -> Configuration | None:
    """What is enforced, as far as that can be read: names and addresses of links are not in the state file."""
    with contextlib.suppress(AgentError):
        documents = oneshot.newest(settings, datetime.now(UTC))
        return documents.accepted.configuration if documents.accepted is not None else None
    return None


def _source(settings: Settings, link_info: Path | None) -> tuple[Source | None, tuple[Problem, ...]]:
    if link_info is not None:
        return source_of_file(link_info), ()
    documents = oneshot.newest(settings, datetime.now(UTC))
    return source_of(documents), documents.problems


def _changes(done: Enforced) -> tables.Changes:
    plan = done.plan
    return tables.Changes(plan.links, plan.devices, tuple(map(str, plan.operations)), done.failed)


def _plan_lines(
    changes: tables.Changes, source: Source, settings: Settings, *, is_done: bool, verbose: bool
) -> list[str]:
    is_observe_only = settings.observe_only or source.configuration.is_observe_only
    links, now = source.configuration.links, datetime.now(UTC)
    lines = tables.plan_lines(changes, links, now, is_done=is_done, is_observe_only=is_observe_only, verbose=verbose)
    return [*lines, *timed_lines(links, now)]


def _error_lines(problems: tuple[Problem, ...], failed: Mapping[int, str]) -> list[str]:
    said = {one.message for one in problems}
    lines = [f"link {number} is not enforced: {why}" for number, why in sorted(failed.items()) if why not in said]
    return [*problem_lines(problems), *lines]
