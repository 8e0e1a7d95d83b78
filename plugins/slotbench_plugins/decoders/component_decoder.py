"""Component decoder: one image and one alpha mask per slot, by convolutions on enlarged maps."""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from slotbench.interfaces import Decoded, Decoder, SlotSpec, VideoBatch, VideoSpec
from slotbench_plugins.decoders._mixture import check_output, enabled_slots, mix_slots_by_alpha, start_colours
from slotbench_plugins.decoders._resize_convolutions import ResizeConvolutions


class ComponentDecoder(Decoder):
    """Every slot's vector becomes an image and an alpha channel; alphas over their sum are the masks.

    The layers are those of `ConcatenationDecoder`, shared by the slots, so there may be any number of them. Height and
    width are multiples of 8. There is no background: what no slot paints is not there.

    `decoder.disabled_slots` may be changed on a trained decoder to see what the image is without some of its slots;
    their own images stay in `Decoded.components`.

    Source: Lin, "Modular Neural Networks for Video Prediction", M.Sc. thesis, TU Delft, 2022, section 3.4 and Eq 3.23
    (basic component-wise decoder, BCD), after its author's code; the thesis has no table of it. 454,994 parameters for
    slots of width 100 and one channel of 64 x 64 pixels.

    Args:
        slot_spec: the output of the core.
        video_spec: the image to produce.
        channels: of the small map, and of the first two convolutions.
        output: "sigmoid" for images in [0, 1], as in the source; "linear" for logits, where the loss takes those. Alpha
            is a sigmoid in both.
        epsilon: the least that alphas are divided by; the source has none.
        disabled_slots: slots, from 0, whose alpha is taken as zero.
        initial_rgb: what the biases of the image's channels start from, before a sigmoid if there is one: 0 starts
            from grey, -3 from frames that are nearly black.
    """

    def __init__(
        self,
        slot_spec: SlotSpec,
        video_spec: VideoSpec,
        channels: tuple[int, ...] = (64, 32, 16),
        output: Literal["sigmoid", "linear"] = "sigmoid",
        epsilon: float = 1e-8,
        disabled_slots: tuple[int, ...] = (),
        initial_rgb: float = 0.0,
    ):
        super().__init__()
        self.paints_pixels = check_output("ComponentDecoder", output)
        enabled_slots(slot_spec.num_slots, disabled_slots)
        self.epsilon = epsilon
        self.disabled_slots = disabled_slots
        self.layers = ResizeConvolutions(slot_spec.dim, video_spec.channels + 1, video_spec, channels)
        start_colours(self.layers.last_bias, video_spec.channels, initial_rgb)

    def forward(self, slots: Float[Tensor, "batch time slots dim"], batch: VideoBatch | None = None) -> Decoded:
        """The image, the masks and every slot's own image; `batch` is not read."""
        images = self.layers(slots.flatten(0, 2)).unflatten(0, slots.shape[:3])
        components, alpha = images[:, :, :, :-1], torch.sigmoid(images[:, :, :, -1])
        if self.paints_pixels:
            components = torch.sigmoid(components)
        return Decoded(*mix_slots_by_alpha(components, alpha, self.epsilon, self.disabled_slots), components)
