"""What is done to an input: bytes anywhere, or one part of its structure, the rest repaired, so that it gets far.

Each mutator is a function of (input, greatest size, seed). `bend` changes bytes without knowing what they mean: where
libFuzzer runs its own, which has seen what was compared with what.
"""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable
from typing import Any

from ap_agent.agent.archive import MANIFEST
from bandwidth_config import LINK_INFO_PATH
from lab.fuzz.archives import Archive, Member, link_info_of, manifest_of, repair, seeds, sign, take_apart

BytesMutator = Callable[[bytes, int], bytes]
Mutator = Callable[[bytes, int, int], bytes]

_TEXTS = [
    "",
    "0",
    "1.18",
    "1.19",
    "0.0",
    "9" * 18 + ".1",
    "1.\u0661",
    "../../outside",
    "/etc/passwd",
    "etc/scion/../../outside",
    "etc/scion/a/b",
    "etc/scion/",
    "a\0b",
    "\ud800",
    "\u202e",
    "x" * 300,
    "192.0.2.1",
    "2001:db8::1",
    "::ffff:192.0.2.1",
    "fe80::1",
    "fe80::1%eth0",
    "0.0.0.0",
    "224.0.0.1",
    "255.255.255.255",
    "2028-11-21T00:00:00Z",
    "0001-01-01T00:00:00Z",
    "2028-02-30T00:00:00Z",
    MANIFEST,
    LINK_INFO_PATH,
    "A" * 44,
]
_FIELDS = """
    AS_ID IsUserAS Bandwidth IP-Address ISD-AS Port Local-IP Local-Port VPN Bandwidth-To-User Bandwidth-From-User
    Timed From Until Steps host_id host_secret version limits_version link_info_schema files sha256 signed
    signatures keys revoked key_id public_key not_after generation config_version type schema 1 4094 4095 01
"""
_KEYS = _FIELDS.split()
_GOOD = seeds()
_STARTS_ANEW = 0.3  # so often a good input is changed instead of one that was changed before
_NUMBERS = [0, 1, -1, 2, 182, 4094, 65_535, 65_536, 100_000_000, 100_000_001, 10**17, 10**18, 2**63, 2**64, 10**400]
_NAMES = [
    b"..",
    b"../outside",
    b"etc/scion/../../../../../outside",
    b"/etc/scion/link_info.json",
    b"etc/scion/link_info.json",
    b"etc/scion/link_info.json/x",
    b"etc/scion",
    b"etc/scion/",
    b"etc/scion//x",
    b"etc/scion/./x",
    b"etc/openvpn/x",
    b"etc/passwd",
    b"scionlab-config.json",
    b"./scionlab-config.json",
    b"etc\\scion\\x",
    b"etc/scion/\xff",
    b"etc/scion/\xe2\x80\xaex",
    b"etc/scion/" + b"d/" * 44 + b"x",
    b"",
]
_KINDS = b"0123456 7xgLKSA\0"
_SIZES = [
    b"00000000000\0",
    b"77777777777\0",
    b"-0000000001\0",
    b"\x80" + b"\0" * 10 + b"\x01",
    b"\xff" * 12,
    b"            ",
]
_RAW = [b'{"a":1,"a":2}', b"NaN", b"[" * 3000, b'{"1":' * 600, b"1" * 5000, b"\xef\xbb\xbf{}", b'"\\ud800"', b"1e999"]


# --- JSON -------------------------------------------------------------------------------------------------------------


def mutate_json(random_: random.Random, document: Any) -> Any:
    """The document with one place changed: a value, a key, an item more or less."""
    places = _places(document)
    if not places or random_.random() < 0.03:
        return _value(random_)
    container, key = random_.choice(places)
    what = random_.randrange(8)
    if what == 0:
        del container[key]
    elif what == 1 and isinstance(container, dict):
        container[random_.choice(_KEYS)] = container[key] if random_.random() < 0.5 else container.pop(key)
    elif what == 2 and isinstance(container, list):
        container.extend([container[key]] * random_.choice([1, 1, 40]))
    elif what == 3 and isinstance(container, dict):
        container[random_.choice(_KEYS + _TEXTS)] = _value(random_)
    elif what >= 5:
        container[key] = _near(random_, container[key])
    else:
        container[key] = _value(random_)
    return document


def _places(document: Any) -> list[tuple[Any, Any]]:
    found: list[tuple[Any, Any]] = []
    pending = [document]
    while pending:
        one = pending.pop()
        keys = list(one) if isinstance(one, dict) else range(len(one)) if isinstance(one, list) else ()
        for key in keys:
            found.append((one, key))
            pending.append(one[key])
    return found


def _value(random_: random.Random) -> Any:
    kinds: list[Callable[[], Any]] = [
        lambda: random_.choice(_NUMBERS),
        lambda: random_.choice(_TEXTS),
        lambda: random_.choice([None, True, False, 1.5, [], {}, [[]], {"a": {}}]),
    ]
    return random_.choice(kinds)()


def _near(random_: random.Random, value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + random_.choice([-1, 1, 1000])
    if isinstance(value, str) and value:
        at = random_.randrange(len(value))
        return value[:at] + random_.choice("0fF:.-/%\u00e9 ") + value[at + random_.randrange(2) :]
    return value


def _json_or_bytes(random_: random.Random, data: bytes, bend: BytesMutator) -> bytes:
    roll = random_.random()
    if roll < 0.05:
        return random_.choice(_RAW)
    if roll < 0.75:
        try:
            document = json.loads(data)
            for _ in range(random_.choice([1, 1, 1, 2, 5])):
                document = mutate_json(random_, document)
            return json.dumps(document).encode()
        except (ValueError, RecursionError):
            pass
    return bend(data, len(data) + 64)


def _good_links(random_: random.Random) -> bytes:
    numbers = random_.sample(range(1, 250), random_.choice([1, 3, 30]))
    return link_info_of({number: number * 10 for number in numbers})


# --- the three kinds of input -----------------------------------------------------------------------------------------


def link_info_mutator(bend: BytesMutator) -> Mutator:
    def mutate(data: bytes, max_size: int, seed: int) -> bytes:
        random_ = random.Random(seed)
        if random_.random() < _STARTS_ANEW:
            data = _good_links(random_)
        return _json_or_bytes(random_, data, bend)[:max_size]

    return mutate


def manifest_mutator(bend: BytesMutator, files: dict[str, bytes]) -> Mutator:
    def mutate(data: bytes, max_size: int, seed: int) -> bytes:
        random_ = random.Random(seed)
        if random_.random() < _STARTS_ANEW:
            data = json.dumps(manifest_of(files)).encode()
        return bent_manifest(random_, data, files, bend)[:max_size]

    return mutate


def bent_manifest(random_: random.Random, data: bytes, files: dict[str, bytes], bend: BytesMutator) -> bytes:
    """A manifest changed outside or inside of its signed text, usually with hashes and signature made to fit."""
    try:
        manifest = json.loads(data)
    except (ValueError, RecursionError):
        manifest = None
    if not isinstance(manifest, dict) or random_.random() < 0.05:
        return bend(data, len(data) + 64)
    if isinstance(manifest.get("signed"), str) and random_.random() < 0.6:
        text = manifest["signed"].encode("utf-8", "surrogatepass")
        manifest["signed"] = _json_or_bytes(random_, text, bend).decode("utf-8", "surrogateescape")
        sign(manifest)
        if random_.random() < 0.3:
            repair(manifest, files)
    else:
        manifest = mutate_json(random_, manifest)
        if isinstance(manifest, dict) and random_.random() < 0.6:
            repair(manifest, files)
    if isinstance(manifest, dict) and random_.random() < 0.1:
        manifest["signatures"] = mutate_json(random_, manifest.get("signatures"))
    return json.dumps(manifest).encode()


def bundle_mutator(bend: BytesMutator) -> Mutator:
    def mutate(data: bytes, max_size: int, seed: int) -> bytes:
        random_ = random.Random(seed)
        archive = take_apart(random_.choice(_GOOD) if random_.random() < _STARTS_ANEW else data)
        if archive is None or random_.random() < 0.04:
            return bend(data, max_size)
        for _ in range(random_.choice([1, 1, 1, 2, 4])):
            random_.choice(_BENDS)(random_, archive, bend)
        if random_.random() < 0.9:
            _fit_manifest(archive)
        made = archive.packed(is_sound=random_.random() < 0.95)
        return (_bend_gzip(random_, made, archive) if random_.random() < 0.06 else made)[:max_size]

    return mutate


def _fit_manifest(archive: Archive) -> None:
    member = archive.find(MANIFEST)
    if member is None:
        return
    try:
        manifest = json.loads(member.data)
    except (ValueError, RecursionError):
        return
    if isinstance(manifest, dict):
        repair(manifest, archive.files())
        member.data = json.dumps(manifest).encode()
        member.resize()


def _bend_manifest(random_: random.Random, archive: Archive, bend: BytesMutator) -> None:
    member = archive.find(MANIFEST)
    if member is not None:
        member.data = bent_manifest(random_, member.data, archive.files(), bend)
        member.resize()


def _bend_link_info(random_: random.Random, archive: Archive, bend: BytesMutator) -> None:
    member = archive.find(LINK_INFO_PATH)
    if member is not None:
        data = _good_links(random_) if random_.random() < _STARTS_ANEW else member.data
        member.data = _json_or_bytes(random_, data, bend)
        member.resize()


def _bend_name(random_: random.Random, archive: Archive, bend: BytesMutator) -> None:
    member = random_.choice(archive.members)
    name = random_.choice(_NAMES) if random_.random() < 0.7 else bend(member.name.encode(), 100)
    if random_.random() < 0.15:
        member.header[345:500] = random_.choice(_NAMES)[:155].ljust(155, b"\0")
    else:
        member.rename(name)


def _bend_header(random_: random.Random, archive: Archive, _bend: BytesMutator) -> None:
    member = random_.choice(archive.members)
    what = random_.randrange(4)
    if what == 0:
        member.header[156] = random_.choice(_KINDS)
    elif what == 1:
        member.resize(random_.choice(_SIZES))
    elif what == 2:
        member.header[257:265] = random_.choice([b"ustar\x0000", b"ustar  \0", b"\0" * 8])
    else:
        member.header[random_.randrange(512)] = random_.randrange(256)


def _bend_data(random_: random.Random, archive: Archive, bend: BytesMutator) -> None:
    member = random_.choice(archive.members)
    sizes = [0, 1, 511, 512, 513, 32 * 1024, 32 * 1024 + 1]
    data = bytes(random_.choice(sizes)) if random_.random() < 0.4 else bend(member.data, len(member.data) + 600)
    member.data = data
    member.resize()


def _bend_list(random_: random.Random, archive: Archive, _bend: BytesMutator) -> None:
    members, what = archive.members, random_.randrange(4)
    if what == 0 and len(members) > 1:
        del members[random_.randrange(len(members))]
    elif what == 1:
        one = random_.choice(members)
        members.append(Member(bytearray(one.header), one.data))
    elif what == 2:
        random_.shuffle(members)
    else:
        first = random_.randrange(1000)
        names = [f"etc/scion/f{first + number}".encode() for number in range(random_.choice([1, 2, 20, 40]))]
        members.extend(Member.of(name, b"x") for name in [random_.choice(_NAMES), *names])


def _bend_tail(random_: random.Random, archive: Archive, _bend: BytesMutator) -> None:
    archive.tail = random_.choice(
        [b"", bytes(512), bytes(1024), bytes(10_240), bytes(1 << 18), b"x" * 1024, archive.tail * 2]
    )


_OFTEN = (_bend_manifest, _bend_link_info)
_BENDS = (*_OFTEN, *_OFTEN, _bend_name, _bend_header, _bend_data, _bend_list, _bend_tail)


def _bend_gzip(random_: random.Random, made: bytes, archive: Archive) -> bytes:
    what = random_.randrange(5)
    if what == 0:
        return made[: random_.randrange(len(made))]
    if what == 1:
        return made + random_.choice([b"\0", b"x", made])
    if what == 2:
        return made[:3] + bytes([random_.randrange(256)]) + made[4:]  # flags: names, comments, extra fields
    if what == 3:
        return gzip.compress(bytes(random_.choice([1 << 14, 1 << 18, 1 << 20])), 1, mtime=0)
    return archive.packed(level=random_.choice([0, 9]))
