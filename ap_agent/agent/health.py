"""The health file: what a monitor reads, written whole after every cycle; and the same in words for `status`.

It lies in `run_dir` and holds no secret. Times are UTC, ISO 8601.
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
from ap_agent.agent.cycle import Agent
from ap_agent.agent.problems import DELIVERY_CODES
from ap_agent.agent.store import write_atomically
from ap_agent.common.files import parse_json, read_plain
from ap_agent.common.keys import time_text
from ap_agent.common.lock import holder, lock_path
from ap_agent.common.text import duration_words, time_words
from ap_agent.document.timetable import next_change
from ap_agent.model import Problem

SCHEMA = 1
AGENT_CODES = frozenset({"internal_error", "settings_invalid", "health_unwritable"})  # the agent itself is not well
STALE_AFTER_INTERVALS = 3  # of the announced pause between cycles, before `status` calls the file old
_GRACE_S = 30.0
_MAX_HEALTH_BYTES = 64 * 1024 * 1024  # with thousands of links that are not enforced, each with its reason


def health_path(run_dir: Path) -> Path:
    return run_dir / "health.json"


def write_health(
    agent: Agent,
    problems: Iterable[Problem],
    *,
    last_contact_at: float | None,
    failures: int,
    next_cycle_in_s: float,
    more: Mapping[str, object] | None = None,
) -> None:
    """Raises `OSError`. `last_contact_at` is Unix time: when the service last gave a sensible answer. `more` are the
    keys of what runs beside the loop."""
    enforced, bundle = agent.enforced, agent.bundle
    links = enforced.links if enforced is not None else ()
    document = {
        "schema": SCHEMA,
        "agent_version": __version__,
        "pid": os.getpid(),
        "written_at": _iso(datetime.now(UTC)),
        "next_cycle_in_s": round(next_cycle_in_s, 3),
        "version": bundle.version if bundle is not None else None,
        "limits_version": bundle.limits_version if bundle is not None else None,
        "last_cycle": None
        if enforced is None
        else {"observed_at": _iso(enforced.observed_at), "ok": enforced.ok, "writes": enforced.writes},
        "links": {
            "enforced": sum(link.state == "enforced" for link in links),
            "total": len(links),
            "not_enforced": {str(link.interface_id): link.problem for link in links if link.state != "enforced"},
        },
        "timed_limits": _timed(agent),
        "service": {
            "url": agent.settings.url,
            "last_contact_at": _iso(datetime.fromtimestamp(last_contact_at, UTC)) if last_contact_at else None,
            "failures_in_a_row": failures,
        },
        "keys": [
            {"key_id": one.key_id, "not_after": time_text(one.not_after)} for one in agent.trust.keyring.keys.values()
        ],
        **(more or {}),
        "problems": [asdict(problem) for problem in problems],
    }
    folder = agent.settings.run_dir
    folder.mkdir(mode=0o755, parents=True, exist_ok=True)
    write_atomically(health_path(folder), json.dumps(document, indent=1).encode() + b"\n", mode=0o644)


def _timed(agent: Agent) -> dict[str, object]:
    """What the clock will do: how many timed limits run and are still to come, and when the next step is."""
    links = agent.bundle.links if agent.bundle is not None and agent.has_timed_limits else {}
    now = agent.now()
    timed = [one for link in links.values() if link.is_user_as for one in link.timed]
    following = next_change(links, now)
    return {
        "running": sum(one.begins_at <= now < one.ends_at for one in timed),
        "upcoming": sum(one.begins_at > now for one in timed),
        "next_change_at": _iso(following) if following is not None else None,
    }


def _iso(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%fZ}"


# --- in words -------------------------------------------------------------------------------------------------------


def read_health(run_dir: Path) -> dict[str, Any] | None:
    """None where no agent ever wrote one. Raises `ValueError` for something that is no health file, `OSError`."""
    try:
        data, _ = read_plain(health_path(run_dir), _MAX_HEALTH_BYTES)
    except FileNotFoundError:
        return None
    document = parse_json(data[:_MAX_HEALTH_BYTES], allows_fractions=True)
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise ValueError("it is no health file of this agent")
    return document


def is_running(run_dir: Path) -> bool:
    found = holder(lock_path(run_dir, "agent"))
    return found is not None and found.command == "run"


def describe(health: Mapping[str, Any], *, running: bool, now: datetime) -> tuple[list[str], bool, bool]:
    """The lines of `status`; whether everything wanted is enforced and fresh; whether delivery works."""
    written = datetime.fromisoformat(health["written_at"])
    age_s = max(0.0, (now - written).total_seconds())
    allowed_s = STALE_AFTER_INTERVALS * float(health["next_cycle_in_s"]) + _GRACE_S
    fresh = age_s <= allowed_s
    links, service, cycle = health["links"], health["service"], health["last_cycle"]
    lines = [f"Agent          {_running_words(health, running, fresh)}; last report {ago(age_s)}"]
    if health["version"] is None:
        lines.append("Configuration  none yet: nothing is enforced by this agent")
    else:
        limits = f", limits {health['limits_version']}" if health["limits_version"] is not None else ""
        lines.append(f"Configuration  {health['version']}{limits}")
    if cycle is not None:
        seen = ago((now - datetime.fromisoformat(cycle["observed_at"])).total_seconds())
        lines.append(f"Kernel         {links['enforced']} of {links['total']} links enforced, read back {seen}")
    lines += _timed_words(health.get("timed_limits", {}), now)
    lines.append(f"Service        {_service_words(service, now)}")
    if service["url"] is not None:
        lines.append(f"Trusted keys   {_keys_words(health.get('keys', []))}")
    lines += [f"Problem        {one['code']} ({one['subject']}): {one['message']}" for one in health["problems"]]
    lines += [f"Not enforced   link {key}: {why}" for key, why in links["not_enforced"].items()]
    codes = {one["code"] for one in health["problems"]}
    enforced = cycle is not None and cycle["ok"] and not codes & AGENT_CODES
    delivered = not codes & (DELIVERY_CODES | {"receipt_failed"})
    return lines, enforced and running and fresh, delivered


def _timed_words(timed: Mapping[str, Any], now: datetime) -> list[str]:
    if not timed or timed["next_change_at"] is None:
        return []
    following = datetime.fromisoformat(timed["next_change_at"])
    return [
        f"Timed limits   {timed['running']} running, {timed['upcoming']} to come; the next change is in "
        f"{duration_words(following - now)}, at {time_words(following)}"
    ]


def _keys_words(keys: Iterable[Mapping[str, str]]) -> str:
    return ", ".join(f"{one['key_id']} until {one['not_after']}" for one in keys) or "none"


def _running_words(health: Mapping[str, Any], running: bool, fresh: bool) -> str:
    if not running:
        return "not running (the limits that it set stay in the kernel)"
    return f"running (pid {health['pid']})" if fresh else f"running (pid {health['pid']}), but silent"


def _service_words(service: Mapping[str, Any], now: datetime) -> str:
    if service["url"] is None:
        return "none configured"
    if service["last_contact_at"] is None:
        return f"{service['url']} has not answered yet"
    seen = ago((now - datetime.fromisoformat(service["last_contact_at"])).total_seconds())
    failures = service["failures_in_a_row"]
    failed = f", then {failures} failed request{'s' if failures != 1 else ''}" if failures else ""
    return f"{service['url']} answered {seen}{failed}"


def ago(seconds: float) -> str:
    """`75` -> `1 min 15 s ago`."""
    whole = max(0, round(seconds))
    hours, minutes, rest = whole // 3600, whole // 60 % 60, whole % 60
    if hours:
        return f"{hours} h {minutes} min ago"
    return f"{minutes} min {rest} s ago" if minutes else f"{rest} s ago"
