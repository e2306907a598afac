"""A service under load whose replicas and Redis come and go: what agents and savers meet in each phase."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from lab.bench.core import Outcome, percentile
from lab.bench.fleet.fleet import Fleet, Report, fleet
from lab.bench.fleet.savers import Savers, saving
from lab.bench.fleet.site import FleetSite, running, start_background

DELIVERED = "save to agent"
QUIET, DEPLOYED = "nothing happens", "deployment"
KILLED, REDIS = "a replica is killed", "both Redis are killed"
BUSY, LINKS_EACH, SAVERS = 40, 5, 20
DAY_S = 86_400


@contextmanager
def filled(waiting: int) -> Iterator[tuple[FleetSite, Path]]:
    with running() as site, tempfile.TemporaryDirectory(prefix="slbw-fleet-") as name:
        busy = min(BUSY, waiting)
        site.fill(busy=busy, links=LINKS_EACH, quiet=waiting - busy, savers=SAVERS)
        yield site, Path(name)


def under_load(waiting: int, replicas: int, kills: int, period_s: float, outcome: Outcome) -> None:
    with filled(waiting) as (site, folder):
        start_background(site)
        site.add_replicas(replicas)
        site.nginx.start()
        for number, host in enumerate(site.facts["hosts"]):  # a day off at every twentieth
            host["clock_error_s"] = DAY_S * (1 if number % 40 else -1) if number % 20 == 0 else 0
        with fleet(folder, site.port, site.facts) as agents:
            agents.run(waiting)
            agents.order(deaths_per_s=waiting / 500)  # each of them about once in eight minutes
            with saving(site.port, site.facts["links"][:SAVERS], pause_s=1.0) as savers:
                time.sleep(period_s / 4)
                watch = _Watch(agents, savers, outcome)
                watch.phase(QUIET, lambda: time.sleep(period_s / 2))
                watch.phase(DEPLOYED, lambda: _deploy(site, replicas))
                for _ in range(kills):
                    watch.phase(KILLED, lambda: _kill(site, period_s))
                watch.phase(REDIS, lambda: _restart_redis(site, period_s))
            agents.order(deaths_per_s=0.0)
            _verify(site, agents, savers, outcome)


class _Watch:
    """Counts what agents and savers met in each phase."""

    def __init__(self, agents: Fleet, savers: Savers, outcome: Outcome) -> None:
        self._agents, self._savers, self._outcome = agents, savers, outcome

    def phase(self, what: str, happens: Callable[[], None]) -> None:
        self._agents.report()
        seen = len(self._savers.saves)
        began = time.monotonic()
        happens()
        took_s = time.monotonic() - began
        said = self._agents.report()
        saves = self._savers.saves[seen:]
        add = partial(self._outcome.add, phase=what)
        add(took_s, "s", what="took")
        add(said.answers.total() / took_s, "1/s", what="answers")
        add(said.answers["cut"], "polls", what="cut")
        add(said.answers["503"], "polls", what="sent away")
        add(said.answers["unexpected"] + refused(said), "answers", what="wrong answers")
        add(max(said.away_s, default=0.0), "s", what="away at most")
        add(percentile(said.away_s, 0.5) if said.away_s else 0.0, "s", what="away, median")
        add(len(saves), "saves", what="saves")
        add(sum(not one.is_accepted for one in saves), "saves", what="saves not accepted")
        for one in saves:
            if one.is_accepted:
                news = self._agents.taken(one.link["uid"], one.link["interface_id"], one.kbit, within_s=30)
                if news is not None:
                    add((news.at - one.asked_at) * 1000, "ms", what=DELIVERED)


def refused(said: Report) -> int:
    return sum(count for name, count in said.answers.items() if name.startswith("refused"))


def _deploy(site: FleetSite, replicas: int) -> None:
    """As packaging/deploy: migrated while the old ones serve, new ones beside them, then these end."""
    old = site.replicas
    site.background.manage("migrate", "--no-input", "-v0")
    site.add_replicas(replicas)
    time.sleep(5)  # as packaging/deploy: nginx asks again who is called web
    site.end(old)
    site.background.stop()
    start_background(site)
    time.sleep(15)


def _kill(site: FleetSite, period_s: float) -> None:
    began = time.monotonic()
    victim = site.replicas[0]
    site.kill(victim)
    time.sleep(min(3.0, period_s / 4))  # as long as whoever watches over it needs
    site.start_again(victim)
    time.sleep(max(0.0, period_s - (time.monotonic() - began)))


def _restart_redis(site: FleetSite, period_s: float) -> None:
    site.stop_redis()
    time.sleep(period_s / 4)
    site.start_redis()
    time.sleep(period_s / 2)


def _verify(site: FleetSite, agents: Fleet, savers: Savers, outcome: Outcome) -> None:
    """Each accepted save is in the history, and what is stored last is what the agent has."""
    history = {
        (int(link), int(kbit)) for link, kbit in site.rows("SELECT link_id, new_kbit FROM testbed_bandwidthchange")
    }
    accepted = savers.accepted()
    outcome.add(len(accepted), "saves", what="accepted")
    outcome.add(sum((one.link["id"], one.kbit) not in history for one in accepted), "saves", what="accepted and lost")
    stored = {int(link): int(kbit) for link, kbit in site.rows("SELECT id, bandwidth_kbit FROM testbed_link")}
    behind = [
        one
        for one in {save.link["id"]: save for save in accepted}.values()
        if agents.taken(one.link["uid"], one.link["interface_id"], stored[one.link["id"]], within_s=60) is None
    ]
    outcome.add(len(behind), "links", what="links behind at the end")
