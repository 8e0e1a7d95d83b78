"""`slotbench demo`: the trained models that come along, on clips that they have never seen, as pictures and a GIF."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from slotbench.commands.arguments import Parser, expect
from slotbench.errors import DataFilesError
from slotbench.io import read_json_object
from slotbench.models.shipped import SUMMARIES, shipped

if TYPE_CHECKING:
    from slotbench.interfaces import VideoBatch

__all__ = ["CLIPS", "SEED", "main"]

CLIPS, SEED, FRAMES = 4, 7, 60
"""Clips that are drawn, the seed of their simulation, and of a clip of a roll-out so many frames at most."""
_SCORES = (
    *("colour_accuracy", "miou/video/decoder", "/ari/video/decoder", "fg_ari/video/decoder"),
    *("rollout_mse/first_8", "rollout_mse/first_20", "rollout_frames_ahead"),
)


def main(command: str, arguments: list[str]) -> int:
    """Draws the models."""
    known = shipped()
    parser = Parser("slotbench demo", "Draws the trained models that come along.")
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"default: all of {', '.join(known)}")
    parser.add_argument("--out", type=Path, default=Path("demo"), help="folder of the pictures (default: demo)")
    parser.add_argument("--seed", type=int, default=SEED, help=f"of the clips (default: {SEED})")
    given = parser.parse_args(arguments)
    expect("model", given.models, known)
    from slotbench.callbacks.media import made_by, write_gif, write_image
    from slotbench.figures.sheets import stacked_strips

    strips = {}
    for name in given.models or known:
        print(f"\n{name}: {SUMMARIES.get(name, '')}")
        merits = _merits(known[name])
        print(*(f"  {merit}" for merit in merits), sep="\n")
        task, clips = _model(known[name], given.seed)
        for title, picture in made_by(task, "pictures", clips).items():
            print(f"  {write_image(given.out / f'{name}_{title}', picture)}")
        (video,) = made_by(task, "videos", clips.map(lambda value: value[2:3])).values()
        strips[f"{name}: {merits[0]}"] = video
    print(f"\n{write_gif(given.out / 'demo.gif', stacked_strips(strips))}: a clip of each, the best baseline beside it")
    name = next(iter(given.models or known))
    print(f'\nto use one: slotbench.from_pretrained("{name}"); its card: {known[name] / "README.md"}')
    print("to train one: slotbench fit --config experiments/blinking_balls.yaml")
    return 0


def _model(folder: Path, seed: int) -> tuple[Any, VideoBatch]:
    """A model, and clips for it: simulated ones if that is possible."""
    import torch

    from slotbench.models.clips import new_clips, stored_clips
    from slotbench.models.finding import from_pretrained
    from slotbench.ops import set_kernel

    task: Any = from_pretrained(folder)
    torch.manual_seed(seed)
    # compiling those of numba takes longer than all of this
    set_kernel(task, "torch")
    if hasattr(task, "horizon"):
        task.horizon = min(task.horizon, FRAMES - task.context)
    try:
        return task, new_clips(folder, CLIPS, seed)
    except DataFilesError as error:
        print(f"  on stored clips: {error}")
        return task, stored_clips(folder)


def _merits(folder: Path) -> list[str]:
    """Scores of the model's card, each beside the best baseline; the first is its figure of merit."""
    from slotbench.metric_info import score_text

    evaluation, found = read_json_object(folder / "record.json")["evaluation"], []
    for headline in (one for score in _SCORES for one in evaluation["headlines"] if one["metric"].endswith(score)):
        baselines = headline["baselines"]
        best = (max if headline["higher_is_better"] else min)(baselines, key=baselines.__getitem__)
        value = score_text(evaluation["metrics"][headline["metric"]])
        found.append(f"{headline['label']} {value} ({best}: {score_text(baselines[best])})")
    return found
