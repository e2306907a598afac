"""The messages between the two ends, as bytes. No I/O and no decisions.

Four messages of equal length open a conversation, so that no response amplifies its request:

    HELLO      user -> AP    nonce                    under the run key
    CHALLENGE  AP -> user    nonce, cookie            the cookie is bound to the requesting address and port
    RESPONSE   user -> AP    nonce, cookie            proves that the user's end receives at that address
    ACCEPT     AP -> user    nonce, cookie

Afterwards control messages are under a key of the conversation, with increasing numbers, and test traffic carries a
token of it: an HMAC per packet at 100 Mbit/s would cost more than sending.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from dataclasses import dataclass
from enum import IntEnum

from station.plan import DIRECTIONS, KINDS, Phase

NONCE_BYTES = MAC_BYTES = 16
_MAGIC = b"SLT1"
_OPENING = struct.Struct("!4sB16s16s16s")
_CONTROL = struct.Struct("!4sBI")
_PHASE = struct.Struct("!BBBIHIH")
_COUNTS = struct.Struct("!BIQIQH")
_NUMBER = struct.Struct("!B")
_DATA = struct.Struct("!B8sBIIH")
DATA_HEAD_BYTES = _DATA.size


class Kind(IntEnum):
    """Opening, control, test traffic. Each direction has its own, so that none can be reflected."""

    HELLO, CHALLENGE, RESPONSE, ACCEPT = 1, 2, 3, 4
    BEGIN, BEGUN, DENIED, FINISH, FINISHED, BYE, GOODBYE = 11, 12, 13, 14, 15, 16, 17
    USER_REPORT, AP_REPORT = 21, 22
    USER_DATA, AP_DATA, QUESTION, ANSWER, USER_PROBE, AP_PROBE, USER_PASSED, AP_PASSED = 31, 32, 33, 34, 35, 36, 37, 38


FROM_USER_KINDS = frozenset(
    {Kind.BEGIN, Kind.FINISH, Kind.BYE, Kind.USER_REPORT}
    | {Kind.USER_DATA, Kind.QUESTION, Kind.USER_PROBE, Kind.USER_PASSED}
)


@dataclass(frozen=True, slots=True)
class Opening:
    """HELLO has a cookie of zeros."""

    kind: Kind
    nonce: bytes
    cookie: bytes = bytes(NONCE_BYTES)


@dataclass(frozen=True, slots=True)
class Counts:
    """What an end sent and received in a phase so far, and the path MTU that it found (0: not yet)."""

    number: int
    sent_packets: int
    sent_bytes: int
    received_packets: int
    received_bytes: int
    mtu: int


@dataclass(frozen=True, slots=True)
class Control:
    """`body`: a `Phase` of BEGIN, `Counts` of reports, FINISH and FINISHED; `number`: the phase of BEGUN and DENIED."""

    kind: Kind
    counter: int
    body: Phase | Counts | None = None
    number: int = 0


@dataclass(frozen=True, slots=True)
class Data:
    """Test traffic. `echoed`: sequence of the answered packet; `size`: of the probe that passed."""

    kind: Kind
    number: int
    sequence: int
    echoed: int = 0
    size: int = 0


class OpeningCodec:
    """With the run key of one test (32 bytes, `link_tests.run_key`)."""

    def __init__(self, test_id: str, key: bytes) -> None:
        self._id = bytes.fromhex(test_id)
        self._key = key

    def pack(self, message: Opening) -> bytes:
        return _signed(self._key, _OPENING.pack(_MAGIC, message.kind, self._id, message.nonce, message.cookie))

    def read(self, packet: bytes) -> Opening | None:
        """None: of another test, or not authenticated."""
        if len(packet) != _OPENING.size + MAC_BYTES or not _is_signed(self._key, packet):
            return None
        magic, kind, test_id, nonce, cookie = _OPENING.unpack_from(packet)
        if magic != _MAGIC or test_id != self._id or kind not in range(Kind.HELLO, Kind.ACCEPT + 1):
            return None
        return Opening(Kind(kind), nonce, cookie)

    def cookie(self, secret: bytes, nonce: bytes, address: str) -> bytes:
        """Only known to a receiver at `address`; `secret`: of this run of the attachment point's end."""
        return hmac.digest(secret, self._id + nonce + address.encode(), hashlib.sha256)[:NONCE_BYTES]

    def conversation(self, nonce: bytes, cookie: bytes) -> ConversationCodec:
        return ConversationCodec(hmac.digest(self._key, b"conversation" + nonce + cookie, hashlib.sha256))


class ConversationCodec:
    """Messages of one conversation; the same for both ends."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._token = hmac.digest(key, b"data", hashlib.sha256)[:8]

    def pack(self, message: Control) -> bytes:
        head = _CONTROL.pack(_MAGIC, message.kind, message.counter)
        return _signed(self._key, head + _body(message))

    def read(self, packet: bytes, *, from_user: bool) -> Control | Data | None:
        """`from_user`: which end's messages are read. None: foreign, from the wrong end, or malformed."""
        if not packet:
            return None
        if packet[0] in _DATA_KINDS:
            return self._data(packet, from_user)
        if len(packet) < _CONTROL.size + MAC_BYTES or not _is_signed(self._key, packet):
            return None
        _, value, counter = _CONTROL.unpack_from(packet)
        try:
            kind = Kind(value)
            if (kind in FROM_USER_KINDS) != from_user:
                return None
            return _control(kind, counter, packet[_CONTROL.size : -MAC_BYTES])
        except (ValueError, IndexError, struct.error):
            return None

    def token(self, number: int, connection: int) -> bytes:
        """32 bytes with which the user's end authenticates a TCP connection of a phase."""
        return hmac.digest(self._key, b"tcp" + bytes([number, connection]), hashlib.sha256)

    def pack_data(self, data: Data, payload_bytes: int) -> bytes:
        head = _DATA.pack(data.kind, self._token, data.number, data.sequence, data.echoed, data.size)
        return head.ljust(payload_bytes, b"\0")

    def _data(self, packet: bytes, from_user: bool) -> Data | None:
        if len(packet) < _DATA.size:
            return None
        value, token, number, sequence, echoed, size = _DATA.unpack_from(packet)
        if token != self._token:
            return None
        kind = _DATA_KINDS[value]
        if (kind in FROM_USER_KINDS) != from_user:
            return None
        return Data(kind, number, sequence, echoed, size)


_DATA_KINDS = {int(one): one for one in Kind if one >= Kind.USER_DATA}


def _signed(key: bytes, text: bytes) -> bytes:
    return text + hmac.digest(key, text, hashlib.sha256)[:MAC_BYTES]


def _is_signed(key: bytes, packet: bytes) -> bool:
    text, mac = packet[:-MAC_BYTES], packet[-MAC_BYTES:]
    return hmac.compare_digest(hmac.digest(key, text, hashlib.sha256)[:MAC_BYTES], mac)


def _body(message: Control) -> bytes:
    body = message.body
    if isinstance(body, Phase):
        kind, direction = KINDS.index(body.kind), DIRECTIONS.index(body.direction)
        return _PHASE.pack(body.number, kind, direction, body.kbit, body.payload_bytes, body.duration_ms, body.count)
    if isinstance(body, Counts):
        return _COUNTS.pack(
            body.number, body.sent_packets, body.sent_bytes, body.received_packets, body.received_bytes, body.mtu
        )
    return _NUMBER.pack(message.number)


def _control(kind: Kind, counter: int, body: bytes) -> Control:
    """Raises `ValueError`, `IndexError` and `struct.error`."""
    if kind is Kind.BEGIN:
        number, phase_kind, direction, kbit, payload_bytes, duration_ms, count = _PHASE.unpack(body)
        phase = Phase(number, KINDS[phase_kind], DIRECTIONS[direction], kbit, payload_bytes, duration_ms, count)
        return Control(kind, counter, phase, number)
    if kind in {Kind.FINISH, Kind.FINISHED, Kind.USER_REPORT, Kind.AP_REPORT}:
        counts = Counts(*_COUNTS.unpack(body))
        return Control(kind, counter, counts, counts.number)
    return Control(kind, counter, None, *_NUMBER.unpack(body))
