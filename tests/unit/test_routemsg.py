"""Questions about routes and their answers, as the kernel's headers lay them out."""

from __future__ import annotations

import errno
import ipaddress
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ap_agent import routemsg, tcmsg
from ap_agent.placement import Route, RouteQuery

AF_INET, AF_INET6 = 2, 10


def answer(kind: int, attributes: bytes) -> bytes:
    return struct.pack("=BBBBBBBBI", AF_INET, 32, 0, 0, 254, 0, 0, kind, 0) + attributes


def test_a_question_has_both_ports_and_addresses() -> None:
    query = RouteQuery(ipaddress.ip_address("192.0.2.7"), ipaddress.ip_address("192.0.2.1"), 50100, 50000)
    packed = routemsg.pack_question(query)
    assert packed[:3] == bytes([AF_INET, 32, 32])
    assert dict(tcmsg.attributes(packed[12:])) == {
        1: bytes([192, 0, 2, 7]),
        2: bytes([192, 0, 2, 1]),
        27: bytes([17]),
        28: (50100).to_bytes(2),
        29: (50000).to_bytes(2),
    }


def test_what_is_not_known_is_not_asked_with() -> None:
    packed = routemsg.pack_question(RouteQuery(ipaddress.ip_address("2001:db8::7"), None, None, None))
    assert packed[:3] == bytes([AF_INET6, 128, 0])
    assert set(dict(tcmsg.attributes(packed[12:]))) == {1, 27}


def test_the_way_out_is_found_among_other_attributes() -> None:
    others = tcmsg.u32(15, 254) + tcmsg.attribute(1, bytes([192, 0, 2, 7]))
    assert routemsg.parse_answer(answer(1, others + tcmsg.u32(4, 7) + tcmsg.attribute(12, bytes(32)))) == Route(
        "unicast", 7
    )
    assert routemsg.parse_answer(answer(2, others + tcmsg.u32(4, 1))) == Route("local", 1)
    assert routemsg.parse_answer(answer(6, others)) == Route("blackhole", 0)
    assert routemsg.parse_answer(answer(99, b"")) == Route("other", 0)


@pytest.mark.parametrize(
    ("number", "kind"),
    [(errno.ENETUNREACH, "none"), (errno.EHOSTUNREACH, "unreachable"), (errno.EIO, "other")],
)
def test_a_refusal_is_a_route_too(number: int, kind: str) -> None:
    assert routemsg.route_of_refusal(number).kind == kind


@given(st.binary(max_size=80))
def test_damaged_answers_are_read_to_their_end_and_no_further(data: bytes) -> None:
    assert routemsg.parse_answer(answer(1, data)).kind == "unicast"
