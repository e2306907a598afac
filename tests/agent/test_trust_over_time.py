"""What agent and limiter accept over their whole life: rotation, playback, acceptance, lost files, another enrolment.

The rules are one module's (`document.trust`); each of these tests puts them to both programs. What concerns one of them
alone: test_agent_bundle, test_limiter_documents.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from ap_agent.common.settings import Settings
from ap_agent.document.signed_text import Version
from ap_agent.document.trust import Acceptance, Trust, load_acceptance, load_trust, save_acceptance
from tests.agent_bundles import KEY, OTHER_KEY, SigningKey
from tests.crash import Crash, before_each_step, dying
from tests.trust_hosts import NOW, THIRD_KEY, AgentHost, Host, LimiterHost


@pytest.fixture(params=[AgentHost, LimiterHost], ids=["agent", "limiter"])
def kind(request: pytest.FixtureRequest) -> type[Host]:
    found: type[Host] = request.param
    return found


@pytest.fixture
def host(kind: type[Host], settings: Settings) -> Host:
    return kind(settings)


# --- older, newer, the same -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "limits", "answer"),
    [
        ("1.19", 9, "new"),
        ("1.18", 10, "new"),
        ("2.1", 1, "new"),
        ("1.18", 8, "refused"),
        ("1.17", 9, "refused"),
        ("1.17", 99, "refused"),
        ("1.99", 8, "refused"),
        ("0.99", 99, "refused"),
        ("1000001.1", 1, "new"),
        ("1000002.1", 1, "refused"),
        ("999999999999999999.1", 1, "refused"),
    ],
)
def test_only_what_is_not_older_nor_far_ahead_is_taken(host: Host, version: str, limits: int, answer: str) -> None:
    host.offered("1.18", 9)

    assert host.offered(version, limits) == answer
    host.start()
    assert host.offered(version, limits) == ("unchanged" if answer == "new" else answer)
    assert host.offered("1.18", 9) == ("refused" if answer == "new" else "unchanged")


def test_a_first_configuration_far_ahead_is_refused_too(host: Host) -> None:
    assert host.offered("1000001.1", 1) == "refused"
    assert host.offered("1000000.1", 1) == "new"


def test_same_version_with_other_content_signed_by_the_service_is_taken(host: Host) -> None:
    host.offered("1.18", 9, kbit=500)

    assert host.offered("1.18", 9, kbit=600) == "new"
    assert host.offered("1.18", 9, kbit=600) == "unchanged"


# --- the operator's permission --------------------------------------------------------------------------------------


INSTALLED = Version(1, 18, 9)


def permit(host: Host, version: str, instead_of: Version = INSTALLED) -> None:
    """As the command does it, from another process."""
    save_acceptance(host.folder, Acceptance(version, instead_of))


def test_accepted_version_is_taken_once_while_the_program_runs(host: Host) -> None:
    host.offered("1.18", 9)
    permit(host, "1.17")

    assert host.offered("1.16", 4) == "refused"
    assert host.offered("1.17", 4) == "new"
    assert load_acceptance(host.folder) is None
    assert host.offered("1.18", 9) == "new"
    assert host.offered("1.17", 4) == "refused"


def test_permission_ends_when_something_else_is_installed(host: Host) -> None:
    host.offered("1.18", 9)
    permit(host, "1.17")
    host.offered("1.18", 10)
    permit(host, "1.17")  # as if it had been left behind

    assert host.offered("1.17", 4) == "refused"


# --- keys over time -------------------------------------------------------------------------------------------------


def test_rotation_is_followed_over_restarts_without_a_hand(host: Host) -> None:
    for limits, signers in enumerate([[KEY], [KEY, OTHER_KEY], [OTHER_KEY], [OTHER_KEY, THIRD_KEY], [THIRD_KEY]]):
        assert host.offered("1.18", limits, signers=signers) == "new"
        host.start()
        assert host.keys == {one.key_id for one in signers}
    assert host.offered("1.18", 9, signers=[KEY]) == "refused"


def test_rotation_without_a_higher_version_is_followed_too(host: Host) -> None:
    host.offered("1.18", 9, signers=[KEY])

    assert host.offered("1.18", 9, signers=[KEY, OTHER_KEY]) == "new"
    assert host.keys == {KEY.key_id, OTHER_KEY.key_id}


def test_what_is_installed_is_enforced_although_its_key_has_expired(kind: type[Host], settings: Settings) -> None:
    key = SigningKey(1, not_after=NOW + timedelta(days=60))
    host = kind(replace(settings, service_keys=(key.public,)))
    host.offered("1.18", 9, signers=[key])
    host.now = NOW + timedelta(days=3650)
    host.start()

    assert host.installed == "1.18 with limits 9"
    assert host.offered("1.18", 10, signers=[key]) == "refused"
    host.now = NOW  # the clock was wrong, and is corrected
    assert host.offered("1.18", 10, signers=[key]) == "new"
    assert host.codes == []


def test_without_a_pinned_key_nothing_is_taken_unless_the_operator_says_so(
    kind: type[Host], settings: Settings
) -> None:
    host = kind(replace(settings, service_keys=()))
    assert host.offered("1.18", 9) == "refused"
    assert "enrol" in host.problems[0].message

    host = kind(replace(settings, service_keys=(), allow_unsigned=True))
    assert host.offered("1.18", 9, is_signed=False) == "new"
    assert host.offered("1.17", 9, is_signed=False) == "refused"
    assert host.offered("1.18", 10, signers=[OTHER_KEY]) == "new"
    assert host.offered("1.18", 10, signers=[OTHER_KEY]) == "unchanged"
    assert host.keys == set()  # nobody verified it: it names nobody to trust


@pytest.mark.parametrize("is_lost", [False, True])
def test_keys_that_an_unsigned_time_left_behind_do_not_count_after_enrolment(
    kind: type[Host], settings: Settings, is_lost: bool
) -> None:
    host = kind(replace(settings, service_keys=(), allow_unsigned=True))
    host.offered("1.18", 9, signers=[OTHER_KEY], revoked=[KEY.key_id])
    host.settings = settings
    if is_lost:
        host.trust_file.unlink()
    host.start()

    assert (host.installed, host.keys) == ("1.18 with limits 9", {KEY.key_id})
    assert host.offered("1.18", 10, signers=[OTHER_KEY]) == "refused"


# --- files that are lost or old -------------------------------------------------------------------------------------


def _flipped(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "gone": Path.unlink,
    "emptied": lambda path: path.write_bytes(b""),
    "other JSON": lambda path: path.write_text('{"schema": 1, "host_id": "x", "enrolled": [], "keys": 5}'),
    "no text": lambda path: path.write_bytes(bytes(range(256))),
    "a flipped bit": _flipped,
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_lost_trust_is_made_again_from_the_enrolment_and_what_is_installed(
    host: Host, damage: Callable[[Path], object]
) -> None:
    host.offered("1.18", 8, signers=[KEY, OTHER_KEY])
    host.offered("1.18", 9, signers=[OTHER_KEY], revoked=[KEY.key_id])
    damage(host.trust_file)
    host.start()

    assert host.codes == []  # repaired at once
    assert load_trust(host.folder) == host.trust
    assert host.keys == {OTHER_KEY.key_id}  # the enrolled key was revoked, and stays so
    assert host.offered("1.18", 8, signers=[OTHER_KEY]) == "refused"
    assert host.offered("1.18", 10, signers=[OTHER_KEY]) == "new"


@pytest.mark.parametrize("name", ["emptied", "a flipped bit"])
def test_what_is_installed_and_damaged_is_named_and_opens_no_door_to_an_older_one(host: Host, name: str) -> None:
    host.offered("1.18", 8, signers=[KEY, OTHER_KEY])
    host.offered("1.18", 9, signers=[OTHER_KEY], revoked=[KEY.key_id])
    DAMAGES[name](host.installed_file)
    host.start()

    assert (host.installed, host.codes) == ("nothing", ["state_unusable"])
    assert host.offered("1.17", 9, signers=[OTHER_KEY]) == "refused"
    assert host.offered("1.18", 10, signers=[KEY]) == "refused"
    assert host.offered("1.18", 9, signers=[OTHER_KEY]) == "new"
    assert host.codes == []


def test_older_trust_from_a_backup_revokes_no_less(host: Host) -> None:
    host.offered("1.18", 8, signers=[KEY, OTHER_KEY])
    backup = host.trust_file.read_bytes()
    host.offered("1.18", 9, signers=[OTHER_KEY], revoked=[KEY.key_id])
    host.trust_file.write_bytes(backup)
    host.start()

    assert host.keys == {OTHER_KEY.key_id}
    assert host.offered("1.18", 10, signers=[KEY]) == "refused"


def test_nobody_else_may_read_or_write_what_is_trusted(host: Host) -> None:
    host.offered("1.18", 9)
    permit(host, "1.17")

    for path in (host.trust_file, host.installed_file, host.folder / "accepted.json"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_trust_that_cannot_be_stored_is_a_problem_and_the_limits_stay(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.offered("1.18", 9)
    host.trust_file.write_bytes(b"")

    def full(_descriptor: int) -> None:
        raise OSError(28, os.strerror(28))

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        host.start()
    assert set(host.codes) == {"state_unusable"}
    assert host.installed == "1.18 with limits 9"
    assert host.offered("1.18", 10) == "new"
    assert host.codes == []


def test_crash_before_any_step_of_taking_one_that_rotates_converges(
    kind: type[Host], settings: Settings, tmp_path: Path
) -> None:
    """The key changes with the document, and an older one is accepted: the worst that can come together."""
    installed, crash_at, ended = [], 0, False
    revoked = [KEY.key_id]

    while not ended:
        crash_at += 1
        folder = tmp_path / f"{crash_at}"
        host = kind(replace(settings, state_dir=folder / "state", limiter_state_dir=folder / "limiter"))
        host.offered("1.19", 9, signers=[KEY, OTHER_KEY])
        permit(host, "1.18", Version(1, 19, 9))
        new = host.made("1.18", 5, kbit=900, signers=[OTHER_KEY, THIRD_KEY], revoked=revoked)
        try:
            with before_each_step(dying(crash_at, Crash())[1]):
                host.offered_bytes(new)
            ended = True
        except Crash:
            pass
        host.start()
        installed.append(host.installed)
        assert host.codes == [], crash_at
        assert host.offered_bytes(new) == ("unchanged" if installed[-1] == "1.18 with limits 5" else "new"), crash_at
        assert host.offered("1.17", 4, signers=[OTHER_KEY]) == "refused"
        assert host.offered("1.20", 10, signers=[THIRD_KEY], revoked=revoked) == "new"
        assert host.keys == {THIRD_KEY.key_id}
        assert host.trust.keyring.revoked == {KEY.key_id}

    assert crash_at > 10
    switch = installed.index("1.18 with limits 5")
    assert installed == ["1.19 with limits 9"] * switch + ["1.18 with limits 5"] * (crash_at - switch)


# --- another enrolment ------------------------------------------------------------------------------------------------


def test_without_its_credentials_a_host_forgets_nothing(host: Host, settings: Settings) -> None:
    host.offered("1.18", 9, signers=[KEY, OTHER_KEY])
    host.offered("1.18", 10, signers=[OTHER_KEY], revoked=[KEY.key_id])
    before: Trust = host.trust
    host.settings = replace(settings, url=None, host_id=None, host_secret=None, service_keys=())
    host.start()

    assert host.installed == "1.18 with limits 10"
    assert host.trust == load_trust(host.folder) == before
    host.use(settings)  # they are back, and the configuration is read again
    assert host.codes == []
    assert host.offered("1.18", 11, signers=[OTHER_KEY]) == "new"


@pytest.mark.parametrize("is_restarted", [True, False])
def test_new_enrolment_counts_over_what_was_followed_before(host: Host, settings: Settings, is_restarted: bool) -> None:
    host.offered("1.18", 9, signers=[KEY, OTHER_KEY], revoked=[THIRD_KEY.key_id])
    mine = SigningKey(7)
    host.use(replace(settings, service_keys=(mine.public,)))
    if is_restarted:
        host.start()

    assert host.keys == {mine.key_id}
    assert host.offered("1.18", 10, signers=[OTHER_KEY]) == "refused"
    assert host.offered("1.18", 8, signers=[mine]) == "refused"
    assert host.offered("1.18", 10, signers=[mine]) == "new"
    assert host.trust.keyring.revoked == {THIRD_KEY.key_id}


def test_host_that_became_another_one_is_not_held_back_by_the_former(host: Host, settings: Settings) -> None:
    host.offered("1.18", 9)
    host.use(replace(settings, host_id="another"))

    assert host.trust.newest is None
    assert host.offered("1.2", 1, host_id="another") == "new"
