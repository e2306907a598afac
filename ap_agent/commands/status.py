"""`status`: one screen for the operator, from the health file; the exit code is the verdict."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from ap_agent.agent.health import describe, is_running, read_health
from ap_agent.common.colour import Colour, painted
from ap_agent.common.outcome import NOT_DONE, NOTHING_NEW, OK, Outcome
from ap_agent.common.settings import Settings

_SHOWN = 8  # problems, and links that are not enforced: fits 24 lines
_LABEL_WIDTH = 15  # of the lines of `describe`


def status(settings: Settings, given: Namespace) -> Outcome:
    running = is_running(settings.run_dir)
    try:
        health = read_health(settings.run_dir)
        if health is None:
            missing = f"there is no health file in {settings.run_dir}"
            return Outcome(NOT_DONE, err=f"The agent has not reported yet: {missing}. Start scionlab-bw-agent.")
        code, lines = screen(health, is_running=running, now=datetime.now(UTC))
    except (OSError, ValueError) as exc:
        why = exc.strerror if isinstance(exc, OSError) else exc
        return Outcome(NOT_DONE, err=f"The health file in {settings.run_dir} cannot be used: {why}.")
    except (KeyError, TypeError):
        text = "it is not a health file of this agent"
        return Outcome(NOT_DONE, err=f"The health file in {settings.run_dir} cannot be used: {text}.")
    if given.json:
        return Outcome(code, json.dumps({**health, "is_running": running}, indent=1))
    return Outcome(code, "\n".join(lines))


def screen(health: Mapping[str, Any], *, is_running: bool, now: datetime) -> tuple[int, list[str]]:
    """Exit code and lines: verdict, basis, first problems. Raises `KeyError`, `TypeError`, `ValueError` for an invalid
    health file."""
    described, is_enforced, is_delivered = describe(health, running=is_running, now=now)
    code = NOT_DONE if not is_enforced else OK if is_delivered else NOTHING_NEW
    words, colour = _verdict(health["links"], code, is_running=is_running)
    lines = [painted(words, colour)]
    described = [line for line in described if not _is_said(line, health)]
    for label in ("Problem", "Failed"):
        found = [line for line in described if line.startswith(label)]
        described = [line for line in described if line not in found[_SHOWN:]]
        if len(found) > _SHOWN:
            place = described.index(found[_SHOWN - 1]) + 1
            more = f"{len(found) - _SHOWN} more; `scionlab-bw-agent status --json` lists all"
            described.insert(place, f"{label:<{_LABEL_WIDTH}}{more}")
    return code, lines + [_marked(line) for line in described]


def _is_said(line: str, health: Mapping[str, Any]) -> bool:
    said = (f"{one['subject']}: {one['message']}" for one in health["problems"])
    return line.startswith("Failed") and line[_LABEL_WIDTH:] in said


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


def _marked(line: str) -> str:
    is_bad = line.startswith(("Problem", "Failed"))
    return painted(line[:_LABEL_WIDTH], "bad") + line[_LABEL_WIDTH:] if is_bad else line
