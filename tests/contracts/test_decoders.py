"""The laws of a decoder, over every registered decoder, and decoders that break them.

A law raises AssertionError where a decoder breaks it.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from slotbench import registry
from slotbench.interfaces import Decoded, Decoder, SlotSpec, VideoBatch, VideoSpec
from slotbench.testing.frame_laws import (
    CELLS,
    DECODER_LAWS,
    SLOTS,
    TARGET,
    decoder_gradients_reach_every_parameter,
    decoder_keeps_nothing,
    decoder_reloads,
    image_is_as_announced,
    masks_share_out_every_pixel,
    steps_are_decoded_alone,
)

DECODERS = registry.names("decoders")


@pytest.mark.parametrize("law", DECODER_LAWS, ids=lambda law: law.__name__)
@pytest.mark.parametrize("slots", [SLOTS, CELLS], ids=["a set of slots", "cells of a grid"])
@pytest.mark.parametrize("name", DECODERS)
def test_decoder_keeps_the_law(name, slots, law):
    build = registry.load("decoders", name)
    try:
        build(slots, TARGET)
    except ValueError as error:
        # a decoder may want the cells of a grid, if it says so; those it must take
        if slots.grid is not None or "without one: use a core that keeps the grid" not in str(error):
            raise
        pytest.skip("it paints from the cells of a grid, and says so")
    law(build, slots)


class Sound(Decoder):
    """Every slot paints one colour, in equal shares."""

    def __init__(self, slots: SlotSpec, video: VideoSpec):
        super().__init__()
        self.video = video
        self.colour = nn.Linear(slots.dim, video.channels)

    def forward(self, slots: Tensor, batch: VideoBatch | None = None) -> Decoded:
        size = (self.video.height, self.video.width)
        colours = self.colour(slots)[..., None, None].expand(*slots.shape[:3], -1, *size)
        masks = torch.full_like(colours[:, :, :, 0], 1 / slots.shape[2])
        return Decoded(colours.mean(dim=2), masks)


class PaintsTheWrongSize(Sound):
    def forward(self, slots: Tensor, batch: VideoBatch | None = None) -> Decoded:
        return Decoded(super().forward(slots).reconstruction[..., 1:])


class PaintsNotANumber(Sound):
    def forward(self, slots: Tensor, batch: VideoBatch | None = None) -> Decoded:
        return Decoded(super().forward(slots).reconstruction.abs().neg().sqrt())


class GivesAwayMoreThanThereIs(Sound):
    def forward(self, slots: Tensor, batch: VideoBatch | None = None) -> Decoded:
        decoded = super().forward(slots)
        return Decoded(decoded.reconstruction, decoded.masks * 1.001)


class MixesSteps(Sound):
    def forward(self, slots: Tensor, batch: VideoBatch | None = None) -> Decoded:
        return super().forward(slots + 1e-3 * slots.mean(dim=1, keepdim=True))


class HasADeadParameter(Sound):
    def __init__(self, slots: SlotSpec, video: VideoSpec):
        super().__init__(slots, video)
        self.forgotten = nn.Parameter(torch.zeros(3))


class NeverLooksAtTheLastSlot(Sound):
    def forward(self, slots: Tensor, batch: VideoBatch | None = None) -> Decoded:
        return super().forward(torch.cat([slots[:, :, :-1], torch.zeros_like(slots[:, :, -1:])], dim=2))


class KeepsItsImage(Sound):
    def forward(self, slots: Tensor, batch: VideoBatch | None = None) -> Decoded:
        self.image = super().forward(slots)
        return self.image


class ForgetsASettingInItsCheckpoint(Sound):
    def __init__(self, slots: SlotSpec, video: VideoSpec):
        super().__init__(slots, video)
        self.register_buffer("offset", torch.rand(1), persistent=False)

    def forward(self, slots: Tensor, batch: VideoBatch | None = None) -> Decoded:
        return Decoded(super().forward(slots).reconstruction + self.offset)


BROKEN = [
    (PaintsTheWrongSize, image_is_as_announced, "shape"),
    (PaintsNotANumber, image_is_as_announced, "not finite"),
    (GivesAwayMoreThanThereIs, masks_share_out_every_pixel, "sums of masks"),
    (MixesSteps, steps_are_decoded_alone, "of others"),
    (HasADeadParameter, decoder_gradients_reach_every_parameter, "forgotten"),
    (NeverLooksAtTheLastSlot, decoder_gradients_reach_every_parameter, "some of the slots"),
    (KeepsItsImage, decoder_keeps_nothing, "image"),
    (ForgetsASettingInItsCheckpoint, decoder_reloads, "another image"),
]


@pytest.mark.parametrize("law", DECODER_LAWS, ids=lambda law: law.__name__)
def test_sound_decoder_keeps_the_law(law):
    law(Sound)


@pytest.mark.parametrize(("decoder", "law", "message"), BROKEN, ids=[decoder.__name__ for decoder, _, _ in BROKEN])
def test_broken_decoder_breaks_the_law(decoder, law, message):
    with pytest.raises(AssertionError, match=message):
        law(decoder)


def test_every_law_has_a_decoder_that_breaks_it():
    assert {law for _, law, _ in BROKEN} == set(DECODER_LAWS)
