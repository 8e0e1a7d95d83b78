"""Noise for every step of a clip: new in training, and in evaluation the same whenever the clip is read."""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from jaxtyping import Int64
from torch import Tensor

from slotbench.nn.slot_init import clip_numbers

__all__ = ["Draws", "noise_of_steps", "start_of_draws"]

_MASK = 2**64 - 1


class Draws(NamedTuple):
    """What the noise of a clip's next step depends on in evaluation.

    Attributes:
        clip: a number of the clip's own.
        step: how many steps of it have been read.
    """

    clip: Int64[Tensor, " batch"]
    step: Int64[Tensor, " batch"]


def start_of_draws(batch: int, device: torch.device) -> Draws:
    """The start of `batch` clips: numbered as `drawn_by_clip` says, otherwise from torch's global generator."""
    clips = clip_numbers(batch)
    numbers = torch.randint(2**31, (batch,)) if clips is None else torch.tensor(clips, dtype=torch.int64)
    return Draws(numbers.to(device), torch.zeros(batch, dtype=torch.int64, device=device))


def noise_of_steps(
    shape: tuple[int, ...], steps: int, draws: Draws, like: Tensor, *, anew: bool, kind: Literal["normal", "gumbel"]
) -> Tensor:
    """Noise "batch steps *shape"."""
    sizes = (len(draws.clip), steps, *shape)
    if anew or not len(draws.clip):
        return _noise(sizes, kind, None, like)
    generator = torch.Generator()
    drawn = []
    for clip, first in zip(draws.clip.tolist(), draws.step.tolist(), strict=True):
        for step in range(first, first + steps):
            generator.manual_seed(_seed(clip, step))
            drawn.append(_noise(shape, kind, generator, torch.empty(0)))
    return torch.stack(drawn).view(sizes).to(like)


def _noise(sizes: tuple[int, ...], kind: str, generator: torch.Generator | None, like: Tensor) -> Tensor:
    if kind == "normal":
        return torch.randn(sizes, dtype=like.dtype, device=like.device, generator=generator)
    exponential = torch.empty(sizes, dtype=like.dtype, device=like.device).exponential_(generator=generator)
    return exponential.log_().neg_()


def _seed(clip: int, step: int) -> int:
    """32 well mixed bits, which is what the generator looks at: the finalizer of SplitMix64."""
    x = (clip * 0x9E3779B97F4A7C15 + (step + 1) * 0xD1B54A32D192ED03) & _MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return (x ^ (x >> 31)) >> 32
