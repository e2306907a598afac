"""What passes a device, packet by packet: kernel times and lengths, whatever program sends it.

    python -m lab.measuring.tap DEV to|from ADDRESS SECONDS

Prints `ready`, listens for so many seconds, and prints JSON with the columns packed. Only IPv4 packets with this
destination (or source) are taken, 64 bytes of each: the length on the wire comes from the IP header.
"""

from __future__ import annotations

import base64
import ctypes
import json
import signal
import socket
import struct
import sys
import time
from array import array
from collections.abc import Sequence
from ipaddress import IPv4Address

from measuring.framing import ETHERNET_BYTES
from measuring.mmsg import BatchReceiver, prepare
from measuring.worker import end_with_parent, go_ahead_of_others

SO_ATTACH_FILTER = 26
SOL_PACKET, PACKET_STATISTICS = 263, 6
ETH_P_ALL = 3
SNAP_BYTES = 64
OFFSETS = {"from": 26, "to": 30}  # of the address in an Ethernet frame with IPv4
TICK_S = 0.001
# Classic BPF (linux/filter.h): load half word or word at an offset, jump if equal, return so many bytes.
_LDH, _LD, _JEQ, _RET = 0x28, 0x20, 0x15, 0x06


def program(offset: int, address: str) -> bytes:
    """IPv4 packets with this address at this offset, cut to `SNAP_BYTES`; nothing else."""
    lines = [
        (_LDH, 0, 0, 12),
        (_JEQ, 0, 3, 0x0800),
        (_LD, 0, 0, offset),
        (_JEQ, 0, 1, int(IPv4Address(address))),
        (_RET, 0, 0, SNAP_BYTES),
        (_RET, 0, 0, 0),
    ]
    return b"".join(struct.pack("=HBBI", *line) for line in lines)


def listen(dev: str, offset: int, address: str) -> socket.socket:
    """A packet socket with this filter; it sees what the device sends and what it receives."""
    code = program(offset, address)
    pinned = ctypes.create_string_buffer(code, len(code))
    opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    filter_of = struct.pack("@HP", len(code) // 8, ctypes.addressof(pinned))
    opened.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, filter_of)
    prepare(opened, send_buffer_bytes=4096, receive_buffer_bytes=64 << 20)
    opened.bind((dev, ETH_P_ALL))
    return opened


def capture(opened: socket.socket, seconds: float) -> tuple[array[int], array[int]]:
    """Arrival times (CLOCK_MONOTONIC, ns) and lengths on the wire."""
    receiver = BatchReceiver(count=256, size=SNAP_BYTES)
    times, sizes = array("q"), array("I")
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        taken = receiver.receive(opened)
        for index, (_, at_ns) in enumerate(taken):
            times.append(at_ns)
            sizes.append(int.from_bytes(receiver.views[index][16:18], "big") + ETHERNET_BYTES)
        if len(taken) < len(receiver.views):
            time.sleep(TICK_S)
    return times, sizes


def missed(opened: socket.socket) -> int:
    """How many packets found no room in the socket's buffer since it was opened."""
    _, drops = struct.unpack("=II", opened.getsockopt(SOL_PACKET, PACKET_STATISTICS, 8))
    return int(drops)


def unpack(text: str) -> tuple[array[int], array[int]]:
    """What `main` printed: times and sizes. Raises `ValueError` when the tap missed packets: then no rate is known."""
    document = json.loads(text)
    if document["missed"]:
        raise ValueError(f"the tap missed {document['missed']} packets; the machine is too busy")
    times, sizes = array("q"), array("I")
    times.frombytes(base64.b64decode(document["times_ns"]))
    sizes.frombytes(base64.b64decode(document["sizes"]))
    return times, sizes


def main(argv: Sequence[str]) -> int:
    dev, which, address, seconds = argv
    signal.alarm(int(float(seconds)) + 60)  # SIGALRM ends the process: nobody waits for a harness that is gone
    end_with_parent()
    go_ahead_of_others()
    with listen(dev, OFFSETS[which], address) as opened:
        print("ready", flush=True)
        times, sizes = capture(opened, float(seconds))
        columns = {"times_ns": times, "sizes": sizes}
        packed = {name: base64.b64encode(one.tobytes()).decode("ascii") for name, one in columns.items()}
        print(json.dumps({**packed, "missed": missed(opened)}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
