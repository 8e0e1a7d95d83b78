"""The laws of an encoder, over every registered encoder, and encoders that break them.

A law raises AssertionError where an encoder breaks it.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from slotbench import registry
from slotbench.interfaces import Encoder, TokenSpec, VideoBatch, VideoSpec
from slotbench.testing.frame_laws import (
    ENCODER_LAWS,
    INPUT,
    PATCHED,
    encoder_gradients_reach_every_parameter,
    encoder_keeps_nothing,
    encoder_reloads,
    random_batch,
    slices_know_their_time,
    steps_are_encoded_alone,
    tokens_are_as_announced,
)

ENCODERS = registry.names("encoders")


@pytest.mark.parametrize("law", ENCODER_LAWS, ids=lambda law: law.__name__)
@pytest.mark.parametrize("video", [INPUT, PATCHED], ids=["whole frames", "patches"])
@pytest.mark.parametrize("name", ENCODERS)
def test_encoder_keeps_the_law(name, video, law):
    law(registry.load("encoders", name), video)


class Sound(Encoder):
    """The pixels of a step, through one linear map, with the clock."""

    def __init__(self, spec: VideoSpec):
        super().__init__()
        self.token_spec = TokenSpec(4, spec.height)
        self.rows = nn.Linear(spec.channels * spec.width, 4)

    def forward(self, batch: VideoBatch) -> Tensor:
        rows = batch.frames.transpose(2, 3).flatten(3)
        return self.rows(rows) + torch.sin(batch.time)[:, :, None, None]


class AnnouncesAnotherWidth(Sound):
    def __init__(self, spec: VideoSpec):
        super().__init__(spec)
        self.token_spec = TokenSpec(5, spec.height)


class MixesSteps(Sound):
    def forward(self, batch: VideoBatch) -> Tensor:
        tokens = super().forward(batch)
        return tokens + 1e-3 * tokens.mean(dim=1, keepdim=True)


class MixesSamples(Sound):
    def forward(self, batch: VideoBatch) -> Tensor:
        tokens = super().forward(batch)
        return tokens + 1e-3 * tokens.mean(dim=0, keepdim=True)


class CountsStepsOfTheCall(Sound):
    def forward(self, batch: VideoBatch) -> Tensor:
        tokens = super().forward(batch)
        return tokens + torch.arange(batch.num_steps)[:, None, None]


class HasADeadParameter(Sound):
    def __init__(self, spec: VideoSpec):
        super().__init__(spec)
        self.forgotten = nn.Parameter(torch.zeros(3))


class KeepsItsTokens(Sound):
    def forward(self, batch: VideoBatch) -> Tensor:
        self.tokens = super().forward(batch)
        return self.tokens


class ForgetsASettingInItsCheckpoint(Sound):
    def __init__(self, spec: VideoSpec):
        super().__init__(spec)
        self.register_buffer("offset", torch.rand(4), persistent=False)

    def forward(self, batch: VideoBatch) -> Tensor:
        return super().forward(batch) + self.offset


BROKEN = [
    (AnnouncesAnotherWidth, tokens_are_as_announced, "shape"),
    (MixesSteps, steps_are_encoded_alone, "of others"),
    (MixesSamples, steps_are_encoded_alone, "of others"),
    (CountsStepsOfTheCall, slices_know_their_time, "encoded alone"),
    (HasADeadParameter, encoder_gradients_reach_every_parameter, "forgotten"),
    (KeepsItsTokens, encoder_keeps_nothing, "tokens"),
    (ForgetsASettingInItsCheckpoint, encoder_reloads, "other tokens"),
]


@pytest.mark.parametrize("law", ENCODER_LAWS, ids=lambda law: law.__name__)
def test_sound_encoder_keeps_the_law(law):
    law(Sound)


@pytest.mark.parametrize(("encoder", "law", "message"), BROKEN, ids=[encoder.__name__ for encoder, _, _ in BROKEN])
def test_broken_encoder_breaks_the_law(encoder, law, message):
    with pytest.raises(AssertionError, match=message):
        law(encoder)


def test_every_law_has_an_encoder_that_breaks_it():
    assert {law for _, law, _ in BROKEN} == set(ENCODER_LAWS)


def test_the_clips_of_the_laws_do_not_start_at_zero():
    assert random_batch(INPUT).time.min() > 0
