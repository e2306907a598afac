"""Usage of many links: a batch on its way into 5-minute rows, what those take, and what a page of them costs.

Processor time is that of the service's process and of PostgreSQL's that serves it, for one attachment point. PostgreSQL
does not wait for its disk (fsync off). Figures per link do not depend on the number of links where the table shows so;
300 000 links are extrapolated from them.
"""

from __future__ import annotations

import json
import shutil
from functools import partial

from lab.bench import service_world as world
from lab.bench.core import Outcome, Scale, Step, percentile
from lab.bench.plots import Plot
from lab.bench.report import NOTHING, Table, figure
from lab.bench.usage_stores import PROGRAM

NAME = "usage"
TITLE = "Usage of 300 000 links"
LARGEST = 300_000
SLOT_S, MINUTE_S, HOUR_S = 300, 60, 3600
STORES = {"postgresql": "the service's tables", "victoria": "VictoriaMetrics"}
# What is done to each link how often [s].
WORK = {"read and check": MINUTE_S, "store samples": MINUTE_S, "roll up": SLOT_S, "percentiles": HOUR_S}


def steps(scale: Scale) -> list[Step]:
    return [Step("a day of usage", 300.0, partial(_measure, scale))]


def _measure(scale: Scale, outcome: Outcome) -> None:
    """On one server: what is there already is the other rows of who comes later."""
    sizes = scale.pick([(100, 0), (1000, 60_000)], [(20, 0), (200, 30_000)])
    links, slots = scale.pick((300, 100), (100, 4))
    with world.site("postgresql", hosts=0, links=sizes[-1][0]) as site:

        def measured(*command: str | int) -> str:
            return site.run(["-m", "lab.bench.service_usage", *map(str, command)])

        for number, (count, rows) in enumerate(sizes):
            _add(outcome, measured("take", count, number, rows), count, rows)
        for name in STORES:
            if name == "postgresql" or _is_there(outcome):
                _add(outcome, measured("keep", name, links, slots), links, links * slots, store=name)
        if _is_there(outcome):
            for what, value, unit in _lines(measured("exact")):
                outcome.note(f"VictoriaMetrics, {what}: {value:g} {unit}.")


def _is_there(outcome: Outcome) -> bool:
    if shutil.which(PROGRAM) is None:
        outcome.note(f"VictoriaMetrics was not measured: apt-get install {PROGRAM}")
        return False
    return True


def _lines(said: str) -> list[tuple[str, float, str]]:
    return [tuple(json.loads(line)) for line in said.splitlines() if line.startswith("[")]


def _add(outcome: Outcome, said: str, links: int, rows: int, store: str = "") -> None:
    for what, value, unit in _lines(said):
        outcome.add(value, unit, what=what, links=links, rows=rows, store=store)


# --- what it says -----------------------------------------------------------------------------------------------


def sizes(outcome: Outcome) -> list[tuple[int, int]]:
    """Links and other rows of a day, as they were measured."""
    found = [one.labels for one in outcome.find(what="roll up, ours")]
    return [(int(one["links"]), int(one["rows"])) for one in found]


def spent_us(outcome: Outcome, what: str, size: tuple[int, int]) -> float | None:
    """Processor time of each link each time, of both processes."""
    parts = [
        outcome.median(what=f"{what}, {whose}", links=size[0], rows=size[1], store="") for whose in ("ours", "store")
    ]
    return None if None in parts else sum(part for part in parts if part is not None)


def processors(outcome: Outcome, size: tuple[int, int]) -> dict[str, float]:
    """By work, how many processors 300 000 links would keep busy."""
    spent = {what: spent_us(outcome, what, size) for what in WORK}
    return {what: us / 1e6 * LARGEST / WORK[what] for what, us in spent.items() if us is not None}


def page_ms(outcome: Outcome, size: tuple[int, int], days: int) -> float | None:
    return outcome.median(what=f"a link's page, {days} d", links=size[0], rows=size[1], store="")


def row_bytes(outcome: Outcome, store: str = "postgresql") -> float | None:
    """Of the most rows that were measured."""
    found = outcome.find(what="bytes a row", store=store)
    return max(found, key=lambda one: int(one.labels["rows"])).median if found else None


def tables(outcome: Outcome) -> list[Table]:
    return [_taking(outcome), _keeping(outcome)]


def _taking(outcome: Outcome) -> Table:
    rows = []
    for size in sizes(outcome):
        busy = processors(outcome, size)
        pages = [page_ms(outcome, size, days) for days in (1, 7)]
        rows.append(
            [
                f"{size[0]:,}",
                f"{size[1]:,}",
                *(NOTHING if (us := spent_us(outcome, what, size)) is None else figure(us) for what in WORK),
                f"{busy.get('roll up', 0):.2f}",
                f"{sum(busy.values()):.2f}",
                *(NOTHING if ms is None else figure(ms) for ms in pages),
            ]
        )
    header = ["links", "other rows a day", *(f"{what}, µs" for what in WORK)]
    header += ["300 000 links: into 5-minute rows, processors", "all of it", "page of a day, ms", "of a week"]
    remark = (
        "Processor time of a link each time: a batch of six samples in both directions is read, checked and stored "
        "each minute, added to 5-minute and daily sums every 5 minutes, and ranked each hour (here for the first "
        "time, all at once). The 300 000 links are extrapolated from one attachment point's. Pages: medians by the "
        "clock, warm."
    )
    return Table("From a batch to 5-minute rows", header, rows, remark)


def _keeping(outcome: Outcome) -> Table:
    rows = []
    for one in outcome.find(what="bytes a row"):
        where = {name: one.labels[name] for name in ("links", "rows", "store")}
        ours, theirs = (outcome.median(what=f"write a row, {whose}", **where) for whose in ("ours", "store"))
        pages = outcome.find(what="a series' page", **where)[0]
        missing = outcome.find(what="bytes that are missing", **where)[0]
        rows.append(
            [
                STORES[str(where["store"])],
                f"{where['rows']:,}",
                figure(one.median),
                *(NOTHING if us is None else figure(us) for us in (ours, theirs)),
                figure(pages.median),
                figure(percentile(pages.samples, 0.95)),
                f"{sum(map(abs, missing.samples)):g}",
            ]
        )
    header = ["", "rows", "bytes a row", "write, our µs", "the store's µs", "page, ms", "95 %", "bytes missing"]
    remark = (
        "5-minute rows alone, written in the order of time. *Bytes a row*: with indexes, after VACUUM or a merge. The "
        "service's tables get each row in two halves and add them; VictoriaMetrics, which cannot add, gets it once."
    )
    return Table("5-minute rows in two stores", header, rows, remark)


def plots(outcome: Outcome) -> list[Plot]:
    bars = {
        f"{STORES[str(one.labels['store'])]}, {int(one.labels['rows']):,} rows": one.median
        for one in outcome.find(what="bytes a row")
    }
    return [Plot("usage", "A 5-minute row", "bytes", bars=bars, is_log=False)] if bars else []
