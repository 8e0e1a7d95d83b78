"""Several cameras per step: how their frames flow, the laws of the parts that take them, and parts that break these.

A law raises AssertionError where a part breaks it.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from any_part import light
from einops import rearrange
from jaxtyping import TypeCheckError
from torch import Tensor, nn
from view_tasks import RowsOfViews

from slotbench import registry
from slotbench.interfaces import DataSpec, Decoded, Decoder, SlotSpec, VideoBatch, VideoSpec
from slotbench.tasks.slot_task import SlotTask
from slotbench.testing.frame_laws import (
    ENCODER_LAWS,
    PAINTED,
    SLOTS,
    VIEW_LAWS,
    VIEWS,
    decoder_gradients_reach_every_parameter,
    decoder_keeps_nothing,
    decoder_reloads,
    every_view_is_encoded,
    held_out_views_are_not_read,
    random_batch,
    random_slots,
    steps_are_decoded_alone,
    views_follow_their_rays,
)


class Rays(Decoder):
    """Every pixel of every view from its ray and the mean of the slots."""

    takes_views = True

    def __init__(self, slots: SlotSpec, target: VideoSpec) -> None:
        super().__init__()
        self.of_slots, self.of_ray = nn.Linear(slots.dim, 8), nn.Linear(6, 8)
        self.colour = nn.Linear(8, target.channels)

    def forward(self, slots: Tensor, batch: VideoBatch | None = None) -> Decoded:
        assert batch is not None
        rays = self.of_ray(batch.require("rays").movedim(-3, -1).to(slots))
        seen = torch.tanh(rays + self.of_slots(slots).mean(2)[:, :, None, None, None])
        return Decoded(self.colour(seen).movedim(-1, -3))


class SeesTheFirstView(RowsOfViews):
    def forward(self, batch: VideoBatch) -> Tensor:
        return super().forward(replace(batch, frames=batch.frames[:, :, :1].expand_as(batch.frames)))


class LooksAtWhatIsHeldOut(RowsOfViews):
    def forward(self, batch: VideoBatch) -> Tensor:
        tokens = super().forward(batch)
        return tokens if batch.held_out is None else tokens + batch.held_out.frames.mean()


class PaintsByNumber(Rays):
    """Views by their place, whatever their rays."""

    def forward(self, slots: Tensor, batch: VideoBatch | None = None) -> Decoded:
        painted = super().forward(slots, batch).reconstruction
        return Decoded(painted + torch.arange(painted.shape[2])[:, None, None, None])


@pytest.mark.parametrize("law", [*ENCODER_LAWS, *VIEW_LAWS], ids=lambda law: law.__name__)
def test_an_encoder_of_several_views_keeps_the_law(law):
    law(RowsOfViews, VIEWS)


@pytest.mark.parametrize("law", [*ENCODER_LAWS, *VIEW_LAWS], ids=lambda law: law.__name__)
@pytest.mark.parametrize("name", [n for n in registry.names("encoders") if registry.load("encoders", n).takes_views])
def test_registered_encoders_that_take_views_keep_the_law(name, law):
    law(light("encoders", name), VIEWS)


RAY_DECODERS = [n for n in registry.names("decoders") if registry.load("decoders", n).paints_rays]


@pytest.mark.parametrize("name", RAY_DECODERS)
def test_registered_decoders_of_rays_paint_each_view_by_its_rays(name):
    views_follow_their_rays(light("decoders", name), SLOTS, PAINTED)


@pytest.mark.parametrize("name", RAY_DECODERS)
def test_registered_decoders_of_rays_paint_some_of_them_as_in_the_whole(name):
    assert registry.load("decoders", name).takes_views
    torch.manual_seed(0)
    decoder = light("decoders", name)(SLOTS, PAINTED).double().eval()
    slots, batch = random_slots(SLOTS), random_batch(PAINTED)
    chosen = torch.randint(2 * 64, (*slots.shape[:2], 9), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        whole, some = decoder(slots, batch), decoder(slots, replace(batch, masks=None).take_rays(chosen))
    pixels = rearrange(whole.reconstruction, "b t v c h w -> b t c (v h w)")
    expected = pixels.gather(3, chosen[:, :, None].expand(-1, -1, pixels.shape[2], -1))
    torch.testing.assert_close(some.reconstruction[:, :, 0, :, 0], expected)


DECODER_LAWS = (
    views_follow_their_rays,
    steps_are_decoded_alone,
    decoder_gradients_reach_every_parameter,
    decoder_keeps_nothing,
    decoder_reloads,
)


@pytest.mark.parametrize("law", DECODER_LAWS, ids=lambda law: law.__name__)
def test_a_decoder_of_several_views_keeps_the_law(law):
    law(Rays, SLOTS, PAINTED)


@pytest.mark.parametrize(
    ("part", "law", "message"),
    [
        (SeesTheFirstView, every_view_is_encoded, "view 1 of a changed step stayed the same"),
        (LooksAtWhatIsHeldOut, held_out_views_are_not_read, "held out change the tokens"),
        (PaintsByNumber, views_follow_their_rays, "in another order"),
    ],
)
def test_what_breaks_a_law_is_found(part, law, message):
    with pytest.raises(AssertionError, match=message):
        law(part)


def test_shown_and_held_out_views_are_cut_moved_and_joined_together():
    batch = random_batch(VIEWS)
    assert (batch.num_views, batch.held_out.num_views) == (3, 2)
    piece = batch.slice_time(1, 3)
    assert torch.equal(piece.frames, batch.frames[:, 1:3])
    assert torch.equal(piece.rays, batch.rays[:, 1:3])
    assert torch.equal(piece.held_out.frames, batch.held_out.frames[:, 1:3])
    assert piece.held_out.time.tolist() == piece.time.tolist()
    assert {value.device.type for value in (batch.to("meta").frames, batch.to("meta").held_out.rays)} == {"meta"}
    joined = VideoBatch.join([batch, batch])
    assert joined.held_out.frames.shape == (4, *batch.held_out.frames.shape[1:])
    with pytest.raises(TypeCheckError):
        replace(batch, rays=batch.rays[:, :, :2])  # rays of two of three views


class NewViews(SlotTask):
    """Slots from the views that are shown; the views that are held out are painted."""

    def __init__(self, data_spec: DataSpec) -> None:
        super().__init__(RowsOfViews, registry.load("cores", "SlotSSM"), Rays, data_spec=data_spec)

    def forward(self, batch: VideoBatch) -> Decoded:
        return self.decoder(self.core(self.encoder(batch)).slots, batch.held_out)

    def loss(self, output: Decoded, batch: VideoBatch) -> Tensor:
        return output.add_losses((output.reconstruction - batch.held_out.frames).square().mean())


def test_a_task_paints_views_that_its_encoder_is_not_shown():
    torch.manual_seed(0)
    task = NewViews(DataSpec(VIEWS, replace(VIEWS, num_views=2)))
    batch = random_batch(VIEWS).map(lambda value: value.float() if value.is_floating_point() else value)
    decoded = task(batch)
    assert decoded.reconstruction.shape == (2, 5, 2, 3, 16, 16)
    task.loss(decoded, batch).backward()
    assert all(parameter.grad is not None for parameter in task.parameters())


def test_slots_know_nothing_of_views():
    assert random_slots(SLOTS).shape == (2, 5, 3, 16)


def test_some_rays_of_all_views_are_a_view_of_one_row():
    batch = replace(random_batch(VIEWS), masks=None)
    whole = batch.all_views()
    assert (whole.num_views, whole.held_out) == (5, None)
    assert torch.equal(whole.rays, torch.cat([batch.rays, batch.held_out.rays], dim=2))
    steps, (height, width) = batch.num_steps, batch.frames.shape[-2:]
    chosen = torch.randint(5 * height * width, (len(batch), steps, 7), generator=torch.Generator().manual_seed(0))
    taken = replace(whole, masks=whole.rays[:, :, :, 0].mul(100).long()).take_rays(chosen)
    assert taken.frames.shape == (len(batch), steps, 1, batch.frames.shape[3], 1, 7)
    assert (taken.rays.shape[2:], taken.masks.shape[2:]) == ((1, 6, 1, 7), (1, 1, 7))
    for clip, step, ray in [(0, 0, 0), (1, 2, 6), (1, 1, 3)]:
        view, row, column = np.unravel_index(int(chosen[clip, step, ray]), (5, height, width))
        for name in ("frames", "rays"):
            pixel = getattr(whole, name)[clip, step, view, :, row, column]
            assert torch.equal(getattr(taken, name)[clip, step, 0, :, 0, ray], pixel)
        assert taken.masks[clip, step, 0, 0, ray] == int(whole.rays[clip, step, view, 0, row, column] * 100)
