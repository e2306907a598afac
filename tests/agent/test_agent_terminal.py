"""What the operator's terminal shows: `status` on one screen, `watch`, colour, and what `enrol` blames."""

from __future__ import annotations

import email.utils
import os
import pty
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from ap_agent.commands.status import screen
from ap_agent.common import outcome as commands
from ap_agent.common.colour import painted
from tests import agent_service as svc
from tests.agent.test_agent_enrol import ENROL, ROOT, Person, answer, person, service  # noqa: F401  fixtures
from tests.terminal import read_until

NOW = datetime(2026, 11, 24, 12, 0, tzinfo=UTC)


def health(**changes: Any) -> dict[str, Any]:
    """Of an agent that runs, with one link; `failed` and `problems` are numbers of links."""
    return {
        "pid": 7,
        "written_at": "2026-11-24T11:59:59Z",
        "next_cycle_in_s": 10.0,
        "version": "1.18",
        "limits_version": 7,
        "last_cycle": {"observed_at": "2026-11-24T11:59:58Z", "ok": True, "writes": 0},
        "links": {"enforced": 1, "observed": 0, "total": 1, "not_enforced": {}},
        "service": {"url": "https://s.example", "last_contact_at": "2026-11-24T11:59:50Z", "failures_in_a_row": 0},
        "keys": [],
        "problems": [],
        **changes,
    }


def failing(count: int) -> dict[str, Any]:
    return {
        "last_cycle": {"observed_at": "2026-11-24T11:59:58Z", "ok": False, "writes": 0},
        "links": {
            "enforced": 1,
            "observed": 0,
            "total": count + 1,
            "not_enforced": {str(one): "No memory." for one in range(1, count + 1)},
        },
    }


@pytest.mark.parametrize(
    "changes",
    [
        {"links": {"enforced": 1, "observed": 0, "total": 1, "not_enforced": []}},
        {"service": "x"},
        {"timed_limits": {"running": 0, "upcoming": 1, "next_change_at": "0001-01-01T00:00:00+14:00"}},
    ],
    ids=str,
)
def test_health_file_that_is_none_is_refused_and_no_end(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="not a health file"):
        screen(health(**changes), is_running=True, now=NOW)


# --- status -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "running", "code", "verdict"),
    [
        ({}, True, commands.OK, "All is well. 1 of 1 links are as configured."),
        (
            {"links": {"enforced": 2, "observed": 1, "total": 2, "not_enforced": {}}},
            True,
            commands.OK,
            "All is well. 2 of 2 links are as configured; 1 of them only observed.",
        ),
        ({}, False, commands.NOT_DONE, "The agent is not running."),
        (failing(3), True, commands.NOT_DONE, "3 of 4 links are not enforced."),
        ({"last_cycle": None}, True, commands.NOT_DONE, "There are problems; see the lines below."),
        ({"written_at": "2026-11-24T11:58:59Z"}, True, commands.NOT_DONE, "There are problems; see the lines below."),
        (
            {"problems": [{"code": "service_unreachable", "subject": "service", "message": "It answered 503."}]},
            True,
            commands.NOTHING_NEW,
            "The last limits are in force, but no updates arrive from the service.",
        ),
    ],
    ids=["well", "observed", "stopped", "three fail", "no limiter", "old", "no service"],
)
def test_the_first_line_of_status_is_the_verdict(
    changes: dict[str, Any], running: bool, code: int, verdict: str
) -> None:
    found, lines = screen(health(**changes), is_running=running, now=NOW)
    assert (found, lines[0]) == (code, verdict)


def test_status_calls_no_observed_link_enforced() -> None:
    links = {"enforced": 2, "observed": 1, "total": 2, "not_enforced": {}}
    _, lines = screen(health(links=links), is_running=True, now=NOW)
    assert "Kernel         1 of 2 links enforced, 1 observed, read back 2 s ago" in lines


def test_status_fits_a_screen_with_thousands_of_problems() -> None:
    problems = [{"code": "x", "subject": f"device {one}", "message": "Foreign."} for one in range(100)]
    _, lines = screen(health(**failing(4000), problems=problems), is_running=True, now=NOW)
    assert len(lines) <= 24
    assert "Problem        92 more; `scionlab-bw-agent status --json` lists all" in lines
    assert "Failed         link 8: No memory." in lines
    assert lines[-1] == "Failed         3992 more; `scionlab-bw-agent status --json` lists all"


@pytest.mark.parametrize(
    ("is_terminal", "term", "no_colour", "expected"),
    [
        (True, "xterm", "", "\033[1;31mno\033[0m"),
        (True, "xterm", "1", "no"),
        (True, "dumb", "", "no"),
        (False, "xterm", "", "no"),
    ],
)
def test_colour_is_where_a_terminal_shows_it_and_nobody_objects(
    monkeypatch: pytest.MonkeyPatch, is_terminal: bool, term: str, no_colour: str, expected: str
) -> None:
    monkeypatch.setenv("TERM", term)
    monkeypatch.setenv("NO_COLOR", no_colour)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: is_terminal)
    assert painted("no", "bad") == expected


# --- watch ------------------------------------------------------------------------------------------------------------


def test_watch_draws_on_the_other_screen_of_a_terminal_and_leaves_it(tmp_path: Path) -> None:
    config = tmp_path / "agent.toml"
    config.write_text(
        "".join(f'{name} = "{tmp_path / name}"\n' for name in ("state_dir", "run_dir", "limiter_run_dir"))
    )
    command = [sys.executable, "-P", "-m", "ap_agent", "watch", "--config", str(config)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm"}
    piped = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)
    assert (piped.returncode, piped.stdout) == (commands.USAGE, "")
    assert "watch needs a terminal" in piped.stderr

    controller, terminal = pty.openpty()
    process = subprocess.Popen(
        command, env=environment, stdin=terminal, stdout=terminal, stderr=terminal, start_new_session=True
    )
    os.close(terminal)
    try:
        drawn = read_until(controller, b"\033[J")
        process.send_signal(signal.SIGINT)
        drawn += read_until(controller, b"\033[?1049l")
        assert process.wait(20) == commands.OK
    finally:
        process.kill()
        process.wait()
        os.close(controller)
    assert drawn.startswith(b"\033[?1049h")
    assert b"The agent has not reported yet. Start scionlab-bw-agent." in drawn
    assert b"No traffic sample yet." in drawn


# --- enrol ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("off_s", "words"),
    [
        (7530, "The clock of this host is 2 h 5 min ahead of the service's. Set it (NTP)"),
        (-262_890, "The clock of this host is 3 d 1 h behind the service's."),
        (2, ""),
    ],
)
def test_enrol_names_a_clock_that_is_wrong(
    person: Person,  # noqa: F811
    service: svc.Service,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    off_s: int,
    words: str,
) -> None:
    def date(_handler: svc.Handler, _timestamp: float | None = None) -> str:
        return email.utils.format_datetime(datetime.now(UTC) - timedelta(seconds=off_s), usegmt=True)

    monkeypatch.setattr(svc.Handler, "date_time_string", date)
    assert person.enrols(service.url) == commands.OK
    assert words in person.out
    assert ("The clock" in person.out) == bool(words)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("https://no-such-host.invalid", "Check the URL"),
        ("http://127.0.0.1:9", "cannot be reached: Connection refused. Nothing was written. The token was not used."),
    ],
)
def test_enrol_blames_the_address_where_nobody_answers(person: Person, url: str, words: str) -> None:  # noqa: F811
    assert person.enrols(url) == commands.NOT_DONE
    assert words in person.err
    assert "it was consumed" not in person.err
    assert person.left() == []


@pytest.mark.parametrize(
    ("begins", "ends", "blames_clock"),
    [(-2, -1, True), (1, 2, True), (-1, 1, False)],
    ids=["expired", "not yet valid", "of another name"],
)
def test_enrol_blames_the_clock_only_for_the_times_of_a_certificate(
    person: Person,  # noqa: F811
    tmp_path: Path,
    begins: int,
    ends: int,
    blames_clock: bool,
) -> None:
    address = "127.0.0.1" if blames_clock else "192.0.2.1"
    pem = svc.certificate(tmp_path, address, timedelta(days=begins), timedelta(days=ends))
    with svc.service(pem) as running:
        running.answers[ENROL] = answer()
        person.configure(f'ca_file = "{pem}"\n')
        assert person.enrols(running.url) == commands.NOT_DONE
    assert "The token was not used." in person.err
    assert (f"The clock of this host says {datetime.now(UTC):%Y-%m-%d}" in person.err) == blames_clock
    assert running.seen == []
