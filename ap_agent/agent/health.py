"""The health file for monitors, replaced after every step. `commands.status` shows it.

In `run_dir`, without secrets. Times are UTC, ISO 8601.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ap_agent import __version__
from ap_agent.agent.agent import Agent
from ap_agent.common.files import parse_json, read_plain, write_atomically
from ap_agent.common.lock import holder
from ap_agent.common.problem import Problem
from ap_agent.common.times import time_text
from ap_agent.document.timetable import next_change

SCHEMA = 1
_MAX_HEALTH_BYTES = 64 * 1024 * 1024  # for thousands of failed links, each with its reason


def health_path(run_dir: Path) -> Path:
    return run_dir / "health.json"


def write_health(
    agent: Agent,
    problems: Iterable[Problem],
    *,
    last_contact_at: float | None,
    failures: int,
    next_step_in_s: float,
    usage: Mapping[str, object] | None = None,
    tests: Mapping[str, object] | None = None,
) -> None:
    """Raises `OSError`. `last_contact_at` is Unix time: of the last valid response of the service."""
    bundle = agent.configuration.bundle
    document = {
        "schema": SCHEMA,
        "agent_version": __version__,
        "pid": os.getpid(),
        "written_at": _iso(datetime.now(UTC)),
        "next_cycle_in_s": round(next_step_in_s, 3),
        "version": bundle.version if bundle is not None else None,
        "limits_version": bundle.limits_version if bundle is not None else None,
        **_kernel(agent),
        "timed_limits": _timed(agent),
        "service": {
            "url": agent.settings.url,
            "last_contact_at": _iso(datetime.fromtimestamp(last_contact_at, UTC)) if last_contact_at else None,
            "failures_in_a_row": failures,
        },
        "keys": [
            {"key_id": one.key_id, "not_after": time_text(one.not_after)}
            for one in agent.configuration.trust.keyring.keys.values()
        ],
        "usage": usage,
        "tests": tests,
        "problems": [asdict(problem) for problem in problems],
    }
    folder = agent.settings.run_dir
    folder.mkdir(mode=0o755, parents=True, exist_ok=True)
    data = json.dumps(document, indent=1).encode() + b"\n"
    write_atomically(health_path(folder), data, mode=0o644, is_durable=False)


def _kernel(agent: Agent) -> dict[str, object]:
    """The limiter's state: time of reading, configuration in force, links that are not enforced."""
    state = agent.limiter.state
    links = list(state.links.values()) if state is not None else []
    return {
        "in_force": str(state.order) if state is not None and state.order is not None else None,
        "last_cycle": None
        if state is None
        else {"observed_at": _iso(state.observed_at), "ok": state.is_ok, "writes": state.writes},
        "links": {
            "enforced": sum(link.state != "error" for link in links),
            "observed": sum(link.state == "observed" for link in links),
            "total": len(links),
            "not_enforced": {str(link.interface_id): link.problem for link in links if link.state == "error"},
        },
    }


def _timed(agent: Agent) -> dict[str, object]:
    """Number of running and upcoming timed limits, and the time of the next step."""
    bundle, now = agent.configuration.bundle, agent.now()
    links = {number: link for number, link in bundle.links.items() if link.timed} if bundle is not None else {}
    timed = [one for link in links.values() if link.is_user_as for one in link.timed]
    following = next_change(links, now)
    return {
        "running": sum(one.begins_at <= now < one.ends_at for one in timed),
        "upcoming": sum(one.begins_at > now for one in timed),
        "next_change_at": _iso(following) if following is not None else None,
    }


def _iso(moment: datetime) -> str:
    return time_text(moment, "microseconds")


# --- reading --------------------------------------------------------------------------------------------------------


def read_health(run_dir: Path) -> dict[str, Any] | None:
    """None if no agent ever wrote one. Raises `ValueError` for an invalid file, `OSError`."""
    try:
        data, _ = read_plain(health_path(run_dir), _MAX_HEALTH_BYTES)
    except FileNotFoundError:
        return None
    document = parse_json(data[:_MAX_HEALTH_BYTES], allows_fractions=True)
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise ValueError("it is not a health file of this agent")
    return document


def is_running(run_dir: Path) -> bool:
    found = holder(run_dir, "agent")
    return found is not None and found.command == "run"
