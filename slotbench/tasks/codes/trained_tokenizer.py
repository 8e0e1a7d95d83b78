"""The tokenizer of a task of codes: one that a run of `FrameTokenization` has trained, or one that it makes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from slotbench.errors import lines
from slotbench.interfaces import Tokenizer, VideoSpec
from slotbench.pretrained.weights import WeightError, find_checkpoint, freeze, read_tensors
from slotbench.tasks.codes.frame_tokenization import FrameTokenization
from slotbench.tasks.codes.tokenizing import checked_tokenizer
from slotbench.tasks.saving.model_folder import is_model_folder, read_model

__all__ = ["chosen_tokenizer", "trained_tokenizer"]

_MOST_BYTES = 1 << 30
"""Of a checkpoint: with the state of its optimiser DVAE's has 8 MB, and that of `VQGAN.taming` 900 MB."""


def trained_tokenizer(run: str, frame: VideoSpec) -> Tokenizer:
    """The tokenizer of a run, with the weights of its last checkpoint, frozen and in evaluation mode.

    Nothing in the checkpoint is run; see `RebuiltModule.load_from_checkpoint`.

    Args:
        run: a run folder of `FrameTokenization`, one of its checkpoints, or a folder that `slotbench export` wrote.
        frame: the frames that it is to read.

    Raises:
        UserError: there is none, it is damaged or of another task, or it was trained on frames of another size.
    """
    task = _tokenization(Path(run).expanduser())
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


def chosen_tokenizer(
    task: str, run: str | None, tokenizer: Callable[[VideoSpec], Tokenizer] | None, frame: VideoSpec
) -> Tokenizer:
    """The tokenizer of a run, frozen, or a new one.

    Args:
        task: the name of the task, for messages.
        run: run folder or checkpoint of a `FrameTokenization`, or None.
        tokenizer: makes a tokenizer from the frames' `VideoSpec`, or None.
        frame: the frames.

    Raises:
        ValueError: neither is given, or both are.
        PartError: the new one announces no codes.
        UserError: the run holds no tokenizer of such frames.
    """
    if (run is None) == (tokenizer is None):
        given = "neither is" if run is None else "both are"
        raise ValueError(
            f"{task} takes its codes from one tokenizer: give tokenizer_run, the folder of a run of "
            f"FrameTokenization, or tokenizer, such as PatchKMeans; {given} given"
        )
    if tokenizer is None:
        assert run is not None
        return trained_tokenizer(run, frame)
    return checked_tokenizer(tokenizer(frame))


def _tokenization(path: Path) -> FrameTokenization:
    """The task of a run, a checkpoint or an exported folder."""
    if is_model_folder(path):
        exported = read_model(path)
        if isinstance(exported, FrameTokenization):
            return exported
        raise WeightError(lines(f"{path} holds no tokenizer", expected="the folder of a run of FrameTokenization"))
    checkpoint = find_checkpoint(path)
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
    return task
