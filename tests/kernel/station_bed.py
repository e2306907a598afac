"""Hosts for tests of both ends of a test that sends, and a witness of what reaches them.

    home ── eth1  user  eth0 ── eth0  ap  eth1 ── victim
    10.0.0.0/24        192.0.2.0/24        198.51.100.0/24

`home` is behind NAT, which changes ports, and behind an MTU of 1400. The victim runs nothing. The attachment point's
end is the real child, started as the agent starts it.
"""

from __future__ import annotations

import json
import socket
import struct
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

import station.user_talk
from measuring.mmsg import prepare
from measuring.netns import Lab, Namespace
from station.messages import Kind
from station.plan import Phase, ap_bytes, ap_kbit, total_s
from station.report import Report, read_report
from station.user_end import UserOrder, run_user_end
from tests.support.namespaces import a_lab
from tests.support.waiting import until

PREFIX = "slbwst"
ID, KEY, PORT = "0123456789abcdef" * 2, bytes(range(32)), 30300
AP, USER, USER_TOO, VICTIM = "192.0.2.1", "192.0.2.11", "192.0.2.12", "198.51.100.11"
NAT = (
    "add table ip nat; add chain ip nat post { type nat hook postrouting priority 100; }; "
    "add rule ip nat post ip saddr 10.0.0.0/24 oifname eth0 masquerade random; "
    "add chain ip nat early { type filter hook prerouting priority -300; }; "
    "add rule ip nat early iifname eth1 meta length > 1400 drop"
)
ETH_P_ALL, PACKET_OUTGOING = 3, 4  # <linux/if_ether.h>, <linux/if_packet.h>
DATA = {int(one) for one in Kind if one >= Kind.USER_DATA}


def stream(
    direction: str, duration_ms: int = 400, kbit: int = 1000, payload_bytes: int = 500, number: int = 0
) -> Phase:
    return Phase(number, "stream", direction, kbit, payload_bytes, duration_ms, 0)


BOTH_WAYS = (stream("to_user"), stream("from_user", number=1))
TO_USER = (stream("to_user", 6000),)


@dataclass(frozen=True)
class Frame:
    """A datagram from the port of the test, as it arrived on a wire. `at`: of the monotonic clock, s."""

    at: float
    payload: bytes

    @property
    def is_data(self) -> bool:
        return self.payload[0] in DATA


class Tap:
    """What comes in on a host's eth0, over IPv4, from the port of the test."""

    def __init__(self, host: Namespace) -> None:
        self._socket = host.call(lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL)))
        prepare(self._socket, send_buffer_bytes=4096, receive_buffer_bytes=64 << 20)
        self._socket.bind(("eth0", ETH_P_ALL))
        self._socket.setblocking(False)

    def frames(self) -> list[Frame]:
        """Since the last call."""
        found = []
        offset = time.time() - time.monotonic()
        while True:
            try:
                frame, control, _, address = self._socket.recvmsg(65_535, 64)
            except BlockingIOError:
                return found
            is_udp = frame[12:14] == b"\x08\x00" and frame[23] == 17
            if address[2] != PACKET_OUTGOING and is_udp and frame[34:36] == PORT.to_bytes(2, "big"):
                seconds, ns = struct.unpack("@qq", control[0][2])
                found.append(Frame(seconds + ns / 1e9 - offset, frame[42:]))

    def close(self) -> None:
        self._socket.close()


@dataclass
class Bed:
    """See the module's head. `told`: what the user's end said."""

    lab: Lab
    ap: Namespace
    user: Namespace
    victim: Namespace
    home: Namespace
    told: list[str] = field(default_factory=list)

    def start_ap(self, phases: tuple[Phase, ...] = BOTH_WAYS, **changes: Any) -> subprocess.Popen[str]:
        """The child, which listens; `changes` of its order. `from_ms` and `until_ms` may be given from now on."""
        now_ms = time.time_ns() // 1_000_000
        order = {
            "id": ID, "key": KEY.hex(), "port": PORT, "local_ip": None, "remote_ip": USER, "ifindex": 0,
            "from_ms": now_ms, "until_ms": now_ms + total_s(phases) * 1000,
            "max_kbit": ap_kbit(phases), "max_bytes": ap_bytes(phases),
            "tcp": any(one.kind == "tcp" for one in phases), **changes,
        }  # fmt: skip
        child = self.ap.python("station.ap_end", stdin=subprocess.PIPE)
        assert child.stdin is not None
        child.stdin.write(json.dumps(order))
        child.stdin.close()
        child.stdin = None  # `communicate` is not to flush it
        until(lambda: child.poll() is not None or f":{PORT} " in self.ap.run("ss", "-4Huln"))
        return child

    def run_user(self, phases: tuple[Phase, ...] = BOTH_WAYS, host: Namespace | None = None, **changes: Any) -> Report:
        """The user's end, on its host unless said otherwise; `changes` of its order."""
        now_ms = time.time_ns() // 1_000_000
        order = replace(UserOrder(ID, KEY, AP, PORT, now_ms, now_ms + total_s(phases) * 1000, phases), **changes)
        self.told.clear()
        return read_report((host or self.user).call(lambda: run_user_end(order, self.told.append)))

    def both(self, phases: tuple[Phase, ...] = BOTH_WAYS, **of_user: Any) -> tuple[Report, Report]:
        """A test from its beginning to its end; the reports of the attachment point's and of the user's end."""
        child = self.start_ap(phases)
        user = self.run_user(phases, **of_user)
        return report(child), user

    @contextmanager
    def tap(self, host: Namespace) -> Iterator[Tap]:
        tap = Tap(host)
        try:
            yield tap
        finally:
            tap.close()


def report(child: subprocess.Popen[str], wait_s: float = 15) -> Report:
    """Of the child, which ends by itself."""
    out, diagnostics = child.communicate(timeout=wait_s)
    assert (child.returncode, diagnostics) == (0, "")
    return read_report(json.loads(out))


@pytest.fixture(scope="module")
def bed() -> Iterator[Bed]:
    with a_lab(PREFIX) as lab:
        ap, victim, home = (lab.namespace(name) for name in ("ap", "victim", "home"))
        user = lab.namespace("user", forwards=True)
        lab.veth(
            ap.nic("eth0", f"{AP}/24"),
            user.nic("eth0", f"{USER}/24", f"{USER_TOO}/24"),
        )
        lab.veth(ap.nic("eth1", "198.51.100.1/24"), victim.nic("eth0", f"{VICTIM}/24"))
        lab.veth(user.nic("eth1", "10.0.0.1/24"), home.nic("eth0", "10.0.0.2/24"))
        user.ip("link", "set", "eth1", "mtu", "1400")
        user.ip("route", "add", "default", "via", AP)
        home.ip("route", "add", "default", "via", "10.0.0.1")
        user.run("nft", NAT)
        yield Bed(lab, ap, user, victim, home)


@pytest.fixture(autouse=True)
def _clean(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A user's end gives up soon, and no child is left."""
    monkeypatch.setitem(station.user_talk.TRIES, Kind.HELLO, 4)
    yield
    bed.lab.stop_all()
