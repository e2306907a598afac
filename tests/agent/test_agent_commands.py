"""The agent's command line. What its process does is in test_agent_loop; the limiter here is a state file."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from ap_agent.agent import agent as agent_module
from ap_agent.agent.bundle import read_bundle
from ap_agent.agent.hold import Hold, uptime
from ap_agent.agent.store import Store
from ap_agent.commands import agent_cli
from ap_agent.common.lock import Lock
from ap_agent.common.outcome import LOCKED, NOT_DONE, NOTHING_NEW, OK, USAGE
from ap_agent.document.signatures import Keyring
from ap_agent.document.signed_text import Version
from ap_agent.document.state import write_state
from ap_agent.document.trust import Trust, load_acceptance, save_trust
from tests.agent_bundles import HOST_ID, bundle_bytes
from tests.agent_host import LINKS, V7, Host
from tests.agent_limiter import limiter_state
from tests.agent_service import Service, like_the_service, never, status


@pytest.fixture
def host(host: Host, monkeypatch: pytest.MonkeyPatch) -> Host:
    monkeypatch.setattr(agent_cli, "_LIMITER_ANSWERS_S", 0.3)
    return host


@pytest.fixture
def service(service: Service) -> Service:
    service.answers["/config"] = like_the_service(V7, "1.18", "7")
    return service


def limiter_says(host: Host, **changes: object) -> None:
    """What a limiter that enforces V7 writes."""
    bundle, now = read_bundle(V7, host_id=HOST_ID), datetime.now(UTC)
    state = limiter_state(written_at=now, observed_at=now, order=bundle.order, limits_digest=bundle.limits_digest)
    host.limiter_run.mkdir(exist_ok=True)
    write_state(host.limiter_run, replace(state, **changes))  # type: ignore[arg-type]  # whatever a test wants


# --- once and tell ----------------------------------------------------------------------------------------------------


def test_once_hands_over_shows_what_the_limiter_says_and_tells_the_service(host: Host, service: Service) -> None:
    host.use(service)
    limiter_says(host)
    with Lock(host.limiter_run, "limiter", "run"):
        assert host.agent("once") == OK, host.err
    assert "   1  17-ffaa:1:b6  enforced  to the user AS    500 kbit/s" in host.out
    assert (host.state / "document.json").is_file()
    assert service.receipts()[-1]["links"]["1"]["state"] == "enforced"


def test_once_with_a_limiter_that_says_nothing_is_not_done(host: Host, service: Service) -> None:
    host.use(service)
    assert host.agent("once") == NOT_DONE
    assert "The limiter has not answered within 0.3 s; configuration 1.18 was handed over." in host.err
    assert "limiter_silent (limiter): " in host.err
    assert (host.state / "document.json").is_file()


def test_once_with_a_service_that_is_away_ends_with_5(host: Host, service: Service) -> None:
    host.use(service)
    host.store()
    limiter_says(host)
    service.answers["/config"] = status(503)
    with Lock(host.limiter_run, "limiter", "run"):
        assert host.agent("once") == NOTHING_NEW, host.err
    assert "service_unreachable" in host.err


def test_once_on_a_host_that_is_not_enrolled_says_how_to_enrol(host: Host) -> None:
    assert host.agent("once") == USAGE
    assert "This host is not enrolled. Run: scionlab-bw-agent enrol URL" in host.err


def test_once_beside_a_running_agent_is_refused(host: Host, service: Service) -> None:
    host.use(service)
    with Lock(host.run_dir, "agent", "run"):
        assert host.agent("once") == LOCKED
    assert f"The agent's service is running (pid {os.getpid()})" in host.err
    assert service.seen == []


def test_tell_sends_the_reason_of_a_reset_and_changes_nothing_on_the_disk(host: Host, service: Service) -> None:
    host.use(service)
    host.store(bundle_bytes(LINKS, host_secret="n3w"))
    limiter_says(host, reset_reason="moved away", links={}, is_running=False)
    before = {path: path.lstat().st_mtime_ns for path in host.folder.rglob("*")}
    assert host.agent("tell") == OK, host.err
    assert {path: path.lstat().st_mtime_ns for path in host.folder.rglob("*")} == before
    (request,) = service.asked("/enforcement")
    assert request.credentials == f"{HOST_ID}:n3w"
    problems = service.receipts()[0]["problems"]
    assert {"code": "limits_removed", "subject": "agent", "message": "moved away"} in problems


def test_tell_waits_no_longer_than_some_seconds(host: Host, service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_module, "SEND_WITHIN_S", 0.3)
    host.use(service)
    service.answers["/enforcement"] = never()
    assert host.agent("tell") == NOT_DONE
    assert host.err == "The report was not sent: No answer within 0.3 s.\n"
    service.answers["/enforcement"] = status(503)
    assert host.agent("tell") == NOT_DONE


def test_tell_without_a_service_has_nothing_to_do(host: Host) -> None:
    assert host.agent("tell") == OK
    assert host.out == "No service is configured.\n"


# --- show, status, usage ----------------------------------------------------------------------------------------------


def test_show_says_when_the_limiter_is_not_there_or_its_state_is_old(host: Host) -> None:
    assert host.agent("show") == NOT_DONE
    assert "The limiter has not written a state since boot" in host.err
    host.store()
    limiter_says(host)
    assert host.agent("show") == NOT_DONE
    assert "The limiter is not running; the limits that it set stay in the kernel." in host.out
    with Lock(host.limiter_run, "limiter", "run"):
        assert host.agent("show") == OK
        assert "17-ffaa:1:b6" in host.out
        limiter_says(host, written_at=datetime.now(UTC) - timedelta(seconds=61))
        assert host.agent("show") == NOT_DONE
        assert host.out.startswith("STALE: Counters read ")
        limiter_says(host, is_running=False)
        assert host.agent("show", "--json") == NOT_DONE
        assert json.loads(host.out)["is_running"] is False


def test_status_and_usage_of_an_agent_that_never_ran_say_so(host: Host) -> None:
    assert host.agent("status") == NOT_DONE
    assert "The agent has not reported yet" in host.err
    assert host.err.endswith("This host is not enrolled. Run: scionlab-bw-agent enrol URL\n")
    host.configure('url = "https://service.example"\nhost_id = "4f1c0d2e"\nhost_secret = "x"\n')
    assert host.agent("status") == NOT_DONE
    assert host.err.endswith("Start scionlab-bw-agent.\n")
    assert host.agent("usage") == NOT_DONE
    assert "No traffic sample yet" in host.err


# --- accept -----------------------------------------------------------------------------------------------------------


def test_accept_older_is_stored_for_both_programs_each_in_its_own_words(host: Host) -> None:
    host.store()
    host.limiter_state.mkdir(mode=0o700)
    limiters = Trust(HOST_ID, (), Keyring(), Version(1, 17, 3))  # it accepted another one last
    save_trust(host.limiter_state, limiters)

    assert host.agent("accept-older", "1.16") == OK, host.err
    assert "Configuration 1.16 will be accepted once, in place of 1.18 with limits 7" in host.out
    for folder, instead_of in ((host.state, Version(1, 18, 7)), (host.limiter_state, Version(1, 17, 3))):
        stored = load_acceptance(folder)
        assert stored is not None
        assert (stored.version, stored.instead_of) == ("1.16", instead_of)


@pytest.mark.parametrize(("version", "code"), [("1.19", NOT_DONE), ("next", USAGE), ("2.0", NOT_DONE)])
def test_accept_older_of_what_would_be_taken_anyway_stores_nothing(host: Host, version: str, code: int) -> None:
    host.store()
    assert host.agent("accept-older", version) == code
    assert load_acceptance(host.state) is None


def test_accept_takes_what_is_held_back_and_nothing_else(host: Host) -> None:
    host.store()
    assert host.agent("accept") == NOT_DONE
    assert "no configuration is held back" in host.err
    bundle = read_bundle(V7, host_id=HOST_ID)
    Store(host.state).save_hold(Hold(bundle.name, "1.19", 9, 12, uptime()))
    assert host.agent("accept") == OK
    assert "Configuration 1.19, which lacks 9 of the 12 limited links in force, will be accepted" in host.out


# --- the door ---------------------------------------------------------------------------------------------------------
