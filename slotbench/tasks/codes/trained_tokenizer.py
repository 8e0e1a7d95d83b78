"""A tokenizer that a run of `FrameTokenization` has trained, read safely and frozen."""

from __future__ import annotations

from pathlib import Path

from slotbench.errors import lines
from slotbench.interfaces import Tokenizer, VideoSpec
from slotbench.pretrained.weights import WeightError, find_checkpoint, freeze, read_tensors
from slotbench.tasks.codes.frame_tokenization import FrameTokenization

__all__ = ["trained_tokenizer"]

_MOST_BYTES = 1 << 30
"""Of a checkpoint: with the state of its optimiser DVAE's has 8 MB, and that of `VQGAN.taming` 900 MB."""


def trained_tokenizer(run: str, frame: VideoSpec) -> Tokenizer:
    """The tokenizer of a run, with the weights of its last checkpoint, frozen and in evaluation mode.

    Nothing in the checkpoint is run; see `RebuiltModule.load_from_checkpoint`.

    Args:
        run: a run folder of `FrameTokenization`, or one of its checkpoints.
        frame: the frames that it is to read.

    Raises:
        UserError: there is none, it is damaged or of another task, or it was trained on frames of another size.
    """
    checkpoint = find_checkpoint(Path(run).expanduser())
    if (size := checkpoint.stat().st_size) > _MOST_BYTES:
        raise WeightError(
            lines(
                f"{checkpoint} has {size:,} bytes, more than the {_MOST_BYTES:,} that a tokenizer may have",
                expected="the folder of a run of FrameTokenization",
            )
        )
    if not any(name.startswith("tokenizer.") for name in read_tensors(checkpoint)):
        raise WeightError(
            lines(f"{checkpoint} holds no tokenizer", expected="the folder of a run of FrameTokenization")
        )
    task: FrameTokenization = FrameTokenization.load_from_checkpoint(checkpoint)
    there, here = task.data_spec.input, frame
    sizes = [(spec.channels, spec.height, spec.width) for spec in (there, here)]
    if sizes[0] != sizes[1]:
        raise WeightError(
            lines(
                f"the tokenizer of {run} was trained on frames of {there.channels} x {there.height} x {there.width}, "
                f"and the data give {here.channels} x {here.height} x {here.width}",
                expected=f"--data.resolution {there.height}, or a tokenizer trained on frames like these",
            )
        )
    freeze(task.tokenizer)
    return task.tokenizer
