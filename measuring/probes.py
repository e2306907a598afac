"""Bystanders of a limit: small questions over UDP and TCP (an SSH session, a config pull), and a TCP bulk flow.

    python -m measuring.probes serve --address IP [--port N]
    python -m measuring.probes ask   --address IP --seconds S [--port N]
    python -m measuring.probes bulk  --address IP --seconds S [--port N] [--reverse]

`serve` answers UDP with what it got and TCP as asked; the other two print one JSON document. `ServedHost` runs them
inside namespaces. A bystander uses ports that no link has.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import signal
import socket
import statistics
import struct
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from typing import Any

from measuring.iproute import LabError
from measuring.netns import Namespace
from measuring.worker import end_with_parent

PORT = 4022  # any port that is no link's: links of the lab start at 50000
QUESTION_BYTES = 64  # about what a keystroke costs in an SSH session
_PATIENCE_S = 1.0  # an answer later than this counts as none
_SERVER_LIFE_S = 600
_CHUNK_BYTES = 65_536


@dataclass(frozen=True)
class Answers:
    """How one kind of question fared. Times in ms; the longest silence in s, between two answers."""

    asked: int
    answered: int
    median_ms: float | None
    worst_ms: float | None
    longest_silence_s: float


@dataclass(frozen=True)
class BulkReport:
    """One TCP flow with cubic, counted where it arrived: payload per 100 ms bin, the last partial bin left out."""

    received_bytes: int
    bins_kbit: list[float]

    def steady_kbit(self, warm_up_s: float = 1.0) -> float:
        """Mean payload rate after the warm-up; 0 when it did not last that long."""
        steady = self.bins_kbit[int(warm_up_s * 10) :]
        return statistics.fmean(steady) if steady else 0.0


class ServedHost:
    """A host of the lab that answers probes at one of its addresses."""

    def __init__(self, host: Namespace, address: str, port: int = PORT) -> None:
        """Raises `LabError` when the server does not start."""
        self.address = address
        self.port = port
        self._host = host
        self._server = host.python("measuring.probes", "serve", "--address", address, "--port", str(port))
        if self._server.stdout is None or self._server.stdout.readline().strip() != "ready":
            host.lab.stop(self._server)
            said = self._server.stderr.read().strip() if self._server.stderr is not None else ""
            raise LabError(f"the probe server of {host.name} did not start: {said}")

    def stop(self) -> None:
        """End the server."""
        self._host.lab.stop(self._server)

    def start_asking(self, asker: Namespace, seconds: float) -> subprocess.Popen[str]:
        """Begin to ask from another host; `answers` collects."""
        return asker.python("measuring.probes", "ask", *self._target(), "--seconds", str(seconds))

    def start_bulk(self, sender: Namespace, seconds: float, *, reverse: bool = False) -> subprocess.Popen[str]:
        """Begin a TCP bulk flow to this host (`reverse`: from it); `bulk_report` collects."""
        options = ["--reverse"] if reverse else []
        return sender.python("measuring.probes", "bulk", *self._target(), "--seconds", str(seconds), *options)

    def _target(self) -> list[str]:
        return ["--address", self.address, "--port", str(self.port)]


def answers(asking: subprocess.Popen[str], timeout_s: float = 60.0) -> dict[str, Answers]:
    """What `start_asking` found, keyed `udp` and `tcp`. Raises `LabError`."""
    return {kind: Answers(**found) for kind, found in _collect(asking, timeout_s).items()}


def bulk_report(bulk: subprocess.Popen[str], timeout_s: float = 60.0) -> BulkReport:
    """What `start_bulk` measured. Raises `LabError`."""
    return BulkReport(**_collect(bulk, timeout_s))


def _collect(process: subprocess.Popen[str], timeout_s: float) -> dict[str, Any]:
    try:
        out, err = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired as exc:
        process.kill()
        raise LabError("a probe did not end in time") from exc
    if process.returncode != 0:
        raise LabError(f"a probe ended with {process.returncode}: {err.strip()}")
    found: dict[str, Any] = json.loads(out)
    return found


# --- the server -----------------------------------------------------------------------------------------------


def serve(address: str, port: int) -> None:
    """Answer until ended; at the latest after ten minutes, when SIGALRM ends the process."""
    signal.alarm(_SERVER_LIFE_S)
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    udp = socket.socket(family, socket.SOCK_DGRAM)
    udp.bind((address, port))
    listener = socket.create_server((address, port), family=family, backlog=64)
    # Before the first connection: a socket that began with BBR keeps its pacing when it changes to cubic (measured: a
    # sender without a limit got 0.3 Gbit/s in place of 2 to 4).
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"cubic")
    threading.Thread(target=_echo_udp, args=(udp,), daemon=True).start()
    print("ready", flush=True)
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=_serve_tcp, args=(connection,), daemon=True).start()


def _echo_udp(udp: socket.socket) -> None:
    while True:
        with contextlib.suppress(OSError):  # an ICMP error of an earlier answer is not this question's business
            question, asker = udp.recvfrom(2048)
            udp.sendto(question, asker)


def _serve_tcp(connection: socket.socket) -> None:
    """First byte: `e` echo, `b` count what comes and answer with the count, `s` send for so many seconds."""
    with connection, contextlib.suppress(OSError):
        connection.settimeout(_SERVER_LIFE_S)
        wanted = connection.recv(1)
        if wanted == b"e":
            connection.sendall(_receive_exactly(connection, QUESTION_BYTES))
        elif wanted == b"b":
            connection.sendall(json.dumps(_count(connection)).encode())
        elif wanted == b"s":
            (seconds,) = struct.unpack(">d", _receive_exactly(connection, 8))
            _send_for(connection, seconds)


# --- the other end ----------------------------------------------------------------------------------------------


def ask(address: str, port: int, seconds: float, interval_s: float = 0.05) -> dict[str, dict[str, Any]]:
    """Ask over UDP every interval and over TCP (connect, one exchange, close) every fourth."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    udp = socket.socket(family, socket.SOCK_DGRAM)
    udp.connect((address, port))
    results: dict[str, list[tuple[float, float | None]]] = {"udp": [], "tcp": []}
    start = time.monotonic()
    number = 0
    while (now := time.monotonic()) < start + seconds:
        results["udp"].append((now, _ask_udp(udp, number)))
        if number % 4 == 0:
            results["tcp"].append((time.monotonic(), _ask_tcp(family, address, port)))
        number += 1
        time.sleep(max(0.0, start + number * interval_s - time.monotonic()))
    return {kind: _summary(rows, start, time.monotonic()) for kind, rows in results.items()}


def _ask_udp(udp: socket.socket, number: int) -> float | None:
    question = struct.pack(">I", number).ljust(QUESTION_BYTES, b".")
    asked = time.monotonic()
    try:
        udp.settimeout(_PATIENCE_S)
        udp.send(question)
        while (left := asked + _PATIENCE_S - time.monotonic()) > 0:
            udp.settimeout(left)
            if udp.recv(2048) == question:  # answers to questions that we gave up on are passed over
                return (time.monotonic() - asked) * 1000
    except OSError:
        time.sleep(0.005)
    return None


def _ask_tcp(family: int, address: str, port: int) -> float | None:
    asked = time.monotonic()
    try:
        with socket.socket(family, socket.SOCK_STREAM) as tcp:
            tcp.settimeout(_PATIENCE_S)
            tcp.connect((address, port))
            tcp.sendall(b"e" + bytes(QUESTION_BYTES))
            _receive_exactly(tcp, QUESTION_BYTES)
    except OSError:
        return None
    return (time.monotonic() - asked) * 1000


def _summary(rows: list[tuple[float, float | None]], start: float, end: float) -> dict[str, Any]:
    times = [took for _, took in rows if took is not None]
    moments = [start, *(asked + took / 1000 for asked, took in rows if took is not None), end]
    return {
        "asked": len(rows),
        "answered": len(times),
        "median_ms": statistics.median(times) if times else None,
        "worst_ms": max(times, default=None),
        "longest_silence_s": max(later - earlier for earlier, later in itertools.pairwise(moments)),
    }


def bulk(address: str, port: int, seconds: float, *, reverse: bool) -> dict[str, Any]:
    """One TCP flow for so long, with cubic whatever the host's default is (another one would pace itself)."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as tcp:
        tcp.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"cubic")
        tcp.settimeout(seconds + 30)
        tcp.connect((address, port))
        if reverse:
            tcp.sendall(b"s" + struct.pack(">d", seconds))
            return _count(tcp)
        tcp.sendall(b"b")
        _send_for(tcp, seconds)
        tcp.shutdown(socket.SHUT_WR)
        answer: dict[str, Any] = json.loads(b"".join(iter(lambda: tcp.recv(_CHUNK_BYTES), b"")))
        return answer


def _send_for(tcp: socket.socket, seconds: float) -> None:
    tcp.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"cubic")
    chunk = bytes(_CHUNK_BYTES)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        tcp.send(chunk)


def _count(tcp: socket.socket) -> dict[str, Any]:
    """Count until the other side has no more, in bins of 100 ms from the first byte on."""
    bins: list[int] = []
    total = 0
    first: float | None = None
    while chunk := tcp.recv(_CHUNK_BYTES):
        now = time.monotonic()
        first = now if first is None else first
        index = int((now - first) * 10)
        bins.extend([0] * (index + 1 - len(bins)))
        bins[index] += len(chunk)
        total += len(chunk)
    return {"received_bytes": total, "bins_kbit": [count * 80 / 1000 for count in bins[:-1]]}


def _receive_exactly(tcp: socket.socket, count: int) -> bytes:
    got = b""
    while len(got) < count:
        chunk = tcp.recv(count - len(got))
        if not chunk:
            raise ConnectionResetError("the other side closed early")
        got += chunk
    return got


def main(argv: list[str] | None = None) -> int:
    """See the module's head."""
    parser = argparse.ArgumentParser(prog="python -m measuring.probes", description=__doc__)
    parser.add_argument("role", choices=("serve", "ask", "bulk"))
    parser.add_argument("--address", required=True)
    parser.add_argument("--port", type=int, default=PORT)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--reverse", action="store_true")
    given = parser.parse_args(argv)
    end_with_parent()
    if given.role == "serve":
        serve(given.address, given.port)
    elif given.role == "ask":
        print(json.dumps(ask(given.address, given.port, given.seconds)))
    else:
        print(json.dumps(bulk(given.address, given.port, given.seconds, reverse=given.reverse)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
