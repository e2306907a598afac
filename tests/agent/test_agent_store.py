"""Whatever kills the agent while it stores a bundle, the last good one is still there afterwards.

Real kills and power cuts: tests/faults/agent.
"""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ap_agent.agent.bundle import Bundle, read_bundle
from ap_agent.agent.hold import Hold
from ap_agent.agent.store import Store
from ap_agent.common.errors import StoreError
from ap_agent.document.signatures import Keyring
from ap_agent.document.signed_text import Version
from ap_agent.document.trust import Trust
from tests.agent_bundles import HOST_ID, KEY, bundle_bytes, entry
from tests.crash import before_each_step


def bundle(kbit: int, version: str = "1.18", limits_version: int = 7) -> Bundle:
    data = bundle_bytes({"1": entry(kbit)}, version=version, limits_version=limits_version)
    return read_bundle(data, host_id=HOST_ID)


def loaded_kbit(store: Store) -> int | None:
    found = store.load(host_id=HOST_ID)
    return found.links[1].bandwidth_kbit if found is not None else None


HOLD = Hold("1.18-7-0f3a9b2c", "1.19", 12, 15, 4711)
TRUST = Trust(HOST_ID, (KEY.key_id,), Keyring.of([KEY.public]), Version(1, 18, 7))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "state")


def test_stored_bundle_is_read_back_equal_and_a_newer_one_replaces_it(store: Store) -> None:
    for one in (bundle(500), bundle(900, limits_version=8), bundle(500)):
        store.save(one)
        assert store.load(host_id=HOST_ID) == one
    assert store.is_there()
    assert [path.name for path in store.folder.iterdir()] == ["scionlab-bundle"]


def test_a_bundle_that_was_not_verified_brings_neither_keys_nor_secret_back(store: Store) -> None:
    store.save(bundle(500).unsigned())
    found = store.load(host_id=HOST_ID)
    assert found is not None
    assert (found.signed, found.host_secret, found.name[-9:]) == (None, None, "-unsigned")


@pytest.mark.parametrize("mask", [0o022, 0o077])
def test_limiters_group_may_look_into_the_folder_and_nobody_into_what_holds_the_secret(store: Store, mask: int) -> None:
    before = os.umask(mask)
    try:
        store.save(bundle(500), TRUST)
        store.folder.chmod(0o755)  # ours anyway
        store.save_hold(HOLD)
    finally:
        os.umask(before)
    assert stat.S_IMODE(store.folder.stat().st_mode) == 0o750
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in store.folder.iterdir()}
    assert modes == {"scionlab-bundle": 0o600, "trust.json": 0o600, "held.json": 0o600}


# --- a damaged state directory --------------------------------------------------------------------------------------


def _flip_a_bit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-9] ^= 1  # in the length of the unpacked archive, behind all that is packed
    path.write_bytes(data)


def _forge_the_mark(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b'"is_verified": false', b'"is_verified": 1'))


def _link_elsewhere(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.parent.parent / "elsewhere")


def _folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


DAMAGES: dict[str, Callable[[Path], object]] = {
    "a flipped bit": _flip_a_bit,
    "cut": lambda path: path.write_bytes(path.read_bytes()[:-1]),
    "endless": lambda path: os.truncate(path, 1 << 30),
    "a link to what is not ours": _link_elsewhere,
    "a folder": _folder,
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_damage_is_named_and_the_next_save_repairs_it(store: Store, damage: Callable[[Path], object]) -> None:
    elsewhere = store.folder.parent / "elsewhere"
    elsewhere.write_text("not ours\n")
    store.save(bundle(500))
    damage(store.bundle_file)

    with pytest.raises(StoreError) as found:
        store.load(host_id=HOST_ID)
    assert str(store.bundle_file) in found.value.message

    store.save(bundle(500))
    assert loaded_kbit(store) == 500
    assert elsewhere.read_text() == "not ours\n"


def test_a_mark_that_is_not_true_verifies_nothing(store: Store) -> None:
    store.save(bundle(500).unsigned())
    _forge_the_mark(store.bundle_file)
    found = store.load(host_id=HOST_ID)
    assert found is not None
    assert found.signed is None


# --- crash points ---------------------------------------------------------------------------------------------------


def test_everything_is_synced_and_trust_comes_first(store: Store) -> None:
    store.save(bundle(500))
    log: list[str] = []

    def action(step: str) -> None:
        call, _, argument = step.partition(" ")
        if call in {"fsync", "replace"}:
            path = Path(f"/proc/self/fd/{argument}").readlink() if call == "fsync" else Path(argument)
            log.append(f"{call} {path.name}")

    with before_each_step(action):
        store.save(bundle(900, limits_version=8), TRUST)

    assert log == [
        "fsync .trust.json.scionlab-bw-new",
        "replace .trust.json.scionlab-bw-new",
        "fsync state",
        "fsync .scionlab-bundle.scionlab-bw-new",
        "replace .scionlab-bundle.scionlab-bw-new",
        "fsync state",
    ]


# --- what stands beside the bundle ------------------------------------------------------------------------------------


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


def test_what_root_writes_belongs_to_the_service_and_a_link_there_leads_root_nowhere(
    of_the_service: Store, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("of root")
    (of_the_service.folder / ".scionlab-bundle.scionlab-bw-new").symlink_to(elsewhere)
    of_the_service.save(bundle(500), TRUST)
    assert {one.lstat().st_uid for one in of_the_service.folder.rglob("*")} == {NOBODY}
    assert (os.geteuid(), os.getegid(), elsewhere.read_text()) == (0, 0, "of root")
