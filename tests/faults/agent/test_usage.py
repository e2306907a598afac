"""What is uploaded is what the kernel counted, to the byte: through a flood, kills and a class made anew by hand.

The witness is `tc`; the service is a stand-in that keeps what it gets (`tests.usage_ledger`).

    flood ──▶ 192.0.2.11 (u1)   link 1        flood ──▶ 192.0.2.12 (u1)   link 2
    flood ◀── the same, both links
"""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from ap_agent.usage.batch import time_text
from lab import witness
from lab.netns import Lab, Namespace, available, cleanup_stale
from tests.agent_service import Answer, Handler, service, status, stored
from tests.faults.agent.conftest import World, Zygote, eventually
from tests.usage_ledger import Ledger, Sums

PREFIX = "slbwu"
MISSING = available()
LIMITS = {1: 2000, 2: 900}
DIRECTIONS = {"eth0": "to_user", "slbw0": "from_user"}
SEGMENT_BYTES = 1400

pytestmark = [pytest.mark.kernel, pytest.mark.skipif(MISSING is not None, reason=f"namespaces: {MISSING}")]


@dataclass
class Flood:
    """Datagrams on the links' own ports, at several times their limits, both ways, until it is stopped."""

    ap: Namespace
    user: Namespace
    sockets: list[tuple[int, socket.socket]] = field(default_factory=list)
    paused: set[int] = field(default_factory=set)
    _is_over: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Flood:
        for link in LIMITS:
            self.sockets += [
                (link, self.ap.call(lambda link=link: _bound(("192.0.2.1", 51000 + link), link))),
                (link, self.user.call(lambda link=link: _bound((f"192.0.2.{10 + link}", 50000 + link), link))),
            ]
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join(10)
        for _link, one in self.sockets:
            one.close()

    def _run(self) -> None:
        while not self._is_over.wait(0.004):
            for link, one in self.sockets:
                if link not in self.paused:
                    for _ in range(3):
                        one.send(b"u" * SEGMENT_BYTES)


def _bound(address: tuple[str, int], link: int) -> socket.socket:
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8 * 1024 * 1024)
    made.setblocking(True)
    made.bind(address)
    made.connect(("192.0.2.1", 51000 + link) if address[0] != "192.0.2.1" else (f"192.0.2.{10 + link}", 50000 + link))
    return made


@pytest.fixture(scope="module")
def place() -> Iterator[tuple[Namespace, Namespace, Zygote]]:
    cleanup_stale(PREFIX)
    with Lab(PREFIX) as lab:
        ap, user = lab.namespace("ap"), lab.namespace("u1")
        lab.veth(ap.nic("eth0", "192.0.2.1/24"), user.nic("eth0", "192.0.2.11/24", "192.0.2.12/24"))
        yield ap, user, Zygote(ap)


@pytest.fixture
def ledger() -> Ledger:
    return Ledger()


@pytest.fixture
def world(place: tuple[Namespace, Namespace, Zygote], tmp_path: Path, ledger: Ledger) -> Iterator[World]:
    host, _, zygote = place
    running = service()
    offered = host.call(running.__enter__)
    found = World(host, zygote, offered, tmp_path)
    found.configure(usage_interval_s=1, log_level="debug")
    offered.answers["/usage"] = kept_in(ledger)
    try:
        yield found
    finally:
        for pid in list(found.running):
            os.kill(pid, signal.SIGKILL)
            found.ended(pid)
        running.__exit__(None, None, None)
        assert found.ended(found.start("reset")) == 0, found.said()


def kept_in(ledger: Ledger, failing: int = 0) -> Answer:
    """Keeps every upload; answers the first `failing` ones as if it had not."""
    left = [failing]

    def answer(handler: Handler) -> None:
        assert handler.request_seen.headers["Content-Encoding"] == "gzip"
        ledger.take(handler.request_seen.body)
        if left[0] > 0:
            left[0] -= 1
            return status(503)(handler)
        return stored()(handler)

    return answer


# --- the witness ------------------------------------------------------------------------------------------------------


def kernel(host: Namespace) -> Sums:
    """Bytes and packets of each link's inner class, drops of its leaves, by `tc`."""
    found: Sums = {}
    for dev, direction in DIRECTIONS.items():
        classes = witness.classes(host, dev)
        for one in classes.values():
            minor = int(one.classid.partition(":")[2], 16)
            if minor < 0x1000:
                leaves = [each for each in classes.values() if each.parent == one.classid]
                found[minor, direction] = (one.sent_bytes, one.sent_packets, sum(each.drops for each in leaves))
    return found


def backlog(host: Namespace, *links: int) -> int:
    return sum(
        one.backlog_bytes
        for dev in DIRECTIONS
        for one in witness.classes(host, dev).values()
        if int(one.classid.partition(":")[2], 16) & 0xFFF in links
    )


def added(one: Sums, other: Sums) -> Sums:
    nothing = (0, 0, 0)
    keys = one.keys() | other.keys()
    total = {key: tuple(map(sum, zip(one.get(key, nothing), other.get(key, nothing), strict=True))) for key in keys}
    return {key: (value[0], value[1], value[2]) for key, value in total.items()}


def sampled_at(world: World) -> str:
    health: dict[str, Any] = json.loads((world.folder / "run" / "health.json").read_bytes())
    return (health.get("usage") or {}).get("sampled_at") or ""


def sample(world: World) -> None:
    """Another one, begun after now."""
    now = time_text(int(time.time() * 1000) + 1)
    eventually(lambda: sampled_at(world) > now, world.said)


def restart(world: World, pid: int, number: int = signal.SIGTERM) -> int:
    os.kill(pid, number)
    assert world.ended(pid) in {0, -signal.SIGKILL}
    return world.start()


def by_hand(host: Namespace, link: int, dev: str, major: int) -> None:
    """Somebody deletes the class of a link with everything in it, and makes one like it."""
    inner, data, beats = f"{major}:{link:x}", f"{major}:{0x1000 + link:x}", f"{major}:{0x2000 + link:x}"
    lines = [
        *(f"filter del dev {dev} parent {major}: pref {pref}" for pref in (110, 112)),
        *(f"class del dev {dev} classid {one}" for one in (data, beats, inner)),
        f"class add dev {dev} parent {major}: classid {inner} htb rate 900kbit",
        f"class add dev {dev} parent {inner} classid {data} htb rate 884kbit ceil 900kbit",
    ]
    host.run("tc", "-batch", "-", stdin="\n".join(lines) + "\n")


# --- the tests --------------------------------------------------------------------------------------------------------


@pytest.mark.alone
def test_what_is_uploaded_is_what_the_kernel_counted_to_the_byte(
    world: World, place: tuple[Namespace, Namespace, Zygote], ledger: Ledger
) -> None:
    host, user, _ = place
    world.service.answers["/usage"] = kept_in(ledger, failing=2)
    world.offer(LIMITS)
    pid = world.start()
    eventually(lambda: world.enforces(LIMITS), world.said)
    eventually(lambda: sampled_at(world), world.said)
    with Flood(host, user) as flood:
        sample(world)
        pid = restart(world, pid, signal.SIGKILL)  # in the middle of it
        sample(world)

        os.kill(pid, signal.SIGSTOP)  # it takes no sample from now on, and puts nothing right in between
        counted = kernel(host)[2, "to_user"]
        eventually(lambda: kernel(host)[2, "to_user"][0] > counted[0] + 50_000)
        flood.paused.add(2)
        eventually(lambda: backlog(host, 2) == 0)
        before = {key: one for key, one in kernel(host).items() if key[0] == 2}
        by_hand(host, 2, "eth0", 1)
        by_hand(host, 2, "slbw0", 3)
        os.kill(pid, signal.SIGCONT)
        assert all(one[0] > 50_000 and one[2] > 0 for one in before.values()), before
        eventually(lambda: world.enforces(LIMITS), world.said)
        flood.paused.clear()
        sample(world)
        pid = restart(world, pid, signal.SIGKILL)
        sample(world)
    eventually(lambda: backlog(host, 1, 2) == 0)
    expected = added(before, kernel(host))
    sample(world)
    restart(world, pid)  # what was open is closed and sent

    eventually(lambda: ledger.sums() == expected, lambda: f"{ledger.sums()} is not {expected}\n{world.said()}")
    assert ledger.duplicates >= 2
    names = [key[:2] for key in ledger.segments()]
    assert {key: names.count(key) for key in names} == {
        (1, "to_user"): 1, (1, "from_user"): 1, (2, "to_user"): 2, (2, "from_user"): 2
    }  # fmt: skip
    assert world.problems() == {}
