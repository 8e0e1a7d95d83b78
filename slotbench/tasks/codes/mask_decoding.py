"""Masks by a decoder of its own that learns to paint the frames from slots, and teaches them nothing."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

from jaxtyping import Float
from lightning.pytorch.utilities.seed import isolate_rng
from torch import Tensor, nn
from torch.nn import functional as F

from slotbench.interfaces import AutoregressiveDecoder, Decoded, PartError, SlotSpec, VideoBatch, VideoSpec
from slotbench.tasks.factories import DecoderFactory
from slotbench.tasks.frame_losses import at_least_float32
from slotbench.tasks.optimised_module import ClipBy

__all__ = ["MaskDecoding", "hidden_gradients"]


class MaskDecoding(nn.Module):
    """A decoder of pixels behind a stop of the gradient: the slots are what something else has made of them.

    Its initial weights take nothing from the random state, so that a training is the same with it and without.

    Source: PSB (Singh et al., 2024), Section 5.1.1, which trains it after the slots.

    Args:
        decoder: makes a decoder from the slots' `SlotSpec` and the frames' `VideoSpec`.
        slot_spec: of the core.
        frame: of the data.
    """

    def __init__(self, decoder: DecoderFactory, slot_spec: SlotSpec, frame: VideoSpec):
        super().__init__()
        with isolate_rng():
            self.decoder = decoder(slot_spec, frame)
        if isinstance(self.decoder, AutoregressiveDecoder):
            raise PartError(f"mask_decoder: {type(self.decoder).__name__} gives codes, and no masks")

    def forward(self, slots: Float[Tensor, "batch time slots dim"], batch: VideoBatch) -> Decoded:
        """What it paints, with masks; no gradient passes to the slots."""
        decoded: Decoded = self.decoder(slots.detach(), batch)
        if decoded.masks is None:
            raise PartError(f"mask_decoder: {type(self.decoder).__name__} gives no masks")
        return decoded

    def loss(self, slots: Float[Tensor, "batch time slots dim"], batch: VideoBatch) -> Float[Tensor, ""]:
        """Mean squared error of the frames, in [0, 1], plus the decoder's own terms."""
        decoded = self(slots, batch)
        error = F.mse_loss(at_least_float32(decoded.reconstruction), at_least_float32(batch.pixels))
        return decoded.add_losses(error)

    def clip(self, largest: float, by: ClipBy) -> None:
        """Bounds its gradients by themselves."""
        nn.utils.clip_grad_norm_(self.parameters(), largest, norm_type=math.inf if by == "largest" else 2.0)


@contextmanager
def hidden_gradients(module: nn.Module) -> Iterator[None]:
    """Within it the module's parameters have no gradient, and so no part in a norm over all."""
    kept = {parameter: parameter.grad for parameter in module.parameters()}
    for parameter in kept:
        parameter.grad = None
    try:
        yield
    finally:
        for parameter, gradient in kept.items():
            parameter.grad = gradient
