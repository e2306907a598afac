"""From Save to the kernel: a number goes to the REST API, and the class of the link changes on the attachment point.

A whole service (web, worker, beat) and two attachment points, each with a real agent and the real kernel in a namespace
of its own; one agent's question waits at the service, the other one asks every 10 s, which is the stock client's way of
delivery. Both are saved to in the same minutes, at random moments. Counted is until `tc` shows the new rate both ways;
it is asked again after 5 ms, so a figure is too high by that and by the time of an answer. Beside it: what the save of
one limit costs at an attachment point with many links and exceptions.
"""

from __future__ import annotations

import json
import random
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import requests

from lab import servers, witness
from lab.bench import service_world
from lab.bench.core import Label, Outcome, Scale, Step
from lab.bench.report import Verdict, figure
from lab.bench.world import PREFIX, SEED
from lab.demo.agent import DemoAgent
from lab.running import until
from lab.serve import is_healthy
from lab.service import CoordinationService
from measuring.netns import Lab, Namespace

NAME = "save"
TITLE = "From Save to the kernel"
EMBEDDED, SERVERS = "embedded (SQLite)", "PostgreSQL and Redis"
OURS, STOCK = "ours: the question waits", "stock way: a poll every 10 s"
FROM_REQUEST, FROM_ANSWER, ANSWER = "from the request", "from the answer", "the answer itself"
ANEW = "agent or queue made anew"
EXCEPTIONS = "beside exceptions"
TARGET_S = 0.3
EXCEPTIONS_RATIO = 1.5  # of the time without them
DEADLINE_S = 30.0
LOW_KBIT, HIGH_KBIT = 1_000, 9_000
SITE, USER, PASSWORD = "192.0.2.100", "bench@example.org", "the-bench-ends-with-you"
VARIANTS = {OURS: "", STOCK: "long_poll_s = 0\npoll_interval_s = 10\n"}

_SETUP = """
import json
from scionlab.accounts.models import User
from scionlab.testbed.models import UserAS
from scionlab.user_ases.attachments import AttachmentSpec
from scionlab.delivery.enrolment import enrolment_token_create
from scionlab.testbed.infrastructure import attachment_point_create, infrastructure_as_create
from scionlab.user_ases.user_as import user_as_create
user = User.objects.create_user({user!r}, {password!r})
made = []
for number, address in enumerate({addresses!r}, start=1):
    as_ = infrastructure_as_create(isd=17, as_text=f"ffaa:0:11{{number:02}}", label=f"AP {{number}}",
                                   is_core=number == 1, public_ipv4=address)
    ap = attachment_point_create(as_=as_, default_bandwidth_kbit=10_000)
    spec = AttachmentSpec(attachment_point_id=ap.pk, public_ip=f"192.0.2.{{100 + number}}", bandwidth_kbit={low})
    user_as_create(owner=user, actor=user, label=f"AS {{number}}", installation_type=UserAS.Installation.DEDICATED,
                   attachments=[spec])
    made.append(enrolment_token_create(host_id=ap.host.pk, actor=None).text)
print(json.dumps(made))
"""


def steps(scale: Scale) -> list[Step]:
    ours, stock = scale.pick((30, 15), (4, 2))
    links, exceptions, rounds = scale.pick((4000, 500, 30), (40, 5, 3))
    return [
        *(Step(name, stock * 12.0 + 25.0, partial(_measure, name, ours, stock)) for name in (EMBEDDED, SERVERS)),
        Step(f"{links} links with exceptions", 60.0, partial(_measure_exceptions, links, exceptions, rounds)),
    ]


# --- the world ------------------------------------------------------------------------------------------------------


@dataclass
class Point:
    """An attachment point with its agent and its one link, and somebody who saves that link's limit."""

    variant: str
    host: Namespace
    agent: DemoAgent
    service: Namespace
    headers: Mapping[str, str]
    link_id: int
    interface_id: int
    kbit: int = LOW_KBIT

    def save(self) -> tuple[float, float, float]:
        """The other limit. Returns the moments of request, answer and change in the kernel. Raises `LabError`."""
        kbit = HIGH_KBIT if self.kbit == LOW_KBIT else LOW_KBIT
        url = f"http://{SITE}:8000/api/v1/links/{self.link_id}/"
        began = time.monotonic()
        answer = self.service.call(
            lambda: requests.patch(url, json={"bandwidth_kbit": kbit}, headers=self.headers, timeout=20)
        )
        answered = time.monotonic()
        answer.raise_for_status()
        self.kbit = kbit
        return began, answered, self.until_kernel_has(kbit, 0.005)

    def until_kernel_has(self, kbit: int, pause_s: float = 0.1) -> float:
        """The moment at which it was seen with this limit, both ways. Raises `LabError`."""
        what = f"{self.variant}: link {self.interface_id} has not {kbit} kbit/s in the kernel"
        return until(
            lambda: self.agent.kernel_rates_kbit(self.interface_id) == (kbit, kbit),
            what, DEADLINE_S, pause_s=pause_s, check=self.agent.check,
        )  # fmt: skip

    def qdiscs(self) -> set[str]:
        """Every queue of the host by device and handle: what is made anew has another one."""
        return {f"{one['dev']} {one['kind']} {one['handle']}" for one in witness.qdiscs(self.host)}


@contextmanager
def _points(setup: str) -> Iterator[list[Point]]:
    """The whole set-up with one attachment point per variant, each enforced."""
    with ExitStack() as stack:
        environment = stack.enter_context(servers.both()) if setup == SERVERS else {}
        folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}-"))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        lab = stack.enter_context(Lab(PREFIX))
        switch, site = lab.switch("switch"), lab.namespace("service")
        switch.plug(site.nic("eth0", f"{SITE}/24"))
        addresses = [f"192.0.2.{number}" for number, _ in enumerate(VARIANTS, start=1)]
        service = CoordinationService(
            folder / "service",
            bind="0.0.0.0:8000",
            site_url=f"http://{SITE}:8000",
            environment=environment,
            start_process=site.popen,
        )
        stack.callback(service.stop)
        service.prepare()
        script = _SETUP.format(user=USER, password=PASSWORD, addresses=addresses, low=LOW_KBIT)
        tokens = service.shell(script)
        service.start(lambda: site.call(lambda: is_healthy(service.site_url)))
        headers, links = site.call(partial(_log_in, service.site_url))
        points: list[Point] = []
        for (variant, more), address, token, link in zip(VARIANTS.items(), addresses, tokens, links, strict=True):
            host = lab.namespace(f"ap{len(points) + 1}")
            switch.plug(host.nic("eth0", f"{address}/24"))
            agent = DemoAgent(host, folder / f"agent{len(points) + 1}", more)
            agent.enrol(token, service.site_url)
            agent.start()
            number = int(link["attachment_point_interface_id"])
            points.append(Point(variant, host, agent, site, headers, link["id"], number))
        for one in points:
            one.until_kernel_has(LOW_KBIT)
        yield points
        service.check()


def _log_in(site_url: str) -> tuple[dict[str, str], list[dict[str, Any]]]:
    credentials = {"email": USER, "password": PASSWORD}
    answer = requests.post(f"{site_url}/api/v1/token/", json=credentials, timeout=20)
    answer.raise_for_status()
    headers = {"Authorization": f"Token {answer.json()['token']}"}
    found = requests.get(f"{site_url}/api/v1/links/", headers=headers, timeout=20)
    found.raise_for_status()
    return headers, sorted(found.json()["results"], key=lambda link: str(link["as_label"]))


# --- measuring ------------------------------------------------------------------------------------------------------


def _measure(setup: str, ours: int, stock: int, outcome: Outcome) -> None:
    # Both take about as long: the stock way waits 5 s on average, and then a random time.
    saves = {OURS: (ours, 20.0 * stock / ours), STOCK: (stock, 10.0)}
    with _points(setup) as points, ThreadPoolExecutor(len(points)) as pool:
        before = [(one.agent.pid, one.qdiscs()) for one in points]
        running = [pool.submit(_save_at_random, outcome, setup, one, *saves[one.variant]) for one in points]
        for future in running:
            future.result()
        for one in points:
            one.agent.check()
        after = [(one.agent.pid, one.qdiscs()) for one in points]
        made_anew = sum(was != now for was, now in zip(before, after, strict=True))
        outcome.add(made_anew, "attachment points", what=ANEW, setup=setup)


def _save_at_random(outcome: Outcome, setup: str, point: Point, saves: int, longest_s: float) -> None:
    chance = random.Random(f"{SEED} {point.variant}")
    labels: dict[str, Label] = {"setup": setup, "variant": point.variant}
    for _ in range(saves):
        time.sleep(chance.uniform(0.3, longest_s))
        began, answered, changed = point.save()
        outcome.add((changed - began) * 1000, "ms", what=FROM_REQUEST, **labels)
        outcome.add((changed - answered) * 1000, "ms", what=FROM_ANSWER, **labels)
        outcome.add((answered - began) * 1000, "ms", what=ANSWER, **labels)


# --- showing --------------------------------------------------------------------------------------------------------


def _measure_exceptions(links: int, exceptions: int, rounds: int, outcome: Outcome) -> None:
    with service_world.site("postgresql", hosts=0, links=links) as service:
        said = service.run("-m", "lab.bench.service_data", "exceptions", str(exceptions), str(rounds))
    for judged, times_ms in json.loads(said.splitlines()[-1]).items():
        for one in times_ms:
            outcome.add(one, "ms", what=EXCEPTIONS, judged=judged, links=links, exceptions=exceptions)


def verdicts(outcome: Outcome) -> Iterator[Verdict]:
    none, own = (outcome.median(what=EXCEPTIONS, judged=one) for one in ("none", "own"))
    if none and own:
        yield Verdict(
            f"a save beside exceptions: <= {EXCEPTIONS_RATIO:g} of the time without them",
            f"{own / none:.2f} ({figure(own)} to {figure(none)} ms)",
            own <= EXCEPTIONS_RATIO * none,
        )
    for setup in outcome.values("setup", what=FROM_REQUEST, variant=OURS):
        ours = outcome.median(what=FROM_REQUEST, setup=setup, variant=OURS)
        stock = outcome.median(what=FROM_REQUEST, setup=setup, variant=STOCK)
        anew = outcome.median(what=ANEW, setup=setup)
        if ours is None or stock is None or anew is None:
            continue
        yield Verdict(
            f"Save to the kernel, {setup}: < {TARGET_S:g} s, nothing restarted",
            f"{figure(ours / 1000)} s (polling every 10 s: {figure(stock / 1000)} s); {anew:.0f} made anew",
            ours < TARGET_S * 1000 and not anew,
        )
