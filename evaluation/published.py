"""What the first engine's own evaluation published, as columns beside what is measured today.

It is not measured again: its samples stand in docs/evaluation of its commit, and come from there.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from bench.core import Label, Outcome, Series
from bench.first_engine import FirstEngineMissingError, published
from evaluation.limiters import FIRST, FIRST_WHOLE

RENAMED = {"ours": FIRST, "ours, whole datagrams": FIRST_WHOLE}


def of_first_engine(suite: str) -> Outcome:
    """Every series of its agent in this suite, under the names of `RENAMED`; no series where it had no such suite. In a
    clone without its commit a note says so."""
    found = Outcome(suite)
    try:
        rows = csv.reader(io.StringIO(published(suite) or ""))
    except FirstEngineMissingError as exc:
        found.note(str(exc))
        return found
    header = next(rows, [])
    series: dict[tuple[str, ...], Series] = {}
    for row in rows:
        *cells, _, value, unit = row
        labels = _labels(header, cells)
        if (name := RENAMED.get(str(labels["limiter"]))) is not None:
            one = series.setdefault(tuple(cells), Series(labels | {"limiter": name}, unit))
            one.samples.append(float(value))
    found.series += series.values()
    return found


def _labels(header: Sequence[str], cells: Sequence[str]) -> dict[str, Label]:
    """An empty cell is a label that the series does not have. Behind them stand number, value and unit."""
    pairs = zip(header, cells, strict=False)
    return {name: int(cell) if cell.isdecimal() else cell for name, cell in pairs if cell}
