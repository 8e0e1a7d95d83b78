"""`slotbench test RUN --lengths 1,4,16`: a run on clips longer than those of its training."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any, Literal

from slotbench.commands.arguments import Parser, open_device, split_and_load
from slotbench.config.settings import command_line_settings
from slotbench.errors import UserError, lines
from slotbench.runs.checkpoint_choice import DEFAULT

if TYPE_CHECKING:
    from slotbench.config.run_loading import LoadedRun

__all__ = ["USAGE", "main"]

USAGE = """Usage: slotbench test RUN --lengths 1,4,16 [--clips N] [--data.ARGUMENT VALUE ...]

Streams clips of so many times the training's length through a run, with the core's state handed on, and prints at each
length FG-ARI and mIoU per video and per frame, MOTA, MOTP, identity, the numbers in the state, and the time of a step.
Of a prediction the frames after the context are scored, with their error; of a task that answers as it reads, as on
blinking balls, the answer that is due before the last frame. All lengths are the first frames of the same clips.
`slotbench validate RUN --lengths 1,4` takes clips of the validation split.

  --lengths K,K,...        multiples of the training's frames
  --clips N                clips (default: 50)
  --checkpoint last|best|FILE  whose weights (default: last)
  --device cpu|cuda        where to compute (default: cuda where there is one)

Results go to RUN/lengths-DATE.json and RUN/lengths-DATE-4T-decoder.json, evaluation records that slotbench compare
reads: --metric 'lengths/*/mota/decoder'."""


def main(command: str, arguments: list[str]) -> int:
    """Tests the run that is named first.

    Args:
        command: "test" or "validate", which says the split.
        arguments: with `--lengths`.
    """
    if arguments[0].startswith("-"):
        raise UserError(lines(f"{command} needs a run", example=f"slotbench {command} runs/NAME/ID --lengths 1,4,16"))
    run, *rest = arguments
    options, rest = split_and_load(rest)
    given, settings = _parser().parse_known_args(rest)
    multiples = _multiples(given.lengths)
    if given.clips < 1:
        raise UserError(f"--clips is {given.clips}; expected 1 or more")
    command_line_settings(settings)  # refuses what is no setting
    # everything above answers before torch is imported
    from slotbench.config.run_loading import load_with_settings

    device = open_device(given.device, options.threads)
    checkpoint = options.checkpoint or DEFAULT
    loaded = load_with_settings(run, checkpoint, settings, options, command)
    split: Literal["val", "test"] = "test" if command == "test" else "val"
    training, multiples = _lengths(loaded, multiples, split)
    overrides = loaded.data.overrides_for_length(split, training * multiples[-1], given.clips)
    words = [f"--data.{name}={value}" for name, value in overrides.items()]
    loaded = load_with_settings(run, checkpoint, [*settings, *words], options, command)
    return _measure(loaded, training, multiples, split, given.clips, device)


def _parser() -> argparse.ArgumentParser:
    parser = Parser("slotbench test --lengths")
    parser.add_argument("--lengths", required=True)
    parser.add_argument("--clips", type=int, default=50)
    parser.add_argument("--device", choices=["cpu", "cuda"])
    return parser


def _multiples(text: str) -> list[int]:
    words = [word.strip() for word in text.strip("[]").split(",")]
    if not all(word.isascii() and word.isdigit() and 0 < int(word) < 10_000 for word in words):
        raise UserError(f"--lengths is {text}; expected multiples of the training's frames, such as 1,4,16")
    return sorted({int(word) for word in words})


def _lengths(loaded: LoadedRun, multiples: list[int], split: Literal["val", "test"]) -> tuple[int, list[int]]:
    """The training's frames, and the multiples of them that the data has and that leave a frame to predict."""
    from slotbench.interfaces import Predictor

    data, name = loaded.data, type(loaded.data).__name__
    training = getattr(data, "num_frames", None)
    most = data.max_eval_frames(split) if isinstance(training, int) else 0
    if not isinstance(training, int) or most == 0:
        raise UserError(f"{name} has no longer clips than those of the training, or does not say how to make them")
    context = loaded.task.context if isinstance(loaded.task, Predictor) else 0
    left = [one for one in multiples if (most is None or one * training <= most) and one * training > context]
    for one in multiples:
        if one not in left:
            why = (
                f"a prediction begins after {context}"
                if one * training <= context
                else f"the {split} videos of {name} have {most}"
            )
            print(f"{one} T is left out: {one * training} frames, and {why}")
    if not left:
        raise UserError(f"none of the lengths can be measured: T is {training} frames; give other --lengths")
    return training, left


def _measure(loaded: LoadedRun, training: int, multiples: list[int], split: str, clips: int, device: Any) -> int:
    from slotbench.evaluation.batches import batches_of
    from slotbench.evaluation.length_records import write_lengths
    from slotbench.evaluation.lengths import measure
    from slotbench.evaluation.tables import print_lengths
    from slotbench.interfaces import Predictor, Reasoner

    task, data = loaded.task.to(device), loaded.data
    found = measure(task, batches_of(data, split, device), training, multiples, clips)
    context = task.context if isinstance(task, Predictor) else 0
    of = f"{loaded.folder.path}, {loaded.checkpoint.name}, step {loaded.step:,}, {found[-1].clips} clips"
    answers = {score.name: score.label for score in task.reported} if isinstance(task, Reasoner) else {}
    print_lengths(found, context, f"lengths {of}; T = {training} frames", answers)
    about = {"name": type(data).__name__, "version": data.version, "split": split}
    about |= {"masks": "pseudo masks, found by a model"} if data.pseudo_masks else {}
    more = {"run": loaded.folder.path.resolve().name, "checkpoint": str(loaded.checkpoint), "step": loaded.step}
    more |= {"training_frames": training, "device": str(device)}
    written = write_lengths(loaded.folder.path, found, context, about, more)
    print(f"wrote {written[0]}" + (f" and {len(written) - 1} evaluation records" if written[1:] else ""))
    return 0
