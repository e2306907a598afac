"""Whatever bytes arrive, the bundle parser answers with a `Bundle` or a `BundleError`, and with nothing else."""

from __future__ import annotations

import gzip

from hypothesis import given, settings
from hypothesis import strategies as st

from ap_agent.agent.archive import Limits
from ap_agent.agent.bundle import Bundle, check_members, digest, read_bundle
from ap_agent.common.errors import BundleError
from bandwidth_config import LINK_INFO_PATH
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
