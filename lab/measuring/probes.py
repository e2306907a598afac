"""Bystanders of a limit: small questions over UDP and TCP (an SSH session, a config pull).

    python -m lab.measuring.probes serve ADDRESS
    python -m lab.measuring.probes ask ADDRESS SECONDS

`serve` answers with what it got; `ask` prints one JSON document. `ServedHost` runs them inside namespaces. A bystander
uses ports that no link has.
"""

from __future__ import annotations

import json
import signal
import socket
import socketserver
import statistics
import struct
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from typing import Any

from lab.running import output_of, ready
from measuring.netns import Namespace
from measuring.worker import end_with_parent

PORT = 4022  # any port that is no link's: links of the lab start at 50000
QUESTION_BYTES = 64  # about what a keystroke costs in an SSH session
INTERVAL_S = 0.05
_PATIENCE_S = 1.0  # an answer later than this counts as none
_SERVER_LIFE_S = 600


@dataclass(frozen=True)
class Answers:
    """How one kind of question fared. Times in ms."""

    asked: int
    answered: int
    median_ms: float | None
    worst_ms: float | None


class ServedHost:
    """A host of the lab that answers probes at one of its addresses."""

    def __init__(self, host: Namespace, address: str) -> None:
        """Raises `LabError` when the server does not start."""
        self.address = address
        ready(host, __name__, "serve", address)

    def start_asking(self, asker: Namespace, seconds: float) -> subprocess.Popen[str]:
        """Begin to ask from another host; `answers` collects."""
        return asker.python(__name__, "ask", self.address, str(seconds))


def answers(asking: subprocess.Popen[str]) -> dict[str, Answers]:
    """What `start_asking` found, keyed `udp` and `tcp`. Raises `LabError`."""
    return {kind: Answers(**found) for kind, found in json.loads(output_of(asking, "a probe", 60.0)).items()}


# --- the server -----------------------------------------------------------------------------------------------


class _Tcp(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        self.wfile.write(self.rfile.read(QUESTION_BYTES))


class _Udp(socketserver.DatagramRequestHandler):
    def handle(self) -> None:
        self.wfile.write(self.rfile.read())


def serve(address: str) -> None:
    """Answer until ended; at the latest after ten minutes, when SIGALRM ends the process."""
    signal.alarm(_SERVER_LIFE_S)
    with (
        socketserver.UDPServer((address, PORT), _Udp) as udp,
        socketserver.ThreadingTCPServer((address, PORT), _Tcp) as tcp,
    ):
        threading.Thread(target=udp.serve_forever, daemon=True).start()
        print("ready", flush=True)
        tcp.serve_forever()


# --- the other end ----------------------------------------------------------------------------------------------


def ask(address: str, seconds: float) -> dict[str, dict[str, Any]]:
    """Ask over UDP every interval and over TCP (connect, one exchange, close) every fourth."""
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    udp.connect((address, PORT))
    took_ms: dict[str, list[float | None]] = {"udp": [], "tcp": []}
    start, number = time.monotonic(), 0
    while time.monotonic() < start + seconds:
        took_ms["udp"].append(_ask_udp(udp, number))
        if number % 4 == 0:
            took_ms["tcp"].append(_ask_tcp(address))
        number += 1
        time.sleep(max(0.0, start + number * INTERVAL_S - time.monotonic()))
    return {kind: _summary(found) for kind, found in took_ms.items()}


def _ask_udp(udp: socket.socket, number: int) -> float | None:
    question = struct.pack(">I", number).ljust(QUESTION_BYTES, b".")
    asked = time.monotonic()
    try:
        udp.send(question)
        while (left := asked + _PATIENCE_S - time.monotonic()) > 0:
            udp.settimeout(left)
            if udp.recv(2048) == question:  # answers to questions that we gave up on are passed over
                return (time.monotonic() - asked) * 1000
    except OSError:
        time.sleep(0.005)
    return None


def _ask_tcp(address: str) -> float | None:
    asked = time.monotonic()
    try:
        with socket.create_connection((address, PORT), timeout=_PATIENCE_S) as tcp:
            tcp.sendall(bytes(QUESTION_BYTES))
            if len(tcp.makefile("rb").read(QUESTION_BYTES)) < QUESTION_BYTES:
                return None
    except OSError:
        return None
    return (time.monotonic() - asked) * 1000


def _summary(took_ms: list[float | None]) -> dict[str, Any]:
    times = [one for one in took_ms if one is not None]
    return {
        "asked": len(took_ms),
        "answered": len(times),
        "median_ms": statistics.median(times) if times else None,
        "worst_ms": max(times, default=None),
    }


if __name__ == "__main__":
    end_with_parent()
    if sys.argv[1] == "serve":
        serve(sys.argv[2])
    else:
        print(json.dumps(ask(sys.argv[2], float(sys.argv[3]))))
