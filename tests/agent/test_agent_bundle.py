"""A tarball that must not be enforced is refused with the code of the rule that it breaks."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from ap_agent.agent.archive import MANIFEST, Limits
from ap_agent.agent.bundle import MAX_MANIFEST_BYTES, read_bundle
from ap_agent.common.errors import BundleError
from bandwidth_config import LINK_INFO_PATH
from tests.agent_bundles import (
    HOST_ID,
    SECRET,
    bundle_bytes,
    entry,
    files_of,
    manifest_of,
    member,
    packed,
    sha256_of,
    zipped,
)

GOOD = bundle_bytes()
FILES = files_of({"1": entry(500)})
NAME = "etc/scion/extra"
unsigned = partial(bundle_bytes, is_signed=False)  # nothing but the files and the manifest's own keys


def with_manifest(manifest: Any, extra: tuple[tuple[str, bytes], ...] = ()) -> bytes:
    data = manifest if isinstance(manifest, bytes) else json.dumps(manifest).encode()
    return packed([(MANIFEST, data), *FILES.items(), *extra])


def with_raw(*blocks: bytes) -> bytes:
    """Further raw members in front of an otherwise good archive."""
    head = member(MANIFEST, json.dumps(manifest_of(FILES)).encode())
    files = b"".join(member(name, data) for name, data in FILES.items())
    return zipped(b"".join(blocks) + head + files + bytes(1024))


def listed(*names: str) -> bytes:
    """Members of these names which the manifest lists, with the right hashes."""
    files = {**FILES, **dict.fromkeys(names, b"x")}
    return packed([(MANIFEST, json.dumps(manifest_of(files)).encode()), *files.items()])


def test_bundle_of_todays_service_without_our_keys_is_read() -> None:
    bundle = read_bundle(unsigned(limits_version=None, link_info_schema=None), host_id=HOST_ID)

    assert bundle.limits_version is None
    assert bundle.name.startswith("1.18-none-")


@pytest.mark.parametrize("secret", ["", "\u20ac", "a\r\nX: y", "a b", "x" * 257])
def test_a_secret_that_cannot_be_sent_is_refused(secret: str) -> None:
    """With allow_unsigned nobody vouches for it, and the next question would end the agent, at each of its starts."""
    with pytest.raises(BundleError) as caught:
        read_bundle(bundle_bytes(host_secret=secret), host_id=HOST_ID)
    assert caught.value.code == "manifest_invalid"


def test_4094_links_fit_the_default_limits_several_times_over() -> None:
    links = {str(n): entry(n, f"10.{n >> 8}.{n & 255}.1", 50000) for n in range(1, 4095)}
    data = bundle_bytes(links)
    bundle = read_bundle(data, host_id=HOST_ID)

    assert len(bundle.links) == 4094
    unpacked_bytes = sum(len(one) for one in bundle.members.values())
    assert unpacked_bytes < Limits().unpacked_bytes / 10
    assert unpacked_bytes / len(data) < 30  # the remark beside Limits.ratio


def changed_file() -> bytes:
    files = dict(FILES)
    files[LINK_INFO_PATH] = files[LINK_INFO_PATH].replace(b"500", b"900")
    return packed([(MANIFEST, json.dumps(manifest_of(FILES)).encode()), *files.items()])


def wrong_sha256() -> bytes:
    sums = sha256_of(FILES)
    sums[LINK_INFO_PATH] = "0" * 64
    return with_manifest(manifest_of(FILES, sha256=sums))


BAD: dict[str, tuple[Callable[[], bytes], str]] = {
    # --- the stream
    "HTML": (lambda: b"<html>log in first</html>", "not_gzip"),
    "gzip header and rubbish": (lambda: GOOD[:10] + b"\xff" * 100, "damaged_gzip"),
    "wrong checksum of gzip": (lambda: _flipped(GOOD, len(GOOD) - 6), "damaged_gzip"),
    "half of it": (lambda: GOOD[: len(GOOD) // 2], "truncated"),
    "a byte too many": (lambda: GOOD + b"\0", "trailing_garbage"),
    "gzip of text": (lambda: zipped(b"hello" * 200), "not_tar"),
    # --- the archive
    "half an end mark": (lambda: zipped(member(MANIFEST, b"{}") + bytes(512)), "truncated"),
    "data behind the end mark": (lambda: zipped(bytes(1024) + b"x" * 512), "trailing_garbage"),
    "member cut off": (lambda: zipped(member(NAME, b"x" * 600)[:-600]), "truncated"),
    "size beyond the end": (lambda: with_raw(member(NAME, b"", size=10**6)), "truncated"),
    "header with a wrong checksum": (lambda: with_raw(member(NAME, b"x", checksum_off_by=1)), "not_tar"),
    "size in base 256": (lambda: with_raw(_resized(member(NAME), b"\x80" + bytes(11))), "member_too_large"),
    "old tar without ustar": (lambda: with_raw(member(NAME, b"x", magic=bytes(8))), "not_tar"),
    # --- what is no plain file
    "symbolic link": (lambda: with_raw(member(NAME, kind=b"2", target=b"/etc/shadow")), "member_kind"),
    "character device": (lambda: with_raw(member(NAME, kind=b"3")), "member_kind"),
    "directory etc": (lambda: with_raw(member("etc/", kind=b"5")), "member_kind"),
    "pax header": (lambda: with_raw(member("x", b"20 path=etc/passwd\n", kind=b"x")), "member_kind"),
    "sparse file": (lambda: with_raw(member(NAME, kind=b"S", size=10**9)), "member_kind"),
    # --- names
    "absolute name": (lambda: listed("/etc/scion/x"), "member_name"),
    "parent folder": (lambda: listed("etc/scion/../../root/x"), "member_name"),
    "file elsewhere in etc": (lambda: listed("etc/passwd"), "member_name"),
    "lookalike folder": (lambda: listed("etc/scionx/y"), "member_name"),
    "line feed": (lambda: listed("etc/scion/a\nb"), "member_name"),
    "empty name": (lambda: with_raw(member("", b"x")), "member_name"),
    "not UTF-8": (lambda: with_raw(member(b"etc/scion/\xff", b"x")), "member_name"),
    "file and folder of one name": (lambda: listed("etc/scion/a", "etc/scion/a/b"), "member_name"),
    # --- manifest against members
    "member twice": (lambda: with_raw(member(LINK_INFO_PATH, b"{}")), "duplicate_member"),
    "no manifest": (lambda: packed(FILES.items()), "manifest_missing"),
    "manifest is a list": (lambda: with_manifest([]), "manifest_invalid"),
    "manifest nested too deeply": (lambda: with_manifest(b"[" * 100_000), "manifest_invalid"),
    "key twice in the manifest": (
        lambda: with_manifest(b'{"version": "9.9", ' + json.dumps(manifest_of(FILES)).encode()[1:]),
        "manifest_invalid",
    ),
    "unlisted member": (lambda: with_manifest(manifest_of(FILES), ((NAME, b"x"),)), "unlisted_member"),
    "listed and missing": (lambda: with_manifest(manifest_of({**FILES, NAME: b"x"})), "missing_member"),
    "wrong sha1": (changed_file, "wrong_hash"),
    "wrong sha256": (wrong_sha256, "wrong_hash"),
    "sha256 of some files only": (
        lambda: with_manifest(manifest_of(FILES, sha256={LINK_INFO_PATH: "0" * 64})),
        "manifest_invalid",
    ),
    # --- what the manifest says
    "another host": (lambda: unsigned(host_id="deadbeef"), "wrong_host"),
    "no version": (lambda: unsigned(version=None), "manifest_invalid"),
    "version leads elsewhere": (lambda: unsigned(version="../../etc.1"), "manifest_invalid"),
    "limits_version is true": (lambda: unsigned(limits_version=True), "manifest_invalid"),
    "schema of tomorrow": (lambda: unsigned(link_info_schema=2), "unknown_schema"),
    # --- link_info.json
    "host of no attachment point": (
        lambda: packed(
            [(MANIFEST, json.dumps(manifest_of(files_of(None))).encode()), *files_of(None).items()],
        ),
        "no_link_info",
    ),
    "a shell command as address": (
        lambda: bundle_bytes({"1": entry(500, "192.0.2.1; reboot")}),
        "link_info_invalid",
    ),
    "5000 links": (lambda: bundle_bytes({str(n): entry(1) for n in range(1, 5001)}), "link_info_invalid"),
}


def _flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 0x55]) + data[at + 1 :]


def _resized(block: bytes, size: bytes) -> bytes:
    header = bytearray(block[:512])
    header[124:136] = size
    header[148:156] = b" " * 8
    header[148:156] = f"{sum(header):06o}\0 ".encode()
    return bytes(header)


@pytest.mark.parametrize("case", BAD)
def test_bad_bundle_is_refused(case: str) -> None:
    make, code = BAD[case]

    with pytest.raises(BundleError) as refused:
        read_bundle(make(), host_id=HOST_ID)

    assert refused.value.code == code
    assert refused.value.retryable is False
    assert SECRET not in refused.value.message
    assert refused.value.message.isprintable()


PLAIN = gzip.decompress(GOOD)
LONGEST_NAME = max(len(name) for name in [MANIFEST, *FILES])
LARGEST_MEMBER = max(len(data) for data in read_bundle(GOOD, host_id=HOST_ID).members.values())
# Limit -> the smallest value with which GOOD passes, and the code with the next smaller one.
LIMITED: dict[str, tuple[int, str]] = {
    "compressed_bytes": (len(GOOD), "bundle_too_large"),
    "unpacked_bytes": (len(PLAIN), "unpacked_too_large"),
    "ratio": (-(-len(PLAIN) // len(GOOD)), "ratio"),
    "members": (1 + len(FILES), "too_many_members"),
    "member_bytes": (LARGEST_MEMBER, "member_too_large"),
    "name_chars": (LONGEST_NAME, "member_name"),
}


@pytest.mark.parametrize("name", LIMITED)
def test_a_limit_lets_pass_what_reaches_it_and_nothing_more(name: str) -> None:
    smallest, code = LIMITED[name]
    limits = Limits(ratio_applies_above_bytes=0)

    assert read_bundle(GOOD, host_id=HOST_ID, limits=replace(limits, **{name: smallest}))
    with pytest.raises(BundleError) as refused:
        read_bundle(GOOD, host_id=HOST_ID, limits=replace(limits, **{name: smallest - 1}))
    assert refused.value.code == code


@pytest.mark.parametrize(("too_many", "code"), [(0, "manifest_invalid"), (1, "member_too_large")])
def test_a_manifest_has_a_limit_of_its_own_before_it_is_read(too_many: int, code: str) -> None:
    manifest = b"x" * (MAX_MANIFEST_BYTES + too_many)

    with pytest.raises(BundleError) as refused:
        read_bundle(packed([(MANIFEST, manifest)]), host_id=HOST_ID, limits=Limits(ratio=2000))
    assert refused.value.code == code
