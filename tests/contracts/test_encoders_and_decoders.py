"""The laws of encoders and decoders, over every registered one, and parts that break them.

A law raises AssertionError where a part breaks it.
"""

from __future__ import annotations

import pytest
import torch
from any_part import light
from changed_parts import changed, forgetful, mistakes, with_dead_parameter
from torch import Tensor, nn

from slotbench import registry
from slotbench.interfaces import Decoded, Decoder, Encoder, SlotSpec, TokenSpec, VideoBatch, VideoSpec
from slotbench.testing.frame_laws import (
    CELLS,
    DECODER_LAWS,
    ENCODER_LAWS,
    INPUT,
    PATCHED,
    SLOTS,
    TARGET,
    decoder_gradients_reach_every_parameter,
    decoder_keeps_nothing,
    decoder_reloads,
    encoder_gradients_reach_every_parameter,
    encoder_keeps_nothing,
    encoder_reloads,
    image_is_as_announced,
    masks_share_out_every_pixel,
    random_batch,
    slices_know_their_time,
    steps_are_decoded_alone,
    steps_are_encoded_alone,
    tokens_are_as_announced,
)


@pytest.mark.parametrize("law", ENCODER_LAWS, ids=lambda law: law.__name__)
@pytest.mark.parametrize("video", [INPUT, PATCHED], ids=["whole frames", "patches"])
@pytest.mark.parametrize("name", registry.names("encoders"))
def test_encoder_keeps_the_law(name, video, law):
    law(light("encoders", name), video)


@pytest.mark.parametrize("law", DECODER_LAWS, ids=lambda law: law.__name__)
@pytest.mark.parametrize("slots", [SLOTS, CELLS], ids=["a set of slots", "cells of a grid"])
@pytest.mark.parametrize("name", registry.names("decoders"))
def test_decoder_keeps_the_law(name, slots, law):
    build = light("decoders", name)
    try:
        build(slots, TARGET)
    except ValueError as error:
        # a decoder may want the cells of a grid, if it says so; those it must take
        if slots.grid is not None or "without one: use a core that keeps the grid" not in str(error):
            raise
        pytest.skip("it paints from the cells of a grid, and says so")
    law(build, slots)


class Rows(Encoder):
    """The pixels of a step, through one linear map, with the clock."""

    def __init__(self, spec: VideoSpec):
        super().__init__()
        self.token_spec = TokenSpec(4, spec.height)
        self.rows = nn.Linear(spec.channels * spec.width, 4)

    def forward(self, batch: VideoBatch) -> Tensor:
        rows = batch.pixels.transpose(2, 3).flatten(3)
        return self.rows(rows) + torch.sin(batch.time)[:, :, None, None]


class Colours(Decoder):
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


def widen(part: Rows) -> None:
    part.token_spec = TokenSpec(5, part.token_spec.num_tokens)


def keep(part, found, *given):
    part.kept = found
    return found


def mix(values: Tensor, axis: int) -> Tensor:
    return values + 1e-3 * values.mean(dim=axis, keepdim=True)


def without_last(slots: Tensor, batch: VideoBatch | None = None) -> tuple[Tensor]:
    return (torch.cat([slots[:, :, :-1], torch.zeros_like(slots[:, :, -1:])], dim=2),)


def clocked(part, tokens, batch):
    return tokens + torch.arange(batch.num_steps)[:, None, None]


BROKEN = {
    tokens_are_as_announced: {
        "announces another width": (changed(Rows, made=widen), "shape"),
    },
    steps_are_encoded_alone: {
        "mixes steps": (changed(Rows, lambda part, tokens, _: mix(tokens, 1)), "of others"),
        "mixes samples": (changed(Rows, lambda part, tokens, _: mix(tokens, 0)), "of others"),
    },
    slices_know_their_time: {
        "counts steps of the call": (changed(Rows, clocked), "encoded alone"),
    },
    encoder_gradients_reach_every_parameter: {
        "encoder with a dead parameter": (with_dead_parameter(Rows), "forgotten"),
    },
    encoder_keeps_nothing: {
        "keeps its tokens": (changed(Rows, keep), "kept"),
    },
    encoder_reloads: {
        "encoder that forgets a setting": (
            forgetful(Rows, 4, lambda part, tokens, _: tokens + part.offset),
            "other tokens",
        ),
    },
    image_is_as_announced: {
        "paints the wrong size": (
            changed(Colours, lambda part, found, *_: Decoded(found.reconstruction[..., 1:])),
            "shape",
        ),
        "paints not a number": (
            changed(Colours, lambda part, found, *_: Decoded(found.reconstruction.abs().neg().sqrt())),
            "not finite",
        ),
    },
    masks_share_out_every_pixel: {
        "gives away more than there is": (
            changed(Colours, lambda part, found, *_: Decoded(found.reconstruction, found.masks * 1.001)),
            "sums of masks",
        ),
    },
    steps_are_decoded_alone: {
        "mixes the slots of steps": (changed(Colours, given=lambda slots, batch=None: (mix(slots, 1),)), "of others"),
    },
    decoder_gradients_reach_every_parameter: {
        "decoder with a dead parameter": (with_dead_parameter(Colours), "forgotten"),
        "never looks at the last slot": (changed(Colours, given=without_last), "some of the slots"),
    },
    decoder_keeps_nothing: {
        "keeps its image": (changed(Colours, keep), "kept"),
    },
    decoder_reloads: {
        "decoder that forgets a setting": (
            forgetful(Colours, 1, lambda part, found, *_: Decoded(found.reconstruction + part.offset)),
            "another image",
        ),
    },
}


@pytest.mark.parametrize("law", [*ENCODER_LAWS, *DECODER_LAWS], ids=lambda law: law.__name__)
def test_sound_part_keeps_the_law(law):
    law(Rows if law in ENCODER_LAWS else Colours)


@pytest.mark.parametrize(("law", "part", "message"), mistakes(BROKEN))
def test_broken_part_breaks_the_law(law, part, message):
    with pytest.raises(AssertionError, match=message):
        law(part)


def test_every_law_has_a_part_that_breaks_it():
    assert set(BROKEN) == {*ENCODER_LAWS, *DECODER_LAWS}


def test_the_clips_of_the_laws_do_not_start_at_zero():
    assert random_batch(INPUT).time.min() > 0
