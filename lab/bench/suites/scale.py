"""What receipts, changes, an administrator's reads, the sweep and the notes of when hosts were last seen cost, by the
size of the testbed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from typing import Any

from lab.bench import service_world as world
from lab.bench.core import Label, Outcome, Scale, Step
from lab.bench.plots import Plot
from lab.bench.report import Verdict
from lab.bench.scale.program import PARSED, PARSED_LINKS, READS

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


def steps(scale: Scale) -> list[Step]:
    sizes = scale.pick([(30, LINKS), (300, LINKS)], [(3, 20)])
    polling = scale.pick([10_000, 100_000], [200])
    many = scale.pick(MANY, 50)
    found = [
        Step(
            f"receipts of {points} attachment points with {links} links",
            20 + points / 2,
            partial(_receipts, points, links),
        )
        for points, links in sizes
    ]
    found += [
        Step(f"changes among {points * links} links", 20 + points / 3, partial(_changes, points, links))
        for points, links in sizes
    ]
    found += [
        Step(f"reads of {points * links} links", 20 + points / 3, partial(_reads, points, links))
        for points, links in sizes[:1]
    ]
    return found + [
        Step(f"sweep with {hosts} hosts", 10 + hosts / 2000, partial(_sweep, hosts, many)) for hosts in polling
    ]


def _receipts(points: int, links: int, outcome: Outcome) -> None:
    """Per minute, in which each attachment point sends one."""
    said = _run("receipts", points, links, min(SAMPLE, points))
    for one in said:
        if one["what"] == PARSED:
            outcome.add(one["ours"] / one["count"], "s", figure="ours", what=PARSED)
            continue
        labels: dict[str, Label] = {"what": "receipts", "kind": one["what"], "links": points * links}
        for name, unit in (("ours", "s"), ("theirs", "s"), ("wal", "bytes")):
            outcome.add(one[name] / one["count"] * points, unit, figure=name, **labels)


def _changes(points: int, links: int, outcome: Outcome) -> None:
    for one in _run("changes", points, links):
        labels: dict[str, Label] = {"what": one["what"], "changed": one["changed"], "links": points * links}
        for name, unit in (("ours", "s"), ("theirs", "s"), ("wal", "bytes")):
            outcome.add(one[name], unit, figure=name, **labels)


def _reads(points: int, links: int, outcome: Outcome) -> None:
    """The first of each connects and fills caches."""
    for one in _run("reads", points, links):
        if one["round"]:
            for name in ("ours", "theirs"):
                outcome.add(one[name], "s", figure=name, what=one["what"], links=points * links)


def _sweep(hosts: int, many: int, outcome: Outcome) -> None:
    for one in _run("sweep", hosts, CHANGED, min(many, hosts)):
        labels: dict[str, Label] = {"what": one["what"], "changed": one.get("changed", 0), "hosts": hosts}
        for name, unit in (("ours", "s"), ("theirs", "s"), ("wal", "bytes")):
            outcome.add(one[name], unit, figure=name, **labels)


def _run(*arguments: str | int) -> list[dict[str, Any]]:
    with world.site("postgresql", hosts=0, links=0) as site:
        said = site.run("-m", "lab.bench.scale.program", *map(str, arguments)).splitlines()
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
    for what in READS:
        for size in outcome.values("links", what=what):
            if (cpu := _cpu_s(outcome, what=what, links=size)) is not None:
                yield Verdict(f"{what} among {size:,}: <= {READ_S:g} s of a processor", f"{cpu:.2f} s", cpu <= READ_S)
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
