"""`slotbench demo`: the trained models that come with slotbench, drawn on clips that they have never seen."""

from __future__ import annotations

import argparse
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING

from slotbench.commands.arguments import Parser
from slotbench.errors import DataFilesError, UserError, did_you_mean, lines, listing
from slotbench.models.shipped import SUMMARIES, shipped

if TYPE_CHECKING:
    import numpy as np

    from slotbench.interfaces import VideoBatch
    from slotbench.tasks.task import Task

__all__ = ["CLIPS", "SEED", "USAGE", "main"]

USAGE = """Usage: slotbench demo [--out FOLDER] [--models NAME,NAME] [--seed N]

Draws the trained models that come with slotbench on simulated clips that they have never seen: pictures of each model,
one GIF of all, and the scores of their cards beside baselines. Nothing is trained, downloaded or opened.

  --out FOLDER        where the pictures go (default: demo); those of an earlier demo are replaced
  --models NAME,NAME  some of the models (default: all): {models}
  --seed N            of the clips (default: 3)

Models whose simulator is not installed are drawn on clips that come with them:
  pip install 'slotbench[sim3d,mnist]'"""
USAGE = USAGE.format(models=", ".join(shipped()))

SEED, CLIPS, _HORIZON = 3, 2, 10
_MARK, _MARKED = "demo.txt", "Pictures by slotbench demo, which writes over them when it is run again.\n"
_SCORES = ("ball_iou", "colour_accuracy", "fg_ari/video/decoder", "miou/video/decoder", "rollout_frames_ahead")


def main(command: str, arguments: list[str]) -> int:
    """Draws the models, one after the other."""
    given = _parser().parse_args(arguments)
    known = shipped()
    names = known if given.models is None else [name.strip() for name in given.models.split(",") if name.strip()]
    for name in names:
        if name not in known:
            raise UserError(lines(f"no model named {name}{did_you_mean(name, known)}", models=listing(known)))
    if not names:
        raise UserError(lines(f"--models {given.models} names no model", models=listing(known)))
    if given.seed < 0:
        raise UserError(f"--seed is {given.seed}; expected 0 or more")
    _check_place(given.out)
    began = time.monotonic()
    print(f"{len(names)} trained models on clips that they have never seen")
    # everything above answers before torch is imported
    from slotbench.callbacks.media import encode_gif, write_image
    from slotbench.figures.collage import collage
    from slotbench.files import make_folder, write_atomically

    make_folder(given.out)
    write_atomically(given.out / _MARK, _MARKED)
    moving: dict[str, np.ndarray] = {}
    for name in names:
        print(f"\n{name}: {SUMMARIES.get(name, '')}")
        _print_scores(known[name])
        task, clips = _model(known[name], given.seed)
        pictures, moving[name] = _drawn(task, clips)
        for number, picture in enumerate(pictures, 1):
            print(f"  {write_image(given.out / (f'{name}_{number}' if len(pictures) > 1 else name), picture)}")
    gif = given.out / "demo.gif"
    write_atomically(gif, encode_gif(collage(moving), frames_per_second=8.0))
    print(f"\n{gif}: all of them, moving ({time.monotonic() - began:.0f} s)")
    first = next(iter(moving))
    print(f'\nto use one: slotbench.from_pretrained("{first}"); its card: {known[first] / "README.md"}')
    print("to train one: slotbench fit --config experiments/blinking_balls.yaml")
    return 0


def _check_place(out: Path) -> None:
    """Refuses a file, and a folder with files that are not those of an earlier demo."""
    if out.exists() and (not out.is_dir() or (any(out.iterdir()) and not (out / _MARK).is_file())):
        what = "holds other files" if out.is_dir() else "is a file"
        raise UserError(lines(f"--out {out} {what}", expected="a new folder, or that of an earlier demo"))


def _parser() -> argparse.ArgumentParser:
    parser = Parser("slotbench demo")
    parser.add_argument("--out", type=Path, default=Path("demo"))
    parser.add_argument("--models")
    parser.add_argument("--seed", type=int, default=SEED)
    return parser


def _model(folder: Path, seed: int) -> tuple[Task, VideoBatch]:
    """A model, and clips for it: simulated ones if that is possible."""
    import torch

    from slotbench.models.clips import new_clips, stored_clips
    from slotbench.models.finding import from_pretrained
    from slotbench.ops import set_kernel
    from slotbench.tasks.codes.code_autoencoding import CodeAutoencoding
    from slotbench.tasks.rollouts.rollout_task import RolloutTask

    task = from_pretrained(folder)
    torch.manual_seed(seed)
    # compiling those of numba takes longer than all of this
    set_kernel(task, "torch")
    if isinstance(task, RolloutTask):
        task.horizon = min(task.horizon, _HORIZON)
    if isinstance(task, CodeAutoencoding):
        task.temperature = 0.4  # at 0 nearly all codes are those of the background
    try:
        return task, new_clips(folder, CLIPS, seed)
    except DataFilesError as error:
        print(f"  on stored clips: {re.sub('; .*', '', str(error))}")
        return task, stored_clips(folder)


def _drawn(task: Task, clips: VideoBatch) -> tuple[list[np.ndarray], np.ndarray]:
    """Pictures of the clips; and the first one as a video, or as a picture where the task makes no videos."""
    from slotbench.callbacks.media import made_by

    pictures = list(made_by(task, "pictures", clips).values())
    first = clips.map(lambda value: value[:1])
    moving = made_by(task, "videos", first) or made_by(task, "pictures", first)
    return pictures, next(iter(moving.values()))


def _print_scores(folder: Path) -> None:
    """Scores of the model's card, each beside the best baseline."""
    from slotbench.files import own_file, read_json_object
    from slotbench.metric_info import score_text

    evaluation = read_json_object(own_file(folder, "record.json"))["evaluation"]
    for headline in evaluation["headlines"]:
        name, baselines = headline["metric"], headline["baselines"]
        if not name.endswith(_SCORES):
            continue
        best = (max if headline["higher_is_better"] else min)(baselines, key=baselines.__getitem__, default=None)
        beside = f" ({best}: {score_text(baselines[best])})" if best is not None else ""
        print(f"  {headline['label']} {score_text(evaluation['metrics'][name])}{beside}, {evaluation['split']} split")
