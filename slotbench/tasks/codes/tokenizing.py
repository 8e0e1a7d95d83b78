"""What tasks do with a tokenizer: build it, read a trained one, fit it to frames, and compare frames with it."""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Float
from lightning.pytorch import Trainer
from torch import Tensor
from torch.nn import functional as F

from slotbench.data.base import SlotDataModule
from slotbench.interfaces import PartError, Tokenizer, VideoSpec
from slotbench.tasks.frame_losses import at_least_float32

__all__ = ["CodeSum", "FrameError", "checked_tokenizer", "fit_tokenizer", "reconstruction_loss", "training_frames"]

CodeSum = Literal["mean", "frame"]
"""Mean over all codes (pixels and channels), or the sum over those of a frame and the mean over frames."""


FrameError = Literal["squared", "absolute"]
"""Squared error of frames in [0, 1], or absolute error of frames in [-1, 1], which is VQ-GAN's."""


def checked_tokenizer(tokenizer: Tokenizer) -> Tokenizer:
    """A tokenizer that has just been built, if it announces its codes."""
    if not isinstance(getattr(tokenizer, "code_spec", None), VideoSpec):
        raise PartError(f"the tokenizer {type(tokenizer).__name__} sets no code_spec, the VideoSpec of its codes")
    return tokenizer


def training_frames(trainer: Trainer, count: int) -> Float[Tensor, "frames channels height width"] | None:
    """The first frames of the training split, in [0, 1] on the CPU; None where the trainer has no data set of ours."""
    data = getattr(trainer, "datamodule", None)
    if not isinstance(data, SlotDataModule):
        return None
    split = data.dataset("train")
    found: list[Tensor] = []
    for index in range(len(split)):  # type: ignore[arg-type]  # torch's Dataset does not declare __len__
        found.append(split[index].pixels.flatten(0, 1))
        if sum(map(len, found)) >= count:
            break
    return torch.cat(found)[:count]


def fit_tokenizer(tokenizer: Tokenizer, trainer: Trainer) -> None:
    """Gives a tokenizer the frames that it is to be fitted to, if it asks for any."""
    if not tokenizer.fit_frames:
        return
    frames = training_frames(trainer, tokenizer.fit_frames)
    if frames is None:
        raise PartError(f"{type(tokenizer).__name__} is fitted to frames: give the trainer a SlotDataModule")
    tokenizer.fit(frames.to(next(iter([*tokenizer.buffers(), *tokenizer.parameters()])).device))


def reconstruction_loss(
    painted: Float[Tensor, "batch time channels height width"],
    true: Float[Tensor, "batch time channels height width"],
    summed: CodeSum,
    kind: FrameError = "squared",
) -> Float[Tensor, ""]:
    """Error of frames, mean over everything or summed over a frame and mean over frames."""
    painted, true = at_least_float32(painted), at_least_float32(true)
    error = F.mse_loss(painted, true) if kind == "squared" else 2 * F.l1_loss(painted, true)
    return error * (true[0, 0].numel() if summed == "frame" else 1)
