"""Makes a TCP port inside a namespace reachable on this host's loopback, so that a browser here can look at the lab."""

from __future__ import annotations

import contextlib
import socket
import threading
from types import TracebackType

from measuring.netns import Namespace

_CHUNK_BYTES = 65_536


class PortForward:
    """Context manager: `127.0.0.1:<local_port>` leads to `address` as seen from inside `namespace`."""

    def __init__(self, namespace: Namespace, address: tuple[str, int], local_port: int) -> None:
        """Raises `OSError` when the local port is taken. 0 takes any free one; `local_port` says which."""
        self._namespace = namespace
        self._address = address
        self._listener = socket.create_server(("127.0.0.1", local_port))
        self.local_port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._accept, daemon=True)

    def __enter__(self) -> PortForward:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        # shutdown() wakes the thread that waits in accept(); close() alone would not.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(timeout=2)

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:  # closed: we are done
                return
            try:
                far = self._namespace.call(lambda: socket.create_connection(self._address, timeout=10))
            except OSError:
                near.close()
                continue
            far.settimeout(None)
            threading.Thread(target=_connect, args=(near, far), daemon=True).start()


def _connect(near: socket.socket, far: socket.socket) -> None:
    """Until both ends have closed."""
    with near, far:
        other = threading.Thread(target=_pump, args=(near, far), daemon=True)
        other.start()
        _pump(far, near)
        other.join()


def _pump(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):  # either end may go away at any time
        while data := source.recv(_CHUNK_BYTES):
            sink.sendall(data)
    with contextlib.suppress(OSError):
        sink.shutdown(socket.SHUT_WR)
