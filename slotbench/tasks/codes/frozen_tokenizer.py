"""A tokenizer that a task reads codes by and does not train: which one, its codes of a batch, and its fitting."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import torch
from jaxtyping import Integer
from lightning.pytorch import Trainer
from torch import Tensor

from slotbench.interfaces import PartError, Tokenizer, VideoBatch, VideoSpec
from slotbench.tasks.codes.tokenizing import fit_tokenizer
from slotbench.tasks.codes.trained_tokenizer import chosen_tokenizer

__all__ = ["check_stored_codes", "fit_frozen_tokenizer", "frame_codes", "frozen_tokenizer"]


def frozen_tokenizer(
    task: str, run: str | None, tokenizer: Callable[[VideoSpec], Tokenizer] | None, frame: VideoSpec
) -> Tokenizer:
    """The tokenizer of a run, or one that has nothing to train; it embeds codes by a table.

    Args:
        task: the name of the task, for messages.
        run: run folder or checkpoint of a `FrameTokenization`, or None.
        tokenizer: makes a tokenizer from the frames' `VideoSpec`, or None.
        frame: sizes of a frame; its `codes`, those of the data set, if any, have to be of this tokenizer's size.

    Raises:
        ValueError: neither is given, or both are.
        PartError: it would have to be trained, has no table of codes, or the data set has codes of another.
        UserError: the run holds no tokenizer of such frames.
    """
    built = chosen_tokenizer(task, run, tokenizer, frame)
    if any(parameter.requires_grad for parameter in built.parameters()):
        raise PartError(
            f"{task} does not train its tokenizer, and {type(built).__name__} has to be trained: train it by "
            "FrameTokenization and give its run as tokenizer_run, or give PatchKMeans as tokenizer"
        )
    sizes = [(spec.channels, spec.height, spec.width) for spec in (built.code_spec, frame.codes or built.code_spec)]
    if sizes[0] != sizes[1]:
        here, there = (f"{codes} codes on {rows} x {cols} cells" for codes, rows, cols in sizes)
        raise PartError(
            f"the tokenizer {type(built).__name__} has {here}, and the data set stores {there}: give the tokenizer "
            "that it was prepared with, or prepare it again with this one"
        )
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
    """Refuses stored codes that are another tokenizer's; looks at the first frame of the first clip.

    Raises:
        PartError: most cells of the frame have another code by this tokenizer.
    """
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
