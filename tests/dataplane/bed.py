"""An attachment point with the program at a network card and a user beside it; frames go in as bytes, sockets witness.

    user  u0 ───────── n0  ap        192.0.2.11, .12 and 2001:db8::11, ::12     192.0.2.1 and 2001:db8::1

`tc` builds the devices of the tree here: whoever judges the program does not use the limiter's own messages.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import mmap
import os
import socket
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ap_agent.dataplane.lanes import OWN_MAJOR, Lane
from ap_agent.dataplane.libbpf import mapped, pin
from ap_agent.dataplane.program import FROM_USER_BIT, OBJECT, Key, Program, _load
from ap_agent.document.state import Counters
from lab.frames.replay import MARKS
from measuring.iproute import run_command
from measuring.judge import room_bytes
from measuring.netns import Lab, Namespace
from tests.support.namespaces import a_lab

AP, USER, OTHER = "192.0.2.1", "192.0.2.11", "192.0.2.12"
AP6, USER6, OTHER6 = "2001:db8::1", "2001:db8::11", "2001:db8::12"
AP_PORT, USER_PORT = 51_001, 50_001
MAC_AP, MAC_USER = "02:00:00:00:00:01", "02:00:00:00:00:02"
HEARTBEAT, DATA = 203, 17
SO_RCVBUFFORCE = 33  # asm-generic/socket.h


@dataclass
class Bed:
    """`program` sits at both hooks of `ap`'s n0. Links are added by `link`."""

    lab: Lab
    ap: Namespace
    user: Namespace
    program: Program
    settings: mmap.mmap  # of the program
    pins: Path
    keys: list[Key] = field(default_factory=list)
    identified: int = 0

    def identifications(self, number: int = 1) -> range:
        """So many that no other test has: Linux keeps for 30 s what is not whole."""
        start = self.identified + 1
        self.identified += number
        assert self.identified <= 0xFFFF, "more than IPv4 has"
        return range(start, start + number)

    def tc(self, *arguments: str) -> str:
        return run_command(["tc", "-n", self.ap.name, *arguments])

    def attach(self, dev: str) -> None:
        self.tc("qdisc", "add", "dev", dev, "clsact")
        for hook, name, ifb in (("egress", "to_user", "slbw0"), ("ingress", "from_user", "slbw1")):
            at = ["filter", "add", "dev", dev, hook]
            self.tc(*at, "pref", "1", "protocol", "all", "bpf", "direct-action", "object-pinned", str(self.pins / name))
            redirect = ["action", "mirred", "egress", "redirect", "dev", ifb]
            self.tc(*at, "pref", "2", "protocol", "all", "bpf", "object-pinned", str(self.pins / "admitted"), *redirect)

    def link(
        self, interface_id: int, to_user_kbit: int, from_user_kbit: int, *keys: Key, observed: bool = False
    ) -> int:
        """Make a link; returns the number of its first lane."""
        number = 2 * interface_id
        for lane, dev, bit, kbit in (
            (number, "slbw0", 0, to_user_kbit),
            (number + 1, "slbw1", FROM_USER_BIT, from_user_kbit),
        ):
            minor = bit | interface_id
            if kbit:
                class_id = f"{OWN_MAJOR:x}:{minor:x}"
                burst = max(4000, kbit // 2)
                rate = f"rate {kbit}kbit ceil {kbit}kbit burst {burst} cburst {burst} quantum 1514"
                self.tc(*f"class replace dev {dev} parent {OWN_MAJOR:x}: classid {class_id} htb {rate}".split())
                leaf = f"handle {minor:x}: bfifo limit {room_bytes(kbit) + 140_000}"
                self.tc(*f"qdisc replace dev {dev} parent {class_id} {leaf}".split())
            self.put_lane(lane, Lane(kbit, minor, is_observed=observed))
        for key in keys:
            self.program.put_link(key.packed(), number)
            self.keys.append(key)
        return number

    def put_lane(self, number: int, lane: Lane) -> None:
        if number in self.program.lanes.used():
            self.program.lanes.put(number, lane.packed())
        else:
            self.program.lanes.take(number, lane.packed())

    def remove_link(self, key: Key) -> None:
        self.keys.remove(key)
        self.program.remove_link(key.packed())

    def forget_links(self) -> None:
        """What waits in the queues leaves first, so that no test receives what another one sent. Then the program
        forgets all: lanes, whose virtual queues may be longer than those of HTB (heartbeats), fragments and marks."""
        deadline = time.monotonic() + 60
        while any(
            " backlog 0b 0p" not in self.tc("-s", "qdisc", "show", "dev", dev, "root") for dev in ("slbw0", "slbw1")
        ):
            if time.monotonic() > deadline:
                raise TimeoutError("the queues of the IFBs do not become empty")
            time.sleep(0.05)
        for key in list(self.keys):
            self.remove_link(key)
        self.program.finish((), None)
        self.settings[MARKS] = bytes(MARKS.stop - MARKS.start)
        for lane in self.program.lanes.used():
            self.program.lanes.forget(lane)
        self.program.unmatched = None
        self.program.set_factors(1.0, 1.0)

    def counters(self, interface_id: int) -> tuple[Counters, Counters]:
        """To the user, from the user."""
        counted = self.program.lanes.counted()
        return counted[2 * interface_id][1], counted[2 * interface_id + 1][1]

    def send(self, frames: Sequence[bytes], *, from_ap: bool = False) -> None:
        """Frames of the user, or of the attachment point itself."""
        self._inside(from_ap, _send, frames)

    def offer(self, frame: bytes, kbit: int, seconds: float, *, from_ap: bool = False) -> int:
        """The same frame again and again at this rate; returns how many."""
        return self._inside(from_ap, _pace, itertools.repeat(frame), kbit, seconds)

    def pace(self, frames: Sequence[bytes], *, kbit: int, from_ap: bool = False) -> None:
        """These frames, in order, at this rate."""
        self._inside(from_ap, _pace, frames, kbit)

    def _inside(self, from_ap: bool, function: Callable[..., int], *arguments: Any) -> int:
        host, dev = (self.ap, "n0") if from_ap else (self.user, "u0")
        return host.call(lambda: function(dev, *arguments))

    def listen(self, host: Namespace, address: str, *ports: int) -> Receiver:
        return Receiver({port: host.call(lambda port=port: _bound(address, port)) for port in ports})


def _bound(address: str, port: int) -> socket.socket:
    sock = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM)
    sock.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 32 << 20)
    sock.bind((address, port))
    sock.setblocking(False)
    return sock


def _send(dev: str, frames: Iterable[bytes]) -> int:
    count = 0
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as sock:
        sock.bind((dev, 0))
        for frame in frames:
            with contextlib.suppress(OSError):  # ENOBUFS: refused at the egress hook; a UDP socket hides that
                sock.send(frame)
            count += 1
    return count


def _pace(dev: str, frames: Iterable[bytes], kbit: int, seconds: float = math.inf) -> int:
    def due() -> Iterator[bytes]:
        start, sent_bytes = time.monotonic(), 0
        for frame in frames:
            ahead_s = start + sent_bytes * 8 / (kbit * 1000) - time.monotonic()
            if ahead_s > 0.002:
                time.sleep(ahead_s)
            if time.monotonic() >= start + seconds:
                return
            yield frame
            sent_bytes += len(frame)

    return _send(dev, due())


class Receiver:
    """Sockets at several ports, and what reached them."""

    def __init__(self, sockets: dict[int, socket.socket]) -> None:
        self._sockets = sockets

    def counted(self, *, other_port: bool) -> dict[int, int]:
        """How many datagrams came, by the port here, or the one at the other end."""
        return {port: len(found) for port, found in self.received(other_port=other_port).items()}

    def received(
        self, *, other_port: bool = False, quiet_s: float = 0.3, deadline_s: float = 30.0
    ) -> dict[int, list[bytes]]:
        """Payloads by port, until nothing has come for `quiet_s`."""
        found: dict[int, list[bytes]] = {} if other_port else {port: [] for port in self._sockets}
        end, last = time.monotonic() + deadline_s, time.monotonic()
        while time.monotonic() < min(end, last + quiet_s):
            for port, sock in self._sockets.items():
                with contextlib.suppress(BlockingIOError):
                    while True:
                        data, sender = sock.recvfrom(65_535)
                        found.setdefault(sender[1] if other_port else port, []).append(data)
                        last = time.monotonic()
            time.sleep(0.01)
        return found

    def __enter__(self) -> Receiver:
        return self

    def __exit__(self, *_: object) -> None:
        for sock in self._sockets.values():
            sock.close()


@contextlib.contextmanager
def bed() -> Iterator[Bed]:
    """Raises `LabError`, `ProgramError`."""
    with a_lab("slbwd") as lab, contextlib.ExitStack() as stack:
        ap, user = lab.namespace("ap"), lab.namespace("user")
        lab.veth(
            ap.nic("n0", f"{AP}/24", f"{AP6}/64"),
            user.nic("u0", f"{USER}/24", f"{OTHER}/24", f"{USER6}/64", f"{OTHER6}/64"),
        )
        user.ip("link", "set", "u0", "address", MAC_USER)
        ap.ip("link", "set", "n0", "address", MAC_AP)
        for host, dev, address, mac in (
            (ap, "n0", (USER, OTHER, USER6, OTHER6), MAC_USER),
            (user, "u0", (AP, AP6), MAC_AP),
        ):
            for one in address:
                host.ip("neigh", "replace", one, "lladdr", mac, "dev", dev, "nud", "permanent")
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="slbwd-")))
        pins = folder / "pins"
        pins.mkdir()
        run_command(["mount", "-t", "bpf", "bpf", str(pins)])
        stack.callback(run_command, ["umount", str(pins)])
        fds = _load(OBJECT, {})
        settings = mapped(os.dup(fds[".bss"]), MARKS.stop)
        program = Program(fds)
        stack.callback(program.close)
        for name, fd in program.fds.items():
            pin(fd, pins / name)
        found = Bed(lab, ap, user, program, settings, pins)
        for dev in ("slbw0", "slbw1"):
            ap.ip("link", "add", dev, "numtxqueues", "1", "type", "ifb")
            ap.ip("link", "set", dev, "up")
            found.tc("qdisc", "add", "dev", dev, "root", "handle", f"{OWN_MAJOR:x}:", "htb", "default", "0")
        for host in (ap, user):
            # Else Linux gives up a datagram between whose fragments 64 others of its sender came, as they may while it
            # waits in a queue.
            host.sysctl({"net.ipv4.ipfrag_max_dist": 0})
        program.ifb = ap.call(lambda: socket.if_nametoindex("slbw0"))
        found.attach("n0")
        yield found
