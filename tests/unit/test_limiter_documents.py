"""Which documents the limiter accepts over its whole life: rotation, playback, acceptance, lost files, rubbish."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from ap_agent.common.settings import Settings
from ap_agent.document.handover import write_document
from ap_agent.document.signed_text import Version
from ap_agent.document.trust import Acceptance, load_acceptance, load_trust, save_acceptance
from ap_agent.limiter.documents import Documents
from tests.agent_bundles import HOST_ID, KEY, OTHER_KEY, SERVICE_KEYS, SigningKey, entry
from tests.limiter_documents import handed

NOW = datetime(2026, 11, 22, tzinfo=UTC)
THIRD_KEY = SigningKey(3)


@dataclass
class Host:
    """A limiter that documents are handed to one by one, and that may be restarted between them."""

    settings: Settings
    now: datetime = NOW

    def __post_init__(self) -> None:
        self.start()

    def start(self) -> None:
        self.documents = Documents(self.settings, lambda: self.now)
        self.documents.load()
        self.documents.keep()

    def given(self, version: str = "1.18", limits: int = 7, kbit: int = 500, **options: Any) -> str:
        """`new`, `unchanged` or `refused`."""
        return self.given_bytes(handed({"1": entry(kbit)}, version=version, limits=limits, **options))

    def given_bytes(self, data: bytes) -> str:
        write_document(self.settings.state_dir / "document.json", data)
        is_new = self.documents.take()
        self.documents.keep()
        if any(one.code == "document_refused" for one in self.documents.problems):
            return "refused"
        return "new" if is_new else "unchanged"

    @property
    def accepted(self) -> str:
        return str(self.documents.accepted.order) if self.documents.accepted is not None else "nothing"

    def codes(self) -> list[str]:
        return [one.code for one in self.documents.problems]

    @property
    def keys(self) -> set[str]:
        return set(self.documents.trust.keyring.keys)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    (tmp_path / "agent").mkdir()
    return Settings(
        url="https://service.example",
        host_id=HOST_ID,
        service_keys=SERVICE_KEYS,
        state_dir=tmp_path / "agent",
        limiter_state_dir=tmp_path / "limiter",
        limiter_run_dir=tmp_path / "run",
    )


@pytest.fixture
def host(settings: Settings) -> Host:
    return Host(settings)


def test_without_any_document_nothing_is_wrong_and_nothing_is_written(host: Host, settings: Settings) -> None:
    assert not host.documents.take()
    assert (host.accepted, host.codes()) == ("nothing", [])
    assert not settings.limiter_state_dir.exists()


@pytest.mark.parametrize(
    ("version", "limits", "answer"),
    [
        ("1.19", 9, "new"),
        ("1.18", 10, "new"),
        ("2.1", 1, "new"),
        ("1.18", 8, "refused"),
        ("1.17", 99, "refused"),
        ("1.99", 8, "refused"),
        ("0.99", 99, "refused"),
    ],
)
def test_only_what_is_not_older_is_accepted(host: Host, version: str, limits: int, answer: str) -> None:
    host.given("1.18", 9)

    assert host.given(version, limits) == answer
    host.start()
    assert host.given(version, limits) == ("unchanged" if answer == "new" else answer)


def test_accepted_document_outlives_the_agent_and_all_its_files(host: Host, settings: Settings) -> None:
    host.given("1.18", 9)
    for one in settings.state_dir.iterdir():
        one.unlink()
    settings.state_dir.rmdir()
    host.start()
    host.documents.take()

    assert (host.accepted, host.codes()) == ("1.18 with limits 9", [])


def test_own_copy_is_nobody_elses_to_read(host: Host, settings: Settings) -> None:
    host.given()

    assert stat.S_IMODE(settings.limiter_state_dir.stat().st_mode) == 0o700
    for name in ("document.json", "trust.json"):
        assert stat.S_IMODE((settings.limiter_state_dir / name).stat().st_mode) == 0o600


@pytest.mark.parametrize("rubbish", [b"", b"{", b"\xff" * 100, b"[" * 100_000, b'{"schema": 1}'])
def test_rubbish_ends_no_limit_and_is_named(host: Host, rubbish: bytes) -> None:
    host.given("1.18", 9)

    assert host.given_bytes(rubbish) == "refused"
    assert host.accepted == "1.18 with limits 9"
    (problem,) = host.documents.problems
    assert (problem.code, problem.subject) == ("document_refused", "document")
    assert problem.message.endswith("The current limits stay.")
    assert host.given("1.18", 9) == "unchanged"
    assert host.codes() == []


def test_folder_in_the_place_of_the_document_is_named(host: Host, settings: Settings) -> None:
    host.given()
    (settings.state_dir / "document.json").unlink()
    (settings.state_dir / "document.json").mkdir()

    assert not host.documents.take()
    assert "Is a directory" in host.documents.problems[0].message


def test_document_of_a_key_that_the_agent_made_up_is_refused(host: Host) -> None:
    host.given("1.18", 9)

    assert host.given("1.18", 10, signers=(OTHER_KEY,)) == "refused"
    assert host.given("1.18", 10, host_id="another") == "refused"
    assert host.given("1.18", 10, is_signed=False) == "refused"


def test_rotation_is_followed_over_restarts(host: Host) -> None:
    for limits, signers in enumerate([(KEY,), (KEY, OTHER_KEY), (OTHER_KEY,), (OTHER_KEY, THIRD_KEY), (THIRD_KEY,)]):
        assert host.given(limits=limits, signers=signers) == "new"
        host.start()
        assert host.keys == {one.key_id for one in signers}
    assert host.given(limits=9, signers=(KEY,)) == "refused"


def test_rotation_without_a_higher_version_is_followed_too(host: Host) -> None:
    host.given(signers=(KEY,))

    assert host.given(signers=(KEY, OTHER_KEY)) == "new"
    assert host.keys == {KEY.key_id, OTHER_KEY.key_id}


def test_revoked_key_stays_revoked_when_everything_but_trust_is_lost(host: Host, settings: Settings) -> None:
    host.given("1.18", 8, signers=(KEY, OTHER_KEY))
    host.given("1.18", 9, signers=(OTHER_KEY,), revoked=[KEY.key_id])
    (settings.limiter_state_dir / "document.json").unlink()
    host.start()

    assert host.given("1.18", 10, signers=(KEY,)) == "refused"
    assert host.given("1.18", 10, signers=(OTHER_KEY,)) == "new"


def test_accepted_document_is_enforced_although_its_key_expired(settings: Settings) -> None:
    key = SigningKey(1, not_after=NOW + timedelta(days=60))
    host = Host(replace(settings, service_keys=(key.public,)))
    host.given("1.18", 9, signers=(key,))
    host.now = NOW + timedelta(days=3650)
    host.start()

    assert host.accepted == "1.18 with limits 9"
    assert host.given("1.18", 10, signers=(key,)) == "refused"
    host.now = NOW  # the clock was wrong
    assert host.given("1.18", 10, signers=(key,)) == "new"


def test_older_version_is_accepted_once_when_root_says_so(host: Host, settings: Settings) -> None:
    host.given("1.18", 9)
    save_acceptance(settings.limiter_state_dir, Acceptance("1.17", Version(1, 18, 9)))

    assert host.given("1.16", 4) == "refused"
    assert host.given("1.17", 4) == "new"
    assert load_acceptance(settings.limiter_state_dir) is None
    assert host.given("1.18", 9) == "new"
    assert host.given("1.17", 4) == "refused"


def test_an_acceptance_that_the_agent_writes_for_itself_counts_for_nothing(host: Host, settings: Settings) -> None:
    host.given("1.18", 9)
    save_acceptance(settings.state_dir, Acceptance("1.17", Version(1, 18, 9)))

    assert host.given("1.17", 4) == "refused"


def test_damaged_acceptance_is_named(host: Host, settings: Settings) -> None:
    host.given("1.18", 9)
    (settings.limiter_state_dir / "accepted.json").write_text("{")

    assert host.given("1.17", 4) == "refused"
    assert "Delete it" in host.documents.problems[0].message
    assert host.given("1.19", 9) == "new"  # where none is needed, none is read


def _gone(path: Path) -> None:
    path.unlink()


def _emptied(path: Path) -> None:
    path.write_bytes(b"")


def _flipped(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("damage", [_gone, _emptied, _flipped])
def test_lost_trust_is_made_again_from_the_enrolment_and_the_own_copy(
    host: Host, settings: Settings, damage: Callable[[Path], None]
) -> None:
    host.given("1.18", 8, signers=(KEY, OTHER_KEY))
    host.given("1.18", 9, signers=(OTHER_KEY,), revoked=[KEY.key_id])
    damage(settings.limiter_state_dir / "trust.json")
    host.start()

    assert host.codes() == []
    assert load_trust(settings.limiter_state_dir) == host.documents.trust
    assert host.keys == {OTHER_KEY.key_id}
    assert host.given("1.18", 8, signers=(OTHER_KEY,)) == "refused"
    assert host.given("1.18", 10, signers=(OTHER_KEY,)) == "new"


@pytest.mark.parametrize("damage", [_emptied, _flipped])
def test_damaged_own_copy_is_named_and_opens_no_door_to_an_older_one(
    host: Host, settings: Settings, damage: Callable[[Path], None]
) -> None:
    host.given("1.18", 9)
    damage(settings.limiter_state_dir / "document.json")
    host.start()

    assert (host.accepted, host.codes()) == ("nothing", ["state_unusable"])
    assert host.given("1.17", 9) == "refused"
    assert host.given("1.18", 9) == "new"
    assert host.codes() == []


def test_own_copy_that_somebody_deleted_is_written_again(host: Host, settings: Settings) -> None:
    host.given()
    (settings.limiter_state_dir / "document.json").unlink()
    host.documents.keep()
    host.start()

    assert host.accepted == "1.18 with limits 7"


def test_full_disk_is_named_and_what_was_handed_over_holds(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    host.given("1.18", 9)

    def full(_descriptor: int) -> None:
        raise OSError(28, os.strerror(28))

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        write_bytes = handed({"1": entry(900)}, limits=10)
        (host.settings.state_dir / "document.json").write_bytes(write_bytes)
        assert host.documents.take()
        host.documents.keep()
    assert (host.accepted, host.codes()) == ("1.18 with limits 10", ["state_unusable"])
    host.documents.keep()
    assert host.codes() == []
    host.start()
    assert host.accepted == "1.18 with limits 10"


class Crash(BaseException):
    """Not an `Exception`: nothing may catch it on the way, as nothing catches SIGKILL."""


def test_crash_before_any_step_of_storing_converges(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The key changes with the document, and an older one is accepted: the worst that can come together."""
    old = handed({"1": entry(500)}, version="1.19", limits=9, signers=(KEY, OTHER_KEY))
    new = handed({"1": entry(900)}, version="1.18", limits=5, signers=(OTHER_KEY, THIRD_KEY), revoked=[KEY.key_id])
    later = handed({"1": entry(800)}, version="1.20", limits=10, signers=(THIRD_KEY,), revoked=[KEY.key_id])
    crash_at, ended = 0, False
    while not ended:
        crash_at += 1
        host = Host(replace(settings, limiter_state_dir=tmp_path / f"limiter{crash_at}"))
        host.given_bytes(old)
        save_acceptance(host.settings.limiter_state_dir, Acceptance("1.18", Version(1, 19, 9)))
        count = 0

        def before(real: Callable[..., Any], *args: Any, **options: Any) -> Any:
            nonlocal count
            count += 1
            if count == crash_at:  # noqa: B023  # called within this round
                raise Crash
            return real(*args, **options)

        write_document(host.settings.state_dir / "document.json", new)
        with monkeypatch.context() as patched:
            for name in ("open", "fsync", "fchmod", "replace", "rename", "unlink"):
                real = getattr(os, name)
                patched.setattr(os, name, lambda *args, _real=real, **options: before(_real, *args, **options))
            try:
                host.documents.take()
                host.documents.keep()
                ended = True
            except Crash:
                pass
        host.start()
        host.documents.take()
        assert (host.accepted, host.codes()) == ("1.18 with limits 5", []), crash_at
        host.documents.keep()
        assert host.given("1.17", 4, signers=(OTHER_KEY,)) == "refused"
        assert host.given_bytes(later) == "new"
        assert host.keys == {THIRD_KEY.key_id}
    assert crash_at > 10


# --- without a key, and another enrolment ---------------------------------------------------------------------------


def test_without_a_pinned_key_nothing_is_accepted_unless_the_operator_says_so(settings: Settings) -> None:
    host = Host(replace(settings, service_keys=()))
    assert host.given() == "refused"
    assert "enrol" in host.documents.problems[0].message

    host = Host(replace(settings, service_keys=(), allow_unsigned=True))
    assert host.given("1.18", 9, is_signed=False) == "new"
    assert host.given("1.17", 9, is_signed=False) == "refused"
    assert host.given("1.18", 10, signers=(OTHER_KEY,)) == "new"
    assert host.given("1.18", 10, signers=(OTHER_KEY,)) == "unchanged"
    assert host.keys == set()


@pytest.mark.parametrize("is_lost", [False, True])
def test_keys_that_an_unsigned_time_left_behind_do_not_count_after_enrolment(settings: Settings, is_lost: bool) -> None:
    host = Host(replace(settings, service_keys=(), allow_unsigned=True))
    host.given("1.18", 9, signers=(OTHER_KEY,), revoked=[KEY.key_id])
    host.settings = settings
    if is_lost:
        (settings.limiter_state_dir / "trust.json").unlink()
    host.start()

    assert (host.accepted, host.keys) == ("1.18 with limits 9", {KEY.key_id})
    assert host.given("1.18", 10, signers=(OTHER_KEY,)) == "refused"


def test_other_enrolment_counts_as_soon_as_the_settings_are_read_again(host: Host, settings: Settings) -> None:
    host.given("1.18", 9)
    host.documents.use(replace(settings, service_keys=(OTHER_KEY.public,)))

    assert host.given("1.18", 10) == "refused"
    assert host.given("1.18", 10, signers=(OTHER_KEY,)) == "new"


def test_without_credentials_nothing_is_forgotten(host: Host, settings: Settings) -> None:
    host.given("1.18", 9, signers=(KEY, OTHER_KEY))
    before = host.documents.trust
    host.settings = replace(settings, url=None, host_id=None, service_keys=())
    host.start()

    assert (host.accepted, host.documents.trust) == ("1.18 with limits 9", before)


def test_a_symbolic_link_in_the_agents_folder_is_not_followed(host: Host) -> None:
    """The agent could make the limiter read what the agent may not."""
    elsewhere = host.settings.state_dir.parent / "elsewhere.json"
    elsewhere.write_bytes(handed())
    (host.settings.state_dir / "document.json").symlink_to(elsewhere)
    assert not host.documents.take()
    assert host.accepted == "nothing"
    (problem,) = host.documents.problems
    assert "it is a symbolic link; name a plain file" in problem.message


def test_refused_documents_are_looked_at_more_and_more_seldom_until_one_is_accepted(host: Host) -> None:
    rests = []
    for number in range(9):
        assert host.given_bytes(b"no document %d" % number) == "refused"
        rests.append(host.documents.rest_s)
    assert rests == pytest.approx([0.2, 0.4, 0.8, 1.6, 3.2, 5, 5, 5, 5])
    assert host.given() == "new"
    assert host.documents.rest_s == 0


def test_a_generation_far_ahead_is_refused_by_the_limiter_too(host: Host) -> None:
    assert host.given("1.18") == "new"
    assert host.given("999999999999999999.19", limits=8) == "refused"
    assert host.given("1.19", limits=8) == "new"
