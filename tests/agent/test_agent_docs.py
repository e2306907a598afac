"""docs/agent.md keeps up with the code: every problem, command, option and exit code stands there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ap_agent.agent.limiter_view import SILENT
from ap_agent.agent.problems import CODES, PASSING_CODES
from ap_agent.commands import agent_cli, limiter_cli
from ap_agent.commands.status import AGENT_CODES
from ap_agent.common import outcome
from ap_agent.document import handover, live, series, state
from ap_agent.limiter.loop import PASSING

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "agent.md").read_text(encoding="utf-8")


OURS = ("agent", "commands", "common", "dataplane", "document", "limiter", "routes", "usage")


def codes_in_the_source() -> set[str]:
    """The first argument of everything that makes a problem, and every `code=`."""
    found: set[str] = set()
    for folder in OURS:
        for path in (ROOT / "ap_agent" / folder).rglob("*.py"):
            source = path.read_text(encoding="utf-8")
            found |= set(re.findall(r'(?:Problem|_NoKeyError|self\._add)\(\s*"([a-z_]+)"', source))
    return found


def test_every_problem_has_a_line_on_what_to_do() -> None:
    codes = {SILENT} | codes_in_the_source() | {code for _, code in CODES} | PASSING_CODES | AGENT_CODES | PASSING
    assert {"no_as", "hook_obstructed", "internal_error", "auth_refused"} <= codes

    missing = sorted(code for code in codes if f"`{code}`" not in TEXT)
    assert missing == []


def test_picture_of_the_two_processes_agrees_with_code_and_units() -> None:
    picture = TEXT.partition("```\n")[2].partition("```")[0]
    agent, limiter = picture[picture.index("| scionlab-bw-agent") :], picture[picture.index("| scionlab-bw-limiter") :]
    handed, told = (picture[picture.index(one) :].partition("\n")[0] for one in ("document.json", "state.json"))
    assert {handover.FILE_NAME, live.LOOKS_FILE} == set(re.findall(r"\w+\.json", handed.partition("|")[0]))
    assert {state.FILE_NAME, series.FILE_NAME, live.LIVE_FILE} == set(re.findall(r"\w+\.json", told))
    client = (ROOT / "ap_agent" / "agent" / "fetch.py").read_text(encoding="utf-8")
    for path in ("config", "enforcement", "usage", "test_results", "live"):
        assert f'"/{path}"' in client
        assert path in picture
    for program, box in (("agent", agent), ("limiter", limiter)):
        unit = (ROOT / "packaging" / "systemd" / f"scionlab-bw-{program}.service").read_text(encoding="utf-8")
        for key in ("User", "StateDirectory", "CapabilityBoundingSet"):
            for word in re.search(rf"^{key}=(.*)$", unit, flags=re.MULTILINE)[1].split():  # type: ignore[index]  # it has it
                assert word in box, (program, key)


def test_every_exit_code_is_in_the_table() -> None:
    rows = re.findall(r"^\| (\d) \|", TEXT, flags=re.MULTILINE)

    codes = (outcome.OK, outcome.NOT_DONE, outcome.USAGE, outcome.NOT_PERMITTED, outcome.LOCKED, outcome.NOTHING_NEW)
    assert rows == [str(code) for code in codes]


@pytest.mark.parametrize("command", [*agent_cli.COMMANDS, *limiter_cli.COMMANDS])
def test_every_command_is_in_a_table(command: str) -> None:
    assert re.search(rf"^\| `{command}[ `]", TEXT, flags=re.MULTILINE)
