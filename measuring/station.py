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
import select
import socket
import sys
import time
from heapq import heapify, heappop, heappush
from typing import Any, get_args

from measuring.arrivals import Arrivals
from measuring.framing import wire_bytes
from measuring.judge import NS, Span
from measuring.mmsg import BatchReceiver, BatchSender, prepare
from measuring.scion_packet import Kind, build_data, build_heartbeat, recognise, stamp
from measuring.tagged import Tagged, frame_socket, headers, send_frame
from measuring.worker import begin, go_ahead_of_others, read_spec, say, wait_for_start

TICK_S = 0.001
PAUSE_NS = 4_000_000  # a tick this late is worth noting: the bucket of a limit is 4 ms of its rate
MAX_BEHIND_NS = 50_000_000  # a stream that is further behind gives the rest up instead of sending one big burst
_SMALLEST_SLOT_BYTES = 2_048
_IP_MTU_DISCOVER, _IPV6_MTU_DISCOVER = 10, 23  # <linux/in.h>, <linux/in6.h>
_UDP_NO_CHECK6_RX = 102  # <linux/udp.h>: tagged frames carry no checksum
_PATH_MTU = {"want": 1, "dont": 0, "do": 2}  # IP_PMTUDISC_*
_NOPS = bytes([1, 1, 1, 0])  # IPv4 options: three times "no operation", end of list (RFC 791)
_DESTINATION_OPTIONS = bytes([0, 0, 1, 4, 0, 0, 0, 0])  # IPv6: a header of 8 bytes with only padding (RFC 8200)


class Stream:
    """One paced sequence of packets of one kind on one endpoint."""

    def __init__(self, spec: dict[str, Any], family: int, endpoint: dict[str, Any]) -> None:
        mtu_bytes = endpoint["mtu_bytes"]
        self.kind = spec["kind"]
        if self.kind == "heartbeat":
            template = build_heartbeat(family=family)
            self.interval_ns = int(spec["interval_s"] * NS)
        else:
            template = build_data(spec["payload_bytes"], next_header=spec["next_header"])
            bits = wire_bytes(spec["payload_bytes"], family=family, mtu_bytes=mtu_bytes) * 8
            by_rate = self.kind == "data"
            self.interval_ns = max(1, round(bits * 1_000_000 / spec["kbit"] if by_rate else spec["interval_s"] * NS))
        self.front_bytes = 0
        if endpoint["tagged"]:
            front = headers(Tagged(**endpoint["tagged"]), endpoint["local"], endpoint["remote"], len(template))
            self.front_bytes, template = len(front), bytearray(front) + template
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
                stamp(self.batch.views[index][self.front_bytes :], self.kind, self.sent + index, now_ns)
            taken = self._send(sock, number)
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

    def _send(self, sock: socket.socket, number: int) -> int:
        if not self.front_bytes:
            return self.batch.send(sock, number)
        for frame in self.batch.views[:number]:
            send_frame(sock, frame)
        return number

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
        if local[0] == socket.AF_INET:
            self.sock.setsockopt(socket.IPPROTO_IP, _IP_MTU_DISCOVER, _PATH_MTU[spec["path_mtu"]])
        else:
            self.sock.setsockopt(socket.IPPROTO_IPV6, _IPV6_MTU_DISCOVER, _PATH_MTU[spec["path_mtu"]])
        self.sock.bind(local[1])
        self.sock.connect(remote[1])
        family = 4 if local[0] == socket.AF_INET else 6
        if family == 6:
            self.sock.setsockopt(socket.IPPROTO_UDP, _UDP_NO_CHECK6_RX, 1)
        self.sender = frame_socket(spec["tagged"]["dev"]) if spec["tagged"] else self.sock
        streams = [Stream(stream, family, spec) for stream in spec["streams"]]
        self.streams = sorted(streams, key=lambda stream: stream.kind != "heartbeat")  # heartbeats first
        self.received: dict[Kind, Arrivals] = {kind: Arrivals() for kind in get_args(Kind)}

    def take(self, receiver: BatchReceiver) -> None:
        """Write down everything that has arrived."""
        while True:
            batch = receiver.receive(self.sock)
            for index, (size, at_ns) in enumerate(batch):
                seen = recognise(receiver.views[index][:size])
                if seen is None:
                    continue
                arrivals = self.received[seen.kind]
                arrivals.arrived_ns.append(at_ns)
                arrivals.payload_bytes.append(size)
                arrivals.sequence.append(seen.sequence)
                arrivals.sent_ns.append(seen.sent_ns)
                if seen.kind == "question":
                    stamp(receiver.views[index][:size], "answer", seen.sequence, seen.sent_ns)
                    # A full socket, or what an ICMP message left behind: an answer is not worth a second try.
                    with contextlib.suppress(OSError):
                        self.sock.send(receiver.views[index][:size])
            if len(batch) < len(receiver.views):
                return

    def report(self) -> dict[str, Any]:
        """Streams and arrivals, the latter packed."""
        return {
            "streams": [stream.report() for stream in self.streams],
            "received": {kind: pack_arrivals(arrivals) for kind, arrivals in self.received.items()},
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


class Schedule:
    """Which streams are due, without asking each of them every millisecond."""

    def __init__(self, endpoints: list[Endpoint]) -> None:
        streams = [(stream, endpoint.sender) for endpoint in endpoints for stream in endpoint.streams]
        self._streams = streams
        self._queue = [(stream.next_ns, number) for number, (stream, _) in enumerate(streams)]
        heapify(self._queue)  # of one moment the first of its endpoint goes first: heartbeats before data

    def send_due(self, now_ns: int) -> None:
        """Everything that is due at `now_ns`; what a full socket refused is due again then, at the next call."""
        due = []
        while self._queue and self._queue[0][0] <= now_ns:
            due.append(heappop(self._queue)[1])
        for number in due:
            stream, sock = self._streams[number]
            stream.send_due(sock, now_ns)
            if stream.next_ns < stream.stop_ns:
                heappush(self._queue, (stream.next_ns, number))


def run(endpoints: list[Endpoint], *, start_ns: int, stop_ns: int, end_ns: int, slot_bytes: int) -> list[Span]:
    """Send and receive until `end_ns`; returns the spans between two ticks that were longer than `PAUSE_NS`."""
    receiver = BatchReceiver(size=slot_bytes)
    by_descriptor = {endpoint.sock.fileno(): endpoint for endpoint in endpoints}
    for endpoint in endpoints:
        for stream in endpoint.streams:
            stream.begin(start_ns)
    schedule = Schedule(endpoints)
    pauses = []
    before_ns = now_ns = time.monotonic_ns()
    with select.epoll() as poll:
        for descriptor in by_descriptor:
            poll.register(descriptor, select.EPOLLIN)
        while now_ns < end_ns:
            if now_ns < stop_ns:
                schedule.send_due(now_ns)
            for descriptor, _ in poll.poll(0, len(endpoints)):
                by_descriptor[descriptor].take(receiver)
            spent_s = (time.monotonic_ns() - now_ns) / NS
            time.sleep(max(0.0, TICK_S - spent_s))
            before_ns, now_ns = now_ns, time.monotonic_ns()
            if now_ns - before_ns > PAUSE_NS:
                pauses.append((before_ns, now_ns))
    return pauses


def main() -> int:
    """See the module's head."""
    begin()
    go_ahead_of_others()
    spec = read_spec()
    with contextlib.ExitStack() as stack:
        endpoints = [Endpoint(one) for one in spec["endpoints"]]
        for endpoint in endpoints:
            stack.enter_context(endpoint.sock)
            stack.enter_context(endpoint.sender)
        start_ns = wait_for_start(spec["seconds"] + spec["linger_s"])
        stop_ns = start_ns + int(spec["seconds"] * NS)
        end_ns = stop_ns + int(spec["linger_s"] * NS)
        slot_bytes = max(_SMALLEST_SLOT_BYTES, spec["largest_bytes"])
        pauses = run(endpoints, start_ns=start_ns, stop_ns=stop_ns, end_ns=end_ns, slot_bytes=slot_bytes)
    say(
        {
            "endpoints": {endpoint.name: endpoint.report() for endpoint in endpoints},
            "pauses": pauses,
        }
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
