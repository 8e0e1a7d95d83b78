"""Charts as images: scores over the predicted frames, and over the frames since an object was last seen."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

# not pyplot: it would pick a window system and keep every figure alive
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from slotbench.figures.painting import SLOT_COLOURS, Painted

__all__ = ["absence_chart", "chart_pixels", "horizon_chart"]


def chart_pixels(figure: Figure) -> Painted:
    """A matplotlib figure as an image."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3].copy()


def horizon_chart(panels: Mapping[str, Mapping[str, Sequence[float]]]) -> Painted:
    """Curves over the predicted frames, a panel per score: the first of each bold, baselines dashed, oracles dotted."""
    figure = Figure(figsize=(4.2 * len(panels), 3.2), dpi=120, layout="constrained")
    for axis, (title, curves) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels.items(), strict=True):
        for index, (name, values) in enumerate(curves.items()):
            steps = range(1, len(values) + 1)
            if index == 0:
                axis.plot(steps, values, color="#2563eb", linewidth=2.2, label=name, zorder=3)
            else:
                colour = SLOT_COLOURS[(index - 1) % len(SLOT_COLOURS)] / 255
                style = ":" if name.startswith("oracle:") else "--"
                axis.plot(steps, values, color=colour, linewidth=1.2, linestyle=style, label=name)
        axis.set_title(title, loc="left", fontsize=10)
        axis.set_xlabel("frames after the context", fontsize=9)
        axis.tick_params(labelsize=8)
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(alpha=0.2)
        if all(value >= 0 for values in curves.values() for value in values):
            axis.set_ylim(bottom=0)
    figure.axes[0].legend(fontsize=7.5, frameon=False)
    return chart_pixels(figure)


def absence_chart(
    found: Mapping[str, Mapping[float, float]],
    score: str = "Top-1",
    what: str = "the snitch",
    limits: tuple[float | None, float | None] = (-0.03, 1.03),
) -> Painted:
    """A score against the frames since something was last seen: a bold line of the model, dashed and dotted others."""
    bins = sorted({first for values in found.values() for first in values})
    figure = Figure(figsize=(5.2, 3.4), dpi=110, layout="constrained")
    axis = figure.subplots()
    for name, values in found.items():
        there = [first for first in bins if first in values]
        style = {"linestyle": ":" if name.startswith("oracle:") else "--", "linewidth": 1.2}
        if name == "model":
            style = {"color": "black", "linewidth": 2.0}
        axis.plot([bins.index(first) for first in there], [values[first] for first in there], "o", ls="-", label=name)
        axis.lines[-1].set(**style)
    axis.set_xticks(range(len(bins)), [_bin_label(first) for first in bins], fontsize=8)
    axis.set_xlabel(f"frames of the video since {what} was last seen, up to the next mark", fontsize=8)
    axis.set_ylabel(score, fontsize=8)
    axis.set_ylim(*limits)
    axis.tick_params(axis="y", labelsize=8)
    axis.legend(fontsize=7, loc="best")
    return chart_pixels(figure)


def _bin_label(first: float) -> str:
    return "never" if first == math.inf else f"from {first:.0f}" if first else "in sight"
