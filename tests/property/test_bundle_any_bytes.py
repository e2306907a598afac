"""Whatever bytes arrive, the bundle parser answers with a `Bundle` or a `BundleError`, and with nothing else.

The last tests bend good inputs (`lab.fuzz`): hypothesis makes one small that breaks a promise, and planted bugs prove
that the inputs get deep enough.
"""

from __future__ import annotations

import gzip
import random
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ap_agent.agent.archive import Limits
from ap_agent.agent.bundle import Bundle, check_members, digest, read_bundle
from ap_agent.common.errors import BundleError
from bandwidth_config import LINK_INFO_PATH
from lab.fuzz import targets
from lab.fuzz.planted import PLANTED
from tests.agent_bundles import HOST_ID, bundle_bytes, entry, member, zipped

GOOD = bundle_bytes({"1": entry(500), "17": entry(0, "2001:db8::7")})
ARCHIVE = gzip.decompress(GOOD)
SMALL = Limits(unpacked_bytes=1024 * 1024, member_bytes=64 * 1024)


def outcome(data: bytes) -> Bundle | None:
    try:
        return read_bundle(data, host_id=HOST_ID, limits=SMALL)
    except BundleError:
        return None


@given(st.binary(max_size=4096))
def test_any_bytes(data: bytes) -> None:
    assert outcome(data) is None


@given(st.binary(max_size=4096))
def test_any_bytes_inside_gzip(data: bytes) -> None:
    assert outcome(zipped(data)) is None


@given(at=st.integers(0, len(GOOD) - 1), value=st.integers(0, 255))
def test_one_byte_of_the_tarball_changed(at: int, value: int) -> None:
    changed = outcome(GOOD[:at] + bytes([value]) + GOOD[at + 1 :])

    # gzip's own header (time, operating system) carries no content; anything else must be noticed.
    if changed is not None:
        assert digest(changed.members) == digest(read_bundle(GOOD, host_id=HOST_ID).members)


@settings(max_examples=300)
@given(at=st.integers(0, len(ARCHIVE) - 1), value=st.integers(0, 255))
def test_one_byte_of_the_archive_changed(at: int, value: int) -> None:
    changed = outcome(zipped(ARCHIVE[:at] + bytes([value]) + ARCHIVE[at + 1 :]))

    # A changed byte of the manifest may give another valid manifest; a changed file never passes its hash.
    if changed is not None:
        good = read_bundle(GOOD, host_id=HOST_ID)
        assert changed.members[LINK_INFO_PATH] == good.members[LINK_INFO_PATH]
        assert changed.links == good.links


@given(length=st.integers(0, len(GOOD) - 1))
def test_every_truncation_is_noticed(length: int) -> None:
    assert outcome(GOOD[:length]) is None


@given(
    name=st.binary(max_size=100),
    data=st.binary(max_size=600),
    kind=st.binary(min_size=1, max_size=1),
    size=st.none() | st.integers(0, 8**11 - 1),
)
def test_any_member(name: bytes, data: bytes, kind: bytes, size: int | None) -> None:
    assert outcome(zipped(member(name, data, kind=kind, size=size) + ARCHIVE)) is None


@given(
    st.dictionaries(
        st.sampled_from(["scionlab-config.json", LINK_INFO_PATH, "etc/scion/a", "etc/scion/a/b"])
        | st.text(max_size=20),
        st.binary(max_size=200),
        max_size=5,
    )
)
def test_any_files_on_disk(members: dict[str, bytes]) -> None:
    try:
        check_members(members, host_id=HOST_ID)
    except BundleError:
        return
    raise AssertionError("random files cannot be a bundle")


# --- good inputs, bent ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tried(tmp_path_factory: pytest.TempPathFactory) -> dict[str, targets.Target]:
    return {name: targets.Target(name, tmp_path_factory.mktemp("fuzz") / name) for name in targets.TARGETS}


def bend(data: bytes, size: int) -> bytes:
    """Some bytes changed, put in or left out; always the same ones of the same input."""
    random_ = random.Random(data)  # noqa: S311 - the same for the same input
    bent = bytearray(data)
    for _ in range(random_.randrange(1, 4)):
        at = random_.randrange(len(bent) + 1)
        bent[at : at + random_.randrange(3)] = random_.randbytes(random_.randrange(3))
    return bytes(bent[:size])


def bent(name: str, first: int, seeds: Sequence[int]) -> bytes:
    """A good input, mutated once for each of `seeds`."""
    good = targets.seeds(name)
    data = good[first % len(good)]
    mutate = targets.mutator(name, bend)
    for seed in seeds:
        data = mutate(data, targets.MAX_INPUT_BYTES, seed)
    return data


@pytest.mark.parametrize("name", targets.TARGETS)
def test_good_inputs_are_accepted(name: str, tmp_path: Path) -> None:
    target = targets.Target(name, tmp_path / "host")
    for seed in targets.seeds(name):
        target.try_input(seed)
    assert target.ends == {"accepted": len(targets.seeds(name))}


@settings(max_examples=300)
@given(
    name=st.sampled_from(targets.TARGETS), first=st.integers(0, 2), seeds=st.lists(st.integers(0, 2**32), max_size=4)
)
def test_bent_inputs_break_no_promise(
    tried: dict[str, targets.Target], name: str, first: int, seeds: list[int]
) -> None:
    tried[name].try_input(bent(name, first, seeds))  # raises what must not be


def try_many(target: targets.Target, number: int) -> None:
    choice = random.Random(2)  # noqa: S311 - always the same inputs
    for _ in range(number):
        seeds = [choice.randrange(2**32) for _ in range(choice.randrange(5))]
        target.try_input(bent(target.name, choice.randrange(3), seeds))


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_is_found(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bug = PLANTED[name]
    target = targets.Target(bug.target, tmp_path / "host")
    for module, attribute, wrong in bug.places:
        monkeypatch.setattr(module, attribute, wrong)

    with pytest.raises(bug.error):
        try_many(target, 10_000)
