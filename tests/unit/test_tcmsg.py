"""Messages: what we pack is what we parse, and the layouts that the kernel's headers prescribe."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ap_agent import tcmsg
from ap_agent.desired import link_classes
from ap_agent.messages import messages
from ap_agent.model import AT_ROOT, Device, Handle, HtbClass, Qdisc
from ap_agent.ops import IfbAdd, LeafReplace, Op
from bandwidth_config import LinkInfo, parse_ip


@given(st.integers(0, 100_000_000), st.integers(1, 4094))
def test_a_class_survives_packing(kbit: int, number: int) -> None:
    link = LinkInfo(number, 1, True, kbit, parse_ip("192.0.2.11"), remote_port=50000)
    for one in link_classes(1, link, 1514):
        assert tcmsg.parse_class(tcmsg.pack_class(2, one)) == one


def test_a_class_is_44_bytes_of_parameters_and_64_bit_rates_only_where_needed() -> None:
    small = HtbClass(Handle(1, 1), Handle(1), 62_500, 62_500, 3028, 3028)
    large = HtbClass(Handle(1, 1), Handle(1), 1 << 32, 1 << 33, 3028, 3028)
    kind = 4 + 4
    head = 20 + kind + 4
    assert len(tcmsg.pack_class(2, small)) == head + 4 + 44
    assert len(tcmsg.pack_class(2, large)) == head + 4 + 44 + 2 * 12


def test_a_class_directly_under_the_root_reads_like_it_was_written() -> None:
    """The kernel answers "root" there, whatever parent the class was made with."""
    packed = bytearray(tcmsg.pack_class(2, HtbClass(Handle(1, 1), Handle(1), 1000, 1000, 3028, 3028)))
    struct.pack_into("=I", packed, 12, int(AT_ROOT))
    parsed = tcmsg.parse_class(bytes(packed))
    assert parsed is not None
    assert parsed.parent == Handle(1)


@pytest.mark.parametrize(
    "qdisc",
    [
        Qdisc("htb", Handle(1), AT_ROOT, default_minor=0xFFFE),
        Qdisc("bfifo", Handle(0x1001), Handle(1, 0x1001), limit_bytes=6250),
        Qdisc("bfifo", Handle(0x1001), Handle(1, 0x1001), limit_bytes=0),
    ],
)
def test_a_qdisc_survives_packing(qdisc: Qdisc) -> None:
    packed = tcmsg.pack_root(7, qdisc) if qdisc.kind == "htb" else tcmsg.pack_leaf(7, qdisc)
    assert tcmsg.parse_qdisc(packed) == (7, qdisc)


def test_a_leaf_is_emptied_through_another_handle() -> None:
    leaf = Qdisc("bfifo", Handle(0x1001), Handle(1, 0x1001), limit_bytes=0)
    sent = messages(LeafReplace(Device(2, "eth0"), frozenset({1}), leaf), 2)
    handles = [tcmsg.parse_qdisc(body)[1].handle for _, _, body in sent]
    assert handles == [Handle(0x5001), Handle(0x1001)]


def test_an_ifb_is_created_and_marked_in_one_piece() -> None:
    sent = messages(IfbAdd(Device(0, "slbw0"), frozenset()), 0)
    assert len(sent) == 2
    assert b"scionlab-bw" in sent[1][2]
    assert b"slbw0\0" in sent[0][2]
    assert b"slbw0\0" in sent[1][2]


class Dance(Op):
    """No operation of the engine."""

    what = "dance"


def test_an_operation_that_nobody_knows_is_a_programming_error() -> None:
    with pytest.raises(TypeError, match="unknown operation"):
        messages(Dance(Device(2, "eth0"), frozenset()), 2)


@given(st.binary(max_size=200))
def test_damaged_attributes_end_the_reading_and_nothing_else(data: bytes) -> None:
    for number, value in tcmsg.attributes(data):
        assert 0 <= number <= 0x3FFF
        assert len(value) < 200
