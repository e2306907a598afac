"""Results as CSV, as Markdown, and between markers of a page.

<!-- bench:packet -->
… generated …
<!-- /bench:packet -->
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from lab.bench.core import Outcome, Series

NOTHING = "-"  # in a table: not measured, or not possible


@dataclass(frozen=True)
class Table:
    """A table with its title and, below it, what one must know to read it."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    remark: str = ""

    def markdown(self) -> str:
        lines = [f"**{self.title}**", "", _row(self.header), _row(["---", *["--:" for _ in self.header[1:]]])]
        lines += [_row(row) for row in self.rows]
        return "\n".join([*lines, *(["", self.remark] if self.remark else [])])


@dataclass(frozen=True)
class Verdict:
    """A target, what one run measured at the largest size that it measured, and whether that is enough."""

    target: str
    measured: str
    is_held: bool


def at_most(target: str, ours: float | None, other: float | None, factor: float, unit: str) -> Iterator[Verdict]:
    """Ours is at most `factor` times the other; nothing where one of them was not measured."""
    if ours is not None and other:
        measured = f"{ours / other:.2f}x ({figure(ours)} to {figure(other)} {unit})"
        yield Verdict(target, measured, ours / other <= factor)


def targets_table(verdicts: Iterable[Verdict]) -> Table:
    rows = [[one.target, one.measured, "yes" if one.is_held else "**no**"] for one in verdicts]
    return Table("Targets", ["target", "measured (medians)", "held?"], rows)


WHO = ("limiter", "tool", "variant", "setup")  # the first of these labels that a series has is its column


def tables_of(outcome: Outcome) -> list[Table]:
    """Everything that was measured: a table per experiment, quantity and unit; a column for each that is compared, a
    row for every other combination of labels. A cell is the median, in brackets the lowest and the highest."""
    groups: dict[tuple[str, ...], list[Series]] = {}
    for one in outcome.series:
        title = [str(one.labels[name]) for name in ("experiment", "what") if name in one.labels]
        groups.setdefault((*title, one.unit), []).append(one)
    return [_table_of(", ".join(title), series) for title, series in groups.items()]


def _table_of(title: str, series: Sequence[Series]) -> Table:
    who = next((name for name in WHO if any(name in one.labels for one in series)), "")
    names = list(dict.fromkeys(name for one in series for name in one.labels))
    names = [name for name in names if name not in ("experiment", "what", who)]
    columns = list(dict.fromkeys(str(one.labels.get(who, "measured")) for one in series))
    rows: dict[tuple[str, ...], dict[str, str]] = {}
    for one in series:
        row = rows.setdefault(tuple(str(one.labels.get(name, NOTHING)) for name in names), {})
        row[str(one.labels.get(who, "measured"))] = _spread(one.samples)
    found = [[", ".join(row), *(cells.get(column, NOTHING) for column in columns)] for row, cells in rows.items()]
    return Table(title, [", ".join(names), *columns], found)


def _spread(samples: Sequence[float]) -> str:
    middle, low, high = (figure(value) for value in (median(samples), min(samples), max(samples)))
    return middle if low == high else f"{middle} ({low} to {high})"


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def figure(value: float) -> str:
    """Three digits that mean something, thousands apart: 0.0123, 4.57, 1,160."""
    if value == 0:
        return "0"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def header_lines(machine: Mapping[str, str], command: str) -> str:
    """What stands above every set of figures."""
    return (
        f"Measured by `{command}` on {machine['date']}, {machine['kernel']}, {machine['cpu']}, {machine['iproute2']}, "
        f"Python {machine['python']}, commit {machine['commit']}, load average {machine['load']} at the start."
    )


def replace_between(page: str, name: str, content: str) -> str:
    """The page with what stands between the markers of this name replaced. Raises `LookupError` without them."""
    begin, end = f"<!-- bench:{name} -->", f"<!-- /bench:{name} -->"
    pattern = re.compile(re.escape(begin) + ".*?" + re.escape(end), flags=re.DOTALL)
    if not pattern.search(page):
        raise LookupError(f"the page has no markers {begin} … {end}")
    return pattern.sub(lambda _: f"{begin}\n{content.strip()}\n{end}", page)


def csv_text(outcome: Outcome) -> str:
    """A row per sample: all labels of its series (empty where a series lacks one), its number, value and unit."""
    names = list(dict.fromkeys(name for one in outcome.series for name in one.labels))
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*names, "number", "value", "unit"])
    for one in outcome.series:
        labels = [one.labels.get(name, "") for name in names]
        for number, value in enumerate(one.samples, start=1):
            writer.writerow([*labels, number, f"{value:.10g}", one.unit])
    return out.getvalue()


def write_samples(folder: Path, outcomes: Iterable[Outcome], prefix: str = "") -> None:
    """A CSV file per suite."""
    folder.mkdir(parents=True, exist_ok=True)
    for one in outcomes:
        (folder / f"{prefix}{one.suite}.csv").write_text(csv_text(one), encoding="utf-8")
