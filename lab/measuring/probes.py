"""Bystanders of a limit: small questions over UDP and TCP (an SSH session, a config pull).

    python -m lab.measuring.probes serve --address IP [--port N]
    python -m lab.measuring.probes ask   --address IP --seconds S [--port N]

`serve` answers with what it got; `ask` prints one JSON document. `ServedHost` runs them inside namespaces. A bystander
uses ports that no link has.
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


@dataclass(frozen=True)
class Answers:
    """How one kind of question fared. Times in ms; the longest silence in s, between two answers."""

    asked: int
    answered: int
    median_ms: float | None
    worst_ms: float | None
    longest_silence_s: float


class ServedHost:
    """A host of the lab that answers probes at one of its addresses."""

    def __init__(self, host: Namespace, address: str, port: int = PORT) -> None:
        """Raises `LabError` when the server does not start."""
        self.address = address
        self.port = port
        self._host = host
        self._server = host.python("lab.measuring.probes", "serve", "--address", address, "--port", str(port))
        if self._server.stdout is None or self._server.stdout.readline().strip() != "ready":
            host.lab.stop(self._server)
            said = self._server.stderr.read().strip() if self._server.stderr is not None else ""
            raise LabError(f"the probe server of {host.name} did not start: {said}")

    def stop(self) -> None:
        """End the server."""
        self._host.lab.stop(self._server)

    def start_asking(self, asker: Namespace, seconds: float) -> subprocess.Popen[str]:
        """Begin to ask from another host; `answers` collects."""
        return asker.python("lab.measuring.probes", "ask", *self._target(), "--seconds", str(seconds))

    def _target(self) -> list[str]:
        return ["--address", self.address, "--port", str(self.port)]


def answers(asking: subprocess.Popen[str], timeout_s: float = 60.0) -> dict[str, Answers]:
    """What `start_asking` found, keyed `udp` and `tcp`. Raises `LabError`."""
    return {kind: Answers(**found) for kind, found in _collect(asking, timeout_s).items()}


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
    with connection, contextlib.suppress(OSError):
        connection.settimeout(_SERVER_LIFE_S)
        connection.sendall(_receive_exactly(connection, QUESTION_BYTES))


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
            tcp.sendall(bytes(QUESTION_BYTES))
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
    parser = argparse.ArgumentParser(prog="python -m lab.measuring.probes", description=__doc__)
    parser.add_argument("role", choices=("serve", "ask"))
    parser.add_argument("--address", required=True)
    parser.add_argument("--port", type=int, default=PORT)
    parser.add_argument("--seconds", type=float, default=2.0)
    given = parser.parse_args(argv)
    end_with_parent()
    if given.role == "serve":
        serve(given.address, given.port)
    else:
        print(json.dumps(ask(given.address, given.port, given.seconds)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
