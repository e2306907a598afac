"""Results as one page of their own, and the generated parts of docs/performance.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lab.bench.core import Outcome
from lab.bench.plots import Plot, draw
from lab.bench.report import Verdict, header_lines, replace_between, tables_of, targets_table

PUBLISHED = ("packet", "install", "document")  # whose targets stand in docs/performance.md


@dataclass(frozen=True)
class Page:
    """One suite's part of a report."""

    name: str
    title: str
    verdicts: Sequence[Verdict]
    plots: Sequence[Plot]
    outcome: Outcome

    def text(self, images: str = "", *, is_whole: bool = False) -> str:
        """The plots (below `images`), the targets, (`is_whole`) everything that was measured, and what must be said
        beside it."""
        shown = [f"![{one.title}]({images}{one.file_name})" for one in self.plots]
        tables = [targets_table(self.verdicts), *(tables_of(self.outcome) if is_whole else [])]
        shown += [table.markdown() for table in tables if table.rows]
        remarks = [*self.outcome.notes, *(f"Not measured: {one}" for one in self.outcome.failures)]
        return "\n\n".join([*shown, *(["\n".join(f"- {one}" for one in remarks)] if remarks else [])])


def report(machine: Mapping[str, str], command: str, pages: Sequence[Page]) -> str:
    parts = ["# Measured", header_lines(machine, command)]
    for one in pages:
        parts += [f"## {one.title}", one.text(is_whole=True)]
    return "\n\n".join(parts) + "\n"


def into_docs(path: Path, machine: Mapping[str, str], command: str, pages: Sequence[Page]) -> None:
    """Replace what stands between the markers of a page, for the suites in `PUBLISHED`, and draw the plots that the
    page shows below `img` beside it. A suite that did not run keeps its older figures under their own head.

    Raises `LookupError` when the page lacks a marker.
    """
    text = path.read_text(encoding="utf-8")
    head = header_lines(machine, command)
    for one in pages:
        if one.name in PUBLISHED:
            text = replace_between(text, one.name, f"{head}\n\n{one.text('img/')}")
    path.write_text(text, encoding="utf-8")
    shown = [plot for one in pages for plot in one.plots if f"(img/{plot.file_name})" in text]
    draw(shown, path.parent / "img")
