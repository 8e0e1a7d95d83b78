"""Draws what a table cannot show of a grid over cores: errors over the horizon, roll-outs, slots, scores by context.

    slotbench grid run experiments/grids/bouncing_balls_cores.yaml --jobs 2
    slotbench compare experiments/grids/bouncing_balls_cores.yaml --format markdown
    python docs/scripts/draw_cores.py runs/bouncing_balls_cores --out docs/assets --name bouncing_balls

The folder holds runs, one below the other or in folders of points; those that have finished are grouped by their core.
What is drawn depends on the task: VideoPrediction NAME_horizon.png and NAME_rollouts.png, LongContextReasoning
NAME_context.png, SlotAutoencoding NAME_training.png and NAME_slots.png, ClipClassification NAME_absence.png.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
from pathlib import Path

import yaml

SCORES = ("val/fg_ari/video/decoder", "val/miou/video/decoder", "val/ari/video/decoder")
"""What is drawn over the training of SlotAutoencoding."""
_LONG = 100  # frames from which on a horizon has a logarithmic axis: what differs is in the first of them


class NoWeightsError(Exception):
    """A figure needs the weights of a run that has records alone, as `slotbench grid unpack` lays them."""


class Run:
    """A finished run: its record, its scores after the last step, and its configuration."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.info = json.loads((folder / "run.json").read_text())
        self.rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        self.config = yaml.safe_load((folder / "config.yaml").read_text())
        self.task = self.config["model"]["class_path"].rpartition(".")[2]
        self.scores = [row for row in self.rows if "val/loss" in row][-1]
        self.core = self.config["model"]["init_args"]["core"]["class_path"].rpartition(".")[2]
        self.label = label_of(folder.name) or self.core

    def load(self):
        from slotbench.registry import load

        checkpoint = self.folder / "checkpoints" / "last.ckpt"
        if not checkpoint.exists():
            raise NoWeightsError(f"there are no weights in {self.folder}: figures that need them are left out")
        return load("tasks", self.task).load_from_checkpoint(checkpoint).eval()

    def data(self, val_batch_size=None, **changed):
        from slotbench.data.base import LoaderOptions
        from slotbench.registry import load

        given = self.config["data"]
        arguments = given["init_args"] | changed
        loader = arguments["loader"] | ({} if val_batch_size is None else {"val_batch_size": val_batch_size})
        kind = load("datasets", given["class_path"].rpartition(".")[2])
        return kind(**arguments | {"loader": LoaderOptions(**loader)})


def label_of(point: str) -> str | None:
    """What a grid's point is called in a figure, by its folder's name; None where the grid has cores alone.

    The configuration or the variant, and the values of other axes but learning rate and seed.
    """
    axes = dict(part.split("=", 1) for part in re.split(r",(?=\w+=)", point.rpartition("-")[0]) if "=" in part)
    named = axes.pop("config", None) or axes.pop("variant", None)
    if named is None:
        return None
    kept = {axis: value for axis, value in axes.items() if axis not in ("lr", "seed")}
    others = [value if axis == "variant" else f"{axis} {value}" for axis, value in kept.items()]
    return ", ".join([named.replace("_feature_flow", " FF"), *others])


def runs_below(folder: Path) -> dict[str, list[Run]]:
    """Finished runs by their core's name, cores in the order in which they turn up, a core's runs by seed.

    Where a grid has one core in several configurations, the names are the grid's (`config=` or `variant=`). Runs that
    are a means are left out: those of a grid that all others start from, and those that chose a protocol's value.
    """
    grid = folder / "grid.json"
    known = json.loads(grid.read_text()) if grid.exists() else {}
    records = sorted(path for path in folder.rglob("run.json") if path.parent.name not in known.get("starts", ()))
    found = [Run(path.parent) for path in records if json.loads(path.read_text())["state"] == "finished"]
    chose = (known.get("protocol") or {}).get("seed")
    choosing = chose if isinstance(chose, list) else [chose]
    found = [run for run in found if run.config["seed_everything"] not in choosing]
    found.sort(key=lambda run: run.config["seed_everything"])
    cores: dict[str, list[Run]] = {}
    distinct = len({run.label for run in found}) == len({run.core for run in found})
    for run in found:
        cores.setdefault(run.core if distinct else run.label, []).append(run)
    return cores


def without_what_all_say(names: list[str]) -> dict[str, str]:
    """Names without the ends that all of them have: "PSB, rule earliest" is PSB where every rule is that."""
    parts = {name: name.split(", ") for name in names}
    while len({tuple(rest[1:][-1:]) for rest in parts.values()}) == 1 and all(rest[1:] for rest in parts.values()):
        parts = {name: rest[:-1] for name, rest in parts.items()}
    return {name: ", ".join(rest) for name, rest in parts.items()}


def baselines_of(run: Run) -> dict[str, dict[str, float]]:
    """Score by metric, by baseline; they are logged with the first validation."""
    baselines: dict[str, dict[str, float]] = {}
    for row in run.rows:
        for key, value in row.items():
            if key.startswith("val/baseline/"):
                metric, _, name = key.removeprefix("val/baseline/").partition("/")
                first, _, second = name.partition("/")
                if first in ("video", "frame"):  # <metric>/<scope>/<baseline>, to stand beside the decoder's masks
                    baselines.setdefault(second, {})[f"val/{metric}/{first}/decoder"] = value
                else:
                    baselines.setdefault(first, {})[f"val/{metric}{'/' + second if second else ''}"] = value
    return baselines


def empty_figure(width: float, height: float):
    """A figure of so many inches that needs no screen."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def figure_of(columns: int):
    """A figure of so many plots side by side, and these."""
    figure = empty_figure(6.2 * columns, 4.2)
    return figure, figure.subplots(1, columns, squeeze=False)[0]


def draw_band(axis, steps: list[int], values: list, colour, label: str, middle=statistics.mean, style="-") -> None:
    """A line at the mean or another middle of every step's values, in a band from the least to the largest."""
    line = list(map(middle, values))
    axis.plot(steps, line, color=colour, linewidth=1.8, linestyle=style, label=label, marker="o", markersize=2.5)
    axis.fill_between(steps, list(map(min, values)), list(map(max, values)), color=colour, alpha=0.12, linewidth=0)


def draw_curves(axis, curves: dict[str, list[list[float]]], steps: list[int]) -> None:
    """A line per core, the mean over its seeds, in a band from the worst to the best of them."""
    from slotbench.figures.painting import SLOT_COLOURS

    for index, (core, seeds) in enumerate(curves.items()):
        colour = SLOT_COLOURS[index % len(SLOT_COLOURS)] / 255
        draw_band(axis, steps, list(zip(*seeds, strict=True)), colour, core)
    axis.spines[["top", "right"]].set_visible(False)
    axis.xaxis.get_major_locator().set_params(integer=True)
    axis.grid(alpha=0.2)


def draw_horizon_of(runs: dict[str, list[Run]], path: Path) -> None:
    """Squared error and SSIM against the frame of the horizon; baselines dashed."""
    figure, axes = figure_of(2)
    for axis, name, title in zip(axes, ("mse", "ssim"), ("squared error per pixel", "SSIM"), strict=True):
        keys = sorted(key for key in next(iter(runs.values()))[0].scores if key.startswith(f"val/rollout_{name}/step_"))
        steps = [int(key.rpartition("_")[2]) for key in keys]
        draw_curves(
            axis, {core: [[run.scores[k] for k in keys] for run in found] for core, found in runs.items()}, steps
        )
        baselines = baselines_of(next(iter(runs.values()))[0])
        baselines = {name: scores for name, scores in baselines.items() if keys[0] in scores}  # not those of masks
        for index, (baseline, scores) in enumerate(baselines.items()):
            look = {"color": ["#9ca3af", "#111827"][index % 2], "linestyle": ["--", ":", "-."][index % 3]}
            axis.plot(steps, [scores[key] for key in keys], linewidth=1.2, label=baseline, **look)
        axis.set_title(title, loc="left", fontsize=10)
        axis.set_xlabel("frames after the context", fontsize=9)
        axis.set_ylim(bottom=0)
        if steps[-1] > _LONG:
            axis.set_xscale("log")
            axis.xaxis.set_major_formatter("{x:.0f}")
    axes[1].legend(fontsize=7, frameon=False, bbox_to_anchor=(1.01, 1), loc="upper left")
    figure.savefig(path)


def draw_rollouts_of(runs: dict[str, list[Run]], path: Path) -> None:
    """The same clips continued by each core's first seed: truth green, prediction red, yellow where they agree.

    Coloured clips keep their colours, and show the prediction alone.
    """
    import torch
    from PIL import Image

    from slotbench.figures.painting import paint_frame, paint_overlay
    from slotbench.figures.sheets import Row, contact_sheet

    first = next(iter(runs.values()))[0]
    data = first.data(val_batch_size=2)
    batch = data.on_after_batch_transfer(next(iter(data.val_dataloader())), 0)
    horizon = first.load().horizon
    shown = [round(step * (horizon - 1) / 7) for step in range(8)]
    rows: list[Row] = []
    for clip in range(2):
        for core, found in runs.items():
            task = found[0].load()
            with torch.no_grad():
                predicted = task.rollout(batch).reconstruction[clip]
            seen, future = batch.frames[clip, task.context - 1], batch.frames[clip, task.context :]
            if len(rows) % (len(runs) + 1) == 0:
                rows.append(Row("truth", [paint_frame(seen), *(paint_frame(future[t]) for t in shown)]))
            if (future == future[:, :1]).all():
                images = [paint_overlay(future[t], predicted[t]) for t in shown]
            else:
                images = [paint_frame(predicted[t]) for t in shown]
            name = core.replace("Transformer", "Transf.").replace("SingleState", "Single")
            rows.append(Row(name, [paint_frame(seen), *images]))
    labels = ["last seen", *(f"+{t + 1}" for t in shown)]
    Image.fromarray(contact_sheet(rows, labels)).save(path)


def draw_discovery_of(runs: dict[str, list[Run]], path: Path) -> None:
    """Scores of the decoder's masks over the training, every run a line, with the best of the baselines."""
    from slotbench.figures.painting import SLOT_COLOURS

    figure, axes = figure_of(3)
    baselines = baselines_of(next(iter(runs.values()))[0])
    for axis, key in zip(axes, SCORES, strict=True):
        for index, (core, found) in enumerate(runs.items()):
            for number_of_run, run in enumerate(found):
                rows = [row for row in run.rows if key in row]
                label = core if number_of_run == 0 else None
                colour = SLOT_COLOURS[index % len(SLOT_COLOURS)] / 255
                steps, values = [row["step"] + 1 for row in rows], [row[key] for row in rows]
                axis.plot(steps, values, color=colour, linewidth=1.4, alpha=0.85, label=label)
        known = {name: scores[key] for name, scores in baselines.items() if key in scores}
        best = max(known, key=lambda name: known[name])
        axis.axhline(known[best], color="#111827", linestyle=":", linewidth=1.2, label=f"best baseline: {best}")
        axis.set_title(key, loc="left", fontsize=10)
        axis.set_xlabel("updates", fontsize=9)
        axis.set_ylim(0, 1)
        axis.grid(alpha=0.2)
        axis.spines[["top", "right"]].set_visible(False)
        axis.legend(fontsize=7.5, frameon=False, loc="upper left")
    figure.savefig(path)


def draw_slots_of(runs: dict[str, list[Run]], path: Path) -> None:
    """The same two clips taken apart by each core's first seed: which slot has which pixel, over six frames."""
    import torch
    from PIL import Image

    from slotbench.figures.painting import match_slots, paint_frame, paint_objects, paint_slots_over
    from slotbench.figures.sheets import Row, contact_sheet
    from slotbench.metrics.contingency import masks_to_labels

    first = next(iter(runs.values()))[0]
    data = first.data(val_batch_size=8)
    batch = data.on_after_batch_transfer(next(iter(data.val_dataloader())), 0)
    rows: list[Row] = []
    for clip in (1, 4):
        frames, true, size = batch.frames[clip], batch.masks[clip], (96, 96)
        rows.append(Row("frame", [paint_frame(frame) for frame in frames]))
        for core, found in runs.items():
            task = found[0].load()
            with torch.no_grad():
                masks = task.evaluate(batch.map(lambda value: value[clip : clip + 1])).masks[0]  # noqa: B023
            labels = masks_to_labels(masks)
            if len(rows) % (len(runs) + 2) == 1:
                partners = match_slots(labels, true, masks.shape[1])
                rows.append(Row("truth", [paint_objects(mask, partners, size) for mask in true]))
            images = [paint_slots_over(frame, label, size) for frame, label in zip(frames, labels, strict=True)]
            rows.append(Row(core, images))
    Image.fromarray(contact_sheet(rows, [f"t = {t}" for t in range(len(rows[0].images))])).save(path)


def draw_context_of(runs: dict[str, list[Run]], path: Path, longest: int) -> None:
    """Colour accuracy after each context frame, up to contexts longer than those of the training."""
    import lightning
    import torch

    trained = next(iter(runs.values()))[0].config["data"]["init_args"]["num_frames"] - 1
    steps, curves, ious = list(range(1, longest + 1)), {}, {}
    for core, found in runs.items():
        for run in found:
            torch.set_num_threads(1)
            trainer = lightning.Trainer(
                accelerator="cpu",
                logger=False,
                enable_checkpointing=False,
                enable_progress_bar=False,
                enable_model_summary=False,
            )
            trainer.validate(run.load(), run.data(num_frames=longest + 1), verbose=False)
            scores = {key: float(value) for key, value in trainer.callback_metrics.items()}
            curves.setdefault(core, []).append([scores[f"val/colour_accuracy/context_{step}"] for step in steps])
            ious.setdefault(core, []).append([scores[f"val/ball_iou/context_{step}"] for step in steps])
    figure, axes = figure_of(2)
    for axis, values, title in zip(axes, (curves, ious), ("colour accuracy, coloured balls", "ball IoU"), strict=True):
        draw_curves(axis, values, steps)
        axis.axvline(trained, color="#888888", linestyle="--", linewidth=1)
        axis.annotate(
            "longest context in training", (trained, 0.02), xytext=(4, 0), textcoords="offset points", fontsize=7.5
        )
        axis.set_title(title, loc="left", fontsize=10)
        axis.set_xlabel("context frames", fontsize=9)
        axis.set_ylim(0, 1.02)
    last = last_colour_baseline(next(iter(runs.values()))[0].data(num_frames=longest + 1), longest)
    axes[0].plot(steps, last, color="#888888", linestyle=":", label="last colour seen")
    axes[0].legend(fontsize=7, frameon=False)
    figure.savefig(path)
    (path.with_suffix(".json")).write_text(
        json.dumps({"colour_accuracy": curves, "ball_iou": ious, "last colour seen": last})
    )


def draw_absence_of(runs: dict[str, list[Run]], path: Path) -> None:
    """Top-1 by group, and by the frames since the snitch was last seen; baselines dashed."""
    figure, axes = figure_of(2)
    first = next(iter(runs.values()))[0]
    groups = ["free", "covered_still", "covered_moved"]
    bins = ["seen", *(key.rpartition("/")[2] for key in first.scores if key.startswith("val/top1/unseen_"))]
    start = "val/baseline/"
    baselines = {key.removeprefix(start): row[key] for row in first.rows for key in row if key.startswith(start)}
    names = {"seen": "in sight"} | {name: name.removeprefix("unseen_") for name in bins[1:]}
    for axis, keys in zip(axes, (groups, bins), strict=True):
        scores = [f"val/top1/{key}" for key in keys]
        places = list(range(len(keys)))
        draw_curves(
            axis, {core: [[r.scores[k] for k in scores] for r in found] for core, found in runs.items()}, places
        )
        for index, name in enumerate(("last uncovered", "any cone", "best constant", "uniform")):
            look = {"color": "#6b7280", "linestyle": ["--", ":", "-.", (0, (1, 4))][index], "linewidth": 1.2}
            axis.plot(places, [baselines[f"top1/{key}/{name}"] for key in keys], label=name, **look)
        axis.set_xticks(places, [names.get(key, key.replace("_", ", ")) for key in keys], fontsize=9)
        axis.set_ylim(-0.03, 1.03)
    axes[0].set_title("Top-1 by what happened to the snitch", loc="left", fontsize=10)
    axes[1].set_title("Top-1 by the frames since it was last seen", loc="left", fontsize=10)
    axes[1].legend(fontsize=7, frameon=False, bbox_to_anchor=(1.01, 1), loc="upper left")
    figure.savefig(path)


def last_colour_baseline(data, longest: int) -> list[float]:
    """Share of balls whose colour is the last that was seen, by the frames of context up to `longest`."""
    right, counted = [0] * longest, [0] * longest
    for batch in data.val_dataloader():
        for step in range(longest):
            answer, last = batch.objects["earliest"][:, step], batch.objects["last"][:, step]
            coloured = answer > 1
            right[step] += int(((answer == last) & coloured).sum())
            counted[step] += int(coloured.sum())
    return [r / max(c, 1) for r, c in zip(right, counted, strict=True)]


def main() -> int:
    """Draws what the task of the runs asks for; 1 if no run has finished."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="a grid's folder, or another one with runs in it")
    parser.add_argument("--out", type=Path, default=Path("."), help="folder for the pictures")
    parser.add_argument("--name", help="how the pictures' names begin (default: the folder's name)")
    parser.add_argument("--plugin", action="append", default=[], help="a Python file that registers cores")
    parser.add_argument("--longest-context", type=int, default=8, help="frames, LongContextReasoning only")
    args = parser.parse_args()
    from slotbench import registry

    for file in args.plugin:
        registry.load_file(Path(file))
    runs = runs_below(args.folder)
    if not runs:
        print(f"no finished run below {args.folder}", file=sys.stderr)
        return 1
    args.out.mkdir(parents=True, exist_ok=True)
    start = args.out / (args.name or args.folder.resolve().name)
    task = next(iter(runs.values()))[0].task
    try:
        if task == "VideoPrediction":
            draw_horizon_of(runs, Path(f"{start}_horizon.png"))
            draw_rollouts_of(runs, Path(f"{start}_rollouts.png"))
        elif task == "SlotAutoencoding":
            draw_discovery_of(runs, Path(f"{start}_training.png"))
            draw_slots_of(runs, Path(f"{start}_slots.png"))
        elif task == "ClipClassification":
            draw_absence_of(runs, Path(f"{start}_absence.png"))
        else:
            draw_context_of(runs, Path(f"{start}_context.png"), args.longest_context)
    except NoWeightsError as error:
        print(error, file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
