"""Figures as SVG files, in one look. matplotlib is needed only here and only when plots are drawn."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from bench.report import figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Point = tuple[float, float]
OURS, OURS_COLOUR = "ours", "#0b6e4f"
COLOURS = ("#5b7db1", "#c1666b", "#d4a72c", "#7a5195", "#888888", "#444444")


@dataclass(frozen=True)
class Plot:
    """Lines over a number (`lines`), or one bar per name (`bars`); values in the unit of `value_label`.

    Lines whose names begin with the same words before a comma share a colour; what stands behind it may be `dashed`.
    """

    name: str
    title: str
    value_label: str
    x_label: str = ""
    lines: Mapping[str, Sequence[Point]] = field(default_factory=dict)
    bars: Mapping[str, float] = field(default_factory=dict)
    is_log: bool = True
    mark_y: float | None = None
    dashed: Sequence[str] = ()

    @property
    def file_name(self) -> str:
        return f"bench-{self.name}.svg"


def missing() -> str | None:
    """None where plots can be drawn, else a sentence."""
    if importlib.util.find_spec("matplotlib") is None:
        return "The Python package matplotlib is missing; install requirements/dev.lock."
    return None


def draw(plots: Sequence[Plot], folder: Path) -> None:
    """Write each plot into the folder, with nothing that changes from run to run but the figures."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "bench"
    mpl.rcParams["svg.fonttype"] = "none"  # text stays text
    for plot in plots:
        _draw(plot, folder / plot.file_name)


def _draw(plot: Plot, path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.5, 4.2), layout="constrained")
    axes = figure.add_subplot()
    axes.set_title(plot.title, fontsize=11)
    if plot.lines:
        _draw_lines(axes, plot)
    else:
        _draw_bars(axes, plot)
    figure.savefig(path, metadata={"Date": None})


def _draw_lines(axes: Axes, plot: Plot) -> None:
    others = iter(COLOURS)
    colours = {OURS: OURS_COLOUR}
    for name, points in plot.lines.items():
        who, _, which = name.partition(", ")
        colour = colours.get(who) or colours.setdefault(who, next(others, "#bbbbbb"))
        style = "--" if which in plot.dashed else "-"
        x, y = zip(*points, strict=True)
        axes.plot(x, y, style, marker="o", markersize=4, label=name, color=colour, lw=2.2 if who == OURS else 1.4)
    axes.set_xscale("log")
    axes.set_xlabel(plot.x_label)
    axes.set_ylabel(plot.value_label)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    if plot.is_log:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter("{x:,.6g}")
    if plot.mark_y is not None:
        axes.axhline(plot.mark_y, color="#000000", linewidth=0.8, linestyle=":")
    axes.grid(visible=True, axis="y", which="both", alpha=0.25)
    axes.legend(fontsize=8)


def _draw_bars(axes: Axes, plot: Plot) -> None:
    """The first name at the top, each with its figure."""
    names = list(plot.bars)
    colours = [OURS_COLOUR if name.startswith(OURS) else COLOURS[0] for name in names]
    bars = axes.barh(range(len(names)), list(plot.bars.values()), color=colours)
    axes.bar_label(bars, labels=[figure(value) for value in plot.bars.values()], padding=3, fontsize=8)
    axes.set_yticks(range(len(names)), names, fontsize=8)
    axes.invert_yaxis()
    axes.set_xlabel(plot.value_label)
    if plot.is_log:
        axes.set_xscale("symlog")
        axes.set_xlim(right=10 * max([1.0, *plot.bars.values()]))
        axes.xaxis.set_major_formatter("{x:,.0f}")
    else:
        axes.set_xlim(right=1.15 * max(plot.bars.values()))  # room for the figure
        axes.xaxis.set_major_formatter("{x:,.6g}")
