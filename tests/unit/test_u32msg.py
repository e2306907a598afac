"""Messages of filters and hash tables: what we pack is what we parse, and what is not ours is never taken for ours."""

from __future__ import annotations

import struct
from socket import htonl

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ap_agent import tcmsg, u32msg
from ap_agent.model import GONE, INGRESS_HOOK, MARKER_CHAIN, Filter, Handle, InstalledFilter, Key, Selector
from ap_agent.tcmsg import attribute, attributes

NAMES = {2: "eth0", 9: "slbw0"}
PICKED = 0x80000800  # a handle as the kernel gives it

UDP, REMOTE = Key(8, 0x110000, 0xFF0000), Key(16, 0xC000020B, 0xFFFFFFFF)
RULE = Filter(Handle(1), 112, 0x0800, (UDP, REMOTE), Handle(1, 0x1001))
LINK = Filter(Handle(1), 112, 0x0800, (UDP,), table=0x7FF, selector=Selector(18))
SOURCE = Filter(INGRESS_HOOK, 110, 0x0800, (Key(12, 0xC000020B, 0xFFFFFFFF),), table=2)
REDIRECT = Filter(INGRESS_HOOK, 110, 0x0800, (UDP,), redirect_to="slbw0")
FILTERS = [
    RULE,
    Filter(Handle(3), 132, 0x86DD, (Key(4, 0x1100, 0xFF00),), Handle(3)),
    REDIRECT,
    Filter(INGRESS_HOOK, 150, 0x0003, (Key(0, 0, 0),), redirect_to="slbw0"),
    Filter(INGRESS_HOOK, 111, 0x0800, (), redirect_to="slbw0"),
    LINK,
    Filter(Handle(1), 130, 0x86DD, (), table=1, selector=Selector(39)),
    SOURCE,
    u32msg.MARKER,
]


def packed(one: Filter, handle: int = 0) -> bytearray:
    """As the kernel shows it: with the number that it gave."""
    data = bytearray(u32msg.pack_filter(2, one, 9 if one.redirect_to else None, handle))
    struct.pack_into("=I", data, 8, handle or PICKED)
    return data


def parsed(data: bytes | bytearray) -> InstalledFilter:
    return u32msg.parse_filter(bytes(data), NAMES)


@pytest.mark.parametrize("one", FILTERS)
@pytest.mark.parametrize("handle", [0, 0x7FFFFFFF, 0x00101001])
def test_a_filter_survives_packing(one: Filter, handle: int) -> None:
    read = parsed(packed(one, handle))
    assert read.meaning == one
    assert (read.hook, read.chain, read.pref, read.protocol) == (one.hook, one.chain, one.pref, one.protocol)
    assert read.redirects_to == (("slbw0",) if one.redirect_to else ())
    assert (read.handle, read.buckets, read.is_table) == (handle or PICKED, None, False)


@given(st.integers(0, 63))
def test_any_byte_that_chooses_a_bucket_survives_packing(position: int) -> None:
    one = Filter(Handle(1), 112, 0x0800, (), table=5, selector=Selector(position))
    assert parsed(packed(one)).meaning == one


def options(data: bytes | bytearray) -> dict[int, bytes]:
    """The options of a message, by number."""
    return dict(attributes(dict(attributes(bytes(data)[20:]))[tcmsg.TCA_OPTIONS]))


def test_the_bucket_is_said_twice_as_the_kernel_wants_it() -> None:
    """In the handle, and in an attribute of its own that has no node."""
    own = options(u32msg.pack_filter(2, RULE, None, 0x0040B600))
    assert own[u32msg.TCA_U32_HASH] == struct.pack("=I", 0x0040B000)
    assert u32msg.TCA_U32_HASH not in options(u32msg.pack_filter(2, RULE, None))


def test_only_what_decides_is_terminal() -> None:
    """A link that was terminal would end the search in front of the table that it leads to."""
    for one in FILTERS:
        flags = options(u32msg.pack_filter(2, one, 9 if one.redirect_to else None))[u32msg.TCA_U32_SEL][0]
        assert flags == (0 if one.table is not None else 1)


def test_a_link_names_its_table_and_the_byte_of_its_bucket() -> None:
    own = options(u32msg.pack_filter(2, LINK, None))
    assert own[u32msg.TCA_U32_LINK] == struct.pack("=I", 0x7FF00000)
    assert struct.unpack_from("=hI", own[u32msg.TCA_U32_SEL], 10) == (16, htonl(0x0000FF00))
    assert u32msg.TCA_U32_CLASSID not in own


@pytest.mark.parametrize("buckets", [1, 256])
def test_a_table_survives_packing(buckets: int) -> None:
    table = InstalledFilter(Handle(1), 0, 112, 0x0800, "u32", 0x7FF00000, buckets=buckets)
    read = parsed(u32msg.pack_table(2, table))
    assert read == table
    assert (read.is_table, read.table, read.node) == (True, 0x7FF, 0)


def test_a_redirect_to_a_device_that_is_gone_is_recognised() -> None:
    read = u32msg.parse_filter(bytes(packed(REDIRECT)), {2: "eth0"})
    assert read.meaning is not None
    assert read.meaning.redirect_to == GONE


def test_a_delete_names_one_filter_or_the_whole_list() -> None:
    one = InstalledFilter(INGRESS_HOOK, MARKER_CHAIN, 100, 0x0003, "u32", PICKED, u32msg.MARKER)
    assert struct.unpack_from("=I", u32msg.pack_filter_name(2, one), 8) == (PICKED,)
    whole = u32msg.pack_filter_name(2, one, whole_list=True)
    assert struct.unpack_from("=I", whole, 8) == (0,)
    assert dict(attributes(whole[20:]))[u32msg.TCA_CHAIN] == struct.pack("=I", MARKER_CHAIN)


# --- what is not ours ------------------------------------------------------------------------------------------


def with_selector(one: Filter, place: int, value: bytes) -> bytearray:
    """The message with other bytes in the selector (struct tc_u32_sel, keys behind it at 16)."""
    data = packed(one)
    selector = options(data)[u32msg.TCA_U32_SEL]
    at = bytes(data).index(selector)
    data[at + place : at + place + len(value)] = value
    return data


@pytest.mark.parametrize("one", [RULE, LINK, REDIRECT])
@pytest.mark.parametrize(
    ("place", "value"),
    [
        pytest.param(0, b"\x02", id="flags: an offset is added to"),
        pytest.param(1, b"\x06", id="shift"),
        pytest.param(2, b"\x03", id="more keys than there are"),
        pytest.param(4, b"\x0f\x00", id="mask of a variable offset"),
        pytest.param(6, b"\x14\x00", id="a fixed offset"),
        pytest.param(8, b"\x02\x00", id="place of a variable offset"),
        pytest.param(28, b"\xff\xff\xff\xff", id="a key behind the next header"),
    ],
)
def test_a_filter_that_reads_elsewhere_is_nothing_that_we_made(one: Filter, place: int, value: bytes) -> None:
    assert parsed(with_selector(one, place, value)).meaning is None


@pytest.mark.parametrize(
    ("offset", "mask"), [(16, 0x0000FFF0), (16, 0xFFFF0000), (18, 0x000000FF), (-4, 0x000000FF), (16, 0x00000F00)]
)
def test_a_hash_of_anything_but_one_byte_is_nothing_that_we_made(offset: int, mask: int) -> None:
    assert parsed(with_selector(LINK, 10, struct.pack("=hI", offset, htonl(mask)))).meaning is None


def test_a_hash_without_a_table_is_nothing_that_we_made() -> None:
    assert parsed(with_selector(RULE, 10, struct.pack("=hI", 16, htonl(0xFF00)))).meaning is None


def test_a_link_that_has_a_class_too_is_nothing_that_we_made() -> None:
    data = packed(RULE)
    more = tcmsg.u32(u32msg.TCA_U32_LINK, 5 << 20)
    known = options(data)
    known[u32msg.TCA_U32_SEL] = b"\x00" + known[u32msg.TCA_U32_SEL][1:]
    both = b"".join(attribute(number, value) for number, value in known.items()) + more
    head = u32msg.pack_filter_name(2, InstalledFilter(Handle(1), 0, 112, 0x0800, "u32", PICKED))
    assert parsed(head + attribute(tcmsg.TCA_OPTIONS, both)).meaning is None


def test_another_kind_of_filter_has_no_meaning_for_us() -> None:
    data = u32msg.pack_filter_name(2, InstalledFilter(Handle(1), 0, 112, 0x0800, "flower", 1))
    read = parsed(data)
    assert (read.kind, read.meaning, read.pref) == ("flower", None, 112)


def test_a_list_without_a_filter_has_handle_0() -> None:
    read = parsed(u32msg.pack_filter_name(2, InstalledFilter(Handle(1), 0, 112, 0x0800, "u32", 0)))
    assert (read.handle, read.meaning, read.buckets, read.is_table) == (0, None, None, False)


@given(st.binary(max_size=120))
def test_damaged_options_are_nothing_that_we_made_and_nothing_worse(data: bytes) -> None:
    head = u32msg.pack_filter_name(2, InstalledFilter(Handle(1), 0, 112, 0x0800, "u32", PICKED))
    read = parsed(head + attribute(tcmsg.TCA_OPTIONS, data))
    assert read.handle == PICKED
