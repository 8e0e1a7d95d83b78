"""The tokenizer of a task of codes, of a run of `FrameTokenization` or a new one, and its codes of frames."""

from __future__ import annotations

import warnings
from pathlib import Path

import torch
from jaxtyping import Integer
from lightning.pytorch import Trainer
from torch import Tensor

from slotbench.errors import FileError, UserError, lines
from slotbench.interfaces import PartError, Tokenizer, VideoBatch, VideoSpec
from slotbench.pretrained.weights import WeightError, find_checkpoint, freeze
from slotbench.tasks.codes.frame_tokenization import FrameTokenization
from slotbench.tasks.codes.tokenizing import checked_tokenizer, fit_tokenizer
from slotbench.tasks.factories import TokenizerFactory
from slotbench.tasks.part_checks import part_of
from slotbench.tasks.saving.model_folder import is_model_folder, read_model

__all__ = [
    "check_stored_codes",
    "chosen_tokenizer",
    "fit_frozen_tokenizer",
    "frame_codes",
    "frozen_tokenizer",
    "trained_tokenizer",
]


def trained_tokenizer(run: str, frame: VideoSpec) -> Tokenizer:
    """The tokenizer of a run, with the weights of its last checkpoint, frozen and in evaluation mode."""
    path = Path(run).expanduser()
    try:
        if is_model_folder(path):
            task = read_model(path)
        else:
            task = FrameTokenization.load_from_checkpoint(find_checkpoint(path))
    except (UserError, FileError) as error:
        raise WeightError(lines(f"{run} holds no tokenizer", note=str(error))) from error
    if not isinstance(task, FrameTokenization):
        raise WeightError(lines(f"{run} holds no tokenizer", expected="the folder of a run of FrameTokenization"))
    there, here = task.data_spec.input, frame
    if (there.channels, there.height, there.width) != (here.channels, here.height, here.width):
        raise WeightError(
            lines(
                f"the tokenizer of {run} was trained on frames of {there.channels} x {there.height} x {there.width}, "
                f"and the data give {here.channels} x {here.height} x {here.width}",
                expected=f"--data.resolution {there.height}, or a tokenizer trained on frames like these",
            )
        )
    freeze(task.tokenizer)
    return task.tokenizer


def chosen_tokenizer(task: str, run: str | None, tokenizer: TokenizerFactory | None, frame: VideoSpec) -> Tokenizer:
    """The tokenizer of a run, frozen, or a new one."""
    if (run is None) == (tokenizer is None):
        given = "neither is" if run is None else "both are"
        raise ValueError(f"{task} takes its codes from one tokenizer: give tokenizer_run, or tokenizer; {given} given")
    if tokenizer is None:
        assert run is not None
        return trained_tokenizer(run, frame)
    return checked_tokenizer(part_of(tokenizer, "tokenizer", frame))


def frozen_tokenizer(task: str, run: str | None, tokenizer: TokenizerFactory | None, frame: VideoSpec) -> Tokenizer:
    """`chosen_tokenizer`, which has nothing to train and embeds codes by a table."""
    built = chosen_tokenizer(task, run, tokenizer, frame)
    if any(parameter.requires_grad for parameter in built.parameters()):
        raise PartError(f"{type(built).__name__} has to be trained before {task}: give its run as tokenizer_run")
    sizes = [(spec.channels, spec.height, spec.width) for spec in (built.code_spec, frame.codes or built.code_spec)]
    if sizes[0] != sizes[1]:
        here, there = (f"{codes} codes on {rows} x {cols} cells" for codes, rows, cols in sizes)
        raise PartError(f"the tokenizer {type(built).__name__} has {here}, and the data set stores {there}")
    built.embedding_dim  # noqa: B018  # raises if it has no table
    return built


def fit_frozen_tokenizer(tokenizer: Tokenizer, trainer: Trainer) -> None:
    """Fits a tokenizer that is fitted before the training, and keeps Lightning from warning that it is not trained."""
    fit_tokenizer(tokenizer, trainer)
    # Lightning takes a frozen part for a mistake
    warnings.filterwarnings("ignore", message=r"Found \d+ module\(s\) in eval mode at the start of training")


@torch.no_grad()
def frame_codes(tokenizer: Tokenizer, batch: VideoBatch) -> Integer[Tensor, "batch time rows cols"]:
    """The codes that the data set stores, or else those that the tokenizer has for the frames."""
    return tokenizer.encode(batch.pixels) if batch.codes is None else batch.codes


@torch.no_grad()
def check_stored_codes(tokenizer: Tokenizer, batch: VideoBatch) -> None:
    """Refuses stored codes that are another tokenizer's; looks at the first frame of the first clip."""
    if batch.codes is None:
        return
    # another device may round a vector to another row here and there
    same = (tokenizer.encode(batch.pixels[:1, :1]) == batch.codes[:1, :1]).flatten()
    if 2 * int(same.sum()) < len(same):
        raise PartError(
            f"the data set stores codes of another tokenizer: {int(same.sum())} of the {len(same)} cells of its first "
            f"frame have the code that {type(tokenizer).__name__} gives them. Give the run that it was prepared with "
            "as tokenizer_run, or prepare it again: slotbench prepare NAME --codes RUN"
        )
