"""Draws the figures of docs/results.md and of the pages below docs/results/, from the committed records alone.

    slotbench grid unpack GRID.yaml RECORDS.zip          # of each grid whose figures are drawn
    python docs/scripts/draw_results.py [NAME ...] [--runs_dir DIR] [--out docs/assets]

Writes results_NAME.svg, without NAME every figure whose runs are there. A core has one colour in all of them. Lines and
bars are means over the reported seeds, bands their standard deviation, and dots single runs.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from contrasts import GRIDS, slot_counts
from draw_cores import empty_figure
from draw_training import tidy
from slot_identity import LENGTHS, LINKED, RECORDS, by_name, read_records
from slot_identity import values as identity_values
from time_to_competence import STUDIES, curve_of, flops_of, runs_of

from slotbench.comparison.records import ComparisonError, RunRecord
from slotbench.comparison.sources import read_sources
from slotbench.figures.painting import SLOT_COLOURS

COLOURS = {
    "SlotSSM": 1,
    "OC-SlotSSM": 1,
    "SlotTransformer": 0,
    "SlotRNN": 4,
    "SplitSSM": 5,
    "RIM": 2,
    "Transformer": 7,
    "one state": 9,
    "PSB": 17,
    "SAVi": 3,
    "VideoTransformer": 8,
    "ConvS5": 15,
    "ConvSSM": 6,
    "ConvLSTM": 13,
    "S5": 20,
    "Performer": 16,
    "GRU": 14,
    "OC-RIM": 12,
    "OC-RIM, no slots": 8,
    "SCOFF": 11,
    "Slot Attention": 21,
    "weighted sum": 1,
    "weighted mean": 0,
    "layer norm": 9,
    "batch scaling": 3,
}
"""A name in the figures -> its place in `SLOT_COLOURS`."""
NAMES = {
    "OCSlotSSM": "OC-SlotSSM",
    "SingleStateSSM": "one state",
    "FrameTransformer": "Transformer",
    "OCRIM": "OC-RIM",
    "WeightedSum": "weighted sum",
    "WeightedMean": "weighted mean",
    "LayerNormAggregation": "layer norm",
    "BatchScaled": "batch scaling",
}
PARTS = ("PSB", "joint attention", "no competition", "no competition, no bias", "drawn first slots", "T5 buckets")
KERNELS = "val/rollout_mse/step_05"
QUIET = "#6b7280"
TRACKERS = {
    "k-means of the clip": {"linestyle": ":", "linewidth": 1.4},
    "k-means from frame to frame": {"linestyle": "--", "linewidth": 1.4},
    "patches of one colour": {"linestyle": "-.", "linewidth": 1.4},
    LINKED: {"linestyle": "-", "linewidth": 0.8},
    "blind grid": {"linestyle": (0, (1, 4)), "linewidth": 1.4},
}

Groups = dict[str, list[RunRecord]]


def colour(name: str) -> Any:
    """The colour of a name, or of the core that it begins with."""
    known = max((one for one in COLOURS if name.startswith(one)), key=len, default=None)
    return QUIET if known is None else SLOT_COLOURS[COLOURS[known]] / 255


def by_core(grid: str, runs_dir: Path, **where: Any) -> Groups:
    """The reported runs of a grid with these settings, by the name of their core."""
    found: Groups = {}
    for run in read_sources([str(GRIDS / f"{grid}.yaml")], runs_dir):
        if all(run.settings.get(key.replace("__", ".")) == value for key, value in where.items()):
            core = run.settings["model.core"]
            name = NAMES.get(core, core)
            # two sizes of one core are told apart where both are shown
            if name == "one state" and run.settings.get("model.core.state_dim") == 111:
                continue
            if core == "OCRIM" and run.settings.get("model.core.num_inputs") is None:
                name = "OC-RIM, no slots"
            found.setdefault(name, []).append(run)
    return found


def rows_of(run: RunRecord, key: str) -> list[dict[str, Any]]:
    """The lines of a run's record that have a score."""
    lines = (Path(run.source) / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [row for line in lines if key in (row := json.loads(line))]


def figure_of(panels: int) -> tuple[Any, Any]:
    """A figure of so many plots, one below the other, whose text is read at 400 pixels too, and the plots."""
    figure = empty_figure(5.4, (3.8, 5.8, 7.2)[panels - 1])
    return figure, figure.subplots(panels, 1, squeeze=False)[:, 0]


def legend(figure: Any, *axes: Any) -> None:
    """One legend of all plots, below them, of what these plots show."""
    shown = {label: handle for axis in axes for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)}
    figure.legend(
        list(shown.values()),
        list(shown),
        loc="outside lower center",
        ncols=3,
        fontsize=9,
        frameon=False,
        handlelength=1.6,
    )


def band(axis: Any, xs: Sequence[float], values: Sequence[Sequence[float]], name: str, **look: Any) -> None:
    """A line at the means and a band of one standard deviation; values by place, then by seed."""
    means = [statistics.mean(each) for each in values]
    spreads = [statistics.stdev(each) if len(each) > 1 else 0.0 for each in values]
    axis.plot(xs, means, color=colour(name), label=name, linewidth=1.6, **look)
    low, high = ([m + sign * s for m, s in zip(means, spreads, strict=True)] for sign in (-1, 1))
    axis.fill_between(xs, low, high, color=colour(name), alpha=0.15, linewidth=0)


def dots(axis: Any, title: str, values: Mapping[str, Sequence[float]], lines: Mapping[str, float]) -> None:
    """A dot per run, a bar at the mean of a row, and a dotted line at what learns nothing."""
    for row, (name, each) in enumerate(values.items()):
        axis.plot(each, [row] * len(each), "o", color=colour(name), alpha=0.8, markersize=5)
        axis.plot([statistics.mean(each)] * 2, [row - 0.3, row + 0.3], color="#111827", linewidth=1.4)
    for number, (name, level) in enumerate(lines.items()):
        axis.axvline(level, color=QUIET, linestyle=(":", "--", "-.")[number % 3], linewidth=1.3, label=name)
    axis.set_yticks(range(len(values)), list(values))
    axis.set_ylim(len(values) - 0.4, -0.6)
    axis.set_xlim(left=min(0.0, axis.get_xlim()[0]))
    axis.locator_params(axis="x", nbins=6)
    if lines:
        axis.legend(fontsize=9, frameon=False, loc="upper center", bbox_to_anchor=(0.4, -0.12), ncols=2)
    tidy(axis, title)


def scored(groups: Groups, metric: str) -> dict[str, list[float]]:
    """A score of every run, by the group's name."""
    return {name: [run.summary[metric] for run in runs] for name, runs in groups.items()}


def known(groups: Groups, keys: Mapping[str, str]) -> dict[str, float]:
    """Scores of what learns nothing, by what it is called and the key of its score."""
    run = next(iter(groups.values()))[0]
    return {name: run.summary[key] for name, key in keys.items()}


def draw_colours(runs_dir: Path) -> Any:
    """Colour accuracy against steps and against seconds."""
    groups = by_core("studies/blinking_balls_long", runs_dir, data__patches_per_side=1)
    figure, axes = figure_of(2)
    for axis, what in zip(axes, ("optimiser steps", "seconds of one thread, machine shared"), strict=True):
        for name, runs in groups.items():
            rows = [rows_of(run, "val/colour_accuracy") for run in runs]
            xs = [[row["step"] + 1 if what.startswith("opt") else row["seconds"] for row in each] for each in rows]
            values = list(zip(*([row["val/colour_accuracy"] for row in each] for each in rows), strict=True))
            band(axis, [statistics.mean(x) for x in zip(*xs, strict=True)], values, name, marker="o", markersize=3)
        level = known(groups, {"last": "val/baseline/colour_accuracy/last colour seen"})["last"]
        axis.axhline(level, color=QUIET, linestyle=":", label="last colour seen")
        axis.set_ylim(0, 1.03)
        axis.set_xlabel(what, fontsize=9)
        tidy(axis, "colours remembered: accuracy, n = 3")
    legend(figure, axes[0])
    return figure


def draw_competence(runs_dir: Path) -> Any:
    """Scores over the operations of the training, with the competence that is asked for."""
    figure, axes = figure_of(3)
    for axis, (name, title) in zip(
        axes,
        (
            ("colours", "colours: accuracy, n = 3"),
            ("balls", "balls: squared error of 8 frames, n = 5"),
            ("positions", "snitches covered and moved: Top-1, n = 3"),
        ),
        strict=True,
    ):
        study = STUDIES[name]
        flops = flops_of(study)
        for core, runs in runs_of(study, runs_dir).items():
            if core in COLOURS:
                curves = [curve_of(run, study.metric) for run in runs]
                xs = [1e-12 * flops[core] * step for step in curves[0][0]]
                values = list(zip(*(values for _, values in curves), strict=True))
                band(axis, xs, values, core, marker="o", markersize=3)
        axis.axhline(study.competence(runs[0]), color=QUIET, linestyle=":", label="competence")
        axis.set_xscale("log")
        axis.set_xticks([0.5, 1, 2, 5, 10, 20], ["0.5", "1", "2", "5", "10", "20"])
        axis.set_xticks([], minor=True)
        axis.set_xlim(0.5, 25)
        axis.set_xlabel("TFLOP of the training", fontsize=9)
        tidy(axis, title)
    legend(figure, *axes)
    return figure


def draw_balls(runs_dir: Path) -> Any:
    """Squared error over the horizon, with constant velocity."""
    groups = by_core("studies/bouncing_balls", runs_dir)
    figure, (axis,) = figure_of(1)
    frames = range(1, 21)
    for name, runs in groups.items():
        band(axis, frames, [[run.summary[f"val/rollout_mse/step_{n:02}"] for run in runs] for n in frames], name)
    first = next(iter(groups.values()))[0].summary
    for key, label, style in (
        ("oracle/rollout_mse/constant velocity", "constant velocity", "--"),
        ("baseline/rollout_mse/grey, mean of the context", "grey", ":"),
    ):
        level = [first[f"val/{key}/step_{n:02}"] for n in frames]
        axis.plot(frames, level, color="#111827", linestyle=style, linewidth=1.6, label=label)
    axis.set_xlabel("frames after the context", fontsize=9)
    axis.set_xticks([1, 5, 10, 15, 20])
    legend(figure, axis)
    tidy(axis, "bouncing balls: squared error of a pixel, n = 5")
    return figure


def draw_objects(runs_dir: Path) -> Any:
    """Three scores of masks beside k-means over the weight of position."""
    groups = by_core("studies/movi_like", runs_dir)
    clusters = json.loads((Path(__file__).parent / "kmeans_weights.json").read_text())["scores"]
    weights = [float(weight) for weight in clusters]
    figure, axes = figure_of(3)
    for axis, (key, title) in zip(
        axes,
        (
            ("fg_ari", "objects told apart: FG-ARI"),
            ("miou", "masks that fit: mIoU"),
            ("ari", "with the background: ARI"),
        ),
        strict=True,
    ):
        for name, values in scored(groups, f"val/{key}/video/decoder").items():
            band(axis, [weights[0], weights[-1]], [values, values], name)
        axis.plot(weights, [one[key] for one in clusters.values()], "k.--", linewidth=1.4, label="k-means")
        axis.set_ylim(0, 0.8)
        axis.set_xlabel("weight of position in k-means", fontsize=9)
        tidy(axis, f"{title}, n = 5")
    legend(figure, axes[0])
    return figure


def draw_lengths(runs_dir: Path) -> Any:
    """Validation loss after training on 3, 6 and 12 frames."""
    groups = by_core("studies/movi_like_lengths", runs_dir)
    figure, (axis,) = figure_of(1)
    frames = (3, 6, 12)
    for shift, (name, runs) in zip((-0.04, 0.04), groups.items(), strict=True):
        values = [[1000 * r.summary["val/loss"] for r in runs if r.settings["data.num_frames"] == n] for n in frames]
        places = [place + shift for place in range(len(frames))]
        band(axis, places, values, name)
        for place, each in zip(places, values, strict=True):
            axis.plot([place] * len(each), each, "o", color=colour(name), markersize=4)
    axis.set_xticks(range(len(frames)), [str(n) for n in frames])
    axis.set_ylim(bottom=0)
    axis.set_xlabel("frames of a training clip", fontsize=9)
    legend(figure, axis)
    tidy(axis, "validation loss, thousandths, clips of 6 frames, n = 5")
    return figure


def draw_identity(runs_dir: Path) -> Any:
    """Slots and trackers over the frames of a clip, with a camera that circles."""
    found = by_name(list(read_records(RECORDS)), "circling")
    figure, axes = figure_of(3)
    panels = {
        "hota": "objects found and kept: HOTA",
        "identity": "kept, of what is found: FG-ARI of videos / of frames",
        "switches_per_object": "switches per object that ever had a slot",
    }
    for axis, (score, title) in zip(axes, panels.items(), strict=True):
        for name, records in found.items():
            points = [identity_values(records, length, score) for length in LENGTHS]
            if "run" in records[0]:
                band(axis, LENGTHS, points, f"{name}, n = {len(records)}")
            elif name in TRACKERS:
                axis.plot(LENGTHS, [value for (value,) in points], color="#111827", label=name, **TRACKERS[name])
        axis.set_xscale("log", base=2)
        axis.set_xticks(LENGTHS, [str(length) for length in LENGTHS])
        axis.minorticks_off()
        axis.set_ylim(bottom=0)
        axis.set_xlabel("frames of a clip", fontsize=9)
        tidy(axis, title)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, fontsize=9, frameon=False, handlelength=2.4)
    return figure


def draw_slots(runs_dir: Path) -> Any:
    """FG-ARI over the number of slots in the test."""
    found = list(slot_counts(GRIDS / "records" / "movi_like_aggregation_slot_counts.zip"))
    figure, axes = figure_of(2)
    for axis, trained in zip(axes, (7, 11), strict=True):
        runs = [run for run in found if run.settings["trained"] == trained and run.settings["objects"] == [3, 6]]
        for kind in ("WeightedSum", "WeightedMean", "LayerNormAggregation", "BatchScaled"):
            of_kind = [run.scores for run in runs if run.settings["aggregation"] == kind]
            slots = sorted(int(key.rpartition(" ")[2]) for key in of_kind[0] if key.startswith("own, "))
            band(axis, slots, [[scores[f"own, {count}"] for scores in of_kind] for count in slots], NAMES[kind])
        axis.axvline(trained, color=QUIET, linewidth=0.8)
        axis.set_ylim(0.3, 0.8)
        axis.set_xticks(slots)
        axis.set_xlabel("slots in the test", fontsize=9)
        tidy(axis, f"FG-ARI, trained with {trained} slots, n = 5")
    legend(figure, axes[0])
    return figure


def draw_parts(runs_dir: Path) -> Any:
    """PSB without one of its parts, at rates of their own and at one."""
    figure, axes = figure_of(2)
    for axis, grid, title in zip(
        axes, ("studies/movi_like_ablations", "movi_like_ablations"), ("at its own rate", "all at 1e-3"), strict=True
    ):
        (runs,) = by_core(grid, runs_dir).values()
        rows: Groups = {}
        for run in runs:
            rows.setdefault(part_of(run.settings), []).append(run)
        lines = known(rows, {"k-means": "val/baseline/fg_ari/video/k-means colour + position"})
        lines |= known(rows, {"blind grid": "val/baseline/fg_ari/video/grid 3x3"})
        values = {name: scored(rows, "val/fg_ari/video/decoder")[name] for name in PARTS}
        dots(axis, f"FG-ARI, {title}, n = 5", values, lines)
    return figure


def part_of(settings: Mapping[str, Any]) -> str:
    """What a variant of PSB is called."""
    if settings["model.core.attention"] == "softmax":
        return "no competition" + (", no bias" if settings["model.core.time_bias"] == "none" else "")
    if settings["model.core.slot_init"] == "gaussian":
        return "drawn first slots"
    if settings["model.core.interaction"] == "joint":
        return "joint attention"
    return "T5 buckets" if settings["model.core.time_bias"] == "buckets" else "PSB"


def draw_places(runs_dir: Path) -> Any:
    """Slots that are objects and slots that are places."""
    groups = by_core("studies/movi_like_places", runs_dir)
    figure, axes = figure_of(2)
    for axis, key, title in zip(axes, ("fg_ari", "miou"), ("FG-ARI", "mIoU"), strict=True):
        start = f"val/baseline/{key}/video/"
        lines = known(groups, {"blind grid": f"{start}grid 4x4", "k-means": f"{start}k-means colour + position"})
        dots(axis, f"{title}, n = 5", scored(groups, f"val/{key}/video/decoder"), lines)
    return figure


def draw_textured(runs_dir: Path) -> Any:
    """Pixels or codes on textured scenes."""
    groups = by_core("studies/movi_like_textured", runs_dir)
    rows = {
        f"{core}, {what}": [run for run in groups[core] if run.settings["model"] == task]
        for core in ("SAVi", "PSB")
        for what, task in (("codes", "CodeAutoencoding"), ("pixels", "SlotAutoencoding"))
    }
    figure, axes = figure_of(2)
    for axis, key, title, kind in zip(
        axes, ("fg_ari", "miou"), ("FG-ARI", "mIoU"), ("colour + position", "colour"), strict=True
    ):
        start = f"val/baseline/{key}/video/"
        lines = known(rows, {"blind grid": f"{start}grid 2x3", "k-means": f"{start}k-means {kind}"})
        values = scored(rows, f"val/{key}/video/attention")
        dots(axis, f"{title} of the attention, n = 5", values, lines)
    return figure


def draw_sprites(runs_dir: Path) -> Any:
    """The error of a frame of five systems."""
    groups = by_core("studies/moving_sprites", runs_dir)
    order = sorted(groups, key=lambda name: statistics.mean(scored(groups, "val/rollout_mse_sum")[name]))
    groups = {name: groups[name] for name in order}
    figure, (axis,) = figure_of(1)
    lines = known(groups, {"black": "val/baseline/rollout_mse_sum/black"})
    lines |= known(groups, {"previous true frame": "val/oracle/rollout_mse_sum/previous true frame"})
    dots(axis, "squared error of a frame, n = 5", scored(groups, "val/rollout_mse_sum"), lines)
    return figure


def draw_digits(runs_dir: Path) -> Any:
    """Squared error over 400 predicted frames."""
    groups = by_core("studies/moving_mnist", runs_dir)
    figure, (axis,) = figure_of(1)
    first = next(iter(groups.values()))[0].summary
    steps = sorted(int(key.rpartition("_")[2]) for key in first if key.startswith("val/rollout_mse/step_"))
    # as many points as a logarithmic axis shows
    steps = [n for index, n in enumerate(steps) if n < 30 or index % 8 == 0 or n == steps[-1]]
    width = max(len(key.rpartition("_")[2]) for key in first if key.startswith("val/rollout_mse/step_"))
    for name, runs in groups.items():
        band(axis, steps, [[run.summary[f"val/rollout_mse/step_{n:0{width}}"] for run in runs] for n in steps], name)
    for kind, style in (("black", ":"), ("grey, mean of the context", "--")):
        level = first[f"val/baseline/rollout_mse/{kind}"]
        axis.axhline(level, color="#111827", linestyle=style, linewidth=1.2, label=kind.partition(",")[0])
    axis.set_xscale("log")
    axis.set_ylim(0, 0.04)
    axis.set_xlabel("frames after the context", fontsize=9)
    legend(figure, axis)
    tidy(axis, "Moving-MNIST, one digit: squared error of a pixel, n = 3")
    return figure


def draw_kernels(runs_dir: Path) -> Any:
    """ConvS5 with other kernels, activations and first eigenvalues."""
    (runs,) = by_core("moving_mnist_kernels", runs_dir).values()
    rows: Groups = {}
    for run in runs:
        kind = {"resnet": "ResNet", "half_glu": "GLU"}[run.settings["model.core.activation"]]
        kernels = f"{run.settings['model.core.b_kernel']} and {run.settings['model.core.c_kernel']}"
        drawn = ", drawn" if run.settings.get("model.core.initialisation") == "random" else ""
        rows.setdefault(f"ConvS5, {kernels}, {kind}{drawn}", []).append(run)
    rows = dict(sorted(rows.items(), key=lambda pair: statistics.mean(scored(rows, KERNELS)[pair[0]])))
    figure, axes = figure_of(2)
    lines = known(rows, {"grey": "val/baseline/rollout_mse/grey, mean of the context/step_05"})
    dots(axes[0], "squared error of the 5th frame, n = 3", scored(rows, KERNELS), lines)
    dots(axes[1], "frames ahead of what learns nothing, n = 3", scored(rows, "val/rollout_frames_ahead"), {})
    return figure


def draw_cater(runs_dir: Path) -> Any:
    """Snitches that were covered and moved, from positions and from pixels."""
    figure, axes = figure_of(2)
    for axis, grid, title in zip(
        axes, ("cater_like_cores", "cater_like_pixel_cores"), ("positions as tokens", "from pixels"), strict=True
    ):
        groups = by_core(grid, runs_dir)
        groups = {name: groups[name] for name in ("SlotRNN", "RIM", "SlotSSM", "SlotTransformer", "one state")}
        lines = known(groups, {"any cone": "val/baseline/top1/covered_moved/any cone"})
        dots(axis, f"Top-1, {title}, n = 3", scored(groups, "val/top1/covered_moved"), lines)
        axis.set_xlim(0, 1.02)
    return figure


def draw_depth(runs_dir: Path) -> Any:
    """Masks from depth and from colours, and the depth of objects."""
    groups = by_core("depth_like", runs_dir)
    rows = {
        f"{core}{'++' if core == 'SAVi' else ''}, {what}": [
            r for r in groups[core] if r.settings["data.depth"] is depth
        ]
        for core in ("OC-SlotSSM", "SAVi")
        for what, depth in (("depth", True), ("colours", False))
    }
    figure, axes = figure_of(2)
    lines = known(
        rows, {"blind grid": "val/baseline/miou/video/grid 2x3", "k-means": "val/baseline/miou/video/k-means colour"}
    )
    dots(axes[0], "mIoU, n = 3", scored(rows, "val/miou/video/decoder"), lines)
    deep = {name: runs for name, runs in rows.items() if name.endswith("depth")}
    lines = known(deep, {"constant": "val/baseline/depth_abs_rel/objects/constant"})
    dots(axes[1], "relative error of objects' depth, n = 3", scored(deep, "val/depth_abs_rel/objects"), lines)
    return figure


FIGURES: dict[str, Callable[[Path], Any]] = {
    name.removeprefix("draw_"): function for name, function in list(globals().items()) if name.startswith("draw_")
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Draws the figures; 1 where the runs of a named one are not there."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("figures", nargs="*", metavar="NAME", help=", ".join(FIGURES))
    parser.add_argument("--runs_dir", type=Path, default=Path("runs"), help="where the grids are (default: runs)")
    parser.add_argument("--out", type=Path, default=Path("docs/assets"), help="folder for the figures")
    args = parser.parse_args(arguments)
    if unknown := [name for name in args.figures if name not in FIGURES]:
        parser.error(f"no figure is called {unknown[0]}; there are {', '.join(FIGURES)}")
    import matplotlib

    # the same file for the same numbers, with text that a reader can select
    matplotlib.rcParams.update({"svg.hashsalt": "slotbench", "svg.fonttype": "none"})
    args.out.mkdir(parents=True, exist_ok=True)
    failed = False
    for name in args.figures or FIGURES:
        try:
            figure = FIGURES[name](args.runs_dir)
        except ComparisonError as error:
            print(f"left out: {name}: {error}", file=sys.stderr)
            failed = True
            continue
        figure.savefig(args.out / f"results_{name}.svg", metadata={"Date": None})
        print(f"wrote {args.out / f'results_{name}.svg'}")
    return int(failed and bool(args.figures))


if __name__ == "__main__":
    sys.exit(main())
