"""`status`: one screen for the operator, from the health file; the exit code is the verdict."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from ap_agent.agent.health import is_running, read_health
from ap_agent.agent.limiter_view import SILENT
from ap_agent.agent.problems import DELIVERY_CODES, NOT_ENROLLED
from ap_agent.common.colour import Colour, painted
from ap_agent.common.consent import STOP_FILE
from ap_agent.common.outcome import NOT_DONE, NOTHING_NEW, OK, Outcome
from ap_agent.common.settings import Settings
from ap_agent.common.text import ago, duration_words, enforced_words, time_words

AGENT_CODES = frozenset({"internal_error", "settings_invalid", "health_unwritable"})  # the agent itself has a problem
_STALE_AFTER_INTERVALS = 3  # of the announced pause between steps
_GRACE_S = 30.0
_SHOWN = 8  # problems, and links that are not enforced: fits 24 lines
_LABEL_WIDTH = 15


def status(settings: Settings, given: Namespace) -> Outcome:
    running = is_running(settings.run_dir)
    try:
        health = read_health(settings.run_dir)
        if health is None:
            missing = f"there is no health file in {settings.run_dir}"
            remedy = "Start scionlab-bw-agent." if settings.url is not None else NOT_ENROLLED
            return Outcome(NOT_DONE, err=f"The agent has not reported yet: {missing}. {remedy}")
        code, lines = screen(health, is_running=running, now=datetime.now(UTC))
    except (OSError, ValueError) as exc:
        why = exc.strerror if isinstance(exc, OSError) else exc
        return Outcome(NOT_DONE, err=f"The health file in {settings.run_dir} cannot be used: {why}.")
    if given.json:
        return Outcome(code, json.dumps({**health, "is_running": running}, indent=1))
    return Outcome(code, "\n".join(lines))


def screen(health: Mapping[str, Any], *, is_running: bool, now: datetime) -> tuple[int, list[str]]:
    """Exit code and lines: verdict, basis, first problems. Raises `ValueError` for an invalid health file."""
    try:
        return _screen(health, is_running, now)
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as exc:
        raise ValueError("it is not a health file of this agent") from exc


def _screen(health: Mapping[str, Any], is_running: bool, now: datetime) -> tuple[int, list[str]]:
    age = max(timedelta(0), now - datetime.fromisoformat(health["written_at"]))
    is_fresh = age.total_seconds() <= _STALE_AFTER_INTERVALS * float(health["next_cycle_in_s"]) + _GRACE_S
    links, cycle, problems = health["links"], health["last_cycle"], health["problems"]
    codes = {one["code"] for one in problems}
    is_enforced = cycle is not None and cycle["ok"] and not codes & (AGENT_CODES | {SILENT, "limits_removed"})
    code = OK if not codes & (DELIVERY_CODES | {"receipt_failed"}) else NOTHING_NEW
    if not (is_enforced and is_running and is_fresh):
        code = NOT_DONE
    words, colour = _verdict(links, code, is_running=is_running)
    said = {f"{one['subject']}: {one['message']}" for one in problems}
    failed = [f"link {key}: {why}" for key, why in links["not_enforced"].items()]
    return code, [
        painted(words, colour),
        _line("Agent", f"{_running_words(health, is_running, is_fresh)}; last report {ago(age)}"),
        *_facts(health, codes, now),
        *_first("Problem", [f"{one['code']} ({one['subject']}): {one['message']}" for one in problems]),
        *_first("Failed", [one for one in failed if one not in said]),
    ]


def _line(label: str, words: str) -> str:
    return f"{label:<{_LABEL_WIDTH}}{words}"


def _first(label: str, found: list[str]) -> list[str]:
    """The first few, each marked, and how many more there are."""
    more = [f"{len(found) - _SHOWN} more; `scionlab-bw-agent status --json` lists all"] if len(found) > _SHOWN else []
    return [painted(_line(label, ""), "bad") + one for one in (*found[:_SHOWN], *more)]


def _facts(health: Mapping[str, Any], codes: set[str], now: datetime) -> Iterator[str]:
    links, service, cycle, timed = health["links"], health["service"], health["last_cycle"], health.get("timed_limits")
    limits = f", limits {health['limits_version']}" if health["limits_version"] is not None else ""
    yield _line("Configuration", f"{health['version']}{limits}" if health["version"] is not None else "none yet")
    if cycle is not None:
        seen = ago(now - datetime.fromisoformat(cycle["observed_at"]))
        silent = "; the limiter does not answer" if SILENT in codes else ""
        words = enforced_words(links["enforced"] - links["observed"], links["observed"], links["total"])
        yield _line("Kernel", f"{words}, read back {seen}{silent}")
    if timed and timed["next_change_at"] is not None:
        following = datetime.fromisoformat(timed["next_change_at"])
        when = f"the next change is in {duration_words(following - now)}, at {time_words(following)}"
        yield _line("Temporary", f"{timed['running']} running, {timed['upcoming']} scheduled; {when}")
    tests = health.get("tests")
    if tests and tests["sending"] != "off":
        is_stopped = tests["sending"] == "stopped"
        yield _line("Link tests", f"stopped by the file {STOP_FILE}" if is_stopped else f"{tests['running']} sending")
    yield _line("Service", _service_words(service, now))
    if service["url"] is not None:
        keys = ", ".join(f"{one['key_id']} until {one['not_after']}" for one in health.get("keys", []))
        yield _line("Trusted keys", keys or "none")


def _verdict(links: Mapping[str, Any], code: int, *, is_running: bool) -> tuple[str, Colour]:
    failed, total = len(links["not_enforced"]), links["total"]
    if not is_running:
        return "The agent is not running.", "bad"
    if code == NOT_DONE and failed:
        return f"{failed} of {total} links {'is' if failed == 1 else 'are'} not enforced.", "bad"
    if code == NOT_DONE:
        return "There are problems; see the lines below.", "bad"
    if code == NOTHING_NEW:
        return "The last limits are in force, but no updates arrive from the service.", "warn"
    if not total:
        return "All is well. No link is limited here.", "good"
    observed = f"; {links['observed']} of them only observed" if links["observed"] else ""
    return f"All is well. {total} of {total} links are as configured{observed}.", "good"


def _running_words(health: Mapping[str, Any], running: bool, fresh: bool) -> str:
    if not running:
        return "not running (the limits stay in the kernel)"
    return f"running (pid {health['pid']})" if fresh else f"running (pid {health['pid']}), but not reporting"


def _service_words(service: Mapping[str, Any], now: datetime) -> str:
    if service["url"] is None:
        return "none configured"
    if service["last_contact_at"] is None:
        return f"{service['url']} has not answered"
    seen = ago(now - datetime.fromisoformat(service["last_contact_at"]))
    failures = service["failures_in_a_row"]
    failed = f", then {failures} failed request{'s' if failures != 1 else ''}" if failures else ""
    return f"{service['url']} answered {seen}{failed}"
