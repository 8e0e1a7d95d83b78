"""Images of slots mixed to one: shares of every pixel, slots that are switched off, and where colours start."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

Components = Float[Tensor, "batch time slots channels height width"]
Masks = Float[Tensor, "batch time slots height width"]
Frames = Float[Tensor, "batch time channels height width"]


def mix_slots(components: Components, logits: Masks, disabled_slots: tuple[int, ...] = ()) -> tuple[Frames, Masks]:
    """(image, masks): each pixel is the mean of the slots' components there, weighted by a softmax over the slots.

    The softmax and the sum are taken in float32 (or wider, where the input is).

    Source: SlotSSM, equation 17.
    """
    wide = torch.promote_types(logits.dtype, torch.float32)
    if not disabled_slots:
        return _mixed(components, logits.softmax(dim=2, dtype=wide))
    on = enabled_slots(logits.shape[2], disabled_slots)
    masks = torch.zeros_like(logits, dtype=wide)
    masks[:, :, on] = logits[:, :, on].softmax(dim=2, dtype=wide)
    return _mixed(components, masks)


def mix_slots_by_alpha(
    components: Components, alpha: Masks, epsilon: float, disabled_slots: tuple[int, ...] = ()
) -> tuple[Frames, Masks]:
    """(image, masks): each pixel is the mean of the slots' components there, weighted by alpha over its sum.

    Source: Lin, "Modular Neural Networks for Video Prediction", 2022, Eq 3.23 and its author's code, without epsilon.
    """
    alpha = alpha.to(torch.promote_types(alpha.dtype, torch.float32))
    if disabled_slots:
        on = alpha.new_zeros(alpha.shape[2], 1, 1)
        on[enabled_slots(alpha.shape[2], disabled_slots)] = 1
        alpha = alpha * on
    return _mixed(components, alpha / alpha.sum(dim=2, keepdim=True).clamp(min=epsilon))


def _mixed(components: Components, masks: Masks) -> tuple[Frames, Masks]:
    return (masks[:, :, :, None] * components).sum(dim=2), masks


def enabled_slots(num_slots: int, disabled_slots: tuple[int, ...]) -> list[int]:
    """The slots that are not switched off, in order."""
    if any(not 0 <= slot < num_slots for slot in disabled_slots):
        raise ValueError(
            f"disabled_slots is {tuple(disabled_slots)}, and there are {num_slots} slots: give numbers from 0 to "
            f"{num_slots - 1}"
        )
    return [slot for slot in range(num_slots) if slot not in disabled_slots]


def check_output(decoder: str, output: str) -> bool:
    """Whether colours go through a sigmoid."""
    return output == "sigmoid"


@torch.no_grad()
def start_colours(bias: Tensor | None, channels: int, initial_rgb: float) -> None:
    """Adds `initial_rgb` to the first `channels` biases of a decoder's last layer, those of the image."""
    assert bias is not None
    bias[:channels] += initial_rgb
