"""Follows slots through clips far longer than those of the training, beside trackers that learn nothing.

    python docs/scripts/slot_identity.py run RUN... --out FOLDER
    python docs/scripts/slot_identity.py trackers --out FOLDER
    python -m zipfile -c experiments/grids/records/movi_like_identity.zip FOLDER/*.json
    python docs/scripts/slot_identity.py table [--camera fixed]

`run` streams 50 test videos of MOViLike of 96 frames through the last checkpoint of each run, or the model in a folder,
and writes a file with the scores of the decoder's masks on their first 6, 12, 24, 48 and 96 frames: once with a camera
that stands still, as in the training, and once with one that circles the scene in 96 frames (`data.orbit`), so that
objects pass behind each other to the end. What is there is not done again. `trackers` does the same for trackers that
learn nothing, and measures how often objects are hidden. `table` prints the scores of 96 frames as Markdown.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from slotbench.errors import UserError

ROOT = Path(__file__).parents[2]
RECORDS = ROOT / "experiments" / "grids" / "records" / "movi_like_identity.zip"
EXPERIMENT = ROOT / "experiments" / "movi_like.yaml"
LENGTHS = (6, 12, 24, 48, 96)
CAMERAS = {"circling": 360 / LENGTHS[-1], "fixed": 0.0}
"""Degrees per frame."""
CLIPS, SLOTS = 50, 9
SCORES = ("fg_ari/video", "fg_ari/frame", "miou/video", "mota", "hota", "deta", "assa", "misses", "false_positives")
SCORES += ("switches_per_100_frames", "switches_per_object", "half_life", "found_again")
TRUE, LINKED = "true masks", "true masks, linked"
WEIGHT = 0.25
"""Of a pixel's place beside its colour in k-means: of 0, 0.25, 0.5, 0.75, 1 and 1.5 the one with the highest HOTA after
96 frames on 12 validation videos, for the clusters of a clip, of a frame, and from frame to frame alike."""
NAMES = {"OCSlotSSM": "OC-SlotSSM"}

Record = dict[str, Any]


def changes(orbit: float) -> dict[str, Any]:
    """The settings of the data of a study's test."""
    return {"video_frames": LENGTHS[-1], "eval_frames": LENGTHS[-1], "test_videos": CLIPS, "orbit": orbit}


def run(args: argparse.Namespace) -> int:
    """Writes a file per run and camera."""
    import torch

    from slotbench.evaluation.batches import batches_of
    from slotbench.evaluation.lengths import measure

    torch.set_num_threads(args.threads)
    for path in args.runs:
        for camera, orbit in CAMERAS.items():
            out = args.out / f"{path.resolve().name}-{camera}.json"
            if is_there(out):
                continue
            task, about = opened(path)
            training = about["training_frames"]
            if any(length % training for length in LENGTHS):
                raise UserError(f"{path} was trained on clips of {training} frames; expected 1, 2, 3 or 6")
            batches = batches_of(data_of(orbit), "test", torch.device("cpu"))
            found = measure(task, batches, training, [length // training for length in LENGTHS], CLIPS)
            lengths = {one.frames: scores_of(one.masks["decoder"].scores) for one in found}
            write(out, about | {"camera": camera, "clips": found[-1].clips, "lengths": lengths})
    return 0


def opened(path: Path) -> tuple[Any, Record]:
    """The task of a run, or of a model that a run was saved as, and what the record says of it."""
    import yaml

    import slotbench
    from slotbench.config.run_loading import load_run

    config = yaml.safe_load((path / "config.yaml").read_text(encoding="utf-8"))
    if (path / "model.safetensors").is_file():
        task = slotbench.from_pretrained(path)
        step = json.loads((path / "record.json").read_text(encoding="utf-8"))["run"]["total_steps"]
    else:
        loaded = load_run(path)
        task, step = loaded.task, loaded.step
    about = {"name": type(task.core).__name__, "first_slots": getattr(task.core, "slot_init", None)}
    about |= {"run": path.resolve().name, "seed": config["seed_everything"], "step": step}
    return task, about | {"training_frames": config["data"]["init_args"]["num_frames"]}


def trackers(args: argparse.Namespace) -> int:
    """Writes a file per tracker and camera, and one per camera of how often objects are hidden."""
    import torch

    from slotbench.metrics.contingency import frame_tables
    from slotbench.metrics.mask_evaluation import MaskEvaluation

    torch.set_num_threads(args.threads)
    for camera, orbit in CAMERAS.items():
        data = data_of(orbit)
        if not is_there(out := args.out / f"hidden-{camera}.json"):
            write(out, {"camera": camera, "clips": CLIPS, "hidden": hidden(data)})
        for name, (causal, follow) in makers().items():
            if is_there(out := args.out / f"tracker-{name.replace(' ', '_').replace(',', '')}-{camera}.json"):
                continue
            evaluations = {length: MaskEvaluation() for length in LENGTHS}
            for batch in data.test_dataloader():
                batch = data.on_after_batch_transfer(batch, 0)
                true = batch.masks.long()
                whole = follow(batch.frames, true) if causal else None
                for length, one in evaluations.items():
                    seen = true[:, :length]
                    labels = follow(batch.frames[:, :length], seen) if whole is None else whole[:, :length]
                    tables = frame_tables(labels, seen)[:, :, 0]
                    one.add(tables, (true.shape[-2], true.shape[-1]), tables.shape[-1])
            lengths = {length: scores_of(one.scores) for length, one in evaluations.items()}
            write(out, {"name": name, "camera": camera, "clips": CLIPS, "lengths": lengths})
    return 0


def makers() -> dict[str, tuple[bool, Callable[[Any, Any], Any]]]:
    """The trackers by name: whether a frame's labels depend on none after it, and labels of frames and true masks."""
    from slotbench.metrics.colour_tracker import colour_tracker_labels
    from slotbench.metrics.linked_segments import linked_labels
    from slotbench.metrics.segmentation_baselines import grid_labels, kmeans_labels, kmeans_stream_labels

    def each_frame(frames: Any) -> Any:
        alone = kmeans_labels(frames.flatten(0, 1)[:, None], SLOTS, WEIGHT)
        return linked_labels(alone.unflatten(0, frames.shape[:2])[:, :, 0])

    return {
        "blind grid": (True, lambda frames, true: grid_labels(frames, 3, 3)),
        "k-means of the clip": (False, lambda frames, true: kmeans_labels(frames, SLOTS, WEIGHT)),
        "k-means of a frame, linked": (True, lambda frames, true: each_frame(frames)),
        "k-means from frame to frame": (True, lambda frames, true: kmeans_stream_labels(frames, SLOTS, WEIGHT)),
        "patches of one colour": (False, lambda frames, true: colour_tracker_labels(frames, SLOTS)),
        LINKED: (True, lambda frames, true: linked_labels(true)),
        TRUE: (True, lambda frames, true: true),
    }


def data_of(orbit: float) -> Any:
    """The test videos of a camera."""
    import yaml

    from slotbench.data.base import LoaderOptions
    from slotbench.registry import load

    arguments = yaml.safe_load(EXPERIMENT.read_text(encoding="utf-8"))["data"]["init_args"]
    arguments |= {"loader": LoaderOptions(**arguments["loader"]), **changes(orbit)}
    data = load("datasets", "MOViLike")(**arguments)
    data.setup("test")
    return data


def scores_of(clips: Sequence[Any]) -> dict[str, float | None]:
    """The means of `SCORES`; a half-life that is longer than clips show is null."""
    import math

    from slotbench.metrics.clip_summary import summaries
    from slotbench.metrics.tracking import Tracking

    found: dict[str, float | None] = {name: one.mean for name, one in summaries(clips).items() if name in SCORES}
    total = sum((clip.tracking for clip in clips), Tracking())
    of_video, of_frames = found.get("fg_ari/video"), found.get("fg_ari/frame")
    found["identity"] = of_video / of_frames if of_video is not None and of_frames else None
    found |= {"occlusions": total.occlusions, "tracked": total.tracked}
    return {name: None if value is None or math.isinf(value) else round(value, 6) for name, value in found.items()}


def hidden(data: Any) -> dict[int, dict[str, float]]:
    """How much is to be seen of objects, by the number of frames: shares of all objects in all frames.

    "out": no more than 5 pixels would be in the image without the other objects. "hidden", "half", "part": of the rest,
    no more than 5 pixels are seen, less than half of the pixels, less than 9 in 10.
    """
    import numpy as np

    from slotbench.data.movi_like.physics import simulate
    from slotbench.data.movi_like.ray_caster import render

    videos = data.simulated("test")
    alone, seen = [], []
    for number in range(CLIPS):
        scene = videos.scene(number)
        stage = videos.stage(scene, simulate(scene, videos.num_frames))
        masks = render(stage, videos.resolution, 1).masks
        for one in range(len(stage.shapes)):
            only = replace(
                stage,
                shapes=stage.shapes[[one]],
                halves=stage.halves[[one]],
                positions=stage.positions[:, [one]],
                rotations=stage.rotations[:, [one]],
                colors=stage.colors[[0, one + 1]],
                textures=stage.textures[[0, one + 1]],
                gloss=stage.gloss[[0, one + 1]],
            )
            alone.append((render(only, videos.resolution, 1).masks > 0).sum((1, 2)))
            seen.append((masks == one + 1).sum((1, 2)))
    shares = {}
    for length in LENGTHS:
        whole, visible = np.array(alone)[:, :length], np.array(seen)[:, :length]
        inside = whole > 5
        levels = {"hidden": visible <= 5, "half": visible < 0.5 * whole, "part": visible < 0.9 * whole}
        found = {"out": float((~inside).mean())} | {name: float(at[inside].mean()) for name, at in levels.items()}
        shares[length] = {name: round(value, 4) for name, value in found.items()} | {"objects": len(seen)}
    return shares


def is_there(path: Path) -> bool:
    """Whether a record has been written before, which is said."""
    there = path.is_file()
    if there:
        print(f"{path}: done before", flush=True)
    return there


def write(path: Path, record: Record) -> None:
    """Writes a record, and says so."""
    from slotbench.files import dump_json, write_atomically

    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, dump_json(record, indent=1))
    print(f"wrote {path}", flush=True)


def read_records(source: Path) -> Iterator[Record]:
    """Those of a folder, or of an archive."""
    if source.is_dir():
        for path in sorted(source.glob("*.json")):
            yield json.loads(path.read_text(encoding="utf-8"))
        return
    with zipfile.ZipFile(source) as files:
        for name in sorted(files.namelist()):
            yield json.loads(files.read(name))


def by_name(records: Sequence[Record], camera: str) -> dict[str, list[Record]]:
    """The runs of each core, and the one record of each tracker, with this camera; the cores first."""
    found: dict[str, list[Record]] = {}
    for record in sorted(records, key=lambda one: "run" not in one):
        if record["camera"] == camera and "lengths" in record:
            found.setdefault(NAMES.get(record["name"], record["name"]), []).append(record)
    return found


def values(records: Sequence[Record], length: int, score: str) -> list[float]:
    """A score of each run, without those that have none; "matched" is the share of objects that have a slot."""
    found = [record["lengths"][str(length)] for record in records]
    if score == "matched":
        return [1 - scores["misses"] for scores in found]
    return [scores[score] for scores in found if scores.get(score) is not None]


def table(args: argparse.Namespace) -> int:
    """Prints cores and trackers at one length."""
    length = args.frames
    print("| | HOTA | FG-ARI, video / frame | objects with a slot | switches per object | half-life, frames |")
    print("|---|---:|---:|---:|---:|---:|")
    for name, records in by_name(list(read_records(args.records)), args.camera).items():
        if name == TRUE:
            continue
        cells = [spread(values(records, length, score), digits) for score, digits in COLUMNS.items()]
        lives = values(records, length, "half_life")
        # the median, a run that has none being longer than all
        lives = sorted(lives) + [float("inf")] * (len(records) - len(lives))
        middle = statistics.median_low(lives)
        cells.append(f"> {length - 1}" if middle == float("inf") else f"{middle:.0f}")
        label = f"{name}, n = {len(records)}" if "run" in records[0] else f"*{name}*"
        print(f"| {label} | {' | '.join(cells)} |")
    return 0


COLUMNS = {"hota": 3, "identity": 2, "matched": 2, "switches_per_object": 2}


def spread(found: Sequence[float], digits: int) -> str:
    """Mean and standard deviation."""
    if not found:
        return ""
    deviation = f" ± {statistics.stdev(found):.{digits}f}" if len(found) > 1 else ""
    return f"{statistics.mean(found):.{digits}f}{deviation}"


def parser() -> argparse.ArgumentParser:
    """The arguments of all three."""
    top = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    commands = top.add_subparsers(required=True)
    running = commands.add_parser("run", allow_abbrev=False)
    running.add_argument("runs", nargs="+", type=Path, metavar="RUN")
    following = commands.add_parser("trackers", allow_abbrev=False)
    for one, function in ((running, run), (following, trackers)):
        one.add_argument("--out", type=Path, required=True)
        one.add_argument("--threads", type=int, default=1)
        one.set_defaults(function=function)
    printing = commands.add_parser("table", allow_abbrev=False)
    printing.add_argument("--records", type=Path, default=RECORDS, help="a folder, or an archive of one")
    printing.add_argument("--camera", choices=[*CAMERAS], default="circling")
    printing.add_argument("--frames", type=int, choices=LENGTHS, default=LENGTHS[-1])
    printing.set_defaults(function=table)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one of the three; the exit code, 2 for what cannot be done."""
    args = parser().parse_args(arguments)
    try:
        return args.function(args)
    except UserError as error:
        print(f"slot_identity: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
