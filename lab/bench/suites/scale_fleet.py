"""Delivery at scale: thousands of agents that wait at several replicas, while people save and replicas come and go.

The agents are the fleet of `lab.bench.fleet`; everything goes through nginx and the real service. Few and many waiting
agents are measured in turns, in one run: what else the machine does meets all of them.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from lab.bench.core import Label, Outcome, Scale, Series, Step, interleave, median, percentile
from lab.bench.fleet.fleet import Fleet, fleet
from lab.bench.fleet.load import DELIVERED, DEPLOYED, KILLED, filled, refused, under_load
from lab.bench.fleet.savers import Save, save
from lab.bench.fleet.site import FleetSite, start_background
from lab.bench.plots import Plot
from lab.bench.report import NOTHING, Table, figure

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


def _after(delivered: Series, answered: Series) -> list[float]:
    """From the answer to a save until its document is at the agent, ms; at least 0: it may be there before."""
    return [max(0.0, one - other) for one, other in zip(delivered.samples, answered.samples, strict=True)]


def tables(outcome: Outcome) -> list[Table]:
    own = Outcome(outcome.suite, outcome.find(part=PART))
    return [_verdicts(own), _delivery_table(own), _phases_table(own), _reading_table(own)]


def _delivery_table(outcome: Outcome) -> Table:
    rows = []
    measured = [one for one in outcome.find(what=DELIVERED) if "replicas" in one.labels]
    for one in sorted(measured, key=lambda series: (int(series.labels["replicas"]), int(series.labels["waiting"]))):
        where = {name: one.labels[name] for name in ("replicas", "waiting")}
        answered = outcome.find(what=ANSWERED, **where)[0]
        rows.append(
            [
                f"{where['replicas']}",
                f"{where['waiting']:,}",
                f"{len(one.samples)}",
                *(figure(percentile(one.samples, share)) for share in (0.5, 0.9, 0.99)),
                figure(answered.median),
                figure(median(_after(one, answered))),
                _cell(outcome, "web tier and nginx", **where),
                _cell(outcome, "fullest replica to the mean", **where),
                _cell(outcome, "memory of a replica", **where),
            ]
        )
    header = [
        "replicas",
        "agents wait",
        "saves",
        "median, ms",
        "90 %",
        "99 %",
        "the answer alone",
        "after it",
        "processor, %",
    ]
    header += ["fullest replica to the mean", "MiB of a replica"]
    remark = (
        "From the PATCH, sent through nginx, until an agent has the last byte of the document, whose signature it then "
        "verifies. *After it*: median from the answer to the PATCH until then. *Processor*: of all replicas and nginx, "
        "meanwhile. One replica is one process."
    )
    return Table("From Save to the agent, while few and many wait", header, rows, remark)


def _phases_table(outcome: Outcome) -> Table:
    rows = []
    for phase in outcome.values("phase", what="took"):
        where: dict[str, Label] = {"phase": phase}
        delivered = outcome.find(what=DELIVERED, **where)
        rows.append(
            [
                str(phase),
                f"{len(outcome.find(what='took', **where)[0].samples)}",
                *(_cell(outcome, what, **where) for what in ("took", "answers")),
                *(_worst(outcome, what, **where) for what in ("cut", "sent away", "wrong answers", "away at most")),
                *(_sum(outcome, what, **where) for what in ("saves", "saves not accepted")),
                *(figure(percentile(delivered[0].samples, share)) if delivered else NOTHING for share in (0.5, 0.99)),
            ]
        )
    header = ["", "times", "each took, s", "answers/s", "polls cut, at most", "sent away, at most", "wrong answers"]
    header += ["away at most, s", "saves", "not accepted", "to the agent, median ms", "99 %"]
    remark = (
        "*Cut*: no answer. *Sent away*: 503 with a time to return. *Away*: from the failed poll of an agent until its "
        "next good answer. Agents die and restart all the time, half of them without closing their connection, and one "
        "in twenty has a clock that is wrong by a day."
    )
    return Table("While replicas and Redis come and go", header, rows, remark)


def _reading_table(outcome: Outcome) -> Table:
    rows = [[f"{one.labels['rows']:,}", figure(one.median)] for one in outcome.find(what="statement")]
    remark = (
        "The fastest of twenty. A message waits for the statement that runs: the clock looks at 250 rows at a time, no "
        "statement has more than 500; before, each had up to 5,000."
    )
    return Table("Looking at the rows of those who wait", ["rows", "ms"], rows, remark)


def _verdicts(outcome: Outcome) -> Table:
    rows = []
    for replicas in sorted(outcome.values("replicas", what=DELIVERED), key=int):
        for name, share in (("median", 0.5), ("99 %", 0.99)):
            found = growth(outcome, int(replicas), share)
            if found is not None:
                target = f"save to agent, {replicas} replicas, {name}: grows < {TARGET_GROWTH:g}x up to {found[1]:,}"
                rows.append([target, f"{found[0]:.2f}x", _held(found[0] < TARGET_GROWTH)])
    lost, behind = outcome.median(what="accepted and lost"), outcome.median(what="links behind at the end")
    if lost is not None and behind is not None:
        accepted = outcome.median(what="accepted")
        rows.append(["accepted saves lost: 0", f"{lost:.0f} of {accepted:.0f}", _held(lost == 0)])
        rows.append(["links behind their last save at the end: 0", f"{behind:.0f}", _held(behind == 0)])
        wrong = sum(sum(one.samples) for one in outcome.find(what="wrong answers"))
        rows.append(["wrong answers: 0", f"{wrong:.0f}", _held(wrong == 0)])
    for phase in (KILLED, DEPLOYED):
        for one in outcome.find(what="away at most", phase=phase):
            back_s = max(one.samples)
            target = f"{phase}: agents back within {TARGET_BACK_S:g} s"
            rows.append([target, f"{figure(back_s)} s", _held(back_s <= TARGET_BACK_S)])
    for one in outcome.find(what="saves not accepted", phase=DEPLOYED):
        cut = sum(outcome.find(what="cut", phase=DEPLOYED)[0].samples)
        found_text = f"{sum(one.samples):.0f} saves, {cut:.0f} polls"
        rows.append([f"{DEPLOYED}: no save and no poll fails", found_text, _held(not sum(one.samples) and not cut)])
    return Table("Targets", ["target", "measured", ""], rows)


def _held(is_held: bool) -> str:
    return "held" if is_held else "**not held**"


def _cell(outcome: Outcome, what: str, **labels: Label) -> str:
    value = outcome.median(what=what, **labels)
    return NOTHING if value is None else figure(value)


def _worst(outcome: Outcome, what: str, **labels: Label) -> str:
    return figure(max(outcome.find(what=what, **labels)[0].samples))


def _sum(outcome: Outcome, what: str, **labels: Label) -> str:
    return figure(sum(outcome.find(what=what, **labels)[0].samples))


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
