"""Which bundle an agent takes, over its whole life: rotation, playback, acceptance, lost files, a new secret."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from ap_agent.agent.agent import Agent
from ap_agent.agent.bundle import read_bundle
from ap_agent.agent.fetch import Client, NewBundle
from ap_agent.agent.problems import problem_of
from ap_agent.agent.store import Store
from ap_agent.common.errors import StoreError
from ap_agent.common.log import get_logger
from ap_agent.common.settings import Settings
from ap_agent.document.signatures import Keyring
from ap_agent.document.signed_text import Signed, Version
from ap_agent.document.trust import Acceptance, Trust, save_acceptance, trust_now
from tests import agent_service as svc
from tests.agent_bundles import (
    FAR,
    HOST_ID,
    KEY,
    OTHER_KEY,
    SECRET,
    SERVICE_KEYS,
    SigningKey,
    bundle_bytes,
    entry,
)
from tests.agent_service import Handler, Service

NOW = datetime(2026, 11, 21, tzinfo=UTC)
THIRD_KEY = SigningKey(3)


def bundle(version: str, limits: int, kbit: int = 500, **options: Any) -> bytes:
    return bundle_bytes({"1": entry(kbit)}, version=version, limits_version=limits, **options)


@dataclass
class Host:
    """A host that is offered bundles one by one, and may be restarted between them."""

    settings: Settings
    now: datetime = NOW

    def __post_init__(self) -> None:
        self.start()

    def start(self) -> None:
        self.agent = Agent(self.settings, None, get_logger(), now=lambda: self.now)
        self.agent.configuration.load()

    def offered(self, data: bytes) -> str:
        """`new`, `unchanged`, or the code of the problem."""
        pulled = self.agent.configuration.take_up(NewBundle(data))
        return problem_of(pulled.error, "").code if pulled.error is not None else pulled.contact

    def codes(self) -> list[str]:
        return [one.code for one in self.agent.configuration.problems]

    @property
    def keys(self) -> set[str]:
        return set(self.agent.configuration.trust.keyring.keys)

    @property
    def installed(self) -> str:
        return str(self.agent.configuration.bundle.order) if self.agent.configuration.bundle is not None else "nothing"


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(
        url="https://service.example",
        host_id=HOST_ID,
        host_secret=SECRET,
        service_keys=SERVICE_KEYS,
        state_dir=tmp_path / "state",
        run_dir=tmp_path / "run",
        limiter_run_dir=tmp_path / "limiter",
    )


@pytest.fixture
def host(settings: Settings) -> Host:
    return Host(settings)


# --- older, newer, the same -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "limits", "answer"),
    [
        ("1.19", 9, "new"),
        ("1.18", 10, "new"),
        ("2.1", 1, "new"),
        ("1.18", 8, "version_older"),
        ("1.17", 9, "version_older"),
        ("1.17", 99, "version_older"),
        ("1.99", 8, "version_older"),
        ("0.99", 99, "version_older"),
        ("1000001.1", 1, "new"),
        ("1000002.1", 1, "version_jump"),
        ("999999999999999999.1", 1, "version_jump"),
    ],
)
def test_only_what_is_not_older_is_taken(host: Host, version: str, limits: int, answer: str) -> None:
    host.offered(bundle("1.18", 9))

    assert host.offered(bundle(version, limits)) == answer
    host.start()
    assert host.offered(bundle(version, limits)) == ("unchanged" if answer == "new" else answer)


def test_same_version_with_other_content_signed_by_the_service_is_taken(host: Host) -> None:
    host.offered(bundle("1.18", 9, kbit=500))

    assert host.offered(bundle("1.18", 9, kbit=600)) == "new"
    assert host.offered(bundle("1.18", 9, kbit=600)) == "unchanged"


def test_a_generation_far_ahead_locks_no_host_out(host: Host) -> None:
    host.offered(bundle("1.18", 9))
    assert host.offered(bundle("999999999999999999.19", 10)) == "version_jump"
    (problem,) = host.agent.configuration.problems
    assert "accept-older 999999999999999999.19" in problem.message
    assert host.offered(bundle("1.19", 10)) == "new"
    assert host.codes() == []


def test_a_first_configuration_far_ahead_is_refused_too(host: Host) -> None:
    assert host.offered(bundle("1000001.1", 1)) == "version_jump"
    assert host.offered(bundle("1000000.1", 1)) == "new"


def test_refusal_names_both_versions_and_the_remedies_of_both_sides(host: Host) -> None:
    host.offered(bundle("1.18", 9))
    host.offered(bundle("1.17", 4))

    (problem,) = host.agent.configuration.problems
    for words in ("1.17 with limits 4", "1.18 with limits 9", "manage.py raise_generation", "accept-older 1.17"):
        assert words in problem.message


def test_lost_bundle_does_not_open_the_door_to_an_older_one(host: Host) -> None:
    host.offered(bundle("1.18", 9))
    host.agent.configuration.store.bundle_file.write_bytes(b"{}")
    host.start()

    assert host.installed == "nothing"
    assert host.offered(bundle("1.17", 9)) == "version_older"
    assert host.offered(bundle("1.18", 9)) == "new"


# --- the operator's permission --------------------------------------------------------------------------------------


def permit(host: Host, version: str) -> None:
    """As the command does it, from another process."""
    newest = host.agent.configuration.trust.newest
    assert newest is not None
    save_acceptance(host.settings.state_dir, Acceptance(version, newest))


def test_accepted_version_is_taken_once_while_the_agent_runs(host: Host) -> None:
    host.offered(bundle("1.18", 9))
    permit(host, "1.17")

    assert host.offered(bundle("1.16", 4)) == "version_older"
    assert host.offered(bundle("1.17", 4)) == "new"
    assert not host.agent.configuration.store.acceptance_file.exists()
    assert host.offered(bundle("1.18", 9)) == "new"
    assert host.offered(bundle("1.17", 4)) == "version_older"


def test_permission_that_a_crash_left_behind_counts_for_nothing(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    host.offered(bundle("1.18", 9))
    permit(host, "1.17")
    monkeypatch.setattr(Store, "drop", lambda _store, _path: None)
    host.offered(bundle("1.17", 4))
    host.start()
    assert host.agent.configuration.store.acceptance_file.exists()

    assert host.offered(bundle("1.18", 9)) == "new"  # what it was given for is installed again: the same as it saw
    assert host.offered(bundle("1.19", 10)) == "new"
    assert host.offered(bundle("1.17", 4)) == "version_older"


def test_permission_ends_when_something_else_is_installed(host: Host) -> None:
    host.offered(bundle("1.18", 9))
    permit(host, "1.17")
    saved = host.agent.configuration.store.acceptance_file.read_bytes()
    host.offered(bundle("1.18", 10))
    host.agent.configuration.store.acceptance_file.write_bytes(saved)

    assert host.offered(bundle("1.17", 4)) == "version_older"


def test_damaged_permission_is_named(host: Host) -> None:
    host.offered(bundle("1.18", 9))
    host.agent.configuration.store.acceptance_file.write_text("{")

    assert host.offered(bundle("1.17", 4)) == "state_unusable"
    assert "Delete it" in host.agent.configuration.problems[0].message
    assert host.offered(bundle("1.19", 9)) == "new"  # where no permission is needed, none is read


# --- keys over time -------------------------------------------------------------------------------------------------


def test_rotation_is_followed_over_restarts_without_a_hand(host: Host) -> None:
    for limits, signers in enumerate([[KEY], [KEY, OTHER_KEY], [OTHER_KEY], [OTHER_KEY, THIRD_KEY], [THIRD_KEY]]):
        assert host.offered(bundle("1.18", limits, signers=signers)) == "new"
        host.start()
        assert host.keys == {one.key_id for one in signers}
    assert host.offered(bundle("1.18", 9, signers=[KEY])) == "unknown_key"


def test_installed_bundle_is_enforced_although_its_key_has_expired(settings: Settings) -> None:
    key = SigningKey(1, not_after=NOW + timedelta(days=60))
    host = Host(replace(settings, service_keys=(key.public,)))
    host.offered(bundle("1.18", 9, signers=[key]))
    host.now = NOW + timedelta(days=3650)
    host.start()

    assert host.installed == "1.18 with limits 9"
    assert host.offered(bundle("1.18", 10, signers=[key])) == "key_expired"
    host.now = NOW  # the clock was wrong, and is corrected
    assert host.offered(bundle("1.18", 10, signers=[key])) == "new"
    assert host.codes() == []


@pytest.mark.parametrize(("days", "words"), [(31, None), (30, "expires at"), (1, "expires at"), (-1, "expired at")])
def test_last_key_near_its_end_is_a_warning(settings: Settings, days: int, words: str | None) -> None:
    key = SigningKey(1, not_after=NOW + timedelta(days=days))
    host = Host(replace(settings, service_keys=(key.public,)))

    assert host.codes() == ([] if words is None else ["key_expires_soon"])
    assert words is None or words in host.agent.configuration.problems[0].message
    host.settings = replace(settings, service_keys=(key.public, OTHER_KEY.public))
    host.start()
    assert host.codes() == []


def test_without_a_pinned_key_nothing_is_taken_unless_the_operator_says_so(settings: Settings) -> None:
    host = Host(replace(settings, service_keys=()))
    assert host.offered(bundle("1.18", 9)) == "not_enrolled"
    assert "enrol" in host.agent.configuration.problems[0].message

    host = Host(replace(settings, service_keys=(), allow_unsigned=True))
    assert host.offered(bundle("1.18", 9, is_signed=False)) == "new"
    assert host.offered(bundle("1.17", 9, is_signed=False)) == "version_older"
    assert host.offered(bundle("1.18", 9, signers=[OTHER_KEY])) == "new"
    assert host.keys == set()  # nobody verified it: it names nobody to trust


@pytest.mark.parametrize("is_lost", [False, True])
def test_keys_that_an_unsigned_time_left_behind_do_not_count_after_enrolment(settings: Settings, is_lost: bool) -> None:
    host = Host(replace(settings, service_keys=(), allow_unsigned=True))
    host.offered(bundle("1.18", 9, signers=[OTHER_KEY], revoked=[KEY.key_id]))
    host.settings = settings
    if is_lost:
        host.agent.configuration.store.trust_file.unlink()
    host.start()
    assert host.installed == "1.18 with limits 9"
    assert host.keys == {KEY.key_id}

    assert host.offered(bundle("1.18", 10, signers=[OTHER_KEY])) == "unknown_key"


# --- files that are lost or old -------------------------------------------------------------------------------------


def _gone(path: Path) -> None:
    path.unlink()


def _emptied(path: Path) -> None:
    path.write_bytes(b"")


def _other_json(path: Path) -> None:
    path.write_text('{"schema": 1, "host_id": "x", "enrolled": [], "keys": 5}')


def _random(path: Path) -> None:
    path.write_bytes(bytes(range(256)))


@pytest.mark.parametrize("damage", [_gone, _emptied, _other_json, _random])
def test_lost_trust_is_made_again_from_the_enrolment_and_the_bundle(host: Host, damage: Callable[[Path], None]) -> None:
    host.offered(bundle("1.18", 8, signers=[KEY, OTHER_KEY]))
    host.offered(bundle("1.18", 9, signers=[OTHER_KEY], revoked=[KEY.key_id]))
    damage(host.agent.configuration.store.trust_file)
    host.start()

    assert host.codes() == []  # repaired at once
    assert host.agent.configuration.store.load_trust() == host.agent.configuration.trust
    assert host.keys == {OTHER_KEY.key_id}  # the enrolled key was revoked, and stays so
    assert host.offered(bundle("1.18", 8, signers=[OTHER_KEY])) == "version_older"
    assert host.offered(bundle("1.18", 10, signers=[OTHER_KEY])) == "new"


def test_no_single_bit_of_what_is_trusted_can_turn_unnoticed(host: Host) -> None:
    """A flipped bit can leave well-formed JSON: another enrolled key, or a list of keys under another name."""
    host.offered(bundle("1.18", 9, signers=[KEY, OTHER_KEY], revoked=[THIRD_KEY.key_id]))
    store = host.agent.configuration.store
    data = store.trust_file.read_bytes()
    for at in range(len(data)):
        damaged = bytearray(data)
        damaged[at] ^= 1 << at % 7
        store.trust_file.write_bytes(damaged)
        with pytest.raises(StoreError, match="cannot be used"):
            store.load_trust()


def test_trust_that_cannot_be_repaired_is_a_problem_and_the_limits_stay(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.offered(bundle("1.18", 9))
    host.agent.configuration.store.trust_file.write_bytes(b"")

    def full(_descriptor: int) -> None:
        raise OSError(28, os.strerror(28))

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        host.start()
    assert host.codes() == ["state_unusable"]
    assert host.installed == "1.18 with limits 9"
    assert host.offered(bundle("1.18", 10)) == "new"
    assert host.codes() == []


def test_older_trust_from_a_backup_revokes_no_less(host: Host) -> None:
    host.offered(bundle("1.18", 8, signers=[KEY, OTHER_KEY]))
    backup = host.agent.configuration.store.trust_file.read_bytes()
    host.offered(bundle("1.18", 9, signers=[OTHER_KEY], revoked=[KEY.key_id]))
    host.agent.configuration.store.trust_file.write_bytes(backup)
    host.start()

    assert host.keys == {OTHER_KEY.key_id}
    assert host.offered(bundle("1.18", 10, signers=[KEY])) == "key_revoked"


def test_older_trust_of_the_same_version_follows_the_bundle_too(host: Host) -> None:
    """A bundle that was rendered anew, with another key, and no counter that rose."""
    host.offered(bundle("1.18", 9, signers=[KEY]))
    backup = host.agent.configuration.store.trust_file.read_bytes()
    host.offered(bundle("1.18", 9, signers=[KEY, OTHER_KEY]))
    host.agent.configuration.store.trust_file.write_bytes(backup)
    host.start()

    assert host.offered(bundle("1.18", 10, signers=[OTHER_KEY])) == "new"


def test_with_everything_lost_the_enrolment_counts_again(host: Host) -> None:
    host.offered(bundle("1.18", 9, signers=[KEY, OTHER_KEY]))
    for path in (host.agent.configuration.store.trust_file, host.agent.configuration.store.bundle_file):
        path.unlink()
    host.start()

    assert host.keys == {KEY.key_id}
    assert host.offered(bundle("1.18", 8)) == "new"


def test_host_without_its_credentials_says_so_and_forgets_nothing(host: Host, settings: Settings) -> None:
    host.offered(bundle("1.18", 9, signers=[KEY, OTHER_KEY]))
    host.offered(bundle("1.18", 10, signers=[OTHER_KEY], revoked=[KEY.key_id]))
    before = host.agent.configuration.trust
    host.settings = Settings(state_dir=settings.state_dir, run_dir=settings.run_dir)
    host.start()

    assert host.codes() == ["not_enrolled"]
    assert host.installed == "1.18 with limits 10"
    assert host.agent.configuration.trust == host.agent.configuration.store.load_trust() == before
    host.agent.use(settings, None)  # they are back, and the configuration is read again
    assert host.codes() == []
    assert host.offered(bundle("1.18", 11, signers=[OTHER_KEY])) == "new"


def test_new_enrolment_counts_over_what_was_followed_before(host: Host, settings: Settings) -> None:
    host.offered(bundle("1.18", 9, signers=[KEY, OTHER_KEY], revoked=[THIRD_KEY.key_id]))
    host.settings = replace(settings, service_keys=(SigningKey(7).public,))
    host.start()

    assert host.keys == {SigningKey(7).key_id}
    assert host.offered(bundle("1.18", 10, signers=[OTHER_KEY])) == "unknown_key"
    assert host.offered(bundle("1.18", 8, signers=[SigningKey(7)])) == "version_older"
    assert host.offered(bundle("1.18", 10, signers=[SigningKey(7)])) == "new"
    assert host.agent.configuration.trust.keyring.revoked == {THIRD_KEY.key_id}


def test_host_that_became_another_one_is_not_held_back_by_the_former(host: Host, settings: Settings) -> None:
    host.offered(bundle("1.18", 9))
    host.agent.use(replace(settings, host_id="another"), None)

    assert host.agent.configuration.trust.newest is None
    assert host.offered(bundle("1.2", 1, host_id="another")) == "new"


def test_nobody_else_may_read_or_write_what_is_trusted(host: Host) -> None:
    host.offered(bundle("1.18", 9))
    permit(host, "1.17")

    for path in (host.agent.configuration.store.trust_file, host.agent.configuration.store.acceptance_file):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert SECRET not in host.agent.configuration.store.trust_file.read_text()


STEPS = ["mkdir", "open", "fsync", "rename", "replace", "symlink", "unlink", "chmod"]


class Crash(BaseException):
    """Not an `Exception`: nothing may catch it on the way, as nothing catches SIGKILL."""


def test_crash_before_any_step_of_taking_a_bundle_that_rotates_converges(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The key changes with the bundle, an older one is accepted: the worst that can come together."""
    old = bundle("1.19", 9, signers=[KEY, OTHER_KEY])
    new = bundle("1.18", 5, kbit=900, signers=[OTHER_KEY, THIRD_KEY], revoked=[KEY.key_id])
    later = bundle("1.20", 10, signers=[THIRD_KEY], revoked=[KEY.key_id])
    installed, crash_at, ended = [], 0, False

    while not ended:
        crash_at += 1
        host = Host(replace(settings, state_dir=tmp_path / f"state{crash_at}"))
        host.offered(old)
        permit(host, "1.18")
        count = 0

        def before(real: Callable[..., Any], *args: Any, **options: Any) -> Any:
            nonlocal count
            count += 1
            if count == crash_at:  # noqa: B023  called within this round
                raise Crash
            return real(*args, **options)

        with monkeypatch.context() as patched:
            for name in STEPS:
                real = getattr(os, name)
                patched.setattr(os, name, lambda *args, _real=real, **options: before(_real, *args, **options))
            try:
                host.offered(new)
                ended = True
            except Crash:
                pass
        host.start()
        installed.append(host.installed)
        assert host.codes() == []
        assert host.offered(new) == ("new" if installed[-1].startswith("1.19") else "unchanged")
        assert host.offered(bundle("1.17", 4, signers=[OTHER_KEY])) == "version_older"
        assert host.offered(later) == "new"
        assert host.keys == {THIRD_KEY.key_id}
        assert host.agent.configuration.trust.keyring.revoked == {KEY.key_id}

    assert crash_at > 20
    switch = installed.index("1.18 with limits 5")
    assert installed == ["1.19 with limits 9"] * switch + ["1.18 with limits 5"] * (crash_at - switch)


def test_what_is_written_is_read_back_equal(host: Host) -> None:
    host.offered(bundle("1.18", 9, signers=[KEY, OTHER_KEY], revoked=[THIRD_KEY.key_id]))
    store = host.agent.configuration.store

    assert store.load_trust() == host.agent.configuration.trust
    assert json.loads(store.trust_file.read_bytes())["newest"] == {
        "generation": 1,
        "config_version": 18,
        "limits_version": 9,
    }
    unknown = trust_now(replace(host.settings, host_id=None), None, None)
    store.save_trust(unknown)
    assert store.load_trust() == unknown
    save_acceptance(store.folder, Acceptance("1.17", Version(1, 18, None)))
    assert store.load_acceptance() == Acceptance("1.17", Version(1, 18, None))


ANNOUNCED = Signed(HOST_ID, Version(1, 18, 7), 1, {}, "", (OTHER_KEY.public,), frozenset())


@dataclass(frozen=True)
class Document:
    """The accepted one. It announces OTHER_KEY."""

    order: Version
    host_id: str = HOST_ID
    signed: Signed | None = ANNOUNCED


ENROLLED = Settings(host_id=HOST_ID, host_secret=SECRET, url="https://service.example", service_keys=SERVICE_KEYS)
STORED = Trust(HOST_ID, (KEY.key_id,), Keyring.of([KEY.public], [THIRD_KEY.key_id]), Version(1, 18, 7))


@pytest.mark.parametrize(
    ("url", "stored", "order", "trusted", "newest"),
    [
        (ENROLLED.url, None, Version(1, 18, 7), {KEY, OTHER_KEY}, Version(1, 18, 7)),
        (ENROLLED.url, STORED, Version(1, 18, 7), {KEY, OTHER_KEY}, Version(1, 18, 7)),
        (ENROLLED.url, STORED, Version(1, 17, 9), {KEY}, Version(1, 18, 9)),
        (ENROLLED.url, STORED, Version(1, 19, 7), {OTHER_KEY}, Version(1, 19, 7)),
        (ENROLLED.url, replace(STORED, enrolled=()), Version(1, 19, 7), {KEY}, Version(1, 19, 7)),
        (ENROLLED.url, STORED, None, {KEY}, Version(1, 18, 7)),
        (None, STORED, Version(1, 19, 7), {KEY}, Version(1, 19, 7)),
        (None, STORED, None, {KEY}, Version(1, 18, 7)),
    ],
)
def test_which_keys_count_and_what_is_the_newest(
    url: str | None, stored: Trust | None, order: Version | None, trusted: set[SigningKey], newest: Version
) -> None:
    accepted = Document(order) if order is not None else None
    found = trust_now(replace(ENROLLED, url=url), stored, accepted)

    assert (set(found.keyring.keys), found.newest) == ({one.key_id for one in trusted}, newest)
    assert found.keyring.revoked == (stored.keyring.revoked if stored is not None else frozenset())


def test_a_document_that_nobody_verified_revokes_no_key() -> None:
    unverified = Document(Version(1, 19, 7), signed=replace(ANNOUNCED, revoked=frozenset([KEY.key_id])))
    assert set(trust_now(ENROLLED, replace(STORED, enrolled=()), unverified).keyring.keys) == {KEY.key_id}


# --- the secret -----------------------------------------------------------------------------------------------------


def only_for(secret: str, data: bytes) -> svc.Answer:
    def answer(handler: Handler) -> None:
        if handler.request_seen.credentials != f"{HOST_ID}:{secret}":
            return svc.status(401)(handler)
        return svc.tarball(data)(handler)

    return answer


@pytest.fixture
def service() -> Iterator[Service]:
    with svc.service() as running:
        yield running


def test_new_secret_comes_with_the_bundle_and_the_enrolled_one_remains(settings: Settings, service: Service) -> None:
    settings = replace(settings, url=service.url)
    agent = Agent(settings, Client(settings), get_logger())
    agent.configuration.load()

    service.answers["/config"] = only_for(SECRET, bundle("1.18", 9, host_secret="second"))
    assert agent.pull().contact == "new"
    service.answers["/config"] = only_for("second", bundle("1.18", 10, host_secret="second"))
    assert agent.pull().contact == "new"
    assert [one.credentials.partition(":")[2] for one in service.asked("/config")] == [SECRET, "second"]

    again = Agent(settings, Client(settings), get_logger())
    again.configuration.load()
    assert again.pull().contact == "unchanged"  # with the stored bundle's
    assert service.asked("/config")[-1].credentials == f"{HOST_ID}:second"
    service.answers["/config"] = only_for(SECRET, bundle("1.18", 11, host_secret=SECRET))  # enrolled anew meanwhile
    assert again.pull().contact == "new"
    assert [one.credentials.partition(":")[2] for one in service.asked("/config")][-2:] == ["second", SECRET]


def test_secret_of_an_unbelieved_bundle_is_never_used(settings: Settings, service: Service) -> None:
    settings = replace(settings, url=service.url)
    agent = Agent(settings, Client(settings), get_logger())
    service.answers["/config"] = svc.tarball(bundle("1.18", 9, host_secret="planted", signers=[OTHER_KEY]))
    agent.pull()
    agent.pull()

    assert {one.credentials for one in service.seen} == {f"{HOST_ID}:{SECRET}"}


def test_order_of_a_bundle_is_that_of_its_text() -> None:
    assert read_bundle(bundle("1.18", 9), host_id=None).order == Version(1, 18, 9)
    assert FAR > NOW
