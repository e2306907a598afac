"""Figures as SVG files, in one look. matplotlib is needed only here and only when plots are drawn."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Point = tuple[float, float]
Range = tuple[float, float]
OURS, OURS_COLOUR = "ours", "#0b6e4f"
MARKERS = "osD^vP"
LEGEND_COLUMNS = 5  # what the width of two panels holds
COLOURS = ("#5b7db1", "#c1666b", "#d4a72c", "#7a5195", "#888888", "#444444")


@dataclass(frozen=True)
class Plot:
    """Lines over a number; values in the unit of `value_label`.

    Lines whose names begin with the same words before the last comma share a colour; what stands behind it may name one
    of the `panels`, which stand side by side on one scale. `palette` fixes colours by those first words. `references`
    are thin lines without points in every panel, `spread` what to show around each point of a line (lowest, highest).
    """

    name: str
    title: str
    value_label: str
    x_label: str = ""
    lines: Mapping[str, Sequence[Point]] = field(default_factory=dict)
    is_log: bool = True
    mark_y: float | None = None
    panels: Sequence[str] = ()
    palette: Mapping[str, str] = field(default_factory=dict)
    references: Mapping[str, Sequence[Point]] = field(default_factory=dict)
    spread: Mapping[str, Sequence[Range]] = field(default_factory=dict)
    is_log_x: bool = True

    @property
    def file_name(self) -> str:
        return f"{self.name}.svg"


def missing() -> str | None:
    """None where plots can be drawn, else a sentence."""
    if importlib.util.find_spec("matplotlib") is None:
        return "The Python package matplotlib is missing; install requirements/dev.lock."
    return None


def draw(plots: Sequence[Plot], folder: Path) -> None:
    """Write each plot into the folder, with nothing that changes from run to run but the figures."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "bench"
    mpl.rcParams["svg.fonttype"] = "none"  # text stays text
    for plot in plots:
        figure = Figure(figsize=(11 if plot.panels else 7.5, 4.2), layout="constrained")
        _draw_lines(figure, plot)
        figure.savefig(folder / plot.file_name, metadata={"Date": None})


def _draw_lines(figure: Figure, plot: Plot) -> None:
    """One panel, or several side by side with the plot's title above all and one legend below."""
    panels = plot.panels or ("",)
    many = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    colours = _colours(plot)
    for axes, panel in zip(many, panels, strict=True):
        axes.set_title(panel or plot.title, fontsize=10 if panel else 11)
        for name, points in plot.references.items():
            axes.plot(*zip(*points, strict=True), ":", label=name, color="#000000", lw=1.2)
        shown = [name for name in plot.lines if not panel or _parts(name)[1] == panel]
        for number, name in enumerate(shown):
            _draw_line(axes, plot, name, colours, number if panel else None)
        _scales(axes, plot)
    many[0].set_ylabel(plot.value_label)
    if not plot.panels:
        many[0].legend(fontsize=8)
        return
    if not plot.is_log:  # compared by their height; fixed only now, so that the panel with the highest line decides
        many[0].set_ylim(bottom=-0.03 * many[0].get_ylim()[1])
    figure.suptitle(plot.title, fontsize=11)
    handles, labels = many[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(len(labels), LEGEND_COLUMNS), fontsize=8)


def _draw_line(axes: Axes, plot: Plot, name: str, colours: Mapping[str, str], number: int | None) -> None:
    """In a panel the first line is the thickest, and each has its own mark: lines that lie on each other are seen."""
    who, _ = _parts(name)
    points, colour = plot.lines[name], colours[who]
    if number is None:
        mark, size, width = "o", 4.0, 2.2 if who == OURS else 1.4
    else:
        width = max(1.0, 4.2 - number)
        mark, size = MARKERS[number % len(MARKERS)], 3.0 + 1.4 * width
    label = name if number is None else who
    x, y = zip(*points, strict=True)
    axes.plot(x, y, "-", label=label, color=colour, marker=mark, markersize=size, lw=width)
    for at, (low, high) in zip(x, plot.spread.get(name, ()), strict=False):
        axes.vlines(at, low, high, color=colour, lw=1.2, alpha=0.7)


def _parts(name: str) -> tuple[str, str]:
    """Who, and which of his lines: split at the last comma."""
    who, comma, which = name.rpartition(", ")
    return (who, which) if comma else (which, "")


def _colours(plot: Plot) -> dict[str, str]:
    others = iter(COLOURS)
    colours = {OURS: OURS_COLOUR, **plot.palette}
    for name in plot.lines:
        who, _ = _parts(name)
        if who not in colours:
            colours[who] = next(others, "#bbbbbb")
    return colours


def _scales(axes: Axes, plot: Plot) -> None:
    if plot.is_log_x:
        axes.set_xscale("log")
    axes.set_xlabel(plot.x_label)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    if plot.is_log:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter("{x:,.6g}")
    if plot.mark_y is not None:
        axes.axhline(plot.mark_y, color="#000000", linewidth=0.8, linestyle=":")
    axes.grid(visible=True, axis="y", which="both", alpha=0.25)
