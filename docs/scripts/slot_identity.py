"""Follows slots through clips far longer than those of the training, beside trackers that learn nothing.

    slotbench grid run experiments/grids/studies/movi_like_identity.yaml
    python docs/scripts/slot_identity.py RUN... --out experiments/grids/records/movi_like_identity.csv

Streams 50 test videos of MOViLike of 96 frames through the last checkpoint of each run, with a camera that circles the
scene in 96 frames and with one that stands still, and scores the decoder's masks on the first 6 to 96 frames: each slot
by its number, and "linked", each slot of a frame named after that of the frame before which it overlaps most. PSB reads
as many frames as in training, and with `window` empty all so far. A row per run, way, camera and length is added to the
table; what it has is not done again. `--trackers` does the same for those that learn nothing, and `--draw CLIP` draws
one of the clips in place of all that, as PNG.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
import yaml
from torch import Tensor

from slotbench.callbacks.media import write_image
from slotbench.config.run_loading import load_run
from slotbench.data.base import collate
from slotbench.evaluation.batches import batches_of, for_each_batch
from slotbench.figures.painting import evenly_spaced, paint_frame, paint_objects, paint_slots_over, resize
from slotbench.figures.sheets import Row, contact_sheet
from slotbench.interfaces import VideoBatch, WindowedCore
from slotbench.metrics.clip_scores import score_clips, summaries
from slotbench.metrics.colour_tracker import colour_tracker_labels
from slotbench.metrics.contingency import frame_tables, masks_to_labels
from slotbench.metrics.linked_segments import linked_labels
from slotbench.metrics.mask_rules import Rules
from slotbench.metrics.segmentation_baselines import grid_labels, kmeans_labels, kmeans_stream_labels
from slotbench.metrics.tracking import Tracking

LENGTHS, CAMERAS, CLIPS, SLOTS, PIECE = (6, 12, 24, 48, 96), {"circling": 3.75, "fixed": 0.0}, 50, 9, 16
SCORES = ("fg_ari/video", "miou/video", "fg_ari/frame", "mota", "hota", "deta", "assa", "misses", "false_positives")
SCORES += ("switches_per_100_frames", "switches_per_object", "half_life", "found_again")
WEIGHT = 0.25
"""Of a pixel's place beside its colour in k-means: of 0, 0.25, 0.5, 0.75, 1 and 1.5 the one with the highest HOTA after
96 frames on 12 validation videos, for the clusters of a clip, of a frame, and from frame to frame alike."""

Labels = Callable[[VideoBatch], Tensor]


def each_frame(batch: VideoBatch) -> Tensor:
    """k-means of each frame by itself, linked."""
    alone = kmeans_labels(batch.pixels.flatten(0, 1)[:, None], SLOTS, WEIGHT)
    return linked_labels(alone.unflatten(0, batch.pixels.shape[:2])[:, :, 0])


TRACKERS: dict[str, tuple[bool, Labels]] = {
    "blind grid": (True, lambda batch: grid_labels(batch.pixels, 3, 3)),
    "k-means of the clip": (False, lambda batch: kmeans_labels(batch.pixels, SLOTS, WEIGHT)),
    "k-means of a frame, linked": (True, each_frame),
    "k-means from frame to frame": (True, lambda batch: kmeans_stream_labels(batch.pixels, SLOTS, WEIGHT)),
    "patches of one colour": (False, lambda batch: colour_tracker_labels(batch.pixels, SLOTS)),
    "true masks, linked": (True, lambda batch: linked_labels(batch.require("masks").long())),
}
"""By name, whether a frame's labels depend on none after it, and the labels."""


def slots_of(task: Any) -> Labels:
    """The winning slots of a stream."""

    def labels(batch: VideoBatch) -> Tensor:
        state, found = None, []
        for start in range(0, batch.num_steps, PIECE):
            out, state = task.stream(batch.slice_time(start, min(start + PIECE, batch.num_steps)), state)
            found.append(masks_to_labels(out.masks, batch.pixels.shape[-2:]))
        return torch.cat(found, 1)

    return labels


def loaded(run: Path, orbit: float) -> Any:
    """Task and data of a run, the data being the long videos of a camera."""
    changes = {"data.video_frames": LENGTHS[-1], "data.eval_frames": LENGTHS[-1], "data.test_videos": CLIPS}
    return load_run(run, changes=changes | {"data.orbit": orbit, "data.loader.val_batch_size": 10})


def scored(task: Any, data: Any, ways: dict[str, tuple[bool, Labels]]) -> Iterator[dict[str, Any]]:
    """A row per way and length."""
    tables: dict[tuple[str, int], list[Tensor]] = {}

    def step(batch: VideoBatch) -> None:
        true = batch.require("masks").long()
        for name, (causal, follow) in ways.items():
            whole = follow(batch) if causal else None
            for length in LENGTHS:
                labels = follow(batch.slice_time(0, length)) if whole is None else whole[:, :length]
                # both numbered from 0 on, so that clips of all batches have tables of one size
                table = frame_tables(labels.unique(return_inverse=True)[1], true[:, :length])[:, :, 0]
                tables.setdefault((name, length), []).extend(table)

    data.setup("test")
    for_each_batch(task, batches_of(data, "test", torch.device("cpu")), CLIPS, step)
    for (name, length), of_clips in tables.items():
        clips = [score_clips(one[None], np.arange(one.shape[-2]), Rules())[0] for one in of_clips]
        found = {key: one.mean for key, one in summaries(clips).items() if key in SCORES}
        total = sum((clip.tracking for clip in clips), Tracking())
        found |= {"identity": found["fg_ari/video"] / found["fg_ari/frame"] if found["fg_ari/frame"] else math.nan}
        found |= {"occlusions": total.occlusions, "tracked": total.tracked}
        kept = {key: math.nan if math.isinf(value) else round(value, 6) for key, value in found.items()}
        yield {"way": name, "clips": len(of_clips), "frames": length} | kept


def config_of(run: Path) -> dict[str, Any]:
    """The settings of a run."""
    return yaml.safe_load((run / "config.yaml").read_text(encoding="utf-8"))


def of_run(run: Path, camera: str) -> Iterator[dict[str, Any]]:
    """Rows of a run: its slots by their numbers and linked, of PSB with a window and without."""
    opened = loaded(run, CAMERAS[camera])
    task, config = opened.task, config_of(run)
    given = config["data"]["init_args"]
    about = {"name": type(task.core).__name__, "run": run.resolve().name, "seed": config["seed_everything"]}
    about |= {"training_frames": given["num_frames"], "training_orbit": given["orbit"], "camera": camera}
    for window in (given["num_frames"], None) if isinstance(task.core, WindowedCore) else (None,):
        task.eval_window = window
        follow = slots_of(task)
        ways = {"slots": (True, follow), "linked": (True, lambda batch, own=follow: linked_labels(own(batch)))}
        yield from (about | {"window": window} | row for row in scored(task, opened.data, ways))


def of_trackers(run: Path, camera: str) -> Iterator[dict[str, Any]]:
    """Rows of what learns nothing, on the same videos."""
    opened = loaded(run, CAMERAS[camera])
    for row in scored(opened.task, opened.data, TRACKERS):
        yield row | {"name": row["way"], "way": "slots", "camera": camera}


def drawn(runs: Sequence[Path], clip: int) -> np.ndarray:
    """Eight frames of a clip, the true objects, the slots of each run, by number and linked, and k-means, with HOTA."""
    rows: list[Row] = []

    def add(name: str, labels: Tensor, batch: VideoBatch) -> None:
        tables = frame_tables(labels.unique(return_inverse=True)[1], batch.require("masks").long())[:, :, 0]
        (scores,) = score_clips(tables, np.arange(tables.shape[-2]), Rules())
        images = [paint_slots_over(batch.pixels[0, t], labels[0, t], (96, 96)) for t in shown]
        rows.append(Row(f"{name}\nHOTA {scores.values['hota'][0]:.2f}", images))

    for run in runs:
        opened = loaded(run, CAMERAS["circling"])
        opened.data.setup("test")
        batch = opened.data.on_after_batch_transfer(collate([opened.data.dataset("test")[clip]]), 0)
        shown = evenly_spaced(0, batch.num_steps - 1)
        if not rows:
            rows.append(Row("frame", [resize(paint_frame(batch.pixels[0, t]), (96, 96)) for t in shown]))
            true = batch.require("masks")[0]
            partners = {int(number): int(number) for number in true.unique() if number}
            rows.append(Row("truth", [paint_objects(true[t], partners, (96, 96)) for t in shown]))
        task = opened.task
        if isinstance(task.core, WindowedCore):
            task.eval_window = config_of(run)["data"]["init_args"]["num_frames"]
        with torch.no_grad(), task.deterministic_sampling(batch, 0):
            labels = slots_of(task)(batch)
        name = type(task.core).__name__
        add(name, labels, batch)
        add(f"{name}, linked", linked_labels(labels), batch)
    add("k-means,\nframe to frame", TRACKERS["k-means from frame to frame"][1](batch), batch)
    return contact_sheet(rows, [f"t = {t}" for t in shown])


def main() -> None:
    """Adds rows to the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--trackers", action="store_true", help="what learns nothing, on the videos of the first run")
    parser.add_argument("--draw", type=int, metavar="CLIP")
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.draw is not None:
        write_image(given.out.with_suffix(""), drawn(given.runs, given.draw))
        return
    rows = pd.read_csv(given.out) if given.out.is_file() else pd.DataFrame(columns=["run", "camera"])
    for run in given.runs[:1] if given.trackers else given.runs:
        for camera in CAMERAS:
            if not given.trackers and ((rows["run"] == run.resolve().name) & (rows["camera"] == camera)).any():
                continue
            found = pd.DataFrame((of_trackers if given.trackers else of_run)(run, camera))
            rows = pd.concat([rows, found], ignore_index=True) if len(rows) else found
            rows.to_csv(given.out, index=False)
            print(found[["name", "way", "frames", "hota", "identity"]].to_string())


if __name__ == "__main__":
    main()
