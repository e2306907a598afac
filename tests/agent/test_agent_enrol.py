"""`enrol`: what a token becomes, what it costs when something is wrong, and what nobody ever gets to see."""

from __future__ import annotations

import io
import json
import os
import pty
import stat
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from ap_agent.agent.settings import load_settings
from ap_agent.common import outcome as commands
from ap_agent.common.credentials import NewCredentials, read_credentials
from ap_agent.common.errors import SettingsError
from tests import agent_service as svc
from tests.agent_bundles import HOST_ID, KEY, OTHER_KEY, SECRET
from tests.agent_host import ROOT, Host
from tests.agent_service import Service, reply, status
from tests.terminal import read_until

RANDOM = "R4nd0m_part-of_the-token_0123456789"
TOKEN = f"slbw1.{RANDOM}.{KEY.key_id}"
ENROL = "/api/v4/enrol"


def answer(**changes: Any) -> svc.Answer:
    document = {
        "host_id": HOST_ID,
        "host_secret": SECRET,
        "url": "https://www.scionlab.example",
        "keys": [OTHER_KEY.public.to_json(), KEY.public.to_json()],
        "revoked": [],
        **changes,
    }
    return reply(200, json.dumps(document).encode(), Content_Type="application/json")


@pytest.fixture
def service(service: Service) -> Service:
    service.answers[ENROL] = answer()
    return service


class Person(Host):
    """Somebody at the host who types `enrol`, with a token on stdin."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self.file = folder / "etc" / "credentials.json"
        self._monkeypatch = monkeypatch
        super().__init__(folder, capsys)

    def configure(self, text: str = "") -> None:
        super().configure(f'credentials_file = "{self.file}"\nread_timeout_s = 2\n{text}')

    def enrols(self, url: str, *arguments: str, token: str = TOKEN) -> int:
        self._monkeypatch.setattr(sys, "stdin", io.StringIO(f"{token}\n"))
        code = self.agent("enrol", url, *arguments)
        assert RANDOM not in self.out + self.err
        return code

    def left(self) -> list[str]:
        """Everything in the folder of the credentials."""
        return sorted(path.name for path in self.file.parent.iterdir()) if self.file.parent.exists() else []


@pytest.fixture
def person(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Person:
    return Person(tmp_path, capsys, monkeypatch)


def test_token_becomes_credentials_that_the_agent_reads(person: Person, service: Service) -> None:
    assert person.enrols(f"{service.url}/") == commands.OK

    settings = load_settings(person.config, {})
    assert (settings.url, settings.host_id, settings.host_secret) == (service.url, HOST_ID, SECRET)
    assert settings.service_keys == (KEY.public,)  # the others come signed: an impostor cannot slip in one of his own
    (request,) = service.seen
    assert (request.method, request.path, json.loads(request.body)) == ("POST", ENROL, {"token": RANDOM})
    assert "Authorization" not in request.headers
    assert stat.S_IMODE(person.file.stat().st_mode) == 0o600
    assert person.left() == ["credentials.json"]
    assert person.err == ""
    for words in (HOST_ID, KEY.key_id, "2099-01-01", str(person.file), "systemctl enable --now scionlab-bw-agent"):
        assert words in person.out


@pytest.mark.parametrize(
    "changes",
    [{"keys": [OTHER_KEY.public.to_json()]}, {"revoked": [KEY.key_id]}],
    ids=["another key", "the key is revoked"],
)
def test_service_without_the_key_of_the_token_is_not_believed(
    person: Person, service: Service, changes: dict[str, Any]
) -> None:
    service.answers[ENROL] = answer(**changes)

    assert person.enrols(service.url) == commands.NOT_DONE
    assert f"does not have the key {KEY.key_id}" in person.err
    assert person.left() == []


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (reply(403, b'{"code": "token_invalid"}'), "rejects the token"),
        (status(429, Retry_After="60"), "Too many attempts"),
        (status(503), "503"),
        (status(302, Location="https://elsewhere.example/"), "redirects"),
        (reply(200, b"<html>", Content_Type="text/html"), "an enrolment"),
        (reply(200, b"[]"), "an enrolment"),
        (reply(200, b"\xff"), "an enrolment"),
        (reply(200, b"[" * 60_000), "did not answer with an enrolment"),
        (reply(200, b" " * 65_537), "65536"),
        (answer(host_id="../x"), "host id"),
        (answer(host_secret="two words"), "host secret"),
        (answer(keys=[{**KEY.public.to_json(), "public_key": "x"}]), "public_key"),
        (svc.never(), "did not finish"),
        (svc.garbage(), "cannot be reached"),
    ],
    ids=range(14),
)
def test_unwelcome_answer_leaves_nothing_behind(
    person: Person, service: Service, given: svc.Answer, words: str
) -> None:
    service.answers[ENROL] = given
    if words == "did not finish":
        person.configure("fetch_deadline_s = 0.3\n")

    assert person.enrols(service.url) == commands.NOT_DONE
    assert words in person.err
    assert person.left() == []
    assert len(service.seen) == 1


@pytest.mark.parametrize(
    "token",
    ["", f"slbw1.{RANDOM}", f"slbw1.{RANDOM}.{KEY.key_id}0", f"slbw2.{RANDOM}.{KEY.key_id}", "slbw1.x.y"],
)
def test_what_is_no_token_is_sent_nowhere(person: Person, service: Service, token: str) -> None:
    assert person.enrols(service.url, token=token) == commands.USAGE
    assert "not an enrolment token" in person.err
    assert service.seen == []


# --- before the token is spent --------------------------------------------------------------------------------------


def test_existing_credentials_are_replaced_only_on_demand(person: Person, service: Service) -> None:
    person.enrols(service.url)
    service.answers[ENROL] = answer(host_id="another", host_secret="other-secret")

    assert person.enrols(service.url) == commands.USAGE
    assert f"host {HOST_ID} at {service.url}" in person.err
    assert "--replace" in person.err
    assert len(service.seen) == 1  # the token of this try is unspent
    assert person.enrols(service.url, "--replace") == commands.OK
    assert read_credentials(person.file).host_id == "another"
    assert person.left() == ["credentials.json"]
    person.file.write_text("{")  # damaged ones too
    assert person.enrols(service.url) == commands.USAGE
    assert person.enrols(service.url, "--replace") == commands.OK


def test_a_folder_in_the_place_of_the_credentials_costs_no_token_and_stays(person: Person, service: Service) -> None:
    (person.file / "x").mkdir(parents=True)

    assert person.enrols(service.url, "--replace") == commands.USAGE
    assert f"{person.file} is not a regular file and is not replaced. Move it away" in person.err
    assert service.seen == []
    assert (person.file / "x").is_dir()


def test_full_disk_is_found_before_the_token_is_spent(
    person: Person, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_descriptor: int) -> None:
        raise OSError(28, os.strerror(28))

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        assert person.enrols(service.url) == commands.NOT_DONE
    assert "No space left on device. The token was not used" in person.err
    assert (service.seen, person.left()) == ([], [])


def test_disk_that_fails_after_all_leaves_the_former_credentials(
    person: Person, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    person.enrols(service.url)
    before = person.file.read_bytes()
    service.answers[ENROL] = answer(host_id="another")
    calls = 0
    real = os.fsync

    def failing(descriptor: int) -> None:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise OSError(5, os.strerror(5))
        real(descriptor)

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", failing)
        assert person.enrols(service.url, "--replace") == commands.NOT_DONE
    assert "The token was consumed" in person.err
    assert person.file.read_bytes() == before
    assert person.left() == ["credentials.json"]


# --- what nobody sees -----------------------------------------------------------------------------------------------


def test_token_is_asked_for_without_an_echo_and_is_no_argument(tmp_path: Path, service: Service) -> None:
    """A real terminal, a real process, and the list of processes while it works."""
    file = tmp_path / "credentials.json"
    controller, terminal = pty.openpty()
    waiting = service.answers[ENROL]
    seen = bytearray()

    def slowly(handler: svc.Handler) -> None:
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with suppress(FileNotFoundError, ProcessLookupError):  # a process that ended meanwhile
                seen.extend(path.read_bytes())
        waiting(handler)

    service.answers[ENROL] = slowly
    config = tmp_path / "agent.toml"
    config.write_text("")
    command = [sys.executable, "-P", "-m", "ap_agent", "enrol", service.url, "--credentials", str(file)]
    process = subprocess.Popen(
        [*command, "--config", str(config)],
        stdin=terminal, stdout=terminal, stderr=terminal, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)},
        start_new_session=True,
    )  # fmt: skip
    os.close(terminal)
    shown = read_until(controller, b"is hidden): ")
    os.write(controller, TOKEN.encode() + b"\n")
    shown += read_until(controller, None)
    os.close(controller)

    assert process.wait(30) == commands.OK, shown
    assert read_credentials(file).host_secret == SECRET
    assert RANDOM.encode() not in shown
    assert SECRET.encode() not in shown
    assert b"enrol" in seen
    assert RANDOM.encode() not in seen


# --- the file -------------------------------------------------------------------------------------------------------


@pytest.fixture
def enrolled(person: Person, service: Service) -> Path:
    assert person.enrols(service.url) == commands.OK
    return person.file


@pytest.mark.parametrize("mode", [0o604, 0o602, 0o660])
def test_file_that_others_may_read_or_write_is_refused(enrolled: Path, mode: int) -> None:
    enrolled.chmod(mode)

    with pytest.raises(SettingsError, match=rf"mode {mode:04o}\); run `chmod 600 {enrolled}`"):
        read_credentials(enrolled)


def test_file_of_somebody_else_is_refused(enrolled: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give files away")
    os.chown(enrolled, 12345, -1)

    with pytest.raises(
        SettingsError, match=f"belongs to user 12345, who could replace it; run `chown root {enrolled}`"
    ):
        read_credentials(enrolled)


@pytest.mark.parametrize(
    "content",
    [
        b"", b"[]", b"\xff", b" " * 65_537, b'{"schema": 2}', b'{"schema": 1}',
        b'{"schema": 1, "url": "https://u:p@x", "host_id": "a", "host_secret": "s3cret-of-the-host", "keys": []}',
        b'{"schema": 1, "url": "https://x", "host_id": "a", "host_secret": "s3cret-of-the-host "}',
        b'{"schema": 1, "url": "https://x", "host_id": "a", "host_secret": "s3cret-of-the-host", "keys": [1]}',
    ],
    ids=str,
)  # fmt: skip
def test_damaged_file_is_named_without_what_it_holds(enrolled: Path, content: bytes) -> None:
    enrolled.write_bytes(content)

    with pytest.raises(SettingsError, match="Enrol this host again") as refused:
        read_credentials(enrolled)
    assert str(enrolled) in refused.value.message
    assert SECRET not in refused.value.message


def test_copy_of_systemd_comes_first(person: Person, enrolled: Path, tmp_path: Path) -> None:
    folder = tmp_path / "credentials"
    folder.mkdir()
    copy = folder / "scionlab-bw"
    copy.write_bytes(enrolled.read_bytes().replace(HOST_ID.encode(), b"from-systemd"))
    copy.chmod(0o440)
    person.config.write_text("")

    assert load_settings(person.config, {"CREDENTIALS_DIRECTORY": str(folder)}).host_id == "from-systemd"
    assert load_settings(person.config, {"CREDENTIALS_DIRECTORY": str(tmp_path)}).host_id is None
    (folder / "scionlab-bw").write_text("{}")  # the unit's SetCredential=, where there is no file
    assert load_settings(person.config, {"CREDENTIALS_DIRECTORY": str(folder)}).host_id is None


@pytest.mark.parametrize("line", ['url = "https://x"', f'host_id = "{HOST_ID}"', f'service_keys = ["{KEY.by_hand}"]'])
def test_enrolled_and_by_hand_at_once_is_an_error_that_names_both(person: Person, enrolled: Path, line: str) -> None:
    person.configure(line + "\n")

    with pytest.raises(SettingsError, match=f"enrolled \\({enrolled}\\), and {line.partition(' ')[0]} is set"):
        load_settings(person.config, {})


def test_unsigned_beside_a_pinned_key_is_an_error(person: Person, enrolled: Path) -> None:
    person.configure("allow_unsigned = true\n")

    with pytest.raises(SettingsError, match="keys of the service are pinned"):
        load_settings(person.config, {})
    assert enrolled.exists()


@pytest.mark.parametrize("text", ['["x"]', '"x"', f'["{KEY.by_hand} x"]', f'["{KEY.by_hand}", "{KEY.by_hand}"]'])
def test_keys_by_hand_are_checked(person: Person, text: str) -> None:
    person.config.write_text(f"service_keys = {text}\n")

    with pytest.raises(SettingsError, match="signing_key list"):
        load_settings(person.config, {})


@pytest.mark.parametrize(("is_enrolled", "first"), [(True, False), (False, True)])
def test_running_program_notices_new_credentials_once(enrolled: Path, is_enrolled: bool, first: bool) -> None:
    new = NewCredentials(enrolled, {"CREDENTIALS_DIRECTORY": "/run/credentials"}, is_enrolled=is_enrolled)
    assert new.need_restart
    assert [new.are_there(), new.are_there()] == [first, False]
    other = enrolled.with_name("new")
    other.write_bytes(enrolled.read_bytes())
    other.replace(enrolled)
    assert [new.are_there(), new.are_there()] == [True, False]
    enrolled.unlink()
    assert not new.are_there()
