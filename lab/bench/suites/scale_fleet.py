"""Delivery at scale: thousands of agents that wait at several replicas, while people save and replicas come and go.

The agents are the fleet of `lab.bench.fleet`; everything goes through nginx and the real service. Few and many waiting
agents are measured in turns, in one run: what else the machine does meets all of them.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from lab.bench.core import Outcome, Scale, Series, Step, interleave, percentile
from lab.bench.fleet.fleet import Fleet, fleet
from lab.bench.fleet.load import DELIVERED, DEPLOYED, KILLED, filled, refused, under_load
from lab.bench.fleet.savers import Save, save
from lab.bench.fleet.site import FleetSite, start_background
from lab.bench.plots import Plot
from lab.bench.report import Verdict, figure

PART = "delivery"  # of the suite `scale`
ANSWERED = "save answered"
ROWS = (1, 250, 500, 5_000)
TARGET_GROWTH, TARGET_BACK_S = 1.5, 10.0
PAUSE_S = (0.05, 0.4)  # between two saves that are measured: at any moment of what the clock does


def steps(scale: Scale) -> list[Step]:
    levels, saves, rounds = scale.pick(([10, 1_000, 10_000], 30, 3), ([10, 100], 5, 1))
    hosts, times = scale.pick((5_000, 20), (100, 2))
    load = scale.pick((5_000, 3, 10, 60.0), (100, 2, 1, 12.0))
    found = [Step("the statement of the clock", scale.pick(90.0, 40.0), partial(_read, hosts, times))]
    replicas = scale.pick(3, 2)
    label = f"save to agent, {levels} wait, {replicas} replicas"
    found.append(Step(label, scale.pick(600.0, 90.0), partial(_deliver, replicas, levels, saves, rounds)))
    label = f"{load[0]} wait while replicas come and go"
    found.append(Step(label, scale.pick(1_000.0, 150.0), partial(under_load, *load)))
    return [Step(one.label, one.expected_s, partial(_apart, one.run)) for one in found]


def _apart(run: Callable[[Outcome], None], outcome: Outcome) -> None:
    """With what was measured marked as this part's: other parts of the suite have labels of their own."""
    own = Outcome(outcome.suite)
    try:
        run(own)
    finally:
        outcome.series += [Series(one.labels | {"part": PART}, one.unit, one.samples) for one in own.series]
        outcome.notes += own.notes


def _read(hosts: int, rounds: int, outcome: Outcome) -> None:
    with filled(hosts) as (site, _):
        said = site.background.output_of("-m", "lab.bench.fleet.reading", str(rounds), *(str(one) for one in ROWS))
        for size, took_ms in json.loads(said.splitlines()[-1]).items():
            outcome.add(took_ms, "ms", what="statement", rows=int(size))


# --- few and many wait ------------------------------------------------------------------------------------------


def _deliver(replicas: int, levels: Sequence[int], saves: int, rounds: int, outcome: Outcome) -> None:
    with filled(max(levels)) as (site, folder):
        start_background(site)
        site.add_replicas(replicas)
        site.nginx.start()
        chance, kbit = random.Random(replicas), 1_000
        with fleet(folder, site.port, site.facts) as agents:
            for level in interleave(levels, rounds):
                agents.run(level)
                add = partial(outcome.add, waiting=level, replicas=replicas)
                cpu_s, began = site.cpu_s(), time.monotonic()
                for link in _links(site, level, saves, chance):
                    time.sleep(chance.uniform(*PAUSE_S))
                    kbit += 1
                    _one(agents, save(site.port, link, kbit), add)
                used = _difference(site.cpu_s(), cpu_s) / (time.monotonic() - began)
                add(used * 100, "%", what="web tier and nginx")
                held = site.connections().values()
                add(max(held) / (sum(held) / replicas), "x", what="fullest replica to the mean")
            said = agents.report()
            if said.answers["unexpected"] or refused(said):
                raise ValueError(f"agents met {dict(said.answers)}")
            largest = max(site.resident_bytes(address) for address in site.replicas)
            outcome.add(largest / 2**20, "MiB", what="memory of a replica", waiting=max(levels), replicas=replicas)


def _links(site: FleetSite, running_agents: int, count: int, chance: random.Random) -> list[dict[str, Any]]:
    """Links of attachment points whose agents run."""
    uids = {one["uid"] for one in site.facts["hosts"][:running_agents]}
    return chance.choices([one for one in site.facts["links"] if one["uid"] in uids], k=count)


def _one(agents: Fleet, done: Save, add: Callable[..., None]) -> None:
    if not done.is_accepted:
        raise ValueError(f"a save was answered {done.status}")
    news = agents.taken(done.link["uid"], done.link["interface_id"], done.kbit)
    if news is None:
        raise ValueError("an accepted save never came to its agent")
    add((news.at - done.asked_at) * 1000, "ms", what=DELIVERED)
    add((done.answered_at - done.asked_at) * 1000, "ms", what=ANSWERED)


def _difference(after: dict[str, float], before: dict[str, float]) -> float:
    return sum(after.values()) - sum(before.get(name, 0.0) for name in after)


# --- what it says -----------------------------------------------------------------------------------------------


def growth(outcome: Outcome, replicas: int, share: float) -> tuple[float, int] | None:
    """Time from a save to its agent with the most waiting agents to that with the fewest, and how many those are.
    `share` is 0.5 for the median."""
    found = {int(one.labels["waiting"]): one.samples for one in outcome.find(what=DELIVERED, replicas=replicas)}
    if len(found) < 2:
        return None
    few, many = min(found), max(found)
    return percentile(found[many], share) / percentile(found[few], share), many


def verdicts(outcome: Outcome) -> Iterator[Verdict]:
    own = Outcome(outcome.suite, outcome.find(part=PART))
    for replicas in sorted(own.values("replicas", what=DELIVERED), key=int):
        for name, share in (("median", 0.5), ("99 %", 0.99)):
            found = growth(own, int(replicas), share)
            if found is not None:
                target = f"save to agent, {replicas} replicas, {name}: grows < {TARGET_GROWTH:g}x up to {found[1]:,}"
                yield Verdict(target, f"{found[0]:.2f}x", found[0] < TARGET_GROWTH)
    lost, behind = own.median(what="accepted and lost"), own.median(what="links behind at the end")
    if lost is not None and behind is not None:
        yield Verdict("accepted saves lost: 0", f"{lost:.0f} of {own.median(what='accepted'):.0f}", lost == 0)
        yield Verdict("links behind their last save at the end: 0", f"{behind:.0f}", behind == 0)
        wrong = sum(sum(one.samples) for one in own.find(what="wrong answers"))
        yield Verdict("wrong answers: 0", f"{wrong:.0f}", wrong == 0)
    for phase in (KILLED, DEPLOYED):
        for one in own.find(what="away at most", phase=phase):
            back_s = max(one.samples)
            target = f"{phase}: agents back within {TARGET_BACK_S:g} s"
            yield Verdict(target, f"{figure(back_s)} s", back_s <= TARGET_BACK_S)
    for one in own.find(what="saves not accepted", phase=DEPLOYED):
        cut = sum(own.find(what="cut", phase=DEPLOYED)[0].samples)
        measured = f"{sum(one.samples):.0f} saves, {cut:.0f} polls"
        yield Verdict(f"{DEPLOYED}: no save and no poll fails", measured, not sum(one.samples) and not cut)


def plots(outcome: Outcome) -> list[Plot]:
    lines: dict[str, list[tuple[float, float]]] = {}
    for one in outcome.find(what=DELIVERED, part=PART):
        if "replicas" in one.labels:
            for name, share in (("median", 0.5), ("99 %", 0.99)):
                point = (float(one.labels["waiting"]), percentile(one.samples, share))
                lines.setdefault(f"{one.labels['replicas']} replicas, {name}", []).append(point)
    if not lines:
        return []
    ordered = {name: sorted(points) for name, points in lines.items()}
    return [Plot("fleet", "From Save to the agent", "ms", "agents that wait", lines=ordered, dashed=["99 %"])]
