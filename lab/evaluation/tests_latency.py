"""How long a test of a link takes from the command to the verdict, and how soon it is over when an end is killed:
service, agent, limiter and the command line client, all as shipped, in namespaces."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime
from json import loads
from pathlib import Path
from typing import Any, Final

import requests

from ap_agent.dataplane.libbpf import HashMap, pinned
from ap_agent.dataplane.program import LAYOUT
from contract.link_tests import FIRST_TEST_PORT, TEST_LANES
from lab.bench.core import Outcome, median
from lab.bench.report import NOTHING
from lab.demo.agent import DemoAgent
from lab.demo.client import running_client
from lab.demo.site import DemoSite
from lab.demo.world import AP_IPV4, SITE_URL, UserAs, World
from lab.evaluation import together
from lab.evaluation.conversations import udp_ports
from lab.evaluation.core import Claim, labels_of
from lab.evaluation.limiters import OURS
from lab.evaluation.taps import seen_by, start_tap
from lab.running import until
from lab.serve import is_healthy
from lab.service import CoordinationService
from measuring.iproute import LabError, cleanup_stale
from measuring.judge import NS
from measuring.netns import Lab, Namespace

EXPERIMENT: Final = "from the command to the verdict"
PREFIX: Final = "slbwlat"
ANNA: Final = UserAs("Anna", "anna@example.org", "192.0.2.11", 50000, 2_000, 0)
DATA_BYTES: Final = 1000  # on the wire: a data packet of `quick` has 1494, one of the conversation at most 200
PHASE_S: Final = 3
RUN_S: Final = 15  # longer than such a test
KILLED_AFTER_S: Final = 2.0  # from its beginning on: in the first phase, to the user AS
READY_S: Final = 60.0
TEST_PORTS: Final = frozenset(range(FIRST_TEST_PORT, FIRST_TEST_PORT + TEST_LANES))
MOST_SUBMIT_S, MOST_VERDICT_S, MOST_KILLED_S = 2.0, 3.0, 2.0
_L: Final = (
    "from scionlab.testbed.models import Host\nprint(Host.objects.get(attachment_point__isnull=False).limits_version)"
)


@dataclass
class Stand:
    """What runs, and the link that is tested."""

    site: DemoSite
    service: CoordinationService
    agent: DemoAgent
    ap: Namespace
    user: Namespace
    token: str
    link_id: int

    def limits_version(self) -> int:
        return int(self.service.shell(_L))

    def newest_test(self) -> dict[str, Any]:
        def ask() -> dict[str, Any]:
            url = f"{SITE_URL}/api/v1/links/{self.link_id}/tests/?limit=1"
            answer = requests.get(url, headers={"Authorization": f"Token {self.token}"}, timeout=20)
            found: dict[str, Any] = answer.json()["results"][0]
            return found

        return dict(self.user.call(ask))

    def client(self) -> AbstractContextManager[subprocess.Popen[str]]:
        """`scionlab-bw test LINK quick` on the host of the AS."""
        arguments = ("test", str(self.link_id), "quick", "--set", f"seconds={PHASE_S}", "--json")
        return running_client(self.user, self.token, *arguments)

    def data_times_s(self, running: subprocess.Popen[str]) -> list[float]:
        """Of the monotonic clock: when data packets of a tap passed."""
        times, sizes = seen_by(running, RUN_S)
        return [at / NS for at, size in zip(times, sizes, strict=True) if size >= DATA_BYTES]

    def left(self) -> int:
        """Sockets of the test ports, and entries of the kernel for them."""
        return sum(len(ports & TEST_PORTS) for ports in (udp_ports(self.ap), self._keys()))

    def _keys(self) -> set[int]:
        """The local ports that the kernel knows; they end the keys of the engine's map of links."""
        found = pinned({"links": self.agent.programs.path_of("maps_dir") / f"links-{LAYOUT}"})
        if found is None:
            raise LabError("the limiter has pinned no maps")
        try:
            keys = HashMap(os.dup(found["links"]), key_bytes=40, value_bytes=4).numbers()
        finally:
            os.close(found["links"])
        return {int.from_bytes(key[38:40], "big") for key in keys}


@contextmanager
def stand() -> Iterator[Stand]:
    """Raises `LabError`, `ServiceError`."""
    cleanup_stale(PREFIX)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=f"{PREFIX}-")))
        world = World.build(stack.enter_context(Lab(PREFIX)), [ANNA])
        service = CoordinationService(
            folder / "service", bind="0.0.0.0:8000", site_url=SITE_URL, start_process=world.service.popen
        )
        stack.callback(service.stop)
        service.prepare()
        site = DemoSite(service, world.service.call)
        host = site.set_up([ANNA.owner])
        service.start(lambda: world.service.call(lambda: is_healthy(SITE_URL)))
        agent = DemoAgent(world.ap, folder / "agent", more="link_tests = true\n")
        agent.enrol(host.token)
        stack.callback(agent.close)
        agent.start()
        site.create_user_as(ANNA, host.attachment_point_id)
        until(lambda: site.status(ANNA)["stage"] == "enforced", "the limit was not enforced", READY_S, pause_s=0.2)
        user = world.users[ANNA.host_name]
        yield Stand(site, service, agent, world.ap, user, site.token(ANNA.owner), int(site.link(ANNA)["id"]))


def measure(runs: int, outcome: Outcome) -> None:
    """So many tests to their verdicts, then one whose user's end is killed, then one whose agent is. Raises
    `LabError`."""
    ticks = together.processor_ticks()
    with stand() as found:
        for _ in range(runs):
            _note(outcome, _to_the_verdict(found))
        _note(outcome, {"killed": _far_end_killed(found)})
        before, after = _agent_killed(found)
        _note(outcome, {"armed": before, "left": after})
    busy = together.busy_share(ticks, together.processor_ticks())
    outcome.add(busy, "of the processors' time", **together.MACHINE)


def _note(outcome: Outcome, measured: Mapping[str, float]) -> None:
    labels = labels_of(EXPERIMENT, OURS, "both")
    for what, value in measured.items():
        outcome.add(value, "s" if isinstance(value, float) else "", what=what, **labels)


def _to_the_verdict(stand: Stand) -> dict[str, float]:
    version = stand.limits_version()
    taps = [start_tap(stand.user, "eth0", which, AP_IPV4, RUN_S) for which in ("from", "to")]
    wall_s = time.time() - time.monotonic()
    began_s = time.monotonic()
    with stand.client() as client:
        said, _ = client.communicate(timeout=RUN_S + 30)
        ended_s = time.monotonic()
    if client.returncode != 0:
        raise LabError(f"the test ended with {client.returncode}: {said.strip()[-500:]}")
    reserved_s = datetime.fromisoformat(loads(said)["created_at"]).timestamp() - wall_s
    to_user, from_user = map(stand.data_times_s, taps)
    return {
        "command": to_user[0] - began_s,
        "submit": to_user[0] - reserved_s,
        "verdict": ended_s - max(to_user[-1], from_user[-1]),
        "documents": stand.limits_version() - version,
    }


def _begun(stand: Stand, before: int) -> dict[str, Any]:
    """The test that the client reserved, `KILLED_AFTER_S` after its beginning."""
    until(lambda: stand.newest_test()["id"] != before, "the client reserved no test", READY_S, pause_s=0.1)
    test = stand.newest_test()
    time.sleep(max(0.0, datetime.fromisoformat(test["begins_at"]).timestamp() + KILLED_AFTER_S - time.time()))
    return test


def _far_end_killed(stand: Stand) -> float:
    """From its death to the last data packet of the attachment point."""
    before = stand.newest_test()["id"]
    running = start_tap(stand.user, "eth0", "from", AP_IPV4, RUN_S)
    with stand.client() as client:
        test = _begun(stand, before)
        client.send_signal(signal.SIGKILL)
        killed_s = time.monotonic()
        times = stand.data_times_s(running)
    _until(test, 1.0)
    if not any(killed_s - 0.5 < at <= killed_s for at in times):
        raise LabError("nothing was sent when the user's end was killed")
    return max(times) - killed_s


def _agent_killed(stand: Stand) -> tuple[int, int]:
    """Sockets and entries of the test just before its agent is killed, and a second after its end."""
    before = stand.newest_test()["id"]
    with stand.client():
        test = _begun(stand, before)
        armed = stand.left()
        stand.agent.programs.kill("agent")
        _until(test, 1.0)
        return armed, stand.left()


def _until(test: Mapping[str, Any], more_s: float) -> None:
    """The end of the test, and so long after it."""
    time.sleep(max(0.0, datetime.fromisoformat(test["ends_at"]).timestamp() + more_s - time.time()))


# --- what came out ----------------------------------------------------------------------------------------------


def _samples(outcome: Outcome, what: str) -> list[float]:
    return [value for one in outcome.find(experiment=EXPERIMENT, what=what) for value in one.samples]


def claims(outcome: Outcome) -> list[Claim]:
    submit, verdict, killed = (_samples(outcome, what) for what in ("submit", "verdict", "killed"))
    documents, armed, left = (_samples(outcome, what) for what in ("documents", "armed", "left"))
    return [
        Claim(
            "A test that is started at once sends its first data soon after it was reserved.",
            f"median below {MOST_SUBMIT_S:g} s",
            f"{median(submit):.2f} s" if submit else NOTHING,
            bool(submit) and median(submit) < MOST_SUBMIT_S,
        ),
        Claim(
            "The verdict is there soon after the end.",
            f"within {MOST_VERDICT_S:g} s of the last data packet, in every run",
            f"at most {max(verdict):.2f} s" if verdict else NOTHING,
            bool(verdict) and max(verdict) <= MOST_VERDICT_S,
        ),
        Claim(
            "A test costs one document of the attachment point until its verdict.",
            "1, in every run",
            f"{min(documents):.0f} to {max(documents):.0f}" if documents else NOTHING,
            bool(documents) and set(documents) == {1},
        ),
        Claim(
            "The attachment point stops sending when the user's end is killed.",
            f"last data packet at most {MOST_KILLED_S:g} s later",
            f"{max(killed):.2f} s" if killed else NOTHING,
            bool(killed) and max(killed) <= MOST_KILLED_S,
        ),
        Claim(
            "A second after its end nothing is left of a test whose agent was killed.",
            "no socket and no entry; before, one of each",
            f"{max(left):.0f} left of {min(armed):.0f}" if left and armed else NOTHING,
            bool(left) and bool(armed) and min(armed) == 2 and max(left) == 0,
        ),
    ]
