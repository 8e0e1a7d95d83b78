"""Concatenation decoder: all slots as one vector to one image."""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from slotbench.interfaces import Decoded, Decoder, SlotSpec, VideoBatch, VideoSpec
from slotbench_plugins.decoders._mixture import check_output, start_colours
from slotbench_plugins.decoders._resize_convolutions import ResizeConvolutions


class ConcatenationDecoder(Decoder):
    """The slots one after the other as one vector, from which convolutions on enlarged maps paint one image.

    It has no masks, and slots in another order make another image. Height and width are multiples
    of 8.

    Source: Lin, "Modular Neural Networks for Video Prediction", M.Sc. thesis, TU Delft, 2022, the decoder of its GRU
    and RIM models, after its author's code; the thesis has no table of it. 2,502,849 parameters for six slots of width
    100 and one channel of 64 x 64 pixels.

    Args:
        slot_spec: the output of the core.
        video_spec: the image to produce.
        channels: of the small map, and of the first two convolutions.
        output: "sigmoid" for an image in [0, 1], as in the source; "linear" for logits, where the loss takes those.
        initial_rgb: what the biases of the image's channels start from, as in `ComponentDecoder`.
    """

    def __init__(
        self,
        slot_spec: SlotSpec,
        video_spec: VideoSpec,
        channels: tuple[int, ...] = (64, 32, 16),
        output: Literal["sigmoid", "linear"] = "sigmoid",
        initial_rgb: float = 0.0,
    ):
        super().__init__()
        self.paints_pixels = check_output("ConcatenationDecoder", output)
        self.slot_spec = slot_spec
        self.layers = ResizeConvolutions(slot_spec.num_slots * slot_spec.dim, video_spec.channels, video_spec, channels)
        start_colours(self.layers.last_bias, video_spec.channels, initial_rgb)

    def forward(self, slots: Float[Tensor, "batch time slots dim"], batch: VideoBatch | None = None) -> Decoded:
        """The image of every step; `batch` is not read."""
        if slots.shape[2] != self.slot_spec.num_slots:
            raise ValueError(
                f"ConcatenationDecoder was built for {self.slot_spec.num_slots} slots and got {slots.shape[2]}: for "
                "another number than in training use a decoder that paints slot by slot, such as ComponentDecoder"
            )
        images = self.layers(slots.flatten(2).flatten(0, 1)).unflatten(0, slots.shape[:2])
        return Decoded(torch.sigmoid(images) if self.paints_pixels else images)
