"""The limiter's command line: what each command prints, leaves in its files, and ends with. The kernel is a fake."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from ap_agent.common import rights
from ap_agent.common.errors import NotPermittedError
from ap_agent.common.lock import Lock
from ap_agent.common.outcome import LOCKED, NOT_DONE, OK
from ap_agent.common.problem import Problem
from ap_agent.document.state import Counters, read_state
from tests.agent_bundles import PINNED, entry
from tests.agent_host import LINKS, Host


@pytest.fixture
def host(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Host:
    monkeypatch.setattr(rights, "require_rights", lambda *_: None)  # the fake kernel lets everybody
    return Host(tmp_path, capsys)


def test_a_plan_touches_neither_kernel_nor_disk(host: Host) -> None:
    before = set(host.folder.rglob("*"))
    path = host.link_info()

    assert host.limiter("plan", "--link-info", path) == OK
    assert host.out.startswith(f"From file {path}:\n\nLINK  USER AS       REMOTE ADDRESS ")
    assert "   2  17-ffaa:1:b6  [2001:db8::7]:50000  " in host.out
    assert "192.0.2.99" not in host.out  # no link of a user AS
    assert (host.engine.passes, host.err) == ([], "")
    assert set(host.folder.rglob("*")) - before == {path}


def test_once_enforces_a_file_and_says_it_in_the_state_file(host: Host) -> None:
    assert host.limiter("once", "--link-info", host.link_info()) == OK
    assert "2 of 2 limited links enforced." in host.out
    assert set(host.engine.has.links) == {1, 2}
    state = read_state(host.limiter_run)
    assert state is not None
    assert ({number: one.state for number, one in state.links.items()}, state.is_running) == (
        {1: "enforced", 2: "enforced"},
        False,
    )


def test_once_calls_no_observed_link_enforced(host: Host) -> None:
    document = {**LINKS, "1": {**LINKS["1"], "Observe": True}}
    assert host.limiter("once", "--link-info", host.link_info(document)) == OK
    assert "1 of 2 limited links enforced, 1 observed." in host.out


def test_once_takes_what_was_handed_over_if_it_is_signed_and_keeps_it_as_the_daemon_does(host: Host) -> None:
    assert host.limiter("once") == NOT_DONE
    assert "No configuration to enforce: the agent has not handed one over" in host.err
    host.configure(f'url = "https://service.example"\nhost_id = "4f1c0d2e"\nhost_secret = "x"\n{PINNED}')
    host.hand_over()
    assert host.limiter("plan") == OK
    kept = host.limiter_state / "document.json", host.limiter_state / "trust.json"
    assert [one.exists() for one in kept] == [False, False]
    assert host.limiter("once") == OK, host.err
    assert host.out.startswith("From configuration 1.18, limits 7: 2 of 2 limited links enforced.")
    assert kept[0].read_bytes() == (host.state / "document.json").read_bytes()
    assert kept[1].exists()
    for options, words in (
        ({"version": "1.19", "is_signed": False}, "document_refused (document): "),
        ({"version": "1.17"}, "nothing older is accepted"),
    ):
        host.hand_over(**options)
        assert host.limiter("once") == NOT_DONE
        assert words in host.err


def test_show_without_a_limiter_reads_what_the_kernel_has_counted_since(host: Host) -> None:
    host.configure(f'url = "https://service.example"\nhost_id = "4f1c0d2e"\nhost_secret = "x"\n{PINNED}')
    host.hand_over()
    assert host.limiter("once") == OK
    host.engine.count[1, "to_user"] = Counters(123_456_789, 9, 0, 0, 0, 0)
    written = (host.limiter_run / "state.json").read_bytes()
    assert host.limiter("show") == NOT_DONE
    assert "500 kbit/s  123 456 789 " in host.out
    assert "The limiter is not running" in host.out
    assert (host.limiter_run / "state.json").read_bytes() == written
    host.engine.error = NotPermittedError("No CAP_BPF.")
    assert host.limiter("show") == NOT_DONE  # then the last word counts
    assert "123 456 789" not in host.out
    assert "500 kbit/s" in host.out


def test_a_link_that_cannot_be_had_is_exit_1_with_its_reason(host: Host) -> None:
    document = {**LINKS, "3": entry(5, "198.51.100.1")}  # an address of this host
    assert host.limiter("plan", "--link-info", host.link_info(document)) == NOT_DONE
    assert "cannot be enforced (see below)" in host.out
    assert host.limiter("once", "--link-info", host.link_info(document)) == NOT_DONE
    assert "2 of 3 limited links enforced." in host.out
    assert host.err.count("own_address (link 3): ") == 1
    assert host.err.count("link 3 is not enforced") == 0  # said already


def test_a_plan_for_programs_is_json_with_what_is_wrong(host: Host) -> None:
    host.engine.problems = (Problem("hook_obstructed", "eth0", "A qdisc is in the way."),)
    path = host.link_info()

    assert host.limiter("plan", "--json", "--link-info", path) == NOT_DONE
    document = json.loads(host.out)
    assert document["source"] == f"file {path}"
    assert document["problems"] == [{"code": "hook_obstructed", "subject": "eth0", "message": "A qdisc is in the way."}]


def test_reset_takes_everything_off_and_leaves_the_reason_for_the_agent(host: Host) -> None:
    assert host.limiter("once", "--link-info", host.link_info()) == OK
    assert host.limiter("reset", "--reason", "moved away") == OK
    assert host.engine.has.links == {}
    state = read_state(host.limiter_run)
    assert state is not None
    assert (state.reset_reason, dict(state.links)) == ("moved away", {})
    assert host.limiter("show") == NOT_DONE
    assert host.out == "All limits are removed, 0 s ago: moved away\n"
    assert host.limiter("reset") == OK
    assert host.out == "No objects of the limiter in the kernel.\n"


def test_while_the_service_runs_nothing_is_changed_by_hand(host: Host) -> None:
    with Lock(host.limiter_run, "limiter", "run"):
        for command in (("once", "--link-info", host.link_info()), ("reset",)):
            assert host.limiter(*command) == LOCKED
            assert f"The limiter's service is running (pid {os.getpid()})" in host.err
        assert host.limiter("plan", "--link-info", host.link_info()) == OK  # looking is free
    assert host.engine.passes == []


def test_an_enrolment_that_cannot_be_used_keeps_nobody_from_looking_and_removing(host: Host) -> None:
    host.configure('credentials_file = "/does/not/exist"\n')
    assert host.limiter("plan", "--link-info", host.link_info()) == OK
    assert host.limiter("reset") == OK
