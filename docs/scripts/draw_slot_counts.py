"""Figures of what `slot_counts.py report` sums up: scores by slots and by objects, and one training beside another."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from draw_cores import draw_band, empty_figure
from draw_training import colours, tidy

Record = dict[str, Any]
Curve = dict[int, dict[str, float]]
Panels = Mapping[str, Mapping[str, Sequence[tuple[Record, Curve]]]]

STYLES = ["-", "--", "-."]
MARKERS = ["o", "s", "^"]


def draw_panels(records: list[Record], panels: Panels, scores: Mapping[str, str], path: Path) -> None:
    """A row per score, colours are aggregations, styles trainings; medians in bands of all runs, spatial ones dotted.

    Args:
        records: the runs, each with its `aggregation`, its `trained` and whether it is `spatial`.
        panels: title of a column -> group -> each run with its scores by number of slots, or of objects.
        scores: name of a score -> its heading.
        path: where the figure is written.
    """
    figure = empty_figure(4.6 * len(panels), 3.4 * len(scores))
    palette, trainings = colours_of(records), trainings_of(records)
    axes = figure.subplots(len(scores), len(panels), squeeze=False)
    for row, (score, heading) in zip(axes, scores.items(), strict=True):
        for axis, (title, groups) in zip(row, panels.items(), strict=True):
            for group, runs in groups.items():
                first = runs[0][0]
                style = STYLES[trainings.index(first["trained"]) % len(STYLES)]
                draw_group(axis, runs, score, colour=palette[first["aggregation"]], style=style, label=group)
            tidy(axis, f"{heading}: {title}")
            axis.xaxis.get_major_locator().set_params(integer=True)
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, fontsize=8, frameon=False, handlelength=4)
    figure.savefig(path)


def draw_trainings(records: list[Record], slots: int, scores: Mapping[str, str], path: Path) -> None:
    """A score by number of slots, a panel per training, and all trainings on the full set with one number of slots.

    In a panel the objects are those of the training; a rule is the slots of the training, a grey cross there the best
    baseline of FG-ARI. In the last one every run is a mark, its training's median a bar. Spatial runs are dotted, or
    hollow.

    Args:
        records: as for `draw_panels`, with several values of `trained`.
        slots: the number of slots of the last panel.
        scores: name of a score -> its heading; a row each.
        path: where the figure is written.
    """
    palette, trainings = colours_of(records), trainings_of(records)
    named = {record["trained"]: record["training"].removeprefix(", ") for record in records}
    figure = empty_figure(3.4 * (len(trainings) + 1.2), 3.0 * len(scores) + 0.6)
    widths = [1.0] * len(trainings) + [1.2]
    rows = figure.subplots(len(scores), len(widths), sharey="row", squeeze=False, width_ratios=widths)
    for row, (score, heading) in zip(rows, scores.items(), strict=True):
        *axes, last = row
        for axis, trained in zip(axes, trainings, strict=True):
            here = [record for record in records if record["trained"] == trained]
            for name, colour in palette.items():
                runs = [(record, record["by_slots"]["own"]) for record in here if record["aggregation"] == name]
                if runs:
                    draw_group(axis, runs, score, colour=colour, label=name)
            axis.axvline(trained[1], color="0.6", lw=0.8, ls=":", zorder=0)
            if score == "fg_ari":
                best = statistics.mean(max(record["baselines"].values()) for record in here)
                axis.plot([trained[1]], [best], color="0.35", ls="", marker="x", ms=7, mew=2, label="best baseline")
            tidy(axis, f"trained with {named[trained]}")
            axis.set_xlabel("slots in the test")
        axes[0].set_ylabel(f"{heading} per frame")
        draw_marks(last, records, slots, score)
        last.set_xticks(range(len(palette)), [name.removesuffix("Aggregation") for name in palette], fontsize=8)
        tidy(last, f"full set, {slots} slots in the test, by training")
    for number, trained in enumerate(trainings):
        rows[0, -1].plot([], [], color="0.35", ls="", marker=MARKERS[number % len(MARKERS)], ms=5, label=named[trained])
    keys: dict[str, Any] = {}
    for axis in rows[0]:
        handles, labels = axis.get_legend_handles_labels()
        keys |= dict(zip(labels, handles, strict=True))
    figure.legend(list(keys.values()), list(keys), loc="outside lower center", ncols=4, fontsize=8, frameon=False)
    figure.savefig(path)


def draw_marks(axis, records: list[Record], slots: int, score: str) -> None:
    """Every run as a mark and the median of its training as a bar, by aggregation."""
    palette, trainings = colours_of(records), trainings_of(records)
    for place, (name, colour) in enumerate(palette.items()):
        for number, trained in enumerate(trainings):
            runs = [record for record in records if (record["aggregation"], record["trained"]) == (name, trained)]
            values = [record["by_slots"].get("full", record["by_slots"]["own"])[slots][score] for record in runs]
            x = place + 0.8 * ((number + 0.5) / len(trainings) - 0.5)
            for record, value in zip(runs, values, strict=True):
                face = "none" if record["spatial"] else colour
                marker = MARKERS[number % len(MARKERS)]
                axis.plot([x], [value], marker=marker, ms=5, color=colour, mfc=face, alpha=0.75)
            if values:
                axis.plot([x - 0.11, x + 0.11], [statistics.median(values)] * 2, color="0.2", lw=1.5)


def draw_group(axis, runs: Sequence[tuple[Record, Curve]], score: str, *, colour, label: str, style: str = "-") -> None:
    """The median over runs in a band from the lowest to the highest; spatial runs by themselves, dotted."""
    for record, curve in runs:
        if record["spatial"]:
            axis.plot(list(curve), [scores[score] for scores in curve.values()], color=colour, lw=0.8, ls=":")
    kept = [curve for record, curve in runs if not record["spatial"]]
    counts = sorted({count for curve in kept for count in curve})
    values = [[curve[count][score] for curve in kept if count in curve] for count in counts]
    draw_band(axis, counts, values, colour, label, middle=statistics.median, style=style)


def colours_of(records: list[Record]) -> dict[str, Any]:
    """A colour for each aggregation, in their order by name."""
    names = sorted({record["aggregation"] for record in records})
    return dict(zip(names, colours(len(names)), strict=True))


def trainings_of(records: list[Record]) -> list[tuple[str, int]]:
    """Objects and slots of each training, in the order of the records."""
    return list(dict.fromkeys(record["trained"] for record in records))
