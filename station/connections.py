"""TCP connections of one phase: the user's end opens them and authenticates each with a token of the conversation. The
attachment point's end only accepts the registered address. Nothing here blocks.

Congestion control is cubic, whatever the host's default. A connection ends with a reset: buffered data is not sent.
"""

from __future__ import annotations

import contextlib
import hmac
import socket
import struct
from collections.abc import Sequence
from ipaddress import ip_address

from station.talk import Connect, Peer
from station.tcp import MAX_CHUNK_BYTES, Connection, Connections, Info
from station.wire import address_of

CONGESTION = "cubic"
PROOF_S = 2.0  # how long a connection may exist without its token
_BACKLOG, _MAX_UNPROVED = 64, 4
_UNSENT_BYTES = 4 * MAX_CHUNK_BYTES  # 2 ms of 1 Gbit/s; more would be buffered in this host and count as sent too early
_TAKE_BYTES = 8 * 1024 * 1024  # more than a receive buffer grows to (net.ipv4.tcp_rmem: 6 MB)
_ZEROS = memoryview(bytes(MAX_CHUNK_BYTES))
_NOWHERE = bytearray(_TAKE_BYTES)  # with MSG_TRUNC the kernel discards the data
_RESET = struct.pack("@ii", 1, 0)  # struct linger: discard unsent data
_NOTSENT_LOWAT = 25  # <linux/tcp.h>, TCP_NOTSENT_LOWAT
_NOT_ALLOWED = (
    f"programs on this host may not use {CONGESTION}; "
    f'sysctl -w net.ipv4.tcp_allowed_congestion_control="reno {CONGESTION}" allows it'
)


def tcp_socket(version: int) -> socket.socket:
    """Non-blocking, with `CONGESTION`. Raises `OSError`, with the remedy if this host does not allow it."""
    sock = socket.socket(socket.AF_INET if version == 4 else socket.AF_INET6, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, CONGESTION.encode())
        except (PermissionError, FileNotFoundError) as exc:
            raise PermissionError(exc.errno, _NOT_ALLOWED) from exc
    except BaseException:
        sock.close()
        raise
    return sock


class _Open:
    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self.is_broken = False
        sock.setsockopt(socket.IPPROTO_TCP, _NOTSENT_LOWAT, _UNSENT_BYTES)

    def send(self, count: int) -> int:
        try:
            return self._socket.send(_ZEROS[:count])
        except BlockingIOError:
            return 0
        except OSError:
            self.is_broken = True
            return 0

    def take(self) -> int:
        try:
            found = self._socket.recv_into(_NOWHERE, 0, socket.MSG_TRUNC)
        except BlockingIOError:
            return 0
        except OSError:
            found = 0
        self.is_broken = not found
        return found

    def info(self) -> Info:
        return Info.read(self._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256))

    def close(self) -> None:
        self._socket.close()


class _Sockets:
    def __init__(self, tokens: Sequence[bytes]) -> None:
        self.up: dict[int, Connection] = {}
        self.why = ""
        self._tokens = tokens
        self._open: list[_Open] = []

    def _proved(self, number: int, sock: socket.socket) -> None:
        self._open.append(_Open(sock))
        self.up[number] = self._open[-1]

    def close(self) -> None:
        for one in self._open:
            one.close()


# --- the attachment point's end -------------------------------------------------------------------------------------


class Listener:
    """The TCP port of a test, listening from its first phase of TCP on. Raises `OSError`."""

    def __init__(self, version: int) -> None:
        self._socket = tcp_socket(version)

    def bind(self, address: tuple[str, int] | tuple[str, int, int, int]) -> None:
        """Raises `OSError`."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if self._socket.family == socket.AF_INET6:
            self._socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        self._socket.bind(address)

    def connect(self, tokens: Sequence[bytes], peer: Peer) -> Connections:
        """Raises `OSError`."""
        self._socket.listen(_BACKLOG)
        return _Accepted(self._socket, tokens, peer)

    def close(self) -> None:
        self._socket.close()


class _Accepted(_Sockets):
    def __init__(self, listener: socket.socket, tokens: Sequence[bytes], peer: Peer) -> None:
        super().__init__(tokens)
        self._listener, self._peer = listener, (ip_address(peer.ip), peer.scope)
        self._unproved: dict[socket.socket, tuple[float, bytes]] = {}  # until when, what was received of its token

    def step(self, now: float) -> None:
        with contextlib.suppress(OSError):  # none pending, or it is already closed
            for _ in range(_BACKLOG):
                sock, source = self._listener.accept()
                if self._is_the_peers(source) and len(self._unproved) < _MAX_UNPROVED:
                    sock.setblocking(False)
                    self._unproved[sock] = now + PROOF_S, b""
                else:
                    sock.close()
        for sock in list(self._unproved):
            self._prove(sock, now)

    def _is_the_peers(self, source: tuple[str, int] | tuple[str, int, int, int]) -> bool:
        return self._peer == (ip_address(source[0].partition("%")[0]), source[3] if len(source) == 4 else 0)

    def _prove(self, sock: socket.socket, now: float) -> None:
        until, token = self._unproved[sock]
        length = len(self._tokens[0])
        try:
            came = sock.recv(length - len(token))
            token += came
            is_over = not came
        except BlockingIOError:
            is_over = now >= until
        except OSError:
            is_over = True
        self._unproved[sock] = until, token
        if len(token) < length and not is_over:
            return
        del self._unproved[sock]
        for number, right in enumerate(self._tokens):
            if number not in self.up and hmac.compare_digest(right, token):
                self._proved(number, sock)
                return
        sock.close()

    def close(self) -> None:
        super().close()
        for sock in self._unproved:
            sock.close()


# --- the user's end -------------------------------------------------------------------------------------------------


class _Opened(_Sockets):
    def __init__(self, tokens: Sequence[bytes], peer: Peer, local_ip: str) -> None:
        super().__init__(tokens)
        self._coming: dict[int, socket.socket] = {}
        self._to = address_of(peer.version, peer.ip, peer.port, peer.scope)
        try:
            for number in range(len(tokens)):
                sock = self._coming[number] = tcp_socket(peer.version)
                sock.bind(address_of(peer.version, local_ip, 0, peer.scope))
        except BaseException:
            self.close()
            raise

    def step(self, now: float) -> None:  # noqa: ARG002 - the kernel has the time
        for number, sock in list(self._coming.items()):
            try:
                sock.connect(self._to)  # repeated until the kernel has the answer
                sock.send(self._tokens[number])  # less than any buffer
            except BlockingIOError:
                continue
            except OSError as exc:
                self.why = self.why or exc.strerror or str(exc)
                sock.close()
            else:
                self._proved(number, sock)
            del self._coming[number]

    def close(self) -> None:
        super().close()
        for sock in self._coming.values():
            sock.close()


def opener(local_ip: str) -> Connect:
    """Opens connections from that address of this host."""
    return lambda tokens, peer: _Opened(tokens, peer, local_ip)
