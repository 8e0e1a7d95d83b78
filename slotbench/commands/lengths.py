"""`slotbench test RUN --lengths 1,4,16`: a run on clips longer than those of its training."""

from __future__ import annotations

import argparse
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from slotbench.commands.arguments import Parser, open_device, split_and_load, write_record
from slotbench.errors import UserError
from slotbench.runs.checkpoint_choice import DEFAULT

if TYPE_CHECKING:
    from slotbench.config.run_loading import LoadedRun

__all__ = ["main"]

Split = Literal["val", "test"]


def main(command: str, arguments: list[str]) -> int:
    """Tests the run that is named first, on the split of the command: "test" or "validate"."""
    options, rest = split_and_load(arguments)
    given, settings = _parser().parse_known_args(rest)
    from slotbench.config.run_loading import load_with_settings

    device = open_device(given.device, options.threads)
    checkpoint = options.checkpoint or DEFAULT
    loaded = load_with_settings(given.run, checkpoint, settings, options, command)
    split: Split = "test" if command == "test" else "val"
    training, multiples = _lengths(loaded, given.lengths, split)
    overrides = loaded.data.overrides_for_length(split, training * multiples[-1], given.clips)
    words = [f"--data.{name}={value}" for name, value in overrides.items()]
    loaded = load_with_settings(given.run, checkpoint, [*settings, *words], options, command)
    return _measure(loaded, training, multiples, split, given.clips, device)


def _parser() -> argparse.ArgumentParser:
    description = (
        "Streams clips of so many times the training's length through a run, with the core's state handed on, and "
        "prints at each length the scores of masks, the error of predicted frames or the answers of a task that "
        "answers as it reads, the numbers in the state, and the time of a step. Writes RUN/lengths-DATE.json."
    )
    parser = Parser("slotbench test", description)
    parser.add_argument("run", metavar="RUN")
    parser.add_argument("--lengths", required=True, type=_multiples, help="multiples of the training's frames: 1,4,16")
    parser.add_argument("--clips", type=int, default=50, help="how many at most (default: 50)")
    parser.add_argument("--device", choices=["cpu", "cuda"], help="where to compute (default: cuda where there is one)")
    return parser


def _multiples(text: str) -> list[int]:
    found = sorted({int(word) for word in text.strip("[]").split(",")})
    if found[0] < 1:
        raise ValueError(text)
    return found


_multiples.__name__ = "list of multiples"


def _lengths(loaded: LoadedRun, multiples: list[int], split: Split) -> tuple[int, list[int]]:
    """The training's frames, and the multiples of them that the data has and that leave a frame to predict."""
    data, name = loaded.data, type(loaded.data).__name__
    training = getattr(data, "num_frames", None)
    most = data.max_eval_frames(split) if isinstance(training, int) else 0
    if not isinstance(training, int) or most == 0:
        raise UserError(f"{name} has no longer clips than those of the training, or does not say how to make them")
    context = getattr(loaded.task, "context", 0)
    left = [one for one in multiples if (most is None or one * training <= most) and one * training > context]
    if left != multiples:
        out = ", ".join(f"{one} T" for one in multiples if one not in left)
        print(f"left out: {out}; T is {training} frames, clips have {most}, and a prediction begins after {context}")
    if not left:
        raise UserError(f"none of the lengths can be measured: T is {training} frames; give other --lengths")
    return training, left


def _measure(loaded: LoadedRun, training: int, multiples: list[int], split: Split, clips: int, device: Any) -> int:
    from slotbench.evaluation.batches import batches_of
    from slotbench.evaluation.lengths import measure, metrics_of
    from slotbench.evaluation.tables import print_lengths
    from slotbench.interfaces import Predictor, Reasoner

    task, data = loaded.task.to(device), loaded.data
    found = measure(task, batches_of(data, split, device), training, multiples, clips)
    context = task.context if isinstance(task, Predictor) else 0
    of = f"{loaded.folder.path}, {loaded.checkpoint.name}, step {loaded.step:,}, {found[-1].clips} clips"
    answers = {score.name: score.label for score in task.reported} if isinstance(task, Reasoner) else {}
    print_lengths(found, context, f"lengths {of}; T = {training} frames", answers)
    path = loaded.folder.path / f"lengths-{datetime.now():%Y%m%d-%H%M%S}.json"
    record = {
        "checkpoint": str(loaded.checkpoint),
        "step": loaded.step,
        "data": {"name": type(data).__name__, "version": data.version, "split": split},
        "training_frames": training,
        "clips": found[-1].clips,
        "context": context,
        "device": str(device),
        "lengths": [{"multiple": one.multiple, "frames": one.frames, **one.costs(context)} for one in found],
        "metrics": metrics_of(found, context),
    }
    write_record(path, record)
    return 0
