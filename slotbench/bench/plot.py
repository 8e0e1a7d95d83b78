"""The figure of a bench of cores: each quantity against the length."""

from __future__ import annotations

import statistics
from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from slotbench.bench.cores import PANELS, Results

__all__ = ["draw"]

_MARKERS = "osD^vPXph<>*"


def draw(results: Results, path: Path) -> None:
    """Writes a PNG of four panels; a line ends where its core ran out of memory or of time."""
    figure = Figure(figsize=(13, 9), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(2, 2).flat
    for axis, (title, stage, key, factor) in zip(axes, PANELS, strict=True):
        for index, core in enumerate(results.cores()):
            points = [point for point in results.series(core, stage) if point.get(key) is not None]
            values = [point[key] if isinstance(point[key], list) else [point[key]] for point in points]
            medians = [factor * statistics.median(several) for several in values]
            marker, colour = _MARKERS[index % len(_MARKERS)], f"C{index % 10}"
            lengths = [point["length"] for point in points]
            axis.plot(lengths, medians, marker=marker, color=colour, markersize=4, linewidth=1.4, label=core)
        axis.set_xscale("log", base=2)
        axis.set_yscale("log")
        axis.set_title(title, loc="left", fontsize=10)
        axis.set_xlabel("time steps")
        axis.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axis.grid(axis="y", alpha=0.3)
        axis.spines[["top", "right"]].set_visible(False)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=6, frameon=False, fontsize=9)
    figure.savefig(path)
