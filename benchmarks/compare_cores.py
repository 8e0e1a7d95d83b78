"""Trains every core of experiments/matched/EXPERIMENT over several seeds, and draws the table and the curves.

    python benchmarks/compare_cores.py run bouncing_balls --seeds 3 --jobs 2
    python benchmarks/compare_cores.py report bouncing_balls --out docs/assets

Each run is an ordinary one, `slotbench fit --config experiments/EXPERIMENT.yaml --config
experiments/matched/EXPERIMENT/CORE.yaml --seed_everything SEED`, below RUNS/EXPERIMENT-CORE-seedN; a run that has
finished is not made again. The order is seed by seed, so that an interrupted comparison still compares.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[1]


def cores_of(experiment: str) -> list[str]:
    return sorted(path.stem for path in (ROOT / "experiments" / "matched" / experiment).glob("*.yaml"))


def finished(folder: Path) -> Path | None:
    """The newest finished run below `folder`."""
    runs = [path for path in sorted(folder.glob("*/run.json")) if json.loads(path.read_text())["state"] == "finished"]
    return runs[-1].parent if runs else None


def train(experiment: str, core: str, seed: int, runs: Path, settings: list[str]) -> str:
    name = f"{experiment}-{core}-seed{seed}"
    if finished(runs / name):
        return f"{name}: done before"
    matched = ROOT / "experiments" / "matched" / experiment / f"{core}.yaml"
    command = [sys.executable, "-m", "slotbench", "fit", "--config", str(ROOT / "experiments" / f"{experiment}.yaml")]
    command += ["--config", str(matched), "--seed_everything", str(seed), "--name", name, "--runs_dir", str(runs)]
    command += ["--group", f"{experiment}-cores", "--threads", "1", *settings]
    (runs / "logs").mkdir(parents=True, exist_ok=True)
    with (runs / "logs" / f"{name}.log").open("w") as log:
        code = subprocess.run(
            command, stdout=log, stderr=log, env=os.environ | {"OMP_NUM_THREADS": "1"}, check=False
        ).returncode
    return f"{name}: {'finished' if code == 0 else f'FAILED, exit code {code}; see {log.name}'}"


def run(args: argparse.Namespace) -> int:
    cores = args.cores or cores_of(args.experiment)
    settings = [*(word for file in args.plugin for word in ("--plugin", file)), *args.settings]
    with ThreadPoolExecutor(args.jobs) as pool:
        jobs = [
            pool.submit(train, args.experiment, core, seed, args.runs, settings)
            for seed in range(args.first_seed, args.first_seed + args.seeds)
            for core in cores
        ]
        failed = 0
        for job in jobs:
            print(job.result(), flush=True)
            failed += "FAILED" in job.result()
    return int(failed > 0)


def report(args: argparse.Namespace) -> int:
    from slotbench import registry

    for file in args.plugin:
        registry.load_file(Path(file))
    names = args.cores or cores_of(args.experiment)
    runs = {core: runs_of(args.experiment, core, args.runs) for core in names}
    missing = [core for core, found in runs.items() if not found]
    if missing:
        print(f"no finished run of {', '.join(missing)} below {args.runs}", file=sys.stderr)
    runs = {core: found for core, found in runs.items() if found}
    args.out.mkdir(parents=True, exist_ok=True)
    rows = [[core, *row_of(found)] for core, found in runs.items()]
    first = next(iter(runs.values()))[0]
    columns = SCORES[first.task]
    rows.sort(key=lambda row: statistics.mean(row[3][columns[0][0]]), reverse=columns[0][2])
    runs = {row[0]: runs[row[0]] for row in rows}
    lines = [
        "| core | parameters | s per step | "
        + " | ".join(f"{title} {'↑' if up else '↓'}" for _, title, up in columns)
        + " | seeds |"
    ]
    lines.append("|---" * (len(columns) + 4) + "|")
    for name, floor in floors_of(first).items():
        cells = [number(floor[key]) if key in floor else "" for key, _, _ in columns]
        lines.append(f"| *{name}* | | | " + " | ".join(cells) + " | |")
    for core, parameters, seconds, scores in rows:
        cells = [spread(scores[key]) for key, _, _ in columns]
        count = len(next(iter(scores.values())))
        lines.append(f"| {core} | {parameters:,} | {seconds:.3f} | " + " | ".join(cells) + f" | {count} |")
    table = "\n".join(lines) + "\n"
    (args.out / f"{args.experiment}.md").write_text(table)
    print(table)
    if first.task == "SlotAutoencoding":
        every = every_run(runs)
        (args.out / f"{args.experiment}_runs.md").write_text(every)
        print(every)
        draw_discovery_of(runs, args.out / f"{args.experiment}_training.png")
        draw_slots_of(runs, args.out / f"{args.experiment}_slots.png")
    elif first.task == "VideoPrediction":
        draw_horizon_of(runs, args.out / f"{args.experiment}_horizon.png")
        draw_rollouts_of(runs, args.out / f"{args.experiment}_rollouts.png")
    else:
        draw_context_of(runs, args.out / f"{args.experiment}_context.png", args.longest_context)
    return int(bool(missing))


SCORES = {
    "VideoPrediction": [
        # not the mean over the horizon: a model that paints a grey blur everywhere wins there
        ("val/rollout_mse/step_05", "MSE, 5th frame", False),
        ("val/rollout_mse/step_01", "1st", False),
        ("val/rollout_mse/step_10", "10th", False),
        ("val/rollout_mse", "mean of all", False),
        ("val/rollout_psnr", "PSNR, dB", True),
        ("val/rollout_ssim", "SSIM", True),
        ("val/loss", "next-frame loss", False),
    ],
    "LongContextReasoning": [
        ("val/colour_accuracy", "colour accuracy", True),
        ("val/colour_accuracy_not_last", "not last", True),
        ("val/ball_iou", "ball IoU", True),
        ("val/loss", "loss", False),
    ],
    "SlotAutoencoding": [
        ("val/fg_ari/video/decoder", "FG-ARI, video", True),
        ("val/miou/video/decoder", "mIoU, video", True),
        ("val/ari/video/decoder", "ARI, video", True),
        ("val/fg_ari/frame/decoder", "FG-ARI, frame", True),
        ("val/fg_ari/video/attention", "FG-ARI, video, attention", True),
        ("val/psnr/frame", "PSNR, dB", True),
        ("val/largest_slot/decoder", "largest slot", False),
        ("val/live_slots/decoder", "live slots", True),
    ],
}
"""Metric, heading, whether higher is better; the first one sorts the table."""


class Run:
    """A finished run: its record, its scores after the last step, and its configuration."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.info = json.loads((folder / "run.json").read_text())
        self.rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        self.config = yaml.safe_load((folder / "config.yaml").read_text())
        self.task = self.config["model"]["class_path"].rpartition(".")[2]
        self.scores = [row for row in self.rows if "val/loss" in row][-1]

    def load(self):
        from slotbench.registry import load

        return load("tasks", self.task).load_from_checkpoint(self.folder / "checkpoints" / "last.ckpt").eval()

    def data(self, **changed):
        from slotbench.registry import load

        given = self.config["data"]
        return load("datasets", given["class_path"].rpartition(".")[2])(**given.get("init_args", {}) | changed)


def runs_of(experiment: str, core: str, runs: Path) -> list[Run]:
    folders = [finished(path) for path in sorted(runs.glob(f"{experiment}-{core}-seed*"))]
    return [Run(folder) for folder in folders if folder]


def row_of(found: list[Run]) -> tuple[int, float, dict[str, list[float]]]:
    scores = {key: [run.scores[key] for run in found] for key, _, _ in SCORES[found[0].task]}
    # the fastest seed: the others shared the machine with more
    return found[0].info["parameters"]["total"], min(run.info["seconds_per_step"] for run in found), scores


def floors_of(run: Run) -> dict[str, dict[str, float]]:
    """Score by metric, by trivial answer; they are logged with the first validation."""
    floors: dict[str, dict[str, float]] = {}
    for row in run.rows:
        for key, value in row.items():
            if key.startswith("val/floor/"):
                metric, _, name = key.removeprefix("val/floor/").partition("/")
                first, _, second = name.partition("/")
                if first in ("video", "frame"):  # <metric>/<scope>/<floor>, to stand beside the decoder's masks
                    floors.setdefault(second, {})[f"val/{metric}/{first}/decoder"] = value
                else:
                    floors.setdefault(first, {})[f"val/{metric}{'/' + second if second else ''}"] = value
    return floors


def number(value: float) -> str:
    return f"{value:.4f}" if abs(value) < 0.1 else f"{value:.3f}"


def spread(values: list[float]) -> str:
    mean = statistics.mean(values)
    return number(mean) + (f" ± {number(statistics.stdev(values))}" if len(values) > 1 else "")


def figure_of(columns: int):
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.2 * columns, 4.2), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots(1, columns, squeeze=False)[0]


def draw_curves(axis, curves: dict[str, list[list[float]]], steps: list[int]) -> None:
    """A line per core, the mean over its seeds, in a band from the worst to the best of them."""
    from slotbench.tasks.pictures import SLOT_COLOURS

    for index, (core, seeds) in enumerate(curves.items()):
        colour = SLOT_COLOURS[index % len(SLOT_COLOURS)] / 255
        mean = [statistics.mean(values) for values in zip(*seeds, strict=True)]
        axis.plot(steps, mean, color=colour, linewidth=1.8, label=core, marker="o", markersize=2.5)
        low, high = ([pick(values) for values in zip(*seeds, strict=True)] for pick in (min, max))
        axis.fill_between(steps, low, high, color=colour, alpha=0.12, linewidth=0)
    axis.spines[["top", "right"]].set_visible(False)
    axis.xaxis.get_major_locator().set_params(integer=True)
    axis.grid(alpha=0.2)


def draw_horizon_of(runs: dict[str, list[Run]], path: Path) -> None:
    figure, axes = figure_of(2)
    for axis, name, title in zip(axes, ("mse", "ssim"), ("squared error per pixel", "SSIM"), strict=True):
        keys = sorted(key for key in next(iter(runs.values()))[0].scores if key.startswith(f"val/rollout_{name}/step_"))
        steps = list(range(1, len(keys) + 1))
        draw_curves(
            axis, {core: [[run.scores[k] for k in keys] for run in found] for core, found in runs.items()}, steps
        )
        floors = floors_of(next(iter(runs.values()))[0])
        for index, (floor, scores) in enumerate(floors.items()):
            look = {"color": ["#9ca3af", "#111827"][index % 2], "linestyle": ["--", ":", "-."][index % 3]}
            axis.plot(steps, [scores[key] for key in keys], linewidth=1.2, label=floor, **look)
        axis.set_title(title, loc="left", fontsize=10)
        axis.set_xlabel("frames after the context", fontsize=9)
        axis.set_ylim(bottom=0)
    axes[1].legend(fontsize=7, frameon=False, bbox_to_anchor=(1.01, 1), loc="upper left")
    figure.savefig(path)


def draw_rollouts_of(runs: dict[str, list[Run]], path: Path) -> None:
    """The same clips continued by each core's first seed: truth green, prediction red, yellow where they agree."""
    import torch
    from PIL import Image

    from slotbench.tasks.pictures import contact_sheet, paint_frame, paint_overlay

    first = next(iter(runs.values()))[0]
    data = first.data(val_batch_size=2)
    batch = data.on_after_batch_transfer(next(iter(data.val_dataloader())), 0)
    horizon = first.load().horizon
    shown = [round(step * (horizon - 1) / 7) for step in range(8)]
    rows, names = [], []
    for clip in range(2):
        for core, found in runs.items():
            task = found[0].load()
            with torch.no_grad():
                predicted = task.rollout(batch).reconstruction[clip]
            seen, future = batch.frames[clip, task.context - 1], batch.frames[clip, task.context :]
            if len(rows) % (len(runs) + 1) == 0:
                rows.append([paint_frame(seen), *(paint_frame(future[t]) for t in shown)])
                names.append("truth")
            rows.append([paint_frame(seen), *(paint_overlay(future[t], predicted[t]) for t in shown)])
            names.append(core.replace("Transformer", "Transf.").replace("SingleState", "Single"))
    labels = ["last seen", *(f"+{t + 1}" for t in shown)]
    Image.fromarray(contact_sheet(rows, labels, names)).save(path)


def every_run(runs: dict[str, list[Run]]) -> str:
    """Each run on a line of its own, so that a collapsed one is not hidden in a mean."""
    columns = [*SCORES["SlotAutoencoding"], ("val/collapsed/decoder", "collapsed clips", False)]
    lines = [
        "| core | seed | " + " | ".join(title for _, title, _ in columns) + " |",
        "|---" * (len(columns) + 2) + "|",
    ]
    for core, found in runs.items():
        for run in found:
            cells = [number(run.scores[key]) for key, _, _ in columns]
            lines.append(f"| {core} | {run.config['seed_everything']} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def draw_discovery_of(runs: dict[str, list[Run]], path: Path) -> None:
    """Scores of the decoder's masks over the training, every run a line, with the best of the floors."""
    from slotbench.tasks.pictures import SLOT_COLOURS

    figure, axes = figure_of(3)
    floors = floors_of(next(iter(runs.values()))[0])
    for axis, (key, title, _) in zip(axes, SCORES["SlotAutoencoding"][:3], strict=True):
        for index, (core, found) in enumerate(runs.items()):
            for number_of_run, run in enumerate(found):
                rows = [row for row in run.rows if key in row]
                label = core if number_of_run == 0 else None
                colour = SLOT_COLOURS[index % len(SLOT_COLOURS)] / 255
                steps, values = [row["step"] + 1 for row in rows], [row[key] for row in rows]
                axis.plot(steps, values, color=colour, linewidth=1.4, alpha=0.85, label=label)
        known = {name: scores[key] for name, scores in floors.items() if key in scores}
        best = max(known, key=lambda name: known[name])
        axis.axhline(known[best], color="#111827", linestyle=":", linewidth=1.2, label=f"best floor: {best}")
        axis.set_title(title, loc="left", fontsize=10)
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

    from slotbench.metrics.contingency import masks_to_labels
    from slotbench.tasks.pictures import contact_sheet, paint_frame
    from slotbench.tasks.slot_pictures import match_slots, paint_objects, paint_slots_over

    first = next(iter(runs.values()))[0]
    data = first.data(val_batch_size=8)
    batch = data.on_after_batch_transfer(next(iter(data.val_dataloader())), 0)
    rows, names = [], []
    for clip in (1, 4):
        frames, true, size = batch.frames[clip], batch.masks[clip], (96, 96)
        rows.append([paint_frame(frame) for frame in frames])
        names.append("frame")
        for core, found in runs.items():
            task = found[0].load()
            with torch.no_grad():
                masks = task.evaluate(batch.map(lambda value: value[clip : clip + 1])).masks[0]  # noqa: B023
            labels = masks_to_labels(masks)
            if len(names) % (len(runs) + 2) == 1:
                partners = match_slots(labels, true, masks.shape[1])
                rows.append([paint_objects(mask, partners, size) for mask in true])
                names.append("truth")
            rows.append([paint_slots_over(frame, label, size) for frame, label in zip(frames, labels, strict=True)])
            names.append(core)
    Image.fromarray(contact_sheet(rows, [f"t = {t}" for t in range(len(rows[0]))], names)).save(path)


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
    last = last_colour_floor(next(iter(runs.values()))[0].data(num_frames=longest + 1), longest)
    axes[0].plot(steps, last, color="#888888", linestyle=":", label="last colour seen")
    axes[0].legend(fontsize=7, frameon=False)
    figure.savefig(path)
    (path.with_suffix(".json")).write_text(
        json.dumps({"colour_accuracy": curves, "ball_iou": ious, "last colour seen": last})
    )


def last_colour_floor(data, longest: int) -> list[float]:
    right, counted = [0] * longest, [0] * longest
    for batch in data.val_dataloader():
        for step in range(longest):
            answer, last = batch.objects["earliest"][:, step], batch.objects["last"][:, step]
            coloured = answer > 1
            right[step] += int(((answer == last) & coloured).sum())
            counted[step] += int(coloured.sum())
    return [r / max(c, 1) for r, c in zip(right, counted, strict=True)]


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = top.add_subparsers(required=True)
    training = commands.add_parser("run")
    training.add_argument("experiment")
    training.add_argument("--cores", nargs="+")
    training.add_argument("--seeds", type=int, default=3)
    training.add_argument("--first-seed", type=int, default=0)
    training.add_argument("--jobs", type=int, default=1)
    training.add_argument("--runs", type=Path, default=Path("runs"))
    training.add_argument("--plugin", action="append", default=[], help="a Python file that registers cores")
    training.add_argument("--settings", nargs=argparse.REMAINDER, default=[], help="more settings of fit, to the end")
    training.set_defaults(function=run)
    writing = commands.add_parser("report")
    writing.add_argument("experiment")
    writing.add_argument("--cores", nargs="+")
    writing.add_argument("--runs", type=Path, default=Path("runs"))
    writing.add_argument("--plugin", action="append", default=[], help="a Python file that registers cores")
    writing.add_argument("--out", type=Path, default=Path("."))
    writing.add_argument("--longest-context", type=int, default=8, help="frames, LongContextReasoning only")
    writing.set_defaults(function=report)
    return top


if __name__ == "__main__":
    given = parser().parse_args()
    sys.exit(given.function(given))
