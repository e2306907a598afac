"""What receipts, changes, the sweep and the notes of when hosts were last seen cost by the size of the testbed."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

from lab.bench import service_world as world
from lab.bench.core import Label, Outcome, Scale, Step
from lab.bench.plots import Plot
from lab.bench.report import NOTHING, Table, figure
from lab.bench.scale.program import READ, READ_LINKS

LINKS = 1000  # of an attachment point
KINDS = {
    "nothing": "nothing changed",
    "one link in 100": "packets on one link in 100",
    "all counters": "packets on every link",
}
CHANGES = ("a save", "a lowered default")
CHANGED, MANY = 10, 5000
RECEIPTS_SHARE, WAL_BYTES, SWEEP_S, READ_S = 0.25, 5e6, 1.0, 0.02
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
    return found + [
        Step(f"sweep with {hosts} hosts", 10 + hosts / 2000, partial(_sweep, hosts, many)) for hosts in polling
    ]


def _receipts(points: int, links: int, outcome: Outcome) -> None:
    """Per minute, in which each attachment point sends one."""
    said = _run("receipts", points, links, min(SAMPLE, points))
    for one in said:
        if one["what"] == READ:
            outcome.add(one["ours"] / one["count"], "s", figure="ours", what=READ)
            continue
        labels: dict[str, Label] = {"what": "receipts", "kind": one["what"], "links": points * links}
        for name, unit in (("ours", "s"), ("theirs", "s"), ("wal", "bytes")):
            outcome.add(one[name] / one["count"] * points, unit, figure=name, **labels)


def _changes(points: int, links: int, outcome: Outcome) -> None:
    for one in _run("changes", points, links):
        labels: dict[str, Label] = {"what": one["what"], "changed": one["changed"], "links": points * links}
        for name, unit in (("ours", "s"), ("theirs", "s"), ("wal", "bytes")):
            outcome.add(one[name], unit, figure=name, **labels)


def _sweep(hosts: int, many: int, outcome: Outcome) -> None:
    for one in _run("sweep", hosts, CHANGED, min(many, hosts)):
        labels: dict[str, Label] = {"what": one["what"], "changed": one.get("changed", 0), "hosts": hosts}
        for name, unit in (("ours", "s"), ("theirs", "s"), ("wal", "bytes")):
            outcome.add(one[name], unit, figure=name, **labels)


def _run(*arguments: str | int) -> list[dict[str, Any]]:
    with world.site("postgresql", hosts=0, links=0) as site:
        said = site.run(["-m", "lab.bench.scale.program", *map(str, arguments)]).splitlines()
    return [json.loads(line) for line in said if line.startswith("{")]


# --- what it says -----------------------------------------------------------------------------------------------


def _cpu_s(outcome: Outcome, **labels: Label) -> float | None:
    ours, theirs = (outcome.median(figure=one, **labels) for one in ("ours", "theirs"))
    return None if ours is None or theirs is None else ours + theirs


def tables(outcome: Outcome) -> list[Table]:
    return [_targets(outcome), _receipts_table(outcome), _changes_table(outcome), _sweep_table(outcome)]


def _targets(outcome: Outcome) -> Table:
    """At the largest sizes that were measured."""
    rows = []
    links = max(map(int, outcome.values("links", what="receipts")), default=0)
    minute: dict[str, Label] = {"what": "receipts", "kind": "nothing", "links": links}
    cpu, wal = _cpu_s(outcome, **minute), outcome.median(figure="wal", **minute)
    if cpu is not None and wal is not None:
        target = f"unchanged receipts of {links:,} links, per minute: < {RECEIPTS_SHARE:g} of a processor"
        rows.append([target, f"{cpu / 60:.3f}", _held(cpu / 60 < RECEIPTS_SHARE)])
        target = f"the same: < {WAL_BYTES / 1e6:g} MB of WAL"
        rows.append([target, f"{wal / 1e6:.3f} MB", _held(wal < WAL_BYTES)])
    read_s = outcome.median(figure="ours", what=READ)
    if read_s is not None:
        target = f"a receipt of {READ_LINKS:,} links is read: <= {READ_S * 1000:g} ms of a processor"
        rows.append([target, f"{read_s * 1000:.1f} ms", _held(read_s <= READ_S)])
    hosts = max(map(int, outcome.values("hosts", what="sweep")), default=0)
    cpu = _cpu_s(outcome, what="sweep", hosts=hosts, changed=CHANGED)
    if cpu is not None:
        target = f"sweep with {hosts:,} polling hosts of which {CHANGED} changed: < {SWEEP_S:g} s of a processor"
        rows.append([target, f"{cpu:.2f} s", _held(cpu < SWEEP_S)])
    return Table("Targets of costs", ["target", "measured", "held?"], rows)


def _held(is_held: bool) -> str:
    return "yes" if is_held else "**no**"


def _receipts_table(outcome: Outcome) -> Table:
    rows = []
    for links in outcome.values("links", what="receipts"):
        for kind, words in KINDS.items():
            labels: dict[str, Label] = {"what": "receipts", "kind": kind, "links": links}
            cpu, ours = _cpu_s(outcome, **labels), outcome.median(figure="ours", **labels)
            wal = outcome.median(figure="wal", **labels)
            if cpu is not None and ours is not None and wal is not None:
                cells = [figure(cpu), figure(ours), figure(cpu / 60), figure(wal / 1e6), figure(wal / int(links))]
                rows.append([f"{int(links):,} links, {words}", *cells])
    header = [
        "receipts of a minute",
        "processor, s",
        "of it ours, s",
        "share of a processor",
        "WAL, MB",
        "WAL per link, B",
    ]
    remark = (
        "Each attachment point sends one receipt a minute; in full runs it has 1000 links. *Ours* is the process of "
        "the web tier with all of Django, without its socket; the rest is PostgreSQL's process that serves it. Where "
        f"packets passed, {SAMPLE} receipts were measured and their mean taken for all."
    )
    return Table("Receipts", header, rows, remark)


def _changes_table(outcome: Outcome) -> Table:
    rows = []
    for what in CHANGES:
        for changed in outcome.values("changed", what=what):
            cells = []
            for links in outcome.values("links", what=what):
                labels: dict[str, Label] = {"what": what, "changed": changed, "links": links}
                cpu, wal = _cpu_s(outcome, **labels), outcome.median(figure="wal", **labels)
                cells += [NOTHING if one is None else figure(one) for one in (cpu, None if wal is None else wal / 1e3)]
            rows.append([what, f"{int(changed):,}", *cells])
    sizes = [f"{int(one):,}" for one in outcome.values("links", what=CHANGES[0])]
    header = ["", "links changed", *(f"{one} links, {name}" for one in sizes for name in ("s", "WAL, kB"))]
    remark = "Seconds of a processor, of the process and of PostgreSQL's together, measured once each."
    return Table("Changes, by the size of the testbed", header, rows, remark)


def _sweep_table(outcome: Outcome) -> Table:
    rows = []
    for hosts in outcome.values("hosts", what="sweep"):
        cells = []
        for what, changed in [("sweep", one) for one in outcome.values("changed", what="sweep", hosts=hosts)] + [
            ("last contact", 0)
        ]:
            cpu = _cpu_s(outcome, what=what, hosts=hosts, changed=changed)
            cells.append(NOTHING if cpu is None else f"{figure(cpu)} ({int(changed):,})" if changed else figure(cpu))
        wal = outcome.median(figure="wal", what="last contact", hosts=hosts)
        rows.append([f"{int(hosts):,}", *cells, NOTHING if wal is None else figure(wal / 1e6)])
    header = ["polling hosts", "sweep, s (changed)", "sweep, s (changed)", "last contact, s", "last contact, WAL, MB"]
    remark = (
        "Seconds of a processor, of the worker and of PostgreSQL's process together. The sweep runs every 30 s; when "
        "each host was last seen is written once a minute, which grows with the hosts that poll and not with changes."
    )
    return Table("Sweep and last contact", header, rows, remark)


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
