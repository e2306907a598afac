"""A name server that says where the replicas are, as Docker's does for `web`: any name has the addresses of now."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

_ANSWER, _A, _IN, _AGAIN_S = 0x8180, 1, 1, 1
_POINTER = 0xC00C  # to the name in the question


class Names:
    """Answers at `port` of 127.0.0.1; `addresses` may be set at any time."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self.port: int = sock.getsockname()[1]
        self.addresses: Sequence[str] = ()

        self.is_over = False

    def serve(self) -> None:
        """Until it is over."""
        self._socket.settimeout(0.2)
        while not self.is_over:
            with contextlib.suppress(OSError):
                question, client = self._socket.recvfrom(512)
                self._socket.sendto(answer(question, self.addresses), client)


def answer(question: bytes, addresses: Sequence[str]) -> bytes:
    """RFC 1035, for one question of type A; another type has no records."""
    end = question.index(b"\0", 12) + 5
    (kind,) = struct.unpack_from("!H", question, end - 4)
    records = addresses if kind == _A else ()
    head = question[:2] + struct.pack("!5H", _ANSWER, 1, len(records), 0, 0)
    found = [struct.pack("!3HIH", _POINTER, _A, _IN, _AGAIN_S, 4) + socket.inet_aton(one) for one in records]
    return head + question[12:end] + b"".join(found)


@contextmanager
def serving() -> Iterator[Names]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))
        names = Names(sock)
        thread = threading.Thread(target=names.serve, daemon=True)
        thread.start()
        try:
            yield names
        finally:
            names.is_over = True
            thread.join()
