"""An attachment point and user ASes on one switch, limited by the agent's engine, loaded and judged by the lab.

    with Testbed() as bed:
        link = TestLink(1, kbit=2000, user=1)
        bed.enforce([link])
        results = run_traffic(bed.plan([(link, link.ends((data(4000),)))]), seconds=4)
        assert_limit(results, bed.ap, link)

Every tolerance is one of `measuring.judge`: a frame and the clock's slack for a steady rate, bucket + frames for any
window.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import pytest

from ap_agent.dataplane.engine import Outcome
from ap_agent.dataplane.wanted import LimitedLink
from measuring.judge import CLOCK_SLACK_S, FRAME_BYTES, NS, bucket_bytes
from measuring.netns import Lab, Namespace, Nic
from measuring.traffic import Address, Endpoint, Results, Stream, TrafficRun, ends
from tests.engine_host import EngineHost, key, limited

PREFIX = "sltest"
AP_ADDRESS = {4: "192.0.2.1", 6: "2001:db8::1"}


def user_address(user: int, family: int = 4) -> str:
    """Address of the n-th user host."""
    return f"192.0.2.{10 + user}" if family == 4 else f"2001:db8::{10 + user}"


@dataclass(frozen=True)
class TestLink:
    """A Link of the testbed; `user` is the host at its other end, the ports default to 50000 and 51000 + its id."""

    __test__ = False  # a value, not a test class

    interface_id: int
    kbit: int
    user: int
    family: int = 4
    port: int = 0
    local_port: int = 0
    local_address: str = ""
    remote_address: str = ""

    @property
    def name(self) -> str:
        return f"link{self.interface_id}"

    @property
    def local(self) -> Address:
        return self.local_address or AP_ADDRESS[self.family], self.local_port or 51_000 + self.interface_id

    @property
    def remote(self) -> Address:
        return self.remote_address or user_address(self.user, self.family), self.port or 50_000 + self.interface_id

    def limited(self) -> LimitedLink:
        """What the engine is told."""
        return limited(self.interface_id, self.kbit, key(*self.remote, *self.local))

    def ends(self, streams: Sequence[Stream], **options: Any) -> tuple[Endpoint, Endpoint]:
        """Both ends with the same streams, the attachment point's first."""
        return ends(self.name, self.local, self.remote, streams, **options)


@dataclass
class Testbed:
    """The hosts: `ap`, and one per user number that is asked for, all on one switch."""

    __test__ = False

    users: int = 4

    def __enter__(self) -> Testbed:
        self.lab = Lab(PREFIX).__enter__()
        try:
            self.switch = self.lab.switch("net")
            self.ap = self.lab.namespace("ap")
            self._plug(self.ap.nic("eth0", f"{AP_ADDRESS[4]}/24", f"{AP_ADDRESS[6]}/64"))
            self._hosts = {}
            for number in range(1, self.users + 1):
                host = self.lab.namespace(f"u{number}")
                self._plug(host.nic("eth0", f"{user_address(number)}/24", f"{user_address(number, 6)}/64"))
                self._hosts[number] = host
            self.engine = EngineHost(self.ap).__enter__()
        except BaseException:
            self.lab.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.engine.__exit__(kind, value, trace)
        self.lab.__exit__(kind, value, trace)

    def _plug(self, nic: Nic) -> None:
        self.switch.plug(nic)
        # Else Linux gives up a datagram between whose fragments 64 others of its sender came, as they may while it
        # waits in a limited queue.
        nic.host.sysctl({"net.ipv4.ipfrag_max_dist": 0})

    def user(self, number: int) -> Namespace:
        """The host of the n-th user."""
        return self._hosts[number]

    def enforce(self, links: Iterable[TestLink], unmatched_kbit: int | None = None) -> Outcome:
        """By the real engine in the attachment point, without a problem."""
        return self.engine.must_enforce(*(one.limited() for one in links), unmatched_kbit=unmatched_kbit)

    def forget(self) -> None:
        """Take all limits off, with what waits in their queues."""
        self.engine.must_enforce()

    def plan(self, pairs: Iterable[tuple[TestLink, tuple[Endpoint, Endpoint]]]) -> dict[Namespace, list[Endpoint]]:
        """Who runs which endpoints."""
        plan: dict[Namespace, list[Endpoint]] = {}
        for link, (at_ap, at_user) in pairs:
            plan.setdefault(self.ap, []).append(at_ap)
            plan.setdefault(self.user(link.user), []).append(at_user)
        return plan


def assert_limit(results: Results, host: Namespace, link: TestLink, *, kbit: int | None = None, **window: Any) -> float:
    """The steady rate at this end is the limit, within `judge.rate_tolerance`; returns it in kbit/s."""
    verdict = results.judge_rate(host, link.name, kbit or link.kbit, **window)
    sender = results.other_end(host, link.name)
    assert verdict.holds, f"{link.name} at {host.short}: {verdict}; sender: {sender.sent_streams}"
    return verdict.measured_kbit


def allowed_excess_bytes(kbit: int) -> float:
    """What a window of any length may carry above rate*T: HTB's burst, a frame that begins on its last byte, and one
    that found the link's queue empty."""
    return bucket_bytes(kbit) + 2 * FRAME_BYTES + kbit * 125 * CLOCK_SLACK_S


# A station that stands still this long sends what is due at once, more than queues and sockets are made for: a quiet
# link's queue has room for 100 ms of its rate.
STOOD_STILL_S = 0.05


@contextmanager
def longest_pauses() -> Iterator[list[float]]:
    """The longest pause [s] of any station, one for each traffic run that finishes inside."""
    longest: list[float] = []

    def finish(run: TrafficRun) -> Results:
        results = original(run)
        pauses = [end - begin for spans in results.pauses_of.values() for begin, end in spans]
        longest.append(max(pauses, default=0) / NS)
        return results

    with pytest.MonkeyPatch.context() as patch:
        original = TrafficRun.finish
        patch.setattr(TrafficRun, "finish", finish)
        yield longest


class WindowExceededError(AssertionError):
    """A window carried more than its bound, as the receiver saw it.

    The bound holds where HTB sends. When this machine's processor is taken away for longer than `CLOCK_SLACK_S`, what
    was sent meanwhile arrives at once. So such a test is measured again, at most twice (conftest.py): a limiter that
    lets too much through does so each time.
    """


def check_excess(excess: float, allowed: float, where: str) -> None:
    """Raises `WindowExceededError`."""
    if excess > allowed:
        raise WindowExceededError(f"{where}: {excess:.0f} B above rate*T, allowed {allowed:.0f}")


def report(**figures: object) -> None:
    """Measured figures, shown by `pytest -s` (and for a failed test)."""
    print("  measured: " + " ".join(f"{name}={value}" for name, value in figures.items()))
