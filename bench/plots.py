"""Figures as SVG files, in one look. matplotlib is needed only here and only when plots are drawn."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Point = tuple[float, float]
OURS_COLOUR = "#0b6e4f"
COLOURS = ("#5b7db1", "#c1666b", "#d4a72c", "#7a5195", "#888888", "#444444")


@dataclass(frozen=True)
class Plot:
    """Lines over a number (`lines`), or bars by name (`bars`: group, then bar); values in the unit of `y_label`."""

    name: str
    title: str
    y_label: str
    x_label: str = ""
    lines: Mapping[str, Sequence[Point]] = field(default_factory=dict)
    bars: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    is_log: bool = True
    mark_y: float | None = None

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
    names = list(plot.lines) or list(dict.fromkeys(name for group in plot.bars.values() for name in group))
    others = iter(COLOURS)
    colours = {name: OURS_COLOUR if name.startswith("ours") else next(others, "#bbbbbb") for name in names}
    for name, points in plot.lines.items():
        width = 2.4 if name.startswith("ours") else 1.4
        x, y = zip(*points, strict=True)
        axes.plot(x, y, marker="o", markersize=4, label=name, color=colours[name], linewidth=width)
    for index, name in enumerate(names if plot.bars else []):
        heights = [group.get(name, 0.0) for group in plot.bars.values()]
        width = 0.8 / len(names)
        places = [group + (index + 0.5) * width - 0.4 for group in range(len(heights))]  # side by side in each group
        axes.bar(places, heights, width, label=name, color=colours[name])
    _finish(axes, plot)
    figure.savefig(path, metadata={"Date": None})


def _finish(axes: Axes, plot: Plot) -> None:
    axes.set_title(plot.title, fontsize=11)
    axes.set_ylabel(plot.y_label)
    if plot.is_log:
        axes.set_yscale("log" if plot.lines else "symlog")
    if plot.lines:
        axes.set_xlabel(plot.x_label)
        axes.set_xscale("log")
    else:
        axes.set_xticks(range(len(plot.bars)), list(plot.bars))
    if plot.mark_y is not None:
        axes.axhline(plot.mark_y, color="#000000", linewidth=0.8, linestyle="--")
    axes.grid(visible=True, axis="y", alpha=0.3)
    axes.legend(fontsize=8)
