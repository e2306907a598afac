"""One host's share of a traffic run: sends and receives on many endpoints at once, in one process.

    python -m measuring.station < spec.json

Reads one line of JSON (`measuring.traffic` writes it), opens and binds every endpoint, prints `ready`, waits for a line
with the common start time (CLOCK_MONOTONIC, ns), runs, and prints one JSON document. Both directions of an endpoint
share one socket, as in a border router: a link is one 5-tuple. Every millisecond it takes what has arrived, sends the
heartbeats that are due (again and again until the socket takes them, as a router's blocked write would) and then the
data that is due. Data which a full socket refuses is counted and not repeated.

A station that has to wait for the processor offers less than it was told to, and a limit looks too low then. So it
runs ahead of ordinary programs (SCHED_RR) where the machine allows that; it sleeps most of each millisecond.

Nothing here judges: arrivals are written down with the kernel's times, and `measuring.judge` does the arithmetic.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import signal
import socket
import sys
import time
from typing import Any

from measuring.judge import NS, Arrivals, Span, wire_bytes
from measuring.mmsg import BatchReceiver, BatchSender, prepare
from measuring.scion_packet import build_data, build_heartbeat, recognise, stamp

TICK_S = 0.001
PAUSE_NS = 4_000_000  # a tick this late is worth noting: the bucket of a limit is 4 ms of its rate
MAX_BEHIND_NS = 50_000_000  # a stream that is further behind gives the rest up instead of sending one big burst
WAIT_FOR_START_S = 30
_NOPS = bytes([1, 1, 1, 0])  # IPv4 options: three times "no operation", end of list (RFC 791)
_DESTINATION_OPTIONS = bytes([0, 0, 1, 4, 0, 0, 0, 0])  # IPv6: a header of 8 bytes with only padding (RFC 8200)


class Stream:
    """One paced sequence of packets of one kind on one endpoint."""

    def __init__(self, spec: dict[str, Any], family: int) -> None:
        self.kind = spec["kind"]
        if self.kind == "heartbeat":
            template = build_heartbeat(family=family)
            self.interval_ns = int(spec["interval_s"] * NS)
        else:
            template = build_data(spec["payload_bytes"], next_header=spec["next_header"])
            bits = wire_bytes(spec["payload_bytes"], family=family) * 8
            self.interval_ns = max(1, round(bits * 1_000_000 / spec["kbit"]))
        self.batch = BatchSender(template)
        self.start_s, self.stop_s = spec["start_s"], spec["stop_s"]
        self.next_ns = self.stop_ns = 0
        self.sent = self.refused = self.skipped = 0
        self.first_ns = self.last_ns = 0

    def begin(self, start_ns: int) -> None:
        """Fix the times of this stream from the common start."""
        self.next_ns = start_ns + int(self.start_s * NS)
        self.stop_ns = start_ns + int(self.stop_s * NS)

    def send_due(self, sock: socket.socket, now_ns: int) -> None:
        """Send what is due at `now_ns`."""
        if now_ns < self.next_ns or self.next_ns >= self.stop_ns:
            return
        behind = (now_ns - self.next_ns - MAX_BEHIND_NS) // self.interval_ns
        if behind > 0 and self.kind == "data":
            self.skipped += behind
            self.next_ns += behind * self.interval_ns
        due = (min(now_ns, self.stop_ns - 1) - self.next_ns) // self.interval_ns + 1
        while due > 0:
            number = min(due, self.batch.count)
            for index in range(number):
                stamp(self.batch.views[index], self.kind, self.sent + index, now_ns)
            taken = self.batch.send(sock, number)
            if taken:
                self.first_ns = self.first_ns or now_ns
                self.last_ns = now_ns
            self.sent += taken
            if taken < number and self.kind == "heartbeat":
                self.refused += 1
                self.next_ns += taken * self.interval_ns
                return  # still due: the next tick tries again
            self.refused += number - taken
            self.next_ns += number * self.interval_ns
            due -= number

    def report(self) -> dict[str, Any]:
        """Counters of this stream."""
        names = ("kind", "sent", "refused", "skipped", "first_ns", "last_ns")
        return {name: getattr(self, name) for name in names}


class Endpoint:
    """One end of one link: a bound and connected socket, its streams, and what arrived on it."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self.name = spec["name"]
        local, remote = (_resolve(*spec[side]) for side in ("local", "remote"))
        self.sock = socket.socket(local[0], socket.SOCK_DGRAM)
        prepare(self.sock, send_buffer_bytes=spec["send_buffer_bytes"], receive_buffer_bytes=16 * 1024 * 1024)
        if spec["ip_options"] and local[0] == socket.AF_INET:
            self.sock.setsockopt(socket.IPPROTO_IP, socket.IP_OPTIONS, _NOPS)
        elif spec["ip_options"]:
            self.sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_DSTOPTS, _DESTINATION_OPTIONS)
        self.sock.bind(local[1])
        self.sock.connect(remote[1])
        family = 4 if local[0] == socket.AF_INET else 6
        streams = [Stream(stream, family) for stream in spec["streams"]]
        self.streams = sorted(streams, key=lambda stream: stream.kind != "heartbeat")  # heartbeats first
        self.received = {"data": Arrivals(), "heartbeat": Arrivals()}
        self.unknown = 0

    def take(self, receiver: BatchReceiver) -> None:
        """Write down everything that has arrived."""
        while True:
            batch = receiver.receive(self.sock)
            for index, (size, at_ns) in enumerate(batch):
                seen = recognise(receiver.views[index][:size])
                if seen is None:
                    self.unknown += 1
                    continue
                arrivals = self.received[seen.kind]
                arrivals.arrived_ns.append(at_ns)
                arrivals.payload_bytes.append(size)
                arrivals.sequence.append(seen.sequence)
                arrivals.sent_ns.append(seen.sent_ns)
            if len(batch) < len(receiver.views):
                return

    def report(self) -> dict[str, Any]:
        """Streams and arrivals, the latter packed."""
        return {
            "streams": [stream.report() for stream in self.streams],
            "received": {kind: pack_arrivals(arrivals) for kind, arrivals in self.received.items()},
            "unknown": self.unknown,
        }


def pack_arrivals(arrivals: Arrivals) -> dict[str, str]:
    """Columns as base64 of the machine's own arrays: both ends of the pipe are on one machine."""
    columns = ("arrived_ns", "payload_bytes", "sequence", "sent_ns")
    return {name: base64.b64encode(getattr(arrivals, name).tobytes()).decode("ascii") for name in columns}


def unpack_arrivals(packed: dict[str, str]) -> Arrivals:
    """The other way round."""
    arrivals = Arrivals()
    for name, text in packed.items():
        getattr(arrivals, name).frombytes(base64.b64decode(text))
    return arrivals


def _resolve(address: str, port: int) -> tuple[int, Any]:
    """Family and socket address, with the scope of a link-local one (`fe80::1%eth0`)."""
    family, _, _, _, sockaddr = socket.getaddrinfo(
        address, port, type=socket.SOCK_DGRAM, flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
    )[0]
    return family, sockaddr


def run(endpoints: list[Endpoint], *, start_ns: int, stop_ns: int, end_ns: int) -> list[Span]:
    """Send and receive until `end_ns`; returns the spans between two ticks that were longer than `PAUSE_NS`."""
    receiver = BatchReceiver()
    for endpoint in endpoints:
        for stream in endpoint.streams:
            stream.begin(start_ns)
    pauses = []
    before_ns = now_ns = time.monotonic_ns()
    while now_ns < end_ns:
        if now_ns < stop_ns:
            for endpoint in endpoints:
                for stream in endpoint.streams:
                    stream.send_due(endpoint.sock, now_ns)
        for endpoint in endpoints:
            endpoint.take(receiver)
        spent_s = (time.monotonic_ns() - now_ns) / NS
        time.sleep(max(0.0, TICK_S - spent_s))
        before_ns, now_ns = now_ns, time.monotonic_ns()
        if now_ns - before_ns > PAUSE_NS:
            pauses.append((before_ns, now_ns))
    return pauses


def go_ahead_of_others() -> None:
    """Real-time scheduling for this process; without the privilege things stay as they are."""
    with contextlib.suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))


def main() -> int:
    """See the module's head."""
    go_ahead_of_others()
    signal.alarm(WAIT_FOR_START_S)  # SIGALRM ends the process: nobody waits for a harness that is gone
    spec = json.loads(sys.stdin.readline())
    endpoints = [Endpoint(one) for one in spec["endpoints"]]
    print("ready", flush=True)
    line = sys.stdin.readline()
    if not line:
        return 1
    start_ns = int(line)
    signal.alarm(int(spec["seconds"] + spec["linger_s"]) + WAIT_FOR_START_S)
    stop_ns = start_ns + int(spec["seconds"] * NS)
    pauses = run(endpoints, start_ns=start_ns, stop_ns=stop_ns, end_ns=stop_ns + int(spec["linger_s"] * NS))
    report = {
        "endpoints": {endpoint.name: endpoint.report() for endpoint in endpoints},
        "cpu_s": time.process_time(),
        "pauses": pauses,
    }
    print(json.dumps(report), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
