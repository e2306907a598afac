"""Bulk TCP between two hosts of a lab, counted where it arrives: payload per 100 ms and flow.

    result = run_tcp(ap, user, "192.0.2.11", flows=8, seconds=6)
    result.goodput_kbit()          # all flows, after one second of warm-up
    result.samples_kbit()          # the same, per second

The congestion control is pinned per socket: the host's default may be one that paces itself (BBR starves behind a
shallow queue). Wires of the lab make no super-packets (`netns`), so that every frame on them is at most an MTU. All
connections are open before the start; bins count from the start that the workers share. The receiver lets the kernel
throw the bytes away (MSG_TRUNC): one call per millisecond and flow, whatever the rate. At the end the sender resets
its connections, so that a full queue does not keep anybody waiting.

On a 2-core machine (kernel 6.18, veth without super-packets, no limit) one flow or eight carry 3.4 Gbit/s of payload,
so that a limit of 1 Gbit/s is put to the test; the receiver takes 0.15 of a processor, the kernel's work apart.
"""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from measuring.framing import tcp_goodput_bound
from measuring.netns import Namespace
from measuring.worker import (
    NS,
    Worker,
    begin,
    go_before_equals,
    read_spec,
    say,
    sleep_until_ns,
    start_all,
    wait_for_start,
)

PORT = 5_001
BIN_S = 0.1
_BIN_NS = NS // 10
_TICK_NS = 1_000_000
_CHUNK_BYTES = 1 << 18
_TAKE_BYTES = 8 << 20  # more than a receive buffer grows to (net.ipv4.tcp_rmem: 6 MB)
_CONNECT_WITHIN_S = 15.0
_TOTAL_RETRANS_OFFSET = 100  # of tcpi_total_retrans in struct tcp_info, <linux/tcp.h>


@dataclass(frozen=True)
class TcpResult:
    """What arrived: bytes of payload per whole bin of 100 ms from the start on, one list per flow.

    Payload counts when a program can read it. What came behind a lost segment counts later and all at once, so that a
    window may show more than a limit carried in it; from the start on (`warm_up_s=0`) the sum never does.
    """

    start_ns: int
    seconds: float
    flows: list[list[int]]
    retransmitted: int  # segments, all flows

    def bins_kbit(self) -> list[float]:
        """Payload rate of all flows per 100 ms."""
        return [sum(bins) * 8 / BIN_S / 1000 for bins in zip(*self.flows, strict=True)]

    def samples_kbit(self) -> list[float]:
        """Payload rate per whole second after the first."""
        steady = self.bins_kbit()[round(1 / BIN_S) :]
        return [sum(steady[at : at + 10]) / 10 for at in range(0, len(steady) - 9, 10)]

    def goodput_kbit(self, *, warm_up_s: float = 1.0) -> float:
        """Mean payload rate after the warm-up. Raises `ValueError` when the run was not longer than that."""
        steady = self.bins_kbit()[round(warm_up_s / BIN_S) :]
        if not steady:
            raise ValueError(f"a run of {self.seconds:g} s has nothing after a warm-up of {warm_up_s:g} s")
        return sum(steady) / len(steady)

    def wire_kbit(self, *, warm_up_s: float = 1.0) -> float:
        """The goodput with its headers, in full segments: what a limit counted, but for segments sent twice."""
        return self.goodput_kbit(warm_up_s=warm_up_s) / tcp_goodput_bound(1)


class TcpRun:
    """A run in progress: connected when this is made, sends from `go` on. For several at one moment."""

    def __init__(
        self,
        sender: Namespace,
        receiver: Namespace,
        address: str,
        *,
        seconds: float,
        flows: int = 1,
        congestion: str = "cubic",
        port: int = PORT,
        source: str | None = None,
    ) -> None:
        """`address` and `port` are the receiver's. Raises `LabError` when the connections do not come about."""
        self._seconds = seconds
        spec = {
            "address": address,
            "port": port,
            "source": source,
            "flows": flows,
            "congestion": congestion,
            "seconds": seconds,
        }
        self._receiver = Worker(receiver, __name__, "receive", spec=spec)
        self._receiver.expect("listening")
        self._sender = Worker(sender, __name__, "send", spec=spec)
        for worker in (self._sender, self._receiver):
            worker.expect("ready")
        self.start_ns = 0

    def go(self, start_ns: int | None = None) -> TcpRun:
        """Start sending, at this moment [ns] or a tenth of a second from now."""
        self.start_ns = start_all((self._receiver, self._sender), start_ns)
        return self

    def finish(self) -> TcpResult:
        """Wait for the end and collect. Raises `LabError`."""
        deadline_s = self.start_ns / NS + self._seconds + 20
        received = self._receiver.collect(deadline_s)
        sent = self._sender.collect(deadline_s)
        return TcpResult(
            start_ns=self.start_ns,
            seconds=self._seconds,
            flows=received["flows"],
            retransmitted=sent["retransmitted"],
        )


def run_tcp(sender: Namespace, receiver: Namespace, address: str, *, seconds: float, **options: Any) -> TcpResult:
    """A `TcpRun` from now to its end. Raises `LabError`."""
    return TcpRun(sender, receiver, address, seconds=seconds, **options).go().finish()


# --- the receiver ---------------------------------------------------------------------------------------------------


def receive(spec: dict[str, Any]) -> dict[str, Any]:
    """Accept the flows, count until the end."""
    with contextlib.ExitStack() as stack:
        flows = [stack.enter_context(one) for one in _accept(spec)]
        start_ns = wait_for_start(spec["seconds"])
        bins = count(flows, start_ns, round(spec["seconds"] / BIN_S))
    return {"flows": bins}


def _accept(spec: dict[str, Any]) -> list[socket.socket]:
    """One connection per flow, in the sender's order: each says its number in one byte."""
    family = socket.AF_INET6 if ":" in spec["address"] else socket.AF_INET
    found: dict[int, socket.socket] = {}
    with socket.create_server((spec["address"], spec["port"]), family=family, backlog=128) as listener:
        _pin_congestion(listener, spec["congestion"])
        listener.settimeout(_CONNECT_WITHIN_S)
        print("listening", flush=True)
        while len(found) < spec["flows"]:
            flow, _ = listener.accept()
            flow.settimeout(_CONNECT_WITHIN_S)
            found[flow.recv(1)[0]] = flow
            flow.setblocking(False)
    return [found[number] for number in range(spec["flows"])]


def count(flows: Sequence[socket.socket], start_ns: int, bin_count: int) -> list[list[int]]:
    """Bytes per bin and flow; looks once per millisecond, so that a bin's edge is as sharp as that."""
    bins = [[0] * bin_count for _ in flows]
    nowhere = bytearray(_TAKE_BYTES)  # never written to
    now_ns = time.monotonic_ns()
    while (index := (now_ns - start_ns) // _BIN_NS) < bin_count:
        for number, flow in enumerate(flows):
            with contextlib.suppress(BlockingIOError, ConnectionResetError):
                bins[number][max(0, index)] += flow.recv_into(nowhere, 0, socket.MSG_TRUNC)
        sleep_until_ns(now_ns + _TICK_NS)
        now_ns = time.monotonic_ns()
    return bins


# --- the sender -----------------------------------------------------------------------------------------------------


def send(spec: dict[str, Any]) -> dict[str, Any]:
    """Connect the flows, keep their buffers full from the start to the end."""
    with contextlib.ExitStack() as stack:
        flows = [stack.enter_context(_connect(spec, number)) for number in range(spec["flows"])]
        start_ns = wait_for_start(spec["seconds"])
        sleep_until_ns(start_ns)
        _keep_full(flows, start_ns + int(spec["seconds"] * NS))
        return {"retransmitted": sum(map(_retransmitted, flows))}


def _connect(spec: dict[str, Any], number: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in spec["address"] else socket.AF_INET
    flow = socket.socket(family, socket.SOCK_STREAM)
    _pin_congestion(flow, spec["congestion"])
    flow.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("@ii", 1, 0))
    flow.settimeout(_CONNECT_WITHIN_S)
    if spec["source"]:
        flow.bind((spec["source"], 0))
    flow.connect((spec["address"], spec["port"]))
    flow.sendall(bytes([number]))
    flow.setblocking(False)
    return flow


def _keep_full(flows: Sequence[socket.socket], stop_ns: int) -> None:
    chunk = bytes(_CHUNK_BYTES)
    by_descriptor = {flow.fileno(): flow for flow in flows}
    with select.epoll() as poll:
        for descriptor in by_descriptor:
            poll.register(descriptor, select.EPOLLOUT)
        while (left_ns := stop_ns - time.monotonic_ns()) > 0:
            for descriptor, _ in poll.poll(left_ns / NS):
                try:
                    by_descriptor[descriptor].send(chunk)
                except BlockingIOError:
                    continue
                # The receiver has closed, a moment before us; or nothing could be sent for some 7 s (tcp_retries2).
                except (ConnectionResetError, BrokenPipeError, TimeoutError):
                    poll.unregister(descriptor)


def _pin_congestion(tcp: socket.socket, name: str) -> None:
    """Raises `FileNotFoundError` where the kernel does not have it."""
    tcp.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, name.encode())


def _retransmitted(flow: socket.socket) -> int:
    info = flow.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
    (total,) = struct.unpack_from("=I", info, _TOTAL_RETRANS_OFFSET)
    return int(total)


def main(argv: Sequence[str]) -> int:
    """See the module's head: `python -m measuring.tcp receive|send`."""
    begin()
    go_before_equals()
    spec = read_spec()
    say(receive(spec) if argv == ["receive"] else send(spec))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
