"""Tests that send, with both programs and real packets: they count in the class of their link, never exceed its limit,
and nothing is left of them after their end. What sends at the attachment point is `stand_in`."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from ap_agent.dataplane.libbpf import HashMap, pinned
from ap_agent.dataplane.program import LAYOUT
from ap_agent.document.state import Counters, LimiterState, read_state
from contract.link_tests import TCP, UDP, LinkTest, run_key
from measuring.netns import REPOSITORY, Namespace
from station.plan import ap_bytes, ap_kbit, total_s
from station.tools import TOOLS
from station.user_end import UserOrder, run_user_end
from tests.agent_bundles import SECRET, bundle_bytes
from tests.agent_service import Service, like_the_service, stored
from tests.kernel.conftest import entry
from tests.kernel.test_agent_cli import AGENT, LIMITER, Operator, operator, running, service, until

__all__ = ["operator", "service"]  # fixtures
pytestmark = [pytest.mark.kernel, pytest.mark.measured]

AP, U1, U2 = "192.0.2.1", "192.0.2.11", "198.51.100.11"
STAND_IN = Path(__file__).parent / "stand_in"
HEADERS = 14 + 20 + 8
SECOND = timedelta(seconds=1)
BOTH = ("to_user", "from_user")


def frames_in(kbit: int, seconds: float, payload: int = 1000) -> float:
    return kbit * 1000 * seconds / 8 / (payload + HEADERS)


@dataclass
class User:
    """The user's end: one socket."""

    sock: socket.socket
    to: tuple[str, int]
    sent: int = 0

    def ask(self, **request: Any) -> None:
        self.sock.sendto(json.dumps(request).encode(), self.to)
        self.sent += 1

    def send(self, count: int, kbit: int, payload: int = 1000) -> None:
        start = time.monotonic()
        for number in range(count):
            time.sleep(max(0.0, start + number * (payload + HEADERS) * 8 / kbit / 1000 - time.monotonic()))
            with contextlib.suppress(OSError):
                self.sock.sendto(bytes(payload), self.to)
            self.sent += 1

    def received(self, quiet_s: float = 0.6) -> int:
        """Until nothing has come for so long."""
        found = 0
        self.sock.settimeout(quiet_s)
        with contextlib.suppress(TimeoutError):
            while self.sock.recv(2000):
                found += 1
        return found


@dataclass
class Site:
    """An attachment point with both programs, its service, and links 1 (to u1) and 2 (to u2)."""

    operator: Operator
    service: Service
    limits: int = 7
    users: list[User] = field(default_factory=list)

    def user(self, host: Namespace, ip: str, port: int, to: tuple[str, int]) -> User:
        """A socket there."""

        def bound() -> socket.socket:
            sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 * 1024 * 1024)
            sock.bind((ip, port))
            return sock

        self.users.append(User(host.call(bound), to))
        return self.users[-1]

    def publish(self, tests: dict[str, list[LinkTest]], *, more: int = 0, **fields: Any) -> None:
        """`fields`: of link 1; `more` links of others."""
        links = {"1": {**entry(U1, 500), **fields}, "2": entry(U2, 2000), "3": entry("192.0.2.13", 0)}
        links |= {f"{n}": entry(f"198.18.{n >> 8}.{n & 255}", 100) for n in range(100, 100 + more)}
        links = {key: {**one, "Tests": [test.statement() for test in tests.get(key, [])]} for key, one in links.items()}
        self.limits += 1
        bundle = bundle_bytes(links, limits_version=self.limits)
        self.service.answers["/config"] = like_the_service(bundle, "1.18", str(self.limits))

    def configure(self, text: str) -> None:
        self.operator.use(self.service)
        config = self.operator.config.read_text()
        self.operator.config.write_text(
            f'{config}unmatched = "default"\ndefault_bandwidth_kbit = 20000\nlink_tests = true\n{text}'
            if "link_tests" not in text
            else f"{config}{text}"
        )

    @property
    def state(self) -> LimiterState:
        found = read_state(self.operator.folder / "lrun")
        assert found is not None
        return found

    def counters(self, number: int) -> dict[str, Counters]:
        """As they are now: the limiter writes them each second."""
        asked_at = datetime.now(UTC)
        until(lambda: self.state.written_at > asked_at, "another state")
        link = self.state.links[number]
        assert link.to_user is not None
        assert link.from_user is not None
        return {"to_user": link.to_user.counters, "from_user": link.from_user.counters}

    def unmatched_bytes(self) -> int:
        """Of no link, both ways."""
        assert self.state.unmatched is not None
        return sum(side.counters.passed_bytes + side.counters.refused_bytes for side in self.state.unmatched if side)

    def ports(self) -> set[int]:
        """Test ports that are open."""
        lines = self.operator.host.ap.run("ss", "-Huln").splitlines()
        return {port for line in lines if 30_300 <= (port := int(line.split()[3].rpartition(":")[2])) <= 30_303}

    def keys(self) -> set[int]:
        """Test ports of which the kernel knows the link."""
        found = pinned({"links": self.operator.maps / f"links-{LAYOUT}"})
        assert found is not None
        try:
            keys = HashMap(os.dup(found["links"]), key_bytes=40, value_bytes=4).numbers()
        finally:
            os.close(found["links"])
        return {int.from_bytes(key[38:40], "big") for key in keys} - {0}

    def results(self) -> list[dict[str, Any]]:
        return [json.loads(gzip.decompress(one.body)) for one in self.service.asked("/test_results")]

    def report(self, test: LinkTest) -> dict[str, Any]:
        """The one that arrived with the end."""

        def found() -> list[dict[str, Any]]:
            return [one for one in self.results() if one["test"] == test.test_id and one["is_final"]]

        until(lambda: bool(found()), "the result")
        assert len(found()) == 1
        return found()[0]

    def until_armed(self, *tests: LinkTest) -> None:
        ids = {one.test_id for one in tests}
        until(lambda: bool(self.service.receipts()) and {*self.service.receipts()[-1]["tests"]} == ids, "the receipt")
        until(lambda: self.ports() == {one.port for one in tests}, "the ports")

    def until_over(self, test: LinkTest) -> None:
        """Its end has passed, and nothing is left of it."""
        sleep_until(test.ends_at)
        until(lambda: (self.ports(), self.keys()) == (set(), set()), "the end of the test")

    def _has_enforced(self) -> bool:
        found = read_state(self.operator.folder / "lrun")
        return found is not None and found.writes > 0

    @contextmanager
    def programs(self, *, is_real: bool = False) -> Iterator[tuple[subprocess.Popen[str], subprocess.Popen[str]]]:
        """Limiter and agent, from when the first limits are in force. `is_real`: nothing stands in for anything."""
        stand_in = () if is_real else ("env", f"PYTHONPATH={STAND_IN}:{REPOSITORY}")
        with running(self.operator, LIMITER) as limiter, running(self.operator, AGENT, *stand_in) as agent:
            until(lambda: self.operator.rates(1) == (500, 500), "the first limit")
            until(lambda: bool(self.service.receipts()), "a receipt")
            until(self._has_enforced, "the limiter's state")
            yield limiter, agent


@pytest.fixture
def site(operator: Operator, service: Service) -> Iterator[Site]:
    service.answers["/test_results"] = stored()
    made = Site(operator, service)
    made.configure("")
    made.publish({})
    yield made
    for one in made.users:
        one.sock.close()


def sending(begins_in_s: int, lasts_s: int, *, port: int = 30_300, number: int = 1) -> LinkTest:
    begins_at = (datetime.now(UTC) + begins_in_s * SECOND).replace(microsecond=0)
    return LinkTest(begins_at, begins_at + lasts_s * SECOND, f"{number:032x}", UDP, port, 750, 1_000_000)


def sleep_until(moment: datetime, more_s: float = 0.0) -> None:
    time.sleep(max(0.0, (moment - datetime.now(UTC)).total_seconds() + more_s))


def in_background(function: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=function)
    thread.start()
    return thread


def test_what_a_test_sends_is_its_links_and_disturbs_nothing(site: Site) -> None:
    host = site.operator.host
    with site.programs():
        router = site.user(host.ap, AP, 51_000, (U1, 50_000))
        far = site.user(host.u1, U1, 50_000, (AP, 51_000))
        talk = [in_background(lambda one=one: one.send(200, 300)) for one in (router, far)]  # type: ignore[misc]
        writes = site.state.writes
        test = sending(8, 12)
        site.publish({"1": [test]})
        site.until_armed(test)
        for thread in talk:
            thread.join()
        before = site.counters(1)
        assert (router.received(), far.received()) == (200, 200), "the link's own packets"
        assert {side.refused_packets for side in before.values()} == {0}
        assert site.state.writes == writes + 1, "one key, and nothing else"
        assert site.keys() == {30_300}
        assert site.service.receipts()[-1]["sending_tests"] == "on"
        others = site.unmatched_bytes()

        sleep_until(test.begins_at, 0.1)
        user = site.user(host.u1, U1, 40_000, (AP, 30_300))
        user.ask(send=300, bytes=1000, kbit=750)
        arrived = user.received()
        user.send(300, 750)
        time.sleep(0.6)
        user.ask(end=True)
        after = site.counters(1)

        site.until_over(test)
        until(lambda: site.state.writes == writes + 2, "the write that takes the key back")
        result = site.report(test)
        [phase] = result["report"]["phases"]
        counted = {
            side: (after[side].passed_packets - before[side].passed_packets,
                   after[side].refused_packets - before[side].refused_packets) for side in BOTH
        }  # fmt: skip
        assert sum(counted["to_user"]) == pytest.approx(phase["sent_packets"], abs=1)
        assert sum(counted["from_user"]) == pytest.approx(user.sent, abs=1)
        assert counted["to_user"][0] == pytest.approx(arrived, abs=1)
        assert counted["from_user"][0] == pytest.approx(phase["received_packets"], abs=1)
        most = frames_in(500, 300 / frames_in(750, 1)) + 24_000 / 1042  # and the room of queue and bucket
        for side in BOTH:
            assert most - 30 < counted[side][0] <= most + 1, side
        assert site.unmatched_bytes() - others < 1000, "less than a frame: the kernel's own multicast"
        assert (result["report"]["outcome"], result["report"]["peer"]) == ("completed", f"{U1}:40000")
        samples = [
            one for part in site.results() if part["test"] == test.test_id for one in part["to_user"]["passed_packets"]
        ]
        assert len(samples) <= 13
        assert samples[-1] - samples[0] == counted["to_user"][0]
        until(lambda: not list((site.operator.folder / "state/tests").iterdir()), "the report to be forgotten")


def test_without_the_key_it_would_escape_the_limit(site: Site) -> None:
    """The negative control: who sends from the same port while there is no test."""
    site.configure('link_tests = false\nunmatched = "default"\ndefault_bandwidth_kbit = 20000\n')
    host, test = site.operator.host, sending(0, 20)
    with site.programs():
        before, others = site.counters(1), site.unmatched_bytes()
        order = {"port": 30_300, "local_ip": AP, "remote_ip": U1, "from_ms": 0, "max_kbit": 750}
        order["until_ms"] = round(test.ends_at.timestamp() * 1000)
        end = host.ap.popen(
            [sys.executable, "-P", "-m", "station.ap_end"], env={"PYTHONPATH": str(STAND_IN)}, stdin=subprocess.PIPE
        )
        assert end.stdin is not None
        end.stdin.write(json.dumps(order))
        end.stdin.close()
        until(lambda: site.ports() == {30_300}, "the port")
        user = site.user(host.u1, U1, 40_000, (AP, 30_300))
        user.ask(send=300, bytes=1000, kbit=750)
        assert user.received() == 300
        user.ask(end=True)
        assert site.counters(1) == before
        assert site.unmatched_bytes() - others >= 300 * 1042


def test_agent_that_is_killed_leaves_no_socket_and_its_key_ends_with_the_test(site: Site) -> None:
    with site.programs() as (limiter, agent):
        test = sending(3, 8)
        site.publish({"1": [test]})
        site.until_armed(test)
        sleep_until(test.begins_at, 0.5)
        site.user(site.operator.host.u1, U1, 40_000, (AP, 30_300)).ask(stay=True)
        time.sleep(0.5)
        agent.kill()
        agent.wait()
        until(lambda: site.ports() == set(), "the end of the child")
        limiter.kill()
        limiter.wait()
        with (
            running(site.operator, LIMITER),
            running(site.operator, AGENT, "env", f"PYTHONPATH={STAND_IN}:{REPOSITORY}"),
        ):
            until(lambda: site.state.tests == (test.test_id,), "the limiter")
            assert site.keys() == {30_300}
            sleep_until(test.ends_at, -1)
            assert (site.ports(), site.keys()) == (set(), {30_300}), "not started twice"
            site.until_over(test)
            report = site.report(test)["report"]
            assert (report["outcome"], report["why"]) == ("cut", "The agent ended before the test did.")


def test_file_of_the_operator_stops_what_runs_and_what_would_run(site: Site) -> None:
    with site.programs():
        test, later = sending(3, 20), sending(9, 10, port=30_301, number=2)
        site.publish({"1": [test], "2": [later]})
        site.until_armed(test, later)
        sleep_until(test.begins_at, 0.5)
        site.user(site.operator.host.u1, U1, 40_000, (AP, 30_300)).ask(send=2000, bytes=1000, kbit=750)
        stop = site.operator.folder / "link-tests-stopped"
        stop.touch()
        until(lambda: (site.ports(), site.keys()) == (set(), set()), "all to end")
        until(lambda: site.service.receipts()[-1]["sending_tests"] == "stopped", "the receipt")
        assert site.service.receipts()[-1]["tests"] == []
        report = site.report(test)["report"]
        assert (report["outcome"], "link-tests-stopped" in report["why"]) == ("cut", True)
        assert "Link tests     stopped" in site.operator.agent("status").stdout
        stop.unlink()
        until(lambda: site.service.receipts()[-1]["sending_tests"] == "on", "the receipt")
        assert site.ports() == set(), "not started twice"


def test_no_port_is_open_without_consent_and_none_for_a_link_without_limit(site: Site) -> None:
    tests = {str(n): [sending(3, 4, port=30_300 + n, number=n)] for n in (1, 2, 3)}
    with site.programs() as (limiter, agent):
        site.publish(tests, Observe=True)  # and the third is blocked
        site.until_armed(*tests["2"])
        sleep_until(tests["2"][0].ends_at, -1)
        assert (site.ports(), site.keys()) == ({30_302}, {30_302})
        site.until_over(tests["2"][0])
        site.configure("link_tests = false\n")
        for process in (limiter, agent):
            process.send_signal(signal.SIGHUP)
        again = {str(n): [sending(3, 4, port=30_300 + n, number=10 + n)] for n in (1, 2)}
        site.publish(again)
        until(lambda: site.service.receipts()[-1]["sending_tests"] == "off", "the receipt")
        while datetime.now(UTC) < again["1"][0].ends_at:
            assert (site.ports(), site.keys(), site.state.tests) == (set(), set(), ())
            time.sleep(0.2)
        assert site.service.receipts()[-1]["tests"] == []


def test_tcp_between_both_real_ends_is_its_links_and_gets_no_more_than_the_limit(site: Site) -> None:
    """500 kbit/s each way, over two connections; the agent allows TCP because the signed document does."""
    tool = TOOLS["tcp"]
    phases = tool.phases(tool.read({"seconds": 5, "flows": 2}), 500, 500)
    with site.programs(is_real=True):
        test = replace(sending(3, total_s(phases)), kind=TCP, kbit=ap_kbit(phases), max_bytes=ap_bytes(phases))
        site.publish({"1": [test]})
        site.until_armed(test)
        before, others = site.counters(1), site.unmatched_bytes()
        times = [round(one.timestamp() * 1000) for one in (test.begins_at, test.ends_at)]
        order = UserOrder(test.test_id, run_key(SECRET, test.test_id), AP, 30_300, times[0], times[1], phases)
        user = site.operator.host.u1.call(lambda: run_user_end(order, print))
        report = site.report(test)["report"]
        after = site.counters(1)
    assert (user["outcome"], report["outcome"]) == ("completed", "completed")
    for side, receiver in (("to_user", user["phases"][0]), ("from_user", report["phases"][1])):
        arrived, passed = receiver["received_bytes"], after[side].passed_bytes - before[side].passed_bytes
        assert 500 * 5 * 125 * 0.9 < arrived < passed <= 500 * 125 * 10, side
    assert "test_kinds" in site.service.receipts()[-1]
    assert site.unmatched_bytes() - others < 1000, "less than a frame: the kernel's own multicast"


def test_child_has_no_right_and_knows_nothing_but_its_order(site: Site) -> None:
    with site.programs() as (_, agent):
        test = sending(3, 3)
        site.publish({"1": [test]})
        site.until_armed(test)
        [child] = Path(f"/proc/{agent.pid}/task/{agent.pid}/children").read_text().split()
        status = dict(line.split(":\t", 1) for line in Path(f"/proc/{child}/status").read_text().splitlines())
        assert status["NoNewPrivs"] == "1"
        limits = Path(f"/proc/{child}/limits").read_text().splitlines()
        bounds = {line[:26].strip(): line[26:].split()[:2] for line in limits[1:]}
        assert bounds["Max open files"] == ["64", "64"]
        assert bounds["Max address space"] == [str(512 * 1024 * 1024)] * 2
        assert int(bounds["Max cpu time"][1]) < 40
        environment = Path(f"/proc/{child}/environ").read_bytes().split(b"\0")
        assert {one.partition(b"=")[0] for one in environment if one} <= {b"PATH", b"PYTHONPATH", b"LC_CTYPE"}
        key = run_key(SECRET, test.test_id)
        assert key.hex().encode() not in Path(f"/proc/{child}/cmdline").read_bytes()
