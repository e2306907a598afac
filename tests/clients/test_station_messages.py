"""Messages between the two ends of a test: what is read back, and what is nothing to an end."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from station import messages
from station.messages import Control, ConversationCodec, Counts, Data, Kind, Opening, OpeningCodec
from station.plan import BOTH, ECHO, Phase

ID, KEY = "0123456789abcdef" * 2, bytes(range(32))
NONCE, COOKIE = b"n" * 16, b"c" * 16
OPENINGS = OpeningCodec(ID, KEY)
PHASE = Phase(3, ECHO, BOTH, 16, 64, 2000, 20)
COUNTS = Counts(3, 20, 1280, 19, 1216, 1500)
CONTROLS = [
    Control(Kind.BEGIN, 1, PHASE, 3),
    Control(Kind.BEGUN, 2, None, 3),
    Control(Kind.DENIED, 3, None, 3),
    Control(Kind.USER_REPORT, 4, COUNTS, 3),
    Control(Kind.AP_REPORT, 5, COUNTS, 3),
    Control(Kind.FINISH, 6, COUNTS, 3),
    Control(Kind.FINISHED, 7, COUNTS, 3),
    Control(Kind.BYE, 8),
    Control(Kind.GOODBYE, 2**32 - 1),
]
FROM_USER = {Kind.BEGIN, Kind.USER_REPORT, Kind.FINISH, Kind.BYE, Kind.USER_DATA, Kind.QUESTION}


def conversation(nonce: bytes = NONCE, cookie: bytes = COOKIE) -> ConversationCodec:
    return OPENINGS.conversation(nonce, cookie)


def test_no_answer_of_the_opening_is_longer_than_its_question() -> None:
    kinds = (Kind.HELLO, Kind.CHALLENGE, Kind.RESPONSE, Kind.ACCEPT)
    assert {len(OPENINGS.pack(Opening(kind, NONCE, COOKIE))) for kind in kinds} == {69}


@pytest.mark.parametrize("kind", [Kind.HELLO, Kind.CHALLENGE, Kind.RESPONSE, Kind.ACCEPT])
def test_an_opening_is_read_under_its_key_and_id_alone(kind: Kind) -> None:
    packet = OPENINGS.pack(Opening(kind, NONCE, COOKIE))
    assert OPENINGS.read(packet) == Opening(kind, NONCE, COOKIE)
    assert OpeningCodec(ID, bytes(32)).read(packet) is None
    assert OpeningCodec("f" * 32, KEY).read(packet) is None
    for changed in range(len(packet)):
        assert OPENINGS.read(packet[:changed] + bytes([packet[changed] ^ 1]) + packet[changed + 1 :]) is None
    assert OPENINGS.read(packet + b"\0") is None


def test_a_cookie_is_bound_to_address_nonce_and_run() -> None:
    cookies = {
        OPENINGS.cookie(secret, nonce, address)
        for secret in (b"s" * 32, b"t" * 32)
        for nonce in (NONCE, COOKIE)
        for address in ("192.0.2.11:50000", "192.0.2.11:50001", "192.0.2.12:50000")
    }
    assert len(cookies) == 12


@pytest.mark.parametrize("message", CONTROLS, ids=lambda one: one.kind.name)
def test_control_is_read_in_its_conversation_and_at_the_other_end_alone(message: Control) -> None:
    packet, from_user = conversation().pack(message), message.kind in FROM_USER
    assert conversation().read(packet, from_user=from_user) == message
    assert conversation().read(packet, from_user=not from_user) is None  # what is sent back to who wrote it
    assert conversation(nonce=COOKIE).read(packet, from_user=from_user) is None
    assert conversation(cookie=NONCE).read(packet, from_user=from_user) is None
    for changed in range(len(packet)):
        wrong = packet[:changed] + bytes([packet[changed] ^ 1]) + packet[changed + 1 :]
        assert conversation().read(wrong, from_user=from_user) is None


@pytest.mark.parametrize("kind", [Kind.AP_DATA, Kind.QUESTION, Kind.ANSWER, Kind.USER_PROBE, Kind.AP_PASSED])
def test_test_traffic_has_its_size_and_is_read_with_its_token_alone(kind: Kind) -> None:
    data = Data(kind, 3, 2**22 - 1, echoed=7, size=1500)
    packet = conversation().pack_data(data, 1452)
    from_user = kind in {Kind.QUESTION, Kind.USER_PROBE}
    assert len(packet) == 1452
    assert conversation().read(packet, from_user=from_user) == data
    assert conversation().read(packet, from_user=not from_user) is None
    assert conversation(nonce=COOKIE).read(packet, from_user=from_user) is None
    assert conversation().read(packet[:19], from_user=from_user) is None


@given(st.binary(max_size=120), st.booleans())
def test_no_bytes_raise(packet: bytes, from_user: bool) -> None:
    assert OPENINGS.read(packet) is None
    assert conversation().read(packet, from_user=from_user) is None


@given(st.sampled_from(list(Kind)), st.binary(max_size=60), st.booleans())
def test_no_signed_bytes_raise(kind: Kind, body: bytes, from_user: bool) -> None:
    """As the other end, which has the key, could send them."""
    head = conversation().pack(Control(kind, 1))[:9]
    signed = messages._signed(conversation()._key, head + body)
    read = conversation().read(signed, from_user=from_user)
    assert read is None or isinstance(read, Control)
