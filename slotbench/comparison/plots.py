"""The curves of a comparison by Bokeh: a plot a metric, with a line and a band for each row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from slotbench.comparison.table import Comparison
from slotbench.metric_info import is_reference

__all__ = ["colour", "draw_curves"]

_COLOURS = ("#0072b2", "#d55e00", "#00875f", "#b8559b", "#a77a00", "#3a94d6", "#7d1f45", "#6b7280")
_DASHES = ("solid", "dashed", "dotted", "dotdash")
_INK = "#808890"  # read on light and on dark ground
_MOST_PLOTS, _MOST_POINTS, _MOST_ROWS = 16, 300, 24


def colour(index: int) -> str:
    """The colour of a row, the same in the whole page."""
    return _COLOURS[index % len(_COLOURS)]


def draw_curves(comparison: Comparison) -> tuple[str, str, list[str]]:
    """Plots as HTML, the scripts that draw them, and the metrics that are not drawn.

    The columns of the table and the losses come first.
    """
    curves = {id: run.curves() for id, run in comparison.runs.runs.items()}
    logged = dict.fromkeys(name for own in curves.values() for name in own)
    names = [column.name for column in comparison.columns] + ["val/loss", "train/loss"]
    names += sorted(name for name in logged if "/" in name and "/step_" not in name and not is_reference(name))
    names = [name for name in dict.fromkeys(names) if name in logged]
    if not names:
        return "", "", []
    from bokeh.embed import components
    from bokeh.resources import Resources

    figures = tuple(_figure(comparison, name, curves) for name in names[:_MOST_PLOTS])
    script, divs = components(figures)
    library = Resources(mode="inline", components=["bokeh"]).render_js()
    return "".join(f'<figure class="plot">{div}</figure>' for div in divs), library + script, names[_MOST_PLOTS:]


def _figure(comparison: Comparison, name: str, curves: dict[str, pd.DataFrame]) -> Any:
    from bokeh.models import ColumnDataSource, HoverTool, Legend, LegendItem  # type: ignore[attr-defined]
    from bokeh.plotting import figure

    column = next((column for column in comparison.columns if column.name == name), None)
    title = name if column is None else column.label
    plot: Any = figure(height=300, sizing_mode="stretch_width", title=title, tools="box_zoom,pan,reset,save")
    plot.title.text_font_size = "10pt"
    items: list[Any] = []
    lines: list[Any] = []
    lowest, highest = np.inf, -np.inf
    for index, row in enumerate(comparison.rows[:_MOST_ROWS]):
        found = [curves[id].set_index("step")[name].dropna() for id in row.runs if name in curves[id]]
        table = (
            pd.concat([own[~own.index.duplicated(keep="last")] for own in found], axis=1) if found else pd.DataFrame()
        )
        table = table.sort_index()
        if not len(table):
            continue
        table = table.iloc[np.unique(np.linspace(0, len(table) - 1, _MOST_POINTS).round().astype(int))]
        mean, spread = table.mean(axis=1), table.std(axis=1).fillna(0.0)
        source = ColumnDataSource(
            {
                "step": table.index,
                "mean": mean,
                "low": mean - spread,
                "high": mean + spread,
                "row": [row.label] * len(mean),
            }
        )
        dash = _DASHES[index // len(_COLOURS) % len(_DASHES)]
        line = plot.line("step", "mean", source=source, color=colour(index), line_width=2, line_dash=dash)
        band = plot.varea("step", "low", "high", source=source, color=colour(index), alpha=0.15)
        point = plot.scatter("step", "mean", source=source, color=colour(index), size=5) if len(mean) == 1 else None
        items.append(LegendItem(label=row.label, renderers=[part for part in (line, band, point) if part]))
        lines += [part for part in (line, point) if part]
        finite = mean[np.isfinite(mean)]
        if len(finite):
            lowest, highest = min(lowest, finite.min()), max(highest, finite.max())
    for by, value in () if column is None else column.baselines.items():
        # one far away would press the curves together; the table has it
        if lowest - 0.5 * (highest - lowest) <= value <= highest + 0.5 * (highest - lowest):
            steps = np.concatenate([line.data_source.data["step"] for line in lines])
            source = ColumnDataSource({"step": [steps.min(), steps.max()], "mean": [value] * 2, "row": [by] * 2})
            baseline = plot.line("step", "mean", source=source, color=_INK, line_dash="4 4")
            items.append(LegendItem(label=by, renderers=[baseline]))
            lines.append(baseline)
    plot.add_tools(HoverTool(renderers=lines, tooltips=[("", "@row"), ("step", "@step"), ("", "@mean{0.00000a}")]))
    plot.add_layout(Legend(items=items, click_policy="hide", ncols=3, label_text_font_size="8pt"), "below")
    _quiet(plot)
    return plot


def _quiet(plot: Any) -> None:
    """No ground of its own, so that light and dark pages show it."""
    plot.toolbar.logo = None
    plot.background_fill_color = plot.border_fill_color = plot.outline_line_color = None
    plot.title.text_color = _INK
    plot.grid.grid_line_alpha = 0.3
    for axis in plot.axis:
        axis.axis_line_color = axis.major_tick_line_color = axis.major_label_text_color = _INK
        axis.minor_tick_line_color = None
    for legend in plot.legend:
        legend.background_fill_alpha = 0.0
        legend.border_line_color = None
        legend.label_text_color = _INK
