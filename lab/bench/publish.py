"""Results as one page of their own, and targets and plots of docs/performance.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lab.bench import targets
from lab.bench.core import Outcome
from lab.bench.plots import Plot, draw
from lab.bench.report import Table, header_lines, replace_between, tables_of


@dataclass(frozen=True)
class Page:
    """One suite's part of a report."""

    name: str
    title: str
    tables: Sequence[Table]
    plots: Sequence[Plot]
    outcome: Outcome

    def text(self) -> str:
        """The plots, the tables, then what must be said beside them."""
        shown = [f"![{one.title}]({one.file_name})" for one in self.plots]
        shown += [table.markdown() for table in [*self.tables, *tables_of(self.outcome)] if table.rows]
        remarks = [*self.outcome.notes, *(f"Not measured: {one}" for one in self.outcome.failures)]
        return "\n\n".join([*shown, *(["\n".join(f"- {one}" for one in remarks)] if remarks else [])])


def report(machine: Mapping[str, str], command: str, pages: Sequence[Page]) -> str:
    """Everything that was measured, with the targets in front."""
    table = targets.table([one.outcome for one in pages])
    parts = ["# Measured", header_lines(machine, command), *([table.markdown()] if table.rows else [])]
    for one in pages:
        parts += [f"## {one.title}", one.text()]
    return "\n\n".join(parts) + "\n"


def into_docs(path: Path, machine: Mapping[str, str], command: str, pages: Sequence[Page]) -> None:
    """Replace the targets between the markers of a page, and draw the plots that it shows below `img` beside it.

    The targets are judged from one run: they are replaced only when every suite ran that has one. Raises `LookupError`
    when the page lacks the markers.
    """
    text = path.read_text(encoding="utf-8")
    shown = [plot for one in pages for plot in one.plots if f"(img/{plot.file_name})" in text]
    draw(shown, path.parent / "img")
    if {one.name for one in pages} >= targets.JUDGED:
        table = targets.table([one.outcome for one in pages])
        text = replace_between(text, "targets", f"{header_lines(machine, command)}\n\n{table.markdown()}")
    path.write_text(text, encoding="utf-8")
