"""Paced UDP that reacts to loss, as QUIC does: what a modern transport makes of a limit.

    run = QuicRun(ap, user, ("192.0.2.1", 50000), ("192.0.2.11", 50000), seconds=6).go()
    run.finish().samples_kbit()

The shape of RFC 9002, not its protocol: packets of 1200 bytes with numbers, an acknowledgement for each of them, loss
by three newer packets that were acknowledged or by 9/8 of a round trip (6.1), a probe timeout with back-off (6.2),
NewReno with a factor of 1/2 and one reduction per round trip (7.3), and pacing at 5/4 of the window per round trip
(7.7). No handshake, no encryption, no persistent congestion; the sender always has data. Both ends use the ports that
are given, so that the flow can be a link's. Arrivals are the kernel's.
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

from lab.measuring.newreno import NewReno
from measuring import judge
from measuring.arrivals import Arrivals
from measuring.judge import NS
from measuring.mmsg import BatchReceiver, prepare
from measuring.netns import Namespace
from measuring.station import pack_arrivals, unpack_arrivals
from measuring.worker import (
    Worker,
    begin,
    go_ahead_of_others,
    read_spec,
    say,
    sleep_until_ns,
    start_all,
    wait_for_start,
)

PAYLOAD_BYTES = 1200  # what every path carries (RFC 9000, section 14)
_TICK_NS = 1_000_000
_LINGER_NS = 200_000_000
_HEAD = struct.Struct(
    ">4sQq"
)  # a mark, the number, the sender's CLOCK_MONOTONIC in ns; an acknowledgement repeats both
_DATA_MARK, _ACK_MARK = b"SLQD", b"SLQA"

Address = tuple[str, int]


@dataclass(frozen=True)
class QuicResult:
    """What arrived, and how the sender fared."""

    start_ns: int
    stop_ns: int
    arrivals: Arrivals
    declared_lost: int

    def samples_kbit(self) -> list[float]:
        """UDP payload that arrived, in each second after the first."""
        return judge.goodput_samples(
            self.arrivals, start_ns=self.start_ns, stop_ns=self.stop_ns, warm_up_s=1.0, width_s=1.0
        )


class QuicRun:
    """A run in progress: both ends are bound when this is made, the sender sends from `go` on."""

    def __init__(
        self, sender: Namespace, receiver: Namespace, local: Address, remote: Address, *, seconds: float
    ) -> None:
        """`local` is the sender's end, `remote` the receiver's. Raises `LabError`."""
        self._seconds = seconds
        self._receiver = Worker(
            receiver, __name__, "receive", spec={"local": remote, "remote": local, "seconds": seconds}
        )
        self._sender = Worker(sender, __name__, "send", spec={"local": local, "remote": remote, "seconds": seconds})
        for worker in (self._receiver, self._sender):
            worker.expect("ready")
        self.start_ns = 0

    def go(self, start_ns: int | None = None) -> QuicRun:
        """Start, at this moment [ns] or a tenth of a second from now."""
        self.start_ns = start_all((self._receiver, self._sender), start_ns)
        return self

    def finish(self) -> QuicResult:
        """Wait for the end and collect. Raises `LabError`."""
        deadline_s = self.start_ns / NS + self._seconds + 20
        received = self._receiver.collect(deadline_s)
        sent = self._sender.collect(deadline_s)
        return QuicResult(
            start_ns=self.start_ns,
            stop_ns=self.start_ns + int(self._seconds * NS),
            arrivals=unpack_arrivals(received["arrivals"]),
            declared_lost=sent["lost"],
        )


# --- the sender -----------------------------------------------------------------------------------------------------


def send(udp: socket.socket, start_ns: int, stop_ns: int) -> NewReno:
    """Send as the window and the pacing allow, until `stop_ns`."""
    control = NewReno(PAYLOAD_BYTES)
    packet = bytearray(PAYLOAD_BYTES)
    sleep_until_ns(start_ns)
    with select.epoll() as poll:
        poll.register(udp.fileno(), select.EPOLLIN)
        while (now_ns := time.monotonic_ns()) < stop_ns:
            _take_acks(udp, control)
            control.on_time(now_ns)
            while control.may_send(now_ns):
                _HEAD.pack_into(packet, 0, _DATA_MARK, control.next_number, time.monotonic_ns())
                with contextlib.suppress(BlockingIOError, ConnectionRefusedError):  # as if lost on the way
                    udp.send(packet)
                control.on_sent(now_ns)
            wait_ns = min(control.next_event_ns(now_ns), stop_ns) - now_ns
            poll.poll(max(wait_ns, _TICK_NS // 4) / NS)
    return control


def _take_acks(udp: socket.socket, control: NewReno) -> None:
    while True:
        try:
            said = udp.recv(256)
        except (BlockingIOError, ConnectionRefusedError):
            return
        if len(said) == _HEAD.size and said[:4] == _ACK_MARK:
            _, number, sent_ns = _HEAD.unpack(said)
            now_ns = time.monotonic_ns()
            control.on_ack([number], now_ns - sent_ns, now_ns)


# --- the receiver ---------------------------------------------------------------------------------------------------


def receive(udp: socket.socket, end_ns: int) -> Arrivals:
    """Write down and acknowledge until `end_ns`."""
    arrivals = Arrivals()
    receiver = BatchReceiver()
    while (now_ns := time.monotonic_ns()) < end_ns:
        for index, (size, at_ns) in enumerate(receiver.receive(udp)):
            mark, number, sent_ns = _HEAD.unpack_from(receiver.views[index])
            if size < _HEAD.size or mark != _DATA_MARK:
                continue
            arrivals.arrived_ns.append(at_ns)
            arrivals.payload_bytes.append(size)
            arrivals.sequence.append(number)
            arrivals.sent_ns.append(sent_ns)
            with contextlib.suppress(BlockingIOError, ConnectionRefusedError):
                udp.send(_HEAD.pack(_ACK_MARK, number, sent_ns))
        sleep_until_ns(now_ns + _TICK_NS)
    return arrivals


def _open(spec: dict[str, Any]) -> socket.socket:
    family = socket.AF_INET6 if ":" in spec["local"][0] else socket.AF_INET
    udp = socket.socket(family, socket.SOCK_DGRAM)
    prepare(udp, send_buffer_bytes=1 << 20, receive_buffer_bytes=4 << 20)
    udp.bind(tuple(spec["local"]))
    udp.connect(tuple(spec["remote"]))
    return udp


def main(argv: Sequence[str]) -> int:
    """See the module's head: `python -m lab.measuring.quic_like receive|send`."""
    begin()
    go_ahead_of_others()
    spec = read_spec()
    with _open(spec) as udp:
        start_ns = wait_for_start(spec["seconds"])
        stop_ns = start_ns + int(spec["seconds"] * NS)
        if argv == ["receive"]:
            arrivals = receive(udp, stop_ns + _LINGER_NS)
            say({"arrivals": pack_arrivals(arrivals)})
        else:
            control = send(udp, start_ns, stop_ns)
            say({"lost": control.lost})
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
