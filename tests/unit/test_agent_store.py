"""Whatever kills the agent while it stores a bundle, the last good one is still there afterwards."""

from __future__ import annotations

import json
import os
import shutil
import signal
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ap_agent.agent.archive import MANIFEST
from ap_agent.agent.bundle import Bundle, read_bundle
from ap_agent.agent.hold import Hold
from ap_agent.agent.store import KEPT_VERSIONS, Store
from ap_agent.common.errors import NotPermittedError, StoreError
from ap_agent.document.signed_text import Version
from ap_agent.document.trust import Acceptance
from bandwidth_config import LINK_INFO_PATH
from tests.agent_bundles import HOST_ID, bundle_bytes, entry


def bundle(kbit: int, version: str = "1.18", limits_version: int = 7) -> Bundle:
    data = bundle_bytes({"1": entry(kbit)}, version=version, limits_version=limits_version)
    return read_bundle(data, host_id=HOST_ID)


def loaded_kbit(store: Store) -> int | None:
    found = store.load(host_id=HOST_ID)
    return found.links[1].bandwidth_kbit if found is not None else None


HOLD = Hold("1.18-7-0f3a9b2c", "1.19", 12, 15, 4711)
ACCEPTED = Acceptance("1.17", Version(1, 18, 7))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "state")


def test_nothing_stored_is_none_and_looking_creates_nothing(store: Store) -> None:
    assert store.load(host_id=HOST_ID) is None
    assert store.load_hold() is None
    assert store.load_acceptance() is None
    assert not store.folder.exists()


def test_stored_bundle_is_read_back_equal(store: Store) -> None:
    store.save(bundle(500))

    assert store.load(host_id=HOST_ID) == bundle(500)
    assert (store.folder / "current").readlink() == Path("versions") / bundle(500).name
    assert (store.folder / "current" / LINK_INFO_PATH).is_file()


def test_nobody_else_may_read_what_holds_the_secret(store: Store) -> None:
    store.save(bundle(500))
    store.folder.chmod(0o755)  # ours anyway
    store.save(bundle(500))

    assert stat.S_IMODE(store.folder.stat().st_mode) == 0o750
    for path in store.folder.rglob("*"):
        if not path.is_symlink():
            assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path


def test_newer_bundle_replaces_older_and_old_ones_are_pruned(store: Store) -> None:
    for limits in range(6):
        store.save(bundle(500 + limits, limits_version=limits))

    assert loaded_kbit(store) == 505
    kept = {path.name.split("-")[1] for path in (store.folder / "versions").iterdir()}
    assert kept == {"3", "4", "5"}
    assert len(kept) == KEPT_VERSIONS


def test_going_back_to_an_older_bundle_keeps_it_current(store: Store) -> None:
    for kbit in (500, 600, 700, 500):
        store.save(bundle(kbit, limits_version=kbit))
    store.save(bundle(800, limits_version=800))

    assert loaded_kbit(store) == 800
    store.save(bundle(500, limits_version=500))
    assert loaded_kbit(store) == 500


def test_saving_the_current_bundle_again_changes_nothing_on_disk(store: Store) -> None:
    store.save(bundle(500))
    before = (store.folder / "current" / LINK_INFO_PATH).stat()
    store.save(bundle(500))

    assert (store.folder / "current" / LINK_INFO_PATH).stat().st_ino == before.st_ino


# --- a damaged state directory --------------------------------------------------------------------------------------


def _truncate_link_info(folder: Path) -> None:
    (folder / "current" / LINK_INFO_PATH).write_bytes(b"{")


def _forge_limits(folder: Path) -> None:
    """A manifest that fits its files, but is not what was stored: only the folder's name tells."""
    manifest = folder / "current" / MANIFEST
    document = json.loads(manifest.read_bytes())
    document["limits_version"] = 99
    manifest.write_bytes(json.dumps(document).encode())


def _remove_manifest(folder: Path) -> None:
    (folder / "current" / MANIFEST).unlink()


def _remove_version(folder: Path) -> None:
    shutil.rmtree((folder / "current").resolve())


def _link_into_the_system(folder: Path) -> None:
    path = folder / "current" / LINK_INFO_PATH
    path.unlink()
    path.symlink_to("/etc/hostname")


def _current_is_a_file(folder: Path) -> None:
    (folder / "current").unlink()
    (folder / "current").write_text("versions/x")


def _current_leads_elsewhere(folder: Path) -> None:
    (folder / "current").unlink()
    (folder / "current").symlink_to("/etc")


DAMAGES = [
    _truncate_link_info,
    _forge_limits,
    _remove_manifest,
    _remove_version,
    _link_into_the_system,
    _current_is_a_file,
    _current_leads_elsewhere,
]


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_named_and_the_next_save_repairs_it(store: Store, damage: Callable[[Path], None]) -> None:
    store.save(bundle(500))
    damage(store.folder)

    with pytest.raises(StoreError) as found:
        store.load(host_id=HOST_ID)
    assert str(store.folder) in found.value.message

    store.save(bundle(500))
    assert loaded_kbit(store) == 500


def test_bundle_of_another_host_is_not_taken_up(store: Store) -> None:
    store.save(bundle(500))

    with pytest.raises(StoreError, match='is for host "4f1c0d2e"'):
        store.load(host_id="other")


def test_closed_folder_is_a_matter_of_permission(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.save(bundle(500))
    store.save_acceptance(ACCEPTED)

    def refuse(*_args: object, **_options: object) -> bytes:
        raise PermissionError(13, os.strerror(13))

    monkeypatch.setattr(Path, "read_bytes", refuse)
    monkeypatch.setattr("ap_agent.common.files.read_plain", refuse)
    with pytest.raises(NotPermittedError, match="Run as root"):
        store.load(host_id=HOST_ID)
    with pytest.raises(NotPermittedError, match="Run as root"):
        store.load_acceptance()


# --- crash points ---------------------------------------------------------------------------------------------------

STEPS = ["mkdir", "open", "fsync", "rename", "replace", "symlink", "unlink", "chmod"]


class Crash(BaseException):
    """Not an `Exception`: nothing may catch it on the way, as nothing catches SIGKILL."""


def _count_calls(monkeypatch: pytest.MonkeyPatch, action: Callable[[int], None]) -> None:
    """Call `action(n)` before the n-th system call with which the store changes the disk."""
    count = 0

    def before() -> None:
        nonlocal count
        count += 1
        action(count)

    for name in STEPS:
        real = getattr(os, name)

        def step(*args: object, _real: Callable[..., object] = real, **options: object) -> object:
            before()
            return _real(*args, **options)

        monkeypatch.setattr(os, name, step)


def _number_of_steps(folder: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    store = Store(folder)
    store.save(bundle(500))
    calls: list[int] = []
    with monkeypatch.context() as patched:
        _count_calls(patched, calls.append)
        store.save(bundle(900, limits_version=8))
    return len(calls)


def test_a_crash_before_any_step_leaves_the_old_bundle_or_the_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = _number_of_steps(tmp_path / "counting", monkeypatch)
    assert steps >= 20  # files, folders, fsyncs, renames: else the counting is broken
    outcomes = []

    for crash_at in range(1, steps + 1):
        store = Store(tmp_path / f"state{crash_at}")
        store.save(bundle(500))

        def crash(number: int, crash_at: int = crash_at) -> None:
            if number == crash_at:
                raise Crash

        with monkeypatch.context() as patched:
            _count_calls(patched, crash)
            with pytest.raises(Crash):
                store.save(bundle(900, limits_version=8))
        outcomes.append(loaded_kbit(store))
        store.save(bundle(900, limits_version=8))  # what is left lying about disturbs nobody
        assert loaded_kbit(store) == 900
        names = {path.name for path in (store.folder / "versions").iterdir()}
        assert names == {bundle(500).name, bundle(900, limits_version=8).name}

    # Exactly one moment separates old from new.
    assert outcomes == [500] * outcomes.count(500) + [900] * outcomes.count(900)
    assert outcomes.count(500) > 10


def test_disk_error_at_any_step_is_a_store_error_and_the_old_bundle_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = _number_of_steps(tmp_path / "counting", monkeypatch)
    failures = 0

    for fail_at in range(1, steps + 1):
        store = Store(tmp_path / f"state{fail_at}")
        store.save(bundle(500))

        def fail(number: int, fail_at: int = fail_at) -> None:
            if number == fail_at:
                raise OSError(28, os.strerror(28))

        with monkeypatch.context() as patched:
            _count_calls(patched, fail)
            try:
                store.save(bundle(900, limits_version=8))
            except StoreError as exc:
                failures += 1
                message = exc.message
                is_retryable = exc.retryable
            else:
                continue
        assert "No space left on device" in message
        assert is_retryable
        assert loaded_kbit(store) in {500, 900}
    assert failures == steps


def test_killed_while_storing_over_and_over_there_is_always_a_good_bundle(tmp_path: Path) -> None:
    """The same with real processes and SIGKILL at odd moments."""
    store = Store(tmp_path / "state")
    store.save(bundle(500))
    for round_ in range(15):
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reader)
            os.write(writer, b"x")
            for kbit in range(600, 100_000):
                Store(tmp_path / "state").save(bundle(kbit, limits_version=kbit))
            os._exit(1)
        os.close(writer)
        os.read(reader, 1)
        os.close(reader)
        _busy_wait(0.002 * (round_ + 1))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        stored_kbit = loaded_kbit(store)
        assert stored_kbit is not None
        assert stored_kbit >= 500


def _busy_wait(seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        time.sleep(0.0005)


def test_everything_is_synced_before_the_switch(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.save(bundle(500))
    log: list[str] = []
    real_fsync, real_replace = os.fsync, os.replace

    def fsync(descriptor: int) -> None:
        log.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))
        real_fsync(descriptor)

    def replace(old: Path, new: Path) -> None:
        log.append(f"switch {Path(new).name}")
        real_replace(old, new)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", replace)
    new = bundle(900, limits_version=8)
    store.save(new)

    switched = log.index("switch current")
    before = {Path(path).name for path in log[:switched]}
    assert {f".{Path(name).name}.scionlab-bw-new" for name in new.members} <= before  # before each gets its name
    assert {f".unfinished-{new.name}", "etc", "scion", "versions"} <= before
    assert log[switched + 1] == str(store.folder)


def test_read_only_folder_is_an_error_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path / "state")
    store.save(bundle(500))

    def refuse(*_args: object, **_options: object) -> None:
        raise OSError(30, os.strerror(30))

    with monkeypatch.context() as patched:
        patched.setattr(os, "mkdir", refuse)
        with pytest.raises(StoreError, match=r"Read-only file system\. The previous one is kept\."):
            store.save(bundle(900, limits_version=8))
    assert loaded_kbit(store) == 500


# --- what stands beside the bundles -----------------------------------------------------------------------------------


def test_hold_and_acceptance_are_kept_for_this_user_alone(store: Store) -> None:
    store.save_hold(HOLD)
    store.save_acceptance(ACCEPTED)

    assert (store.load_hold(), store.load_acceptance()) == (HOLD, ACCEPTED)
    assert stat.S_IMODE(store.hold_file.stat().st_mode) == 0o600
    assert stat.S_IMODE(store.acceptance_file.stat().st_mode) == 0o600


def test_damaged_hold_is_none(store: Store) -> None:
    store.save_hold(HOLD)
    store.hold_file.write_bytes(store.hold_file.read_bytes().replace(b"12", b"13"))
    assert store.load_hold() is None


@pytest.mark.parametrize("mask", [0o022, 0o077])
def test_limiters_group_may_look_into_the_folder_and_not_into_the_bundles(store: Store, mask: int) -> None:
    before = os.umask(mask)
    try:
        store.save(bundle(500))
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (store.folder, store.folder / "versions")}
    assert modes == {"state": 0o750, "versions": 0o700}


# --- root in the folder of the service's user -----------------------------------------------------------------------

NOBODY = 65534


@pytest.fixture
def of_the_service() -> Iterator[Store]:
    """Its folder lies where that user may go; pytest's own are closed to others."""
    if os.geteuid() != 0:
        pytest.skip("only root can give files away")
    with tempfile.TemporaryDirectory(prefix="slbw-owner-") as name:
        store = Store(Path(name) / "state")
        store.folder.mkdir(mode=0o700)
        store.folder.parent.chmod(0o755)
        os.chown(store.folder, NOBODY, NOBODY)
        yield store


def test_what_root_writes_belongs_to_the_service(of_the_service: Store) -> None:
    of_the_service.save(bundle(500))
    of_the_service.save_acceptance(ACCEPTED)
    assert {one.lstat().st_uid for one in of_the_service.folder.rglob("*")} == {NOBODY}
    assert (os.geteuid(), os.getegid()) == (0, 0)


def test_a_link_in_the_services_folder_leads_root_nowhere(of_the_service: Store, tmp_path: Path) -> None:
    """Pruning deletes all folders but three where `versions` leads."""
    others = [tmp_path / "others" / name for name in "abcdef"]
    for one in others:
        one.mkdir(parents=True)
    (of_the_service.folder / "versions").symlink_to(tmp_path / "others")
    with pytest.raises(StoreError, match="Permission denied"):
        of_the_service.save(bundle(500))
    assert sorted((tmp_path / "others").iterdir()) == others
    assert os.geteuid() == 0


def test_folder_in_the_place_of_a_file_of_ours_is_set_aside_with_all_it_holds(store: Store) -> None:
    for name in ("current", "current.new", "held.json"):
        (store.folder / name / "x").mkdir(parents=True)
    store.folder.chmod(0o700)
    store.save(bundle(500))
    store.save_hold(HOLD)

    assert loaded_kbit(store) == 500
    assert store.load_hold() == HOLD
    aside = sorted(path.parent.name for path in store.folder.glob("*.aside-*/x"))
    assert [name.partition(".aside-")[0] for name in aside] == ["current", "current.new", "held.json"]
    store.save(bundle(501))  # what was set aside is no reason to take the folder for somebody else's
    assert loaded_kbit(store) == 501


def test_whether_a_start_would_find_a_bundle(store: Store) -> None:
    assert not store.is_there()
    store.save(bundle(500))
    assert store.is_there()
    shutil.rmtree(store.folder / "versions")
    assert not store.is_there()
