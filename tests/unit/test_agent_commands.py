"""`python -m ap_agent`: what it says, what it touches, and how it ends. The kernel is the edge that is faked."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from ap_agent import __main__ as agent_cli
from ap_agent.agent.fetch import NoAS, ReceiptAnswer
from ap_agent.agent.loop import Loop
from ap_agent.agent.removal import send_removed
from ap_agent.agent.store import Operator, Store
from ap_agent.commands import commands
from ap_agent.common import credentials as agent_credentials
from ap_agent.common.credentials import Credentials
from ap_agent.common.errors import AgentError, ApplyError, LockHeldError, NotPermittedError
from ap_agent.common.lock import AgentLock, holder, lock_path
from ap_agent.common.settings import Settings
from tests import agent_service as svc
from tests.agent_bundles import HOST_ID, KEY, SECRET, SigningKey, bundle_bytes, entry
from tests.agent_clock import Clock, FakeClient
from tests.agent_host import ROOT, V7, Host
from tests.agent_service import Service, like_the_service, status

TABLE = """\
LINK  USER AS       REMOTE ADDRESS            LIMIT  STATE     DIRECTION         DEVICE  IN THE KERNEL  BYTES  DROPPED
   1  17-ffaa:1:b6  192.0.2.11:50000     500 kbit/s  enforced  to the user AS    eth0       500 kbit/s  1 200        0
                                                               from the user AS  eth0       500 kbit/s  1 200        0
   2  17-ffaa:1:b6  [2001:db8::7]:50000     blocked  enforced  to the user AS    eth0          blocked  1 200        0
                                                               from the user AS  eth0          blocked  1 200        0
"""  # as wide as it is


@pytest.fixture
def host(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Host:
    monkeypatch.setattr(commands, "require_net_admin", lambda: None)  # the fake kernel lets everybody
    return Host(tmp_path, capsys)


@pytest.fixture
def service() -> Iterator[Service]:
    with svc.service() as running:
        running.answers["/config"] = like_the_service(V7, "1.18", "7")
        yield running


def test_plan_asks_with_the_secret_of_the_installed_configuration(host: Host, service: Service) -> None:
    host.use(service)
    host.store(bundle_bytes(host_secret="second"))
    service.answers["/config"] = status(304)

    assert host.agent("plan") == commands.OK
    assert [one.credentials for one in service.seen] == [f"{HOST_ID}:second"]


# --- accept-older -----------------------------------------------------------------------------------------------------


def test_older_version_is_refused_until_it_is_accepted_by_name(host: Host, service: Service) -> None:
    host.use(service)
    host.store()
    older = bundle_bytes({"1": entry(100)}, version="1.17", limits_version=3)
    service.answers["/config"] = svc.tarball(older)

    assert host.agent("once") == commands.NOTHING_NEW
    assert "version_older" in host.err
    assert host.agent("plan") == commands.NOTHING_NEW
    assert host.agent("accept-older", "1.17") == commands.OK
    assert "1.17 will be taken once, in place of 1.18 with limits 7" in host.out
    assert host.agent("plan") == commands.OK  # looks ahead, and uses nothing up
    assert host.agent("once") == commands.OK
    assert host.engine.kernel == {1: 100}


def test_accepting_works_while_the_agent_runs(host: Host) -> None:
    host.store()
    with AgentLock(host.run_dir, "run"):
        assert host.agent("accept-older", "1.18") == commands.OK


@pytest.mark.parametrize("version", ["1", "1.18.7", "x", "1.18 ", "v1.18", "1.\N{ARABIC-INDIC DIGIT ONE}"])
def test_what_is_no_version_cannot_be_accepted(host: Host, version: str) -> None:
    assert host.agent("accept-older", version) == commands.USAGE
    assert "is no version" in host.err


def test_nothing_to_accept_is_said(host: Host) -> None:
    assert host.agent("accept-older", "1.17") == commands.NOT_DONE
    assert "no configuration is installed here" in host.err
    host.store()
    assert host.agent("accept-older", "1.19") == commands.NOT_DONE
    assert "1.18 with limits 7 is installed here" in host.err


# --- accept -----------------------------------------------------------------------------------------------------------


def test_configuration_that_lacks_most_links_is_held_back_until_it_is_accepted(host: Host, service: Service) -> None:
    many = {str(number): entry(500, f"192.0.2.{number}") for number in range(1, 13)}
    host.use(service)
    host.store(bundle_bytes(many))
    service.answers["/config"] = svc.tarball(bundle_bytes({"1": many["1"]}, version="1.19", limits_version=8))

    assert host.agent("accept") == commands.NOT_DONE
    assert "There is nothing to accept: no configuration is held back here." in host.err
    for command in ("plan", "once", "plan"):
        assert host.agent(command) == commands.NOTHING_NEW
        assert "links_vanished" in host.err
        assert "1.19, which lacks 11 of the 12 limited links in force" in host.err
    assert len(host.engine.kernel) == 12
    with AgentLock(host.run_dir, "run"):  # works while the agent runs
        assert host.agent("accept") == commands.OK
    assert "Configuration 1.19, which lacks 11 of the 12 limited links in force, will be taken" in host.out
    assert host.agent("plan") == commands.OK
    assert host.agent("once") == commands.OK
    assert host.engine.kernel == {1: 500}
    assert sorted(path.name for path in host.state.iterdir()) == ["current", "trust.json", "versions"]


def test_once_near_the_end_of_the_keys_warns_and_is_done(host: Host, service: Service) -> None:
    soon = SigningKey(1, not_after=datetime.now(UTC).replace(microsecond=0) + timedelta(days=3))
    host.use(service)
    host.config.write_text(host.config.read_text().replace(KEY.by_hand, soon.by_hand))
    service.answers["/config"] = svc.tarball(bundle_bytes(signers=[soon]))

    assert host.agent("once") == commands.OK
    assert "key_expires_soon" in host.err


# --- once -------------------------------------------------------------------------------------------------------------


def test_once_with_a_file_enforces_it_and_says_what_it_did(host: Host) -> None:
    assert host.agent("once", "--link-info", host.link_info()) == commands.OK

    assert host.engine.kernel == {1: 500, 2: 0}
    assert host.err == ""
    assert "2 of 2 limited links enforced" in host.out
    assert "  eth0: add class 1:1 rate 500 kbit/s (link 1, to the user AS)" in host.out
    assert not host.state.exists()


def test_table_is_aligned_and_speaks_the_words_of_the_field(host: Host) -> None:
    host.agent("once", "--link-info", host.link_info())
    table = host.out.replace("\N{NO-BREAK SPACE}", " ").partition("\n\n")[2].splitlines()

    assert table == TABLE.splitlines()


@pytest.mark.parametrize(
    "document", [{}, {"9": entry(10, "192.0.2.99", is_user_as=False)}], ids=["none", "infrastructure"]
)
def test_document_without_limited_links_removes_what_was_there(host: Host, document: Any) -> None:
    host.agent("once", "--link-info", host.link_info())

    assert host.agent("once", "--link-info", host.link_info(document)) == commands.OK
    assert host.engine.kernel == {}
    assert "0 of 0 limited links enforced" in host.out
    assert "There are no limited links in this configuration." in host.out


def test_second_once_changes_nothing(host: Host) -> None:
    host.agent("once", "--link-info", host.link_info())

    assert host.agent("once", "--link-info", host.link_info()) == commands.OK
    assert "Nothing had to change in the kernel." in host.out


def test_once_follows_the_service(host: Host, service: Service) -> None:
    host.use(service)

    assert host.agent("once") == commands.OK
    assert "From configuration 1.18, limits 7: 2 of 2" in host.out
    assert host.engine.kernel == {1: 500, 2: 0}
    assert [one["version"] for one in service.receipts()] == ["1.18"]


@pytest.mark.parametrize("code", [204, 302, 401, 403, 404, 500, 503])
def test_once_with_an_unwilling_service_enforces_the_last_good_state(host: Host, service: Service, code: int) -> None:
    host.use(service)
    host.store()
    service.answers["/config"] = status(code)

    assert host.agent("once") == commands.NOTHING_NEW
    assert host.engine.kernel == {1: 500, 2: 0}
    assert f"({code})" in host.err or str(code) in host.err
    assert "last good configuration is enforced" in host.err


def test_once_with_a_bad_bundle_enforces_the_last_good_state(host: Host, service: Service) -> None:
    host.use(service)
    host.store()
    service.answers["/config"] = svc.tarball(V7[:-5])

    assert host.agent("once") == commands.NOTHING_NEW
    assert "bundle_invalid" in host.err


def test_once_with_nothing_to_enforce_touches_nothing(host: Host, service: Service) -> None:
    host.use(service)
    service.answers["/config"] = status(503)

    assert host.agent("once") == commands.NOT_DONE
    assert host.engine.calls == []
    assert "the kernel was not touched" in host.err


def test_once_without_service_and_bundle_is_a_wrong_configuration(host: Host) -> None:
    assert host.agent("once") == commands.USAGE
    assert "give --link-info FILE" in host.err


def test_once_ends_with_1_when_a_link_is_not_enforced(host: Host) -> None:
    host.engine.refused = frozenset({2})

    assert host.agent("once", "--link-info", host.link_info()) == commands.NOT_DONE
    assert "1 of 2 limited links enforced" in host.out
    assert "apply_failed (links 2): The kernel refused link 2." in host.err
    assert "link 2 is not enforced" in host.err


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ApplyError("add class 1:1", errno.EBUSY), commands.NOT_DONE),
        (ApplyError("add class 1:1", errno.EPERM), commands.NOT_PERMITTED),
        (NotPermittedError("Use sudo."), commands.NOT_PERMITTED),
        (AgentError("This kernel has no htb."), commands.NOT_DONE),
    ],
)
def test_once_ends_with_the_code_of_the_engines_error(host: Host, error: AgentError, code: int) -> None:
    host.engine.error = error

    assert host.agent("once", "--link-info", host.link_info()) == code
    assert error.message in host.err


BAD_FILES = {
    "no JSON": ("{", "not JSON"),
    "a list": ("[]", "a list"),
    "negative": ({"1": entry(-1)}, "-1"),
    "a text as number": ({"1": {**entry(1), "Bandwidth": "500"}}, "not an integer"),
    "a shell command": ({"1": entry(1, "192.0.2.1; reboot")}, "not an IP address"),
    "duplicate": ('{"1": {}, "1": {}}', "twice"),
    "interface 5000": ({"5000": entry(1)}, "5000"),
}


@pytest.mark.parametrize("case", BAD_FILES)
def test_bad_file_touches_nothing_and_names_the_rule(host: Host, case: str) -> None:
    document, words = BAD_FILES[case]
    path = host.link_info(document)

    for command in ("once", "plan", "show"):
        assert host.agent(command, "--link-info", path) == commands.NOT_DONE
        assert str(path) in host.err
        assert words in host.err
    assert host.limiter("-l", "-p", path) == commands.NOT_DONE
    assert words in host.err
    assert host.engine.calls == []


def test_missing_file_is_named(host: Host) -> None:
    assert host.agent("once", "--link-info", "/none") == commands.NOT_DONE
    assert "/none cannot be read: No such file or directory" in host.err


# --- plan -------------------------------------------------------------------------------------------------------------


def tree_of(folder: Path) -> dict[str, tuple[int, int]]:
    return {str(one): (one.lstat().st_ino, one.lstat().st_mtime_ns) for one in folder.rglob("*")}


def test_plan_prints_what_would_change_and_touches_nothing(host: Host) -> None:
    path = host.link_info()
    before = tree_of(host.folder)

    assert host.agent("plan", "--link-info", path) == commands.OK

    assert "Would change in the kernel (2 operations):" in host.out
    assert "eth0: add class 1:1 rate 500 kbit/s" in host.out
    assert host.engine.calls == ["plan_cycle"]
    assert host.engine.kernel == {}
    assert tree_of(host.folder) == before


def test_plan_of_the_service_stores_nothing_and_sends_nothing(host: Host, service: Service) -> None:
    host.use(service)
    before = tree_of(host.folder)

    assert host.agent("plan") == commands.OK

    assert "From configuration 1.18, limits 7." in host.out
    assert [one.method for one in service.seen] == ["GET"]
    assert tree_of(host.folder) == before


def test_plan_falls_back_to_what_is_stored(host: Host, service: Service) -> None:
    host.use(service)
    host.store()
    service.answers["/config"] = status(503)

    assert host.agent("plan") == commands.NOTHING_NEW
    assert "From configuration 1.18" in host.out
    assert "service_unreachable" in host.err


def test_plan_as_json_is_for_programs(host: Host) -> None:
    host.engine.kernel = {1: 400, 7: 5}
    assert host.agent("plan", "--link-info", host.link_info(), "--json") == commands.OK

    document = json.loads(host.out)
    assert [one["op"] for one in document["plan"]["ops"]] == ["class-change", "class-add", "class-del"]
    assert document["problems"] == []


def test_empty_plan_says_so(host: Host) -> None:
    host.engine.kernel = {1: 500, 2: 0}

    assert host.agent("plan", "--link-info", host.link_info()) == commands.OK
    assert "Nothing would change." in host.out


# --- show, reset, status ----------------------------------------------------------------------------------------------


def test_show_reads_the_kernel_for_the_stored_links(host: Host) -> None:
    host.store()
    host.engine.kernel = {1: 500}

    assert host.agent("show") == commands.NOT_DONE
    assert "link 2 is not enforced: The kernel has None kbit/s for link 2." in host.err
    assert "nothing" in host.out
    host.engine.kernel = {1: 500, 2: 0}
    assert host.agent("show") == commands.OK
    assert host.agent("show", "--json") == commands.OK
    assert json.loads(host.out)["links"]["1"]["to_user"]["rate_kbit"] == 500
    assert set(host.engine.calls) == {"read_links"}


def test_show_without_links_says_what_to_do(host: Host) -> None:
    assert host.agent("show") == commands.NOT_DONE
    assert "--link-info" in host.err


def test_reset_removes_from_the_kernel_and_keeps_the_disk(host: Host) -> None:
    host.store()
    host.engine.kernel = {1: 500}

    assert host.agent("reset") == commands.OK
    assert host.engine.kernel == {}
    assert "Removed from the kernel:\n  eth0: delete class 1:1 (link 1, to the user AS)" in host.out
    assert Store(host.state).load(host_id=HOST_ID) is not None
    assert host.agent("reset") == commands.OK
    assert "nothing of ours" in host.out


# --- the last receipt -------------------------------------------------------------------------------------------------


def test_reset_tells_the_service_that_nothing_is_enforced_any_more(host: Host, service: Service) -> None:
    host.use(service)
    host.store(bundle_bytes(host_secret="second"))
    host.engine.kernel = {1: 500, 2: 0}

    assert host.agent("reset") == commands.OK
    (request,) = service.asked("/enforcement")
    assert request.credentials == f"{HOST_ID}:second"
    (told,) = service.receipts()
    assert (told["version"], told["limits_version"], told["limits_digest"], told["links"]) == (None, None, None, {})
    assert (told["number"], len(told["run"])) == (1, 32)
    assert told["problems"] == [
        {"code": "limits_removed", "subject": "agent", "message": "The operator of this host removed the limits."}
    ]
    assert host.agent("reset", "--reason", "The package was removed.") == commands.OK
    assert service.receipts()[1]["problems"][0]["message"] == "The package was removed."
    assert service.receipts()[1]["run"] != told["run"]
    assert host.limiter("-r") == commands.OK
    assert len(service.receipts()) == 3


@pytest.mark.parametrize("answer", [status(503), status(401), svc.never(), svc.garbage(), svc.endless(), None])
def test_service_that_cannot_be_told_costs_a_few_seconds_and_no_exit_code(
    host: Host, service: Service, answer: svc.Answer | None
) -> None:
    host.use(service)
    if answer is None:
        host.config.write_text(host.config.read_text().replace(service.url, f"http://127.0.0.1:{svc.free_port()}"))
    else:
        service.answers["/enforcement"] = answer
    host.engine.kernel = {1: 500}
    began = time.monotonic()

    assert host.agent("reset") == commands.OK
    assert time.monotonic() - began < 6.0
    assert "The service was not told that the limits are removed: " in host.err
    assert host.engine.kernel == {}


def test_name_that_nobody_resolves_in_time_is_not_waited_for(host: Host, service: Service) -> None:
    """The resolver of C has timeouts of its own, of half a minute; a thread that hangs stands for it."""
    host.use(service)
    hangs = threading.Event()

    class Hanging(FakeClient):
        def send_receipt(self, receipt: Mapping[str, Any]) -> ReceiptAnswer:
            hangs.wait(20)
            return super().send_receipt(receipt)

    began = time.monotonic()
    why = send_removed(Settings(), lambda _settings: Hanging([NoAS()], Clock()), "It was removed.")
    hangs.set()

    assert why == "There was no answer within 5 s."
    assert time.monotonic() - began < 6.0


def test_without_a_service_nobody_is_told_and_nothing_is_said(host: Host) -> None:
    host.engine.kernel = {1: 500}

    assert host.agent("reset") == commands.OK
    assert host.err == ""


def test_reset_without_usable_credentials_says_why_nobody_was_told(host: Host) -> None:
    host.configure(f'credentials_file = "{host.folder}/none.json"\n')
    host.engine.kernel = {1: 500}

    assert host.agent("reset") == commands.OK
    assert "The service was not told that the limits are removed: " in host.err
    assert "none.json does not exist" in host.err


def test_limits_that_could_not_be_removed_are_not_said_to_be(host: Host, service: Service) -> None:
    host.use(service)
    host.engine.error = ApplyError("eth0: delete class 1:1", errno.EBUSY)

    assert host.agent("reset") == commands.NOT_DONE
    assert service.receipts() == []


def test_status_without_a_report(host: Host) -> None:
    assert host.agent("status") == commands.NOT_DONE
    assert "has not reported yet" in host.err


def test_status_with_a_file_that_is_none(host: Host) -> None:
    host.run_dir.mkdir()
    for content in ("", "[]", '{"schema": 1}', '{"schema": 1, "written_at": 5}', '{"schema": 2}'):
        (host.run_dir / "health.json").write_text(content)
        assert host.agent("status") == commands.NOT_DONE
        assert "cannot be used" in host.err


# --- usage, configuration, permission, lock ---------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", [[], ["nonsense"], ["once", "--nonsense"], ["status", "--link-info", "x"]])
def test_wrong_command_line_is_2(host: Host, arguments: list[str]) -> None:
    assert host.agent(*arguments) == commands.USAGE
    assert "usage:" in host.err


@pytest.mark.parametrize("command", ["run", "once", "plan", "show", "reset", "status"])
def test_wrong_configuration_is_2_for_every_command(host: Host, command: str) -> None:
    host.configure("poll_interval_s = 0\n")

    assert host.agent(command) == commands.USAGE
    assert host.err.startswith(f"{command}: {host.config}: poll_interval_s = 0 is not seconds")
    assert host.engine.calls == []


def test_help_lists_commands_and_exit_codes(host: Host) -> None:
    assert host.agent("--help") == 0
    for word in ("run", "once", "plan", "show", "reset", "status", "exit codes:", "last good state enforced"):
        assert word in host.out
    assert host.out.startswith("usage: scionlab-bw-agent "), "what is installed; no module is on the path"


def test_no_text_for_operators_names_a_command_that_a_package_does_not_have() -> None:
    texts = [*ROOT.glob("ap_agent/**/*.py"), *ROOT.glob("templates/**/*.html"), *ROOT.glob("packaging/man/*.[18]")]
    assert len(texts) > 50
    assert [path.name for path in texts if "python -m ap_agent" in path.read_text()] == []


@pytest.mark.parametrize("content", ["{", None])
def test_unusable_credentials_do_not_keep_the_stored_limits_out_of_the_kernel(
    host: Host, content: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a boot the kernel has nothing, and the stored limits are all that there is."""
    host.store()
    host.configure(f'credentials_file = "{host.folder / "credentials.json"}"\n')
    if content is not None:
        (host.folder / "credentials.json").write_text(content)
        (host.folder / "credentials.json").chmod(0o600)
    monkeypatch.setattr(Loop, "run", Loop.start)

    assert host.agent("run") == commands.OK
    assert host.engine.kernel == {1: 500, 2: 0}
    (problem,) = json.loads((host.run_dir / "health.json").read_bytes())["problems"]
    assert problem["code"] == "settings_invalid"
    assert "Enrol this host" in problem["message"]
    assert host.agent("once") == commands.USAGE  # somebody is there to read it
    assert host.agent("reset") == commands.OK  # a removed package leaves no limit because of that
    assert host.engine.kernel == {}
    shutil.rmtree(host.state)
    assert host.agent("run") == commands.USAGE
    assert "Enrol this host" in host.err


NOT_ENROLLED = "This host is not enrolled. Run: scionlab-bw-agent enrol URL"


def test_a_host_that_is_not_enrolled_waits_in_one_process_and_says_so_once(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []

    def wait(loop: Loop, seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 4:
            loop.stop()

    monkeypatch.setattr(Loop, "_wait", wait)
    host.configure("poll_interval_s = 0.1\nusage_interval_s = 0\n")
    assert host.agent("run") == commands.OK
    assert host.out.count("code=not_enrolled") == 1
    assert host.agent("status") == commands.NOT_DONE
    assert f"Problem        not_enrolled (agent): {NOT_ENROLLED}\n" in host.out
    assert host.agent("show") == commands.NOT_DONE
    assert host.err.startswith(f"{NOT_ENROLLED}\n")
    for command in ("once", "plan"):
        assert host.agent(command) == commands.USAGE
        assert NOT_ENROLLED in host.err


@pytest.mark.parametrize("is_under_systemd", [False, True])
def test_enrolling_ends_the_wait_without_a_restart_by_hand(
    host: Host, service: Service, monkeypatch: pytest.MonkeyPatch, is_under_systemd: bool
) -> None:
    """Under systemd the process ends, to be started again with a copy of the credentials; else it reads them itself."""
    place = host.folder / "credentials.json"
    monkeypatch.setattr(agent_cli, "DEFAULT_CREDENTIALS", place)
    monkeypatch.setattr(agent_credentials, "DEFAULT_CREDENTIALS", place)
    host.configure("poll_interval_s = 0.1\nlong_poll_s = 0\nusage_interval_s = 0\n")
    if is_under_systemd:
        (host.folder / "scionlab-bw").write_bytes(b"{}")
        host.environment["CREDENTIALS_DIRECTORY"] = str(host.folder)
    deadline = time.monotonic() + 20
    wait = Loop._wait

    def enrol_then_wait(loop: Loop, seconds: float) -> None:
        assert time.monotonic() < deadline
        if not place.exists():
            place.write_bytes(Credentials(service.url, HOST_ID, SECRET, (KEY.public,)).to_json())
            place.chmod(0o600)
        if host.engine.kernel:
            loop.stop()
        wait(loop, seconds)

    monkeypatch.setattr(Loop, "_wait", enrol_then_wait)
    assert host.agent("run") == commands.OK
    assert host.out.count("agent.enrolled") == 1
    assert host.engine.kernel == ({} if is_under_systemd else {1: 500, 2: 0})
    (host.folder / "scionlab-bw").unlink(missing_ok=True)  # the next start has the copy of what is there now
    assert host.agent("run") == commands.OK
    assert host.engine.kernel == {1: 500, 2: 0}
    assert "not_enrolled" not in host.out


def test_without_permission_it_is_3_and_nothing_is_touched(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise NotPermittedError("Use sudo.")

    monkeypatch.setattr(commands, "require_net_admin", refuse)
    path = host.link_info()
    for code in (
        host.agent("once", "--link-info", path),
        host.agent("reset"),
        host.agent("run"),
        host.limiter("-l", "-p", path),
        host.limiter("-r"),
    ):
        assert code == commands.NOT_PERMITTED
        assert "Use sudo." in host.err
    assert host.engine.calls == []
    assert host.agent("plan", "--link-info", path) == commands.OK  # looking needs no permission


def test_missing_capability_is_found_before_the_kernel_is_asked() -> None:
    """The real check, in a process that gave up everything."""
    if os.geteuid() != 0:
        with pytest.raises(NotPermittedError, match="CAP_NET_ADMIN"):
            commands.require_net_admin()
        return
    program = (
        "from ap_agent.commands.commands import require_net_admin as check\n"
        "check()\nimport os\nos.setuid(65534)\ncheck()"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=ROOT)
    assert "NotPermittedError: Changing the kernel's traffic control needs root (CAP_NET_ADMIN)" in done.stderr


def test_while_the_service_runs_everything_that_changes_the_kernel_refuses(host: Host) -> None:
    path = host.link_info()
    with AgentLock(host.run_dir, "run"):
        for code in (
            host.agent("once", "--link-info", path),
            host.agent("reset"),
            host.agent("run"),
            host.limiter("-l", "-p", path, "-b", "5000"),
            host.limiter("-r"),
        ):
            assert code == commands.LOCKED
            assert "systemctl stop scionlab-bw-agent" in host.err
            assert f"pid {os.getpid()}" in host.err
        assert host.engine.calls == []
        assert Store(host.state).load_operator() == Operator()  # refused as a whole
        assert host.agent("plan", "--link-info", path) == commands.OK
        assert host.agent("show", "--link-info", path) == commands.NOT_DONE
    assert host.agent("once", "--link-info", path) == commands.OK


def test_two_commands_by_hand_do_not_meet(host: Host) -> None:
    with AgentLock(host.run_dir, "once"):
        assert host.agent("reset") == commands.LOCKED
    assert "`once` is at work" in host.err


def test_lock_that_cannot_be_made_is_no_question_of_permission(host: Host) -> None:
    host.run_dir.write_text("a file where the folder should be")

    assert host.agent("once", "--link-info", host.link_info()) == commands.NOT_DONE
    assert "Not a directory" in host.err or "File exists" in host.err
    assert "root" not in host.err.replace(str(host.folder), "")
    assert host.engine.calls == []


def test_reader_that_has_seen_enough_changes_no_exit_code(tmp_path: Path) -> None:
    """`plan --verbose | head`: what was asked for is done, and there is no traceback."""
    program = """
import sys
from ap_agent.__main__ import print_outcome
from ap_agent.commands.commands import Outcome
sys.exit(print_outcome(Outcome(5, "x" * 200000, "said")))
"""
    command = f"{sys.executable} -c '{program}' | :; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False, timeout=30)

    assert (done.returncode, done.stderr) == (5, "said\n")


def test_terminal_without_a_character_changes_no_exit_code() -> None:
    program = """
import sys
from ap_agent.__main__ import print_outcome
from ap_agent.commands.commands import Outcome
sys.exit(print_outcome(Outcome(0, chr(0x3c0) + "500" + chr(0xa0) + "kbit/s")))
"""
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=30, env=environment
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, "\\u03c0500\\xa0kbit/s\n", "")


def test_lock_of_a_dead_process_is_free(host: Host) -> None:
    child = os.fork()
    if child == 0:
        AgentLock(host.run_dir, "run").__enter__()
        os._exit(0)  # no clean-up, as after SIGKILL
    os.waitpid(child, 0)

    assert holder(lock_path(host.run_dir)) is None
    assert host.agent("reset") == commands.OK


def test_lock_whose_file_is_removed_while_it_is_taken_is_taken_anew(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = fcntl.flock
    path = lock_path(host.run_dir)
    removed: list[Path] = []

    def remove_first(descriptor: int, how: int) -> None:
        if not removed:
            removed.append(path)
            path.unlink()
        real(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", remove_first)
    with AgentLock(host.run_dir, "once"):
        assert removed == [path]
        assert holder(path) is not None
        with pytest.raises(LockHeldError), AgentLock(host.run_dir, "run"):
            raise AssertionError("two holders")


def test_lock_does_not_follow_a_link_laid_by_somebody(host: Host) -> None:
    host.run_dir.mkdir()
    victim = host.folder / "victim"
    victim.write_text("precious")
    lock_path(host.run_dir).symlink_to(victim)

    assert host.agent("reset") == commands.NOT_PERMITTED
    assert victim.read_text() == "precious"
