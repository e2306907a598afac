"""Reads the order of a test, listens on its port, and does what datagrams of the user's address ask:

    {"send": COUNT, "bytes": PAYLOAD, "kbit": RATE}   datagrams back, RATE counts frames
    {"end": true}                                     report and exit
    {"stay": true}                                    60 s longer than the test, and SIGTERM does not end it

Others are counted. The report has one phase: what was sent and received, requests included.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys
import time
from typing import Any

HEADERS = 14 + 20 + 8


def main() -> None:
    order = json.load(sys.stdin)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(report(order, "cut", sent, got, peer)))
    sent, got, peer = [0, 0], [0, 0], ""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as here:
        here.bind((order["local_ip"] or "", order["port"]))
        print(json.dumps({"pid": os.getpid(), "order": order, "environment": dict(os.environ)}), file=sys.stderr)
        until_ms = order["until_ms"]
        while time.time() * 1000 < until_ms:
            here.settimeout(0.1)
            try:
                data, source = here.recvfrom(2000)
            except TimeoutError:
                continue
            if source[0] != order["remote_ip"]:
                continue
            peer = f"{source[0]}:{source[1]}"
            count(got, data)
            asked: dict[str, Any] = json.loads(data) if data.startswith(b"{") else {}
            if asked.get("end"):
                sys.exit(report(order, "completed", sent, got, peer))
            if asked.get("stay"):
                until_ms += 60_000
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
            if asked.get("send"):
                send(here, source, asked, sent)
    report(order, "completed" if peer else "nobody", sent, got, peer)


def count(counter: list[int], data: bytes) -> None:
    counter[0] += 1
    counter[1] += len(data)


def send(here: socket.socket, to: Any, asked: dict[str, Any], sent: list[int]) -> None:
    data, start = bytes(asked["bytes"]), time.monotonic()
    for number in range(asked["send"]):
        time.sleep(max(0.0, start + number * (asked["bytes"] + HEADERS) * 8 / asked["kbit"] / 1000 - time.monotonic()))
        with contextlib.suppress(OSError):  # refused at the hook: it was sent all the same
            here.sendto(data, to)
        count(sent, data)


def report(order: dict[str, Any], outcome: str, sent: list[int], got: list[int], peer: str) -> int:
    phase = {"number": 0, "kind": "stream", "direction": "both", "kbit": order["max_kbit"], "payload_bytes": 0}
    counts = {"sent_packets": sent[0], "sent_bytes": sent[1], "received_packets": got[0], "received_bytes": got[1]}
    phases = [{**phase, "begins_at_ms": order["from_ms"], **counts}]
    print(
        json.dumps({"schema": 1, "side": "ap", "outcome": outcome, "why": "", "peer": peer or None, "phases": phases})
    )
    return 0


if __name__ == "__main__":
    main()
