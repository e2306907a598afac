"""Tests that send, with both programs and real packets: they count in the class of their link, never exceed its limit,
and nothing is left of them after their end."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from ap_agent.dataplane.libbpf import HashMap, pinned
from ap_agent.dataplane.program import LAYOUT
from ap_agent.document.state import Counters, LimiterState, read_state
from contract.link_tests import UDP, LinkTest, run_key
from measuring.traffic import TrafficRun, data, ends
from station.plan import Phase, ap_bytes, ap_kbit, total_s
from station.report import Report, read_report
from station.user_end import UserOrder, run_user_end
from tests.agent_bundles import SECRET, bundle_bytes, entry
from tests.agent_service import Service, like_the_service, stored
from tests.kernel.engine_bed import AP1, AP_PORT, U1, U2, USER_PORT
from tests.kernel.test_agent_cli import AGENT, LIMITER, Operator, operator, running, service
from tests.support.waiting import until

__all__ = ["operator", "service"]  # fixtures
pytestmark = pytest.mark.measured

SECOND = timedelta(seconds=1)
SENDING_S = 4
FRAME_BYTES = 14 + 20 + 8 + 1000
PHASES = tuple(
    Phase(number, "stream", way, 750, 1000, SENDING_S * 1000, 0) for number, way in enumerate(("to_user", "from_user"))
)


@dataclass
class Site:
    """An attachment point with both programs, its service, and links 1 (to u1) and 2 (to u2)."""

    operator: Operator
    service: Service
    limits: int = 7

    def user_end(self, test: LinkTest) -> Report:
        """Of a test of link 1, from its beginning to its end."""
        times = [round(one.timestamp() * 1000) for one in (test.begins_at, test.ends_at)]
        order = UserOrder(test.test_id, run_key(SECRET, test.test_id), AP1, 30_300, times[0], times[1], PHASES)
        return read_report(self.operator.host.u1.call(lambda: run_user_end(order, print)))

    @contextmanager
    def sending_user(self, test: LinkTest) -> Iterator[None]:
        thread = threading.Thread(target=lambda: self.user_end(test))
        thread.start()
        yield
        thread.join()

    def publish(self, tests: dict[str, list[LinkTest]], **fields: Any) -> None:
        """`fields`: of link 1."""
        links = {"1": {**entry(500, U1), **fields}, "2": entry(2000, U2), "3": entry(0, "192.0.2.13")}
        links = {key: {**one, "Tests": [test.statement() for test in tests.get(key, [])]} for key, one in links.items()}
        self.limits += 1
        bundle = bundle_bytes(links, limits_version=self.limits)
        self.service.answers["/config"] = like_the_service(bundle, "1.18", str(self.limits))

    def configure(self, *, allows_tests: bool) -> None:
        self.operator.use(self.service)
        with self.operator.config.open("a") as config:
            config.write('unmatched = "default"\ndefault_bandwidth_kbit = 20000\n')
            config.write(f"link_tests = {str(allows_tests).lower()}\n")

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
    def programs(self) -> Iterator[tuple[subprocess.Popen[str], subprocess.Popen[str]]]:
        """Limiter and agent, from when the first limits are in force."""
        with running(self.operator, LIMITER) as limiter, running(self.operator, AGENT) as agent:
            until(lambda: self.operator.rates(1) == (500, 500), "the first limit")
            until(lambda: bool(self.service.receipts()), "a receipt")
            until(self._has_enforced, "the limiter's state")
            yield limiter, agent


@pytest.fixture
def site(operator: Operator, service: Service) -> Site:
    service.answers["/test_results"] = stored()
    made = Site(operator, service)
    made.configure(allows_tests=True)
    made.publish({})
    return made


def sending(begins_in_s: int, lasts_s: int = total_s(PHASES), *, port: int = 30_300, number: int = 1) -> LinkTest:
    begins_at = (datetime.now(UTC) + begins_in_s * SECOND).replace(microsecond=0)
    ends_at = begins_at + lasts_s * SECOND
    return LinkTest(begins_at, ends_at, f"{number:032x}", UDP, port, ap_kbit(PHASES), ap_bytes(PHASES))


def sleep_until(moment: datetime, more_s: float = 0.0) -> None:
    time.sleep(max(0.0, (moment - datetime.now(UTC)).total_seconds() + more_s))


def test_what_a_test_sends_is_its_links_and_disturbs_nothing(site: Site) -> None:
    host = site.operator.host
    with site.programs():
        router, far = ends("talk", (AP1, AP_PORT), (U1, USER_PORT), (data(300, 1000),))
        talk = TrafficRun({host.ap: [router], host.u1: [far]}, seconds=5).go()
        writes = site.state.writes
        test = sending(8)
        site.publish({"1": [test]})
        site.until_armed(test)
        results = talk.finish()
        assert [results.lost(one, "talk") for one in (host.ap, host.u1)] == [0, 0], "the link's own packets"
        before = site.counters(1)
        assert site.state.writes == writes + 1, "one key, and nothing else"
        assert site.keys() == {30_300}
        assert site.service.receipts()[-1]["sending_tests"] == "on"
        others = site.unmatched_bytes()

        user = site.user_end(test)
        site.until_over(test)
        until(lambda: site.state.writes == writes + 2, "the write that takes the key back")
        result = site.report(test)
        ap, after = read_report(result["report"]), site.counters(1)
        assert (user.outcome, ap.outcome) == ("completed", "completed")
        most = (500 * SENDING_S * 125 + 24_000) / FRAME_BYTES  # and the room of queue and bucket
        for side, sent, received in (
            ("to_user", ap.phases[0], user.phases[0]),
            ("from_user", user.phases[1], ap.phases[1]),
        ):
            passed = after[side].passed_packets - before[side].passed_packets
            refused = after[side].refused_packets - before[side].refused_packets
            messages = passed + refused - sent.sent_packets
            assert 0 <= messages <= 100, side
            assert 0 <= passed - received.received_packets <= messages, side
            assert most - 30 < received.received_packets <= most + 1, side
            if side == "to_user":
                samples = [
                    one
                    for part in site.results()
                    if part["test"] == test.test_id
                    for one in part["to_user"]["passed_packets"]
                ]
                assert len(samples) <= test.duration_s + 1
                assert 0 <= passed - (samples[-1] - samples[0]) <= 10  # before the first second was read
        assert site.unmatched_bytes() - others < 1000, "less than a frame: the kernel's own multicast"
        until(lambda: not list((site.operator.folder / "state/tests").iterdir()), "the report to be forgotten")


def test_agent_that_is_killed_leaves_no_socket_and_its_key_ends_with_the_test(site: Site) -> None:
    with site.programs() as (limiter, agent):
        test = sending(3, 12)
        site.publish({"1": [test]})
        site.until_armed(test)
        with site.sending_user(test):
            sleep_until(test.begins_at, 1)
            agent.kill()
            agent.wait()
            until(lambda: site.ports() == set(), "the end of the child")
        limiter.kill()
        limiter.wait()
        with running(site.operator, LIMITER), running(site.operator, AGENT):
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
        stop = site.operator.folder / "link-tests-stopped"
        with site.sending_user(test):
            sleep_until(test.begins_at, 1)
            stop.touch()
            until(lambda: (site.ports(), site.keys()) == (set(), set()), "all to end")
        until(lambda: site.service.receipts()[-1]["sending_tests"] == "stopped", "the receipt")
        assert site.service.receipts()[-1]["tests"] == []
        report = site.report(test)["report"]
        assert (report["outcome"], "link-tests-stopped" in report["why"]) == ("cut", True)
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
        site.configure(allows_tests=False)
        for process in (limiter, agent):
            process.send_signal(signal.SIGHUP)
        again = {str(n): [sending(3, 4, port=30_300 + n, number=10 + n)] for n in (1, 2)}
        site.publish(again)
        until(lambda: site.service.receipts()[-1]["sending_tests"] == "off", "the receipt")
        while datetime.now(UTC) < again["1"][0].ends_at:
            assert (site.ports(), site.keys(), site.state.tests) == (set(), set(), ())
            time.sleep(0.2)
        assert site.service.receipts()[-1]["tests"] == []
