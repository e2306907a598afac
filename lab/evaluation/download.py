"""A web download, as a user would do it: Python's HTTP server and client over TCP with cubic.

    python -m lab.evaluation.download serve ADDRESS PORT BYTES [mptcp]
    python -m lab.evaluation.download fetch SECONDS [mptcp]     reads [[url, times], …] as JSON from stdin

`serve` prints `ready` and answers every GET with so many bytes. `fetch` loads each URL so many times, one after the
other, all URLs at once, and prints JSON: per URL the seconds from the first packet of the connection to the last byte
of the body, or to the limit if that comes first. The congestion control is pinned to cubic on both sides: BBR, the
default of some kernels, starves behind shallow leaves. Frames are the lab's: no super-packets.
"""

from __future__ import annotations

import http.client
import http.server
import json
import math
import signal
import socket
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from urllib.parse import urlsplit

from lab.running import given, output_of, ready
from measuring.netns import Namespace
from measuring.worker import go_ahead_of_others, go_before_equals

PATH = "/file"
LIFE_S = 900  # nobody waits for a server whose harness is gone
IDLE_S = 0.5  # between two downloads of a URL: a bucket of 3028 bytes is full again at every rate from 6 kB/s on
CHUNK_BYTES = 65_536
_TCP_CONGESTION = 13  # <linux/tcp.h>; the name is missing from `socket` on some platforms
CUBIC = b"cubic"
MPTCP = "mptcp"

Download = tuple[str, int]  # URL, how often


class CubicServer(http.server.ThreadingHTTPServer):
    """Connections inherit the congestion control of the socket that listens."""

    daemon_threads = True
    request_queue_size = 64
    is_mptcp = False

    def server_bind(self) -> None:
        if self.is_mptcp:
            self.socket.close()
            self.socket = _socket(is_mptcp=True)
        self.socket.setsockopt(socket.IPPROTO_TCP, _TCP_CONGESTION, CUBIC)
        super().server_bind()


def handler(size_bytes: int) -> type[http.server.BaseHTTPRequestHandler]:
    """Answers every GET with a body of this size; logs nothing."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            """The status line, the length and the body in one stream: headers take no segment of their own."""
            head = f"HTTP/1.0 200 OK\r\nContent-Length: {size_bytes}\r\n\r\n".encode("ascii")
            chunk, left = bytes(CHUNK_BYTES), size_bytes
            self.wfile.write(head + chunk[: min(left, CHUNK_BYTES)])
            while (left := left - CHUNK_BYTES) > 0:
                self.wfile.write(chunk[: min(left, CHUNK_BYTES)])

        def log_message(self, *_arguments: object) -> None:
            """Nothing: the harness reads what `serve` prints."""

    return Handler


def _socket(*, is_mptcp: bool) -> socket.socket:
    return socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_MPTCP if is_mptcp else 0)


def serve(address: str, port: int, size_bytes: int, *, is_mptcp: bool = False) -> None:
    """Answer until ended; at the latest after `LIFE_S`, when SIGALRM ends the process."""
    signal.alarm(LIFE_S)
    CubicServer.is_mptcp = is_mptcp
    with CubicServer((address, port), handler(size_bytes)) as server:
        print("ready", flush=True)
        server.serve_forever()


def load(url: str, *, within_s: float = math.inf, is_mptcp: bool = False) -> tuple[int, float]:
    """Bytes of the body that came within so long, and seconds from the beginning of the connection to the last of them.
    Raises `OSError`."""
    parts = urlsplit(url)
    if parts.hostname is None or parts.port is None:
        raise ValueError(f"{url!r} has no host and port")
    began, received = time.monotonic(), 0
    with closing(http.client.HTTPConnection(parts.hostname, parts.port)) as connection:
        connection.sock = _socket(is_mptcp=is_mptcp)
        connection.sock.settimeout(60)
        connection.sock.setsockopt(socket.IPPROTO_TCP, _TCP_CONGESTION, CUBIC)
        connection.sock.connect((parts.hostname, parts.port))
        connection.request("GET", parts.path)
        response = connection.getresponse()
        while time.monotonic() - began < within_s and (chunk := response.read1(CHUNK_BYTES)):
            received += len(chunk)
        return received, time.monotonic() - began


def fetch(
    downloads: Sequence[Download], *, within_s: float = math.inf, is_mptcp: bool = False
) -> dict[str, list[list[float]]]:
    """Bytes and seconds of every download, by URL; the URLs side by side, each URL's downloads in turn."""
    found: dict[str, list[list[float]]] = {url: [] for url, _ in downloads}
    lock = threading.Lock()

    def one_after_the_other(download: Download) -> None:
        url, times = download
        for turn in range(times):
            if turn:
                time.sleep(IDLE_S)
            received, seconds = load(url, within_s=within_s, is_mptcp=is_mptcp)
            with lock:
                found[url].append([received, seconds])

    with ThreadPoolExecutor(max_workers=max(1, len(downloads))) as pool:
        list(pool.map(one_after_the_other, downloads))
    return found


# --- from the harness ---------------------------------------------------------------------------------------------


def web_server(host: Namespace, address: str, port: int, size_bytes: int, *, is_mptcp: bool = False) -> str:
    """Starts one on a host of the lab; its URL. Raises `LabError`."""
    ready(host, __name__, "serve", address, str(port), str(size_bytes), *[MPTCP] * is_mptcp)
    return f"http://{address}:{port}{PATH}"


class Fetching:
    """Downloads in progress on a host of the lab."""

    def __init__(
        self, host: Namespace, downloads: Sequence[Download], *, seconds: float, is_mptcp: bool = False
    ) -> None:
        """`seconds`: how long each may take; what has come by then counts."""
        self._seconds, self._host = seconds * max((times for _, times in downloads), default=1), host
        options = [str(int(seconds) + 1), *[MPTCP] * is_mptcp]
        self._process = given(host, json.dumps(downloads), __name__, "fetch", *options)

    def finish(self) -> Mapping[str, list[list[float]]]:
        """See `fetch`. Raises `LabError` when a download failed or did not end in time."""
        said = output_of(self._process, f"a program that downloads on {self._host.name}", self._seconds + 20)
        found: dict[str, list[list[float]]] = json.loads(said)
        return found


def main(argv: Sequence[str]) -> int:
    command, *rest = argv
    is_mptcp = rest[-1] == MPTCP
    if command == "serve":
        address, port, size_bytes, *_ = rest
        go_before_equals()
        serve(address, int(port), int(size_bytes), is_mptcp=is_mptcp)
        return 0
    go_ahead_of_others()  # the moment of the last byte is this program's own
    downloads = [(url, times) for url, times in json.load(sys.stdin)]
    seconds = int(rest[0])
    signal.alarm((seconds + 2) * max(times for _, times in downloads))  # where not a byte comes
    print(json.dumps(fetch(downloads, within_s=seconds, is_mptcp=is_mptcp)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
