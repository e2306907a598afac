"""Usage of many links: a batch on its way into 5-minute rows, and what a page of them costs.

Processor time is that of the service's process and of PostgreSQL's that serves it, for one attachment point. PostgreSQL
does not wait for its disk (fsync off). Figures per link do not depend on the number of links where the table shows so;
300 000 links are extrapolated from them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial

from lab.bench import service_world as world
from lab.bench.core import Outcome, Scale, Step
from lab.bench.report import Verdict, figure

NAME = "usage"
TITLE = "Usage of 300 000 links"
LARGEST = 300_000
INGEST_PROCESSORS, PAGE_MS = 0.5, 50.0
SLOT_S, MINUTE_S, HOUR_S = 300, 60, 3600
# What is done to each link how often [s].
WORK = {"read and check": MINUTE_S, "store samples": MINUTE_S, "roll up": SLOT_S, "percentiles": HOUR_S}


def steps(scale: Scale) -> list[Step]:
    return [Step("a day of usage", 300.0, partial(_measure, scale))]


def _measure(scale: Scale, outcome: Outcome) -> None:
    """On one server: what is there already is the other rows of who comes later."""
    sizes = scale.pick([(100, 0), (1000, 60_000)], [(20, 0), (200, 30_000)])
    with world.site("postgresql", hosts=0, links=sizes[-1][0]) as site:
        for number, (links, rows) in enumerate(sizes):
            said = site.run("-m", "lab.bench.service_usage", str(links), str(number), str(rows))
            for line in said.splitlines():
                what, value, unit = json.loads(line)
                outcome.add(value, unit, what=what, links=links, rows=rows)


# --- what it says -----------------------------------------------------------------------------------------------


def sizes(outcome: Outcome) -> list[tuple[int, int]]:
    """Links and other rows of a day, as they were measured."""
    found = [one.labels for one in outcome.find(what="roll up, ours")]
    return [(int(one["links"]), int(one["rows"])) for one in found]


def spent_us(outcome: Outcome, what: str, size: tuple[int, int]) -> float | None:
    """Processor time of each link each time, of both processes."""
    parts = [outcome.median(what=f"{what}, {whose}", links=size[0], rows=size[1]) for whose in ("ours", "store")]
    return None if None in parts else sum(part for part in parts if part is not None)


def processors(outcome: Outcome, size: tuple[int, int]) -> dict[str, float]:
    """By work, how many processors 300 000 links would keep busy."""
    spent = {what: spent_us(outcome, what, size) for what in WORK}
    return {what: us / 1e6 * LARGEST / WORK[what] for what, us in spent.items() if us is not None}


def page_ms(outcome: Outcome, size: tuple[int, int], days: int) -> float | None:
    return outcome.median(what=f"a link's page, {days} d", links=size[0], rows=size[1])


def verdicts(outcome: Outcome) -> Iterator[Verdict]:
    if measured := sizes(outcome):
        largest = max(measured)
        busy = processors(outcome, largest)
        target = f"usage of {LARGEST:,} links into 5-minute rows: < {INGEST_PROCESSORS:g} of one processor"
        whole = f"; from the batches on {sum(busy.values()):.2f}"
        yield Verdict(target, f"{busy['roll up']:.2f}{whole}, extrapolated", busy["roll up"] < INGEST_PROCESSORS)
        if (page := page_ms(outcome, largest, 7)) is not None:
            target = f"a link's page of a week in 5-minute rows: < {PAGE_MS:g} ms"
            yield Verdict(target, f"{figure(page)} ms", page < PAGE_MS)
