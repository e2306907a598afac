"""What receipts, changes, reads, the sweep, the notes of when hosts were last seen and usage cost, by the size of the
testbed: processor time of the service's process and of PostgreSQL's that serves it. PostgreSQL does not wait for its
disk (fsync off)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from typing import Any

from lab.bench import service_world as world
from lab.bench.core import Label, Outcome, Scale, Step
from lab.bench.plots import Plot
from lab.bench.report import Verdict, at_most
from lab.bench.scale.program import CONDITIONS, HEALTHY, PARSED, PARSED_LINKS, READS

NAME = "scale"
TITLE = "Scale"
LINKS = 1000  # of an attachment point
KINDS = {
    "nothing": "nothing changed",
    "one link in 100": "packets on one link in 100",
    "all counters": "packets on every link",
}
CHANGED, MANY = 10, 5000
RECEIPTS_SHARE, WAL_BYTES, SWEEP_S, READ_S, PARSE_S = 0.25, 5e6, 1.0, 1.0, 0.02
SAMPLE = 10
MOST_RATIO = (
    1.5  # of a save beside exceptions, and of a read while agents are silent or maxima clamp, to its usual cost
)
PAGE_S, ALL_LINKS, USAGE_SHARE = 0.05, 300_000, 0.5
EVERY_S = {"read and check": 60, "store samples": 60, "roll up": 300, "percentiles": 3600}  # for each link


def steps(scale: Scale) -> list[Step]:
    sizes = scale.pick([(30, LINKS), (300, LINKS)], [(3, 20)])
    polling = scale.pick([10_000, 100_000], [200])
    many = scale.pick(MANY, 50)
    exceptions = scale.pick(500, 5)
    found = []
    for points, links in sizes:
        count, expected_s = points * links, 20 + points / 2
        found.append(Step(f"receipts of {count} links", expected_s, partial(_receipts, points, links)))
        found.append(Step(f"changes among {count} links", expected_s, partial(_changes, points, links, exceptions)))
    points, links = sizes[0]
    found.append(Step(f"reads of {points * links} links", 30 + points, partial(_reads, points, links)))
    for hosts in polling:
        found.append(Step(f"sweep with {hosts} hosts", 10 + hosts / 2000, partial(_sweep, hosts, many)))
    return [*found, Step("a day of usage", 60.0, partial(_usage, *scale.pick((1000, 60_000), (20, 30_000))))]


def _receipts(points: int, links: int, outcome: Outcome) -> None:
    """Per minute, in which each attachment point sends one."""
    for one in _run("receipts", points, links, min(SAMPLE, points)):
        if one["what"] == PARSED:
            outcome.add(one["ours"] / one["count"], "s", figure="ours", what=PARSED)
            continue
        _add(outcome, one, points / one["count"], what="receipts", kind=one["what"], links=points * links)


def _add(outcome: Outcome, one: dict[str, Any], share: float = 1.0, **labels: Label) -> None:
    for name, unit in (("ours", "s"), ("theirs", "s"), ("wal", "bytes")):
        outcome.add(one[name] * share, unit, figure=name, **labels)


def _changes(points: int, links: int, exceptions: int, outcome: Outcome) -> None:
    for one in _run("changes", points, links, exceptions):
        _add(outcome, one, 1 / one["count"], what=one["what"], changed=one["changed"], links=points * links)


def _reads(points: int, links: int, outcome: Outcome) -> None:
    for one in _run("reads", points, links):
        _add(outcome, one, 1 / one["count"], what=one["what"], condition=one["condition"], links=points * links)


def _sweep(hosts: int, many: int, outcome: Outcome) -> None:
    for one in _run("sweep", hosts, CHANGED, min(many, hosts)):
        _add(outcome, one, what=one["what"], changed=one.get("changed", 0), hosts=hosts)


def _usage(links: int, rows: int, outcome: Outcome) -> None:
    """Of each link."""
    for one in _run("usage", links, rows):
        _add(outcome, one, 1 / one["count"], what=one["what"], rows=rows)


def _run(*arguments: str | int) -> list[dict[str, Any]]:
    with world.site() as site:
        said = site.run(["-m", "lab.bench.scale.program", *map(str, arguments)]).splitlines()
    return [json.loads(line) for line in said if line.startswith("{")]


# --- what it says -----------------------------------------------------------------------------------------------


def _cpu_s(outcome: Outcome, **labels: Label) -> float | None:
    ours, theirs = (outcome.median(figure=one, **labels) for one in ("ours", "theirs"))
    return None if ours is None or theirs is None else ours + theirs


def verdicts(outcome: Outcome) -> Iterator[Verdict]:
    """At the largest sizes that were measured."""
    links = max(map(int, outcome.values("links", what="receipts")), default=0)
    minute: dict[str, Label] = {"what": "receipts", "kind": "nothing", "links": links}
    cpu, wal = _cpu_s(outcome, **minute), outcome.median(figure="wal", **minute)
    if cpu is not None and wal is not None:
        target = f"unchanged receipts of {links:,} links, per minute: < {RECEIPTS_SHARE:g} of a processor"
        yield Verdict(target, f"{cpu / 60:.3f}", cpu / 60 < RECEIPTS_SHARE)
        yield Verdict(f"the same: < {WAL_BYTES / 1e6:g} MB of WAL", f"{wal / 1e6:.3f} MB", wal < WAL_BYTES)
    if (parse_s := outcome.median(figure="ours", what=PARSED)) is not None:
        target = f"a receipt of {PARSED_LINKS:,} links is parsed: <= {PARSE_S * 1000:g} ms of a processor"
        yield Verdict(target, f"{parse_s * 1000:.1f} ms", parse_s <= PARSE_S)
    for size in outcome.values("links", what="a save"):
        plain, beside = (_cpu_s(outcome, what=f"a save{more}", links=size) for more in ("", " beside exceptions"))
        target = f"a save among {size:,} links, beside exceptions: <= {MOST_RATIO:g}x of that without them"
        yield from at_most(target, beside, plain, MOST_RATIO, "s")
    for what in READS:
        usual, *others = (_cpu_s(outcome, what=what, condition=one) for one in CONDITIONS)
        if usual is not None:
            yield Verdict(f"{what}, {HEALTHY}: <= {READ_S:g} s of a processor", f"{usual:.3f} s", usual <= READ_S)
        for condition, cpu in zip(CONDITIONS[1:], others, strict=True):
            yield from at_most(f"{what}, {condition}: <= {MOST_RATIO:g}x of that", cpu, usual, MOST_RATIO, "s")
    if (spent := _cpu_s(outcome, what="roll up")) is not None:
        busy = {what: (_cpu_s(outcome, what=what) or 0) * ALL_LINKS / every_s for what, every_s in EVERY_S.items()}
        target = f"usage of {ALL_LINKS:,} links into 5-minute rows: < {USAGE_SHARE:g} of one processor"
        measured = f"{busy['roll up']:.2f}; from the batches on {sum(busy.values()):.2f}, extrapolated"
        yield Verdict(target, measured, spent * ALL_LINKS / EVERY_S["roll up"] < USAGE_SHARE)
    if (page_s := _cpu_s(outcome, what="usage of 7 d")) is not None:
        target = f"a link's week in 5-minute rows: < {PAGE_S * 1000:g} ms of a processor"
        yield Verdict(target, f"{page_s * 1000:.1f} ms", page_s < PAGE_S)
    hosts = max(map(int, outcome.values("hosts", what="sweep")), default=0)
    cpu = _cpu_s(outcome, what="sweep", hosts=hosts, changed=CHANGED)
    if cpu is not None:
        target = f"sweep with {hosts:,} polling hosts of which {CHANGED} changed: < {SWEEP_S:g} s of a processor"
        yield Verdict(target, f"{cpu:.2f} s", cpu < SWEEP_S)


def plots(outcome: Outcome) -> list[Plot]:
    receipts = {
        words: [
            (float(links), cpu / 60)
            for links in outcome.values("links", what="receipts")
            if (cpu := _cpu_s(outcome, what="receipts", kind=kind, links=links))
        ]
        for kind, words in KINDS.items()
    }
    if not any(receipts.values()):
        return []
    title = "One receipt a minute of each attachment point"
    return [Plot("scale-receipts", title, "share of a processor", "links", lines=receipts, mark_y=RECEIPTS_SHARE)]
