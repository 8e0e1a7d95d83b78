"""The figure of a bench of cores: Figure 5b of the SlotSSM paper, for every core, and what PSB's Figs 3 and 14 show."""

from __future__ import annotations

import statistics
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

# not pyplot: it would pick a window system and keep every figure alive
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, LogLocator, NullLocator

from slotbench.bench.cores import Results
from slotbench.bench.harness import OUT_OF_MEMORY, OUT_OF_TIME, SKIPPED
from slotbench.bench.report import PANELS, Panel, growth, is_disturbed
from slotbench.files import open_atomically

__all__ = ["draw"]

_INK, _QUIET, _GRID = "#1f2937", "#9ca3af", "#e5e7eb"
# Told apart by people who see no red or no green; black for whatever comes after.
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7a4fbf", "#8c6d31", "#374151")
_MARKERS = "osD^vPXph<>*"
_FAILED: dict[str, Any] = {OUT_OF_MEMORY: "x", OUT_OF_TIME: 6, "error": "|"}
_GAP = 0.052  # of the height of a panel, between two labels

Styles = dict[str, tuple[str, str]]
"""Colour and marker by core."""


def draw(results: Results, path: Path) -> None:
    """Draws the panels; a core that failed at a length has a mark above the panel there."""
    styles = {
        core: (_COLOURS[min(index, len(_COLOURS) - 1)], _MARKERS[index % len(_MARKERS)])
        for index, core in enumerate(results.cores())
    }
    figure = Figure(figsize=(18.5, 8.6), dpi=130, layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(2, 3)
    for axis, panel in zip(grid.flat[:-1], PANELS, strict=True):
        _draw_panel(axis, results, panel, styles)
    _draw_streaming(grid.flat[-1], results, styles)
    columns = min(6, max(3, (len(styles) + 2) // 2))
    handles = _handles(results, styles)
    figure.legend(handles=handles, loc="outside lower center", ncols=columns, frameon=False, fontsize=9)
    settings = results.settings
    threads = f"{settings.threads} thread{'' if settings.threads == 1 else 's'}"
    title = f"batch {settings.batch}, {settings.tokens} tokens per step, {settings.slots} slots, width {settings.dim}; "
    title += f"{results.environment['device']}, {settings.device}, {threads}; median, bars from min to max"
    figure.suptitle(title, x=0.01, ha="left", fontsize=9, color=_QUIET)
    path.parent.mkdir(parents=True, exist_ok=True)
    with open_atomically(path) as file:
        figure.savefig(file, format="png")


def _draw_panel(axis: Axes, results: Results, panel: Panel, styles: Styles) -> None:
    labels, marks = [], Counter[int]()
    for core, (colour, marker) in styles.items():
        points = results.series(core, panel.measure)
        measured = [(point, values) for point in points if (values := panel.values(point))]
        lengths = [point["length"] for point, _ in measured]
        medians = [statistics.median(values) for _, values in measured]
        below = [median - min(values) for median, (_, values) in zip(medians, measured, strict=True)]
        above = [max(values) - median for median, (_, values) in zip(medians, measured, strict=True)]
        axis.errorbar(lengths, medians, [below, above], color=colour, linewidth=1.7, elinewidth=1)
        for length, median, (point, _) in zip(lengths, medians, measured, strict=True):
            inside = "white" if panel.unit == "ms" and is_disturbed(results, point) else colour
            axis.plot(length, median, color=colour, marker=marker, markersize=5.5, markerfacecolor=inside, zorder=3)
        failed = [point for point in points if point.get("problem") not in (None, SKIPPED)][:1]
        for point in failed:
            length = point["length"]
            style: dict[str, Any] = {
                "marker": _FAILED[point["problem"]],
                "markersize": 7.5,
                "markeredgewidth": 2.2,
                "clip_on": False,
            }
            place = axis.get_xaxis_transform()  # lengths, and heights of the panel
            axis.plot(length, 1.02 + 0.03 * marks[length], color=colour, transform=place, **style)
            marks[length] += 1
        if lengths:
            fit = growth(results, core, panel)
            # what has failed is above everything, what failed first on top
            beyond = 1e12 / failed[0]["length"] if failed else 0.0
            labels.append((beyond + medians[-1], f"{core}{f'  T$^{{{fit[0]:.2f}}}$' if fit else ''}", colour))
    _log_axes(axis, results.lengths(), f"{panel.title} [{panel.unit}]", pad=6 + 8 * max(marks.values(), default=0))
    _label_lines(axis, labels)


def _draw_streaming(axis: Axes, results: Results, styles: Styles) -> None:
    labels, longest = [], 1
    for core, (colour, _) in styles.items():
        for point in results.series(core, "streaming")[-1:]:
            if "problem" in point or not point["curve"]:
                continue
            steps, seconds = np.array(point["curve"]).T
            axis.plot(steps, 1e3 * seconds, color=colour, linewidth=1.7)
            ratio = statistics.median(point["ratio"])
            labels.append((1e3 * seconds[-1], f"{core}  ×{ratio:.3g}", colour))
            longest = max(longest, int(point["steps"]))
    ticks = sorted({step for step in (1, 10, 40, *results.lengths()) if step <= longest})
    _log_axes(axis, ticks, "Streaming: one step with carried state [ms]")
    axis.set_xlim(0.9, longest * 1.12)
    axis.set_xlabel("time steps seen; × late to early", fontsize=9, color=_INK)
    _label_lines(axis, labels)


def _log_axes(axis: Axes, lengths: list[int], title: str, pad: float = 6.0) -> None:
    if lengths:
        axis.set_xlim(lengths[0] / 1.12, lengths[-1] * 1.12)
    if not any(np.size(line.get_xdata()) and line.get_clip_on() for line in axis.lines):
        axis.set_ylim(1, 10)  # nothing but failures: any scale will do
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.spines[["top", "right"]].set_visible(False)
    axis.spines[["left", "bottom"]].set_color(_QUIET)
    axis.tick_params(colors=_INK, labelsize=8, which="both")
    axis.grid(axis="y", color=_GRID, linewidth=0.8)
    axis.set_axisbelow(True)
    axis.set_title(title, loc="left", fontsize=10.5, fontweight="bold", color=_INK, pad=pad)
    axis.set_xlabel("time steps", fontsize=9, color=_INK)
    axis.xaxis.set_major_locator(FixedLocator(lengths))
    axis.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axis.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.yaxis.set_major_formatter(lambda value, _: f"{value:,.12g}")
    for side in (axis.xaxis, axis.yaxis):
        side.set_minor_locator(NullLocator())


def _label_lines(axis: Axes, labels: list[tuple[float, str, str]]) -> None:
    """Names at the right edge, at the height of the lines' ends, moved apart where they would overlap."""
    low, high = np.log(axis.get_ylim())
    heights: list[float] = []
    for value, _, _ in sorted(labels):
        wanted = min(1.0, (np.log(max(value, 1e-12)) - low) / (high - low))
        heights.append(max([wanted, *(height + _GAP for height in heights[-1:])]))
    ceiling = 1.0
    for (_, text, colour), height in zip(sorted(labels, reverse=True), reversed(heights), strict=True):
        place, ceiling = (1, min(height, ceiling)), min(height, ceiling) - _GAP
        style: dict[str, Any] = {"color": colour, "fontsize": 8.5, "va": "center", "annotation_clip": False}
        axis.annotate(text, place, (6, 0), xycoords="axes fraction", textcoords="offset points", **style)


def _handles(results: Results, styles: Styles) -> list[Line2D]:
    """Entries of the legend: cores, problems and points of a busy machine."""
    settings, points = results.settings, results.points.values()
    limits = {OUT_OF_MEMORY: f" above {settings.memory:g} GiB", OUT_OF_TIME: f" after {settings.seconds:g} s"}
    seen = {point.get("problem") for point in points}
    handles = [
        Line2D([], [], color=colour, marker=marker, markersize=5, linewidth=1.7, label=core)
        for core, (colour, marker) in styles.items()
    ]
    handles += [
        Line2D([], [], color=_INK, linestyle="", marker=shape, label=f"{problem}{limits.get(problem, '')}")
        for problem, shape in _FAILED.items()
        if problem in seen
    ]
    if any(is_disturbed(results, point) for point in points):
        label = "hollow: the machine was busy"
        handles.append(Line2D([], [], color=_INK, linestyle="", marker="o", markerfacecolor="white", label=label))
    return handles
