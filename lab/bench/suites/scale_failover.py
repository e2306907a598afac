"""The database's primary is killed in the middle of 50 savers, and its standby promoted.

A whole service on two PostgreSQL servers of its own (streaming replication, Unix sockets, fsync off: what a machine's
power off would lose is not measured). A save counts as accepted when its answer is 200, and as lost when the audit of
the promoted server does not have it. The worst moment is one at which the standby was away for a while: it comes back
with what it had, and is promoted. Asynchronous replication is the control: there accepted saves must be lost.
"""

from __future__ import annotations

import http.client
import json
import shutil
import socket
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from lab import failover, servers
from lab.bench.core import Label, Outcome, Scale, Step
from lab.bench.plots import Plot
from lab.bench.report import Verdict, figure
from lab.bench.world import PREFIX
from lab.serve import is_healthy
from lab.service import CoordinationService

SYNCHRONOUS, ASYNCHRONOUS = "synchronous", "asynchronous"
FOLLOWS, AWAY = "follows", "was away"
CASES: Final = [(kind, moment) for kind in (SYNCHRONOUS, ASYNCHRONOUS) for moment in (FOLLOWS, AWAY)]
POINTS = 10
BACK_S = 30.0
_PER_ROUND = 1_000_000  # numbers of one round do not meet those of another

_SETUP = """
import json
from scionlab.accounts.models import User
from scionlab.testbed.models import UserAS
from scionlab.user_ases.attachments import AttachmentSpec
from scionlab.user_ases.user_as import user_as_create
from scionlab.testbed.infrastructure import attachment_point_create, infrastructure_as_create
from scionlab.accounts.api_token import api_token_create
made = []
for number in range({points}):
    as_ = infrastructure_as_create(isd=17, as_text=f"ffaa:0:11{{number:02}}", label=f"AP {{number}}",
                                   is_core=number == 0, public_ipv4=f"192.0.2.{{1 + number}}")
    ap = attachment_point_create(as_=as_, default_bandwidth_kbit=100_000_000)
    user = User.objects.create_user(f"bench{{number}}@example.org", "the-bench-ends-with-you")
    spec = AttachmentSpec(attachment_point_id=ap.pk, public_ip=f"192.0.2.{{101 + number}}", bandwidth_kbit=500)
    user_as = user_as_create(owner=user, actor=user, label="AS", attachments=[spec],
                             installation_type=UserAS.Installation.DEDICATED)
    token = api_token_create(user_id=user.pk, name="bench", replaces=True).text
    link = user_as.interfaces.get().link.pk
    made.append([token, link])
print(json.dumps(made))
"""


def steps(scale: Scale) -> list[Step]:
    savers, rounds = scale.pick((50, 2), (10, 1))
    return [Step("database failover", 60.0 + rounds * len(CASES) * 20.0, partial(_measure, savers, rounds))]


def _measure(savers: int, rounds: int, outcome: Outcome) -> None:
    with _site() as (pair, port, links):
        for number in range(rounds):
            for index, (kind, moment) in enumerate(CASES):
                if number or index:
                    pair.follow_anew()
                if kind == SYNCHRONOUS:
                    pair.be_synchronous()
                first = (1 + number * len(CASES) + index) * _PER_ROUND
                _fail_over(pair, failover.Savers(partial(_save, port, links), savers, first), kind, moment, outcome)


@contextmanager
def _site() -> Iterator[tuple[failover.Pair, int, list[tuple[str, int]]]]:
    """A pair with a service on it: its port, and tokens with Links, each at an attachment point of its own."""
    with ExitStack() as stack:
        # /tmp: a Unix socket's path has at most 107 bytes, and user postgres must be able to reach it.
        folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}-", dir="/tmp"))
        folder.chmod(0o755)
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        pair = stack.enter_context(failover.pair(folder / "pair"))
        redis_url = stack.enter_context(servers.redis(folder / "redis"))
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port: int = free.getsockname()[1]
        service = CoordinationService(
            folder / "service",
            bind=f"127.0.0.1:{port}",
            site_url=f"http://127.0.0.1:{port}",
            environment={"DATABASE_URL": pair.url, "REDIS_URL": redis_url, "API_THROTTLE_USER": "1000000/min"},
        )
        stack.callback(service.stop)
        service.prepare()
        links = service.shell(_SETUP.format(points=POINTS))
        service.start(lambda: is_healthy(service.site_url))
        yield pair, port, [(str(token), int(link)) for token, link in links]
        service.check()


def _save(port: int, links: list[tuple[str, int]], kbit: int) -> int:
    token, link = links[kbit % len(links)]
    headers = {"Authorization": f"Token {token}", "Content-Type": "application/json"}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("PATCH", f"/api/v1/links/{link}/", json.dumps({"bandwidth_kbit": kbit}), headers)
        answer = connection.getresponse()
        answer.read()
        return answer.status
    finally:
        connection.close()


def _fail_over(pair: failover.Pair, savers: failover.Savers, kind: str, moment: str, outcome: Outcome) -> None:
    labels: dict[str, Label] = {"kind": kind, "moment": moment}
    with savers.saving():
        savers.wait_for_more(savers.count)
        began, before = time.monotonic(), len(savers.accepted)
        savers.wait_for_more(savers.count)
        rate = (len(savers.accepted) - before) / (time.monotonic() - began)
        if moment == AWAY:
            pair.standby.kill()
            if kind == SYNCHRONOUS:
                failover.wait_until(pair.saves_that_wait, "saves wait for the standby")
            else:
                savers.wait_for_more(savers.count)
        pair.primary.kill()
        died = time.monotonic()
        if moment == AWAY:
            pair.standby.start()
        pair.promote()
        promoted_s = time.monotonic() - died
        savers.wait_for_more(savers.count)
    lost = savers.lost(pair.saved_kbit())
    outcome.add(promoted_s, "s", what="promoted", **labels)
    outcome.add(rate, "per s", what="rate", **labels)
    outcome.add(len(savers.accepted), "saves", what="accepted", **labels)
    outcome.add(len(lost), "saves", what="lost", **labels)
    outcome.add(savers.first_after(died), "s", what="back", **labels)
    outcome.add(sum(status != 503 for status in savers.refused), "answers", what="other than 503", **labels)


def verdicts(outcome: Outcome) -> Iterator[Verdict]:
    lost = [one for series in outcome.find(what="lost", kind=SYNCHRONOUS) for one in series.samples]
    back = [one for series in outcome.find(what="back", kind=SYNCHRONOUS) for one in series.samples]
    control = [one for series in outcome.find(what="lost", kind=ASYNCHRONOUS, moment=AWAY) for one in series.samples]
    if lost and back and control:
        target = f"failover, synchronous: no accepted save lost, back within {BACK_S:g} s (asynchronous must lose some)"
        measured = f"{sum(lost):.0f} lost ({sum(control):.0f}), {figure(max(back))} s"
        yield Verdict(target, measured, sum(lost) == 0 < sum(control) and max(back) < BACK_S)


def plots(outcome: Outcome) -> list[Plot]:
    """Four rows: a table."""
    del outcome
    return []
