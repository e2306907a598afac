"""What the operator's terminal shows: `status` on one screen, `watch`, colour, and what `enrol` blames."""

from __future__ import annotations

import email.utils
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from ap_agent.commands.status import screen
from ap_agent.common import outcome as commands
from tests import agent_service as svc
from tests.agent.test_agent_enrol import ENROL, ROOT, Person, answer, person, service  # noqa: F401  fixtures

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
        (
            {"links": {"enforced": 0, "observed": 0, "total": 0, "not_enforced": {}}},
            True,
            commands.OK,
            "All is well. No link is limited here.",
        ),
        ({}, False, commands.NOT_DONE, "The agent is not running."),
        (failing(1), True, commands.NOT_DONE, "1 of 2 links is not enforced."),
        (failing(3), True, commands.NOT_DONE, "3 of 4 links are not enforced."),
        ({"last_cycle": None}, True, commands.NOT_DONE, "There are problems; see the lines below."),
        (
            {"problems": [{"code": "service_unreachable", "subject": "service", "message": "It answered 503."}]},
            True,
            commands.NOTHING_NEW,
            "The last limits are in force, but no updates arrive from the service.",
        ),
    ],
    ids=["well", "observed", "none", "stopped", "one fails", "three fail", "no limiter", "no service"],
)
def test_the_first_line_of_status_is_the_verdict(
    changes: dict[str, Any], running: bool, code: int, verdict: str
) -> None:
    found, lines = screen(health(**changes), is_running=running, now=NOW)
    assert (found, lines[0]) == (code, verdict)


# --- watch ------------------------------------------------------------------------------------------------------------


# --- enrol ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("off", "words"),
    [
        (
            timedelta(hours=2, minutes=5, seconds=30),
            "The clock of this host is 2 h 5 min ahead of the service's. Set it (NTP)",
        ),
        (timedelta(days=-3, hours=-1, minutes=-30), "The clock of this host is 3 d 1 h behind the service's."),
        (timedelta(seconds=2), ""),
    ],
)
def test_enrol_names_a_clock_that_is_wrong(
    person: Person,  # noqa: F811
    service: svc.Service,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    off: timedelta,
    words: str,
) -> None:
    def date(_handler: svc.Handler, _timestamp: float | None = None) -> str:
        return email.utils.format_datetime(datetime.now(UTC) - off, usegmt=True)

    monkeypatch.setattr(svc.Handler, "date_time_string", date)
    assert person.enrols(service.url) == commands.OK
    assert words in person.out
    assert ("The clock" in person.out) == bool(words)


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
