"""Slot NeRF: sizes of the paper, what fields of known form render to, masks, background, depth, and its pieces."""

from __future__ import annotations

import math

import pytest
import torch
from slotbench_plugins.decoders import slot_nerf
from slotbench_plugins.decoders.slot_nerf import SlotNeRF, _Said
from torch import nn

from slotbench.interfaces import SlotSpec, VideoBatch
from slotbench.testing.aids import ready
from slotbench.testing.frame_laws import PAINTED, SLOTS, TARGET, random_batch, random_slots


def count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def decoder(**arguments) -> SlotNeRF:
    torch.manual_seed(0)
    return ready(SlotNeRF(SLOTS, PAINTED, dim=16, num_points=6, **arguments))


def painted(part: SlotNeRF, slots=None, batch=None):
    with torch.no_grad():
        return part(random_slots(SLOTS) if slots is None else slots, random_batch(PAINTED) if batch is None else batch)


class Solid(nn.Module):
    """Fields of one density, one colour and one light each, everywhere."""

    def __init__(self, densities, colours, light=1.0):
        super().__init__()
        self.light = light
        self.densities, self.colours = torch.tensor(densities).double(), torch.tensor(colours).double()

    def forward(self, points, view, slots=None):
        lead = points.shape[:3]
        density = self.densities[:, None].expand(*lead, -1, 1)
        return _Said(density, self.colours.expand(*lead, -1, -1), torch.full_like(density, self.light))


class Spheres(nn.Module):
    """A sphere of radius 1 for each slot, along the x axis; the points come as they are."""

    densities, centres = (0.8, 0.5, 2.0), (3.0, 6.0, 9.0)

    def forward(self, points, view, slots=None):
        spheres = [torch.stack([points[..., 0] - x, points[..., 1], points[..., 2]], -1) for x in self.centres]
        inside = torch.stack([sphere.norm(dim=-1) < 1 for sphere in spheres], dim=-1)
        density = (inside * torch.tensor(self.densities))[..., None].double()
        colour = torch.eye(3).double().expand(*density.shape[:3], -1, -1)
        return _Said(density, colour, torch.ones_like(density))


def test_the_blocks_have_the_sizes_of_tables_10_and_11():
    whole = SlotNeRF(SlotSpec(6, 192), TARGET, dim=192, num_points=64)
    for field in (whole.field, whole.static_field):
        assert (count(field.block1), count(field.block2)) == (149_376, 74_880)


def test_spheres_render_to_the_closed_form(monkeypatch):
    monkeypatch.setattr(slot_nerf, "encode_scalars", lambda values, bound: values)
    part = (
        SlotNeRF(SLOTS, PAINTED, num_points=200_000, near=1.0, far=11.0, static_field=False, sky=False).double().eval()
    )
    part.field = Spheres()
    # one ray through all centres, one past them at half the radius, one past everything, one from the other side
    origins = torch.tensor([[0, 0, 0], [0, 0.5, 0], [0, 5, 0], [12, 0, 0]])
    directions = torch.tensor([[1, 0, 0], [1, 0, 0], [1, 0, 0], [-1, 0, 0]])
    rays = torch.cat([origins, directions], -1).double().T[None, None, None, :, None]
    batch = VideoBatch(torch.zeros(1, 1, 1, 3, 1, 4), torch.zeros(1, 1, dtype=torch.long), rays=rays)
    found = painted(part, random_slots(SLOTS, 1, 1), batch)
    shares = torch.zeros(3, 4)
    for ray, chord, order in ((0, 2.0, (0, 1, 2)), (1, math.sqrt(3), (0, 1, 2)), (3, 2.0, (2, 1, 0))):
        passed = 1.0
        for slot in order:
            through = math.exp(-Spheres.densities[slot] * chord)
            shares[slot, ray] = passed * (1 - through)
            passed *= through
    torch.testing.assert_close(found.reconstruction[0, 0, 0, :, 0].float(), shares, rtol=0, atol=1e-4)
    torch.testing.assert_close(found.background[0, 0, 0, 0].float(), 1 - shares.sum(0), rtol=0, atol=1e-4)
    alone = found.masks * (1 - found.background[:, :, :, None])
    torch.testing.assert_close(alone[0, 0, 0, :, 0].float(), shares, rtol=0, atol=1e-4)
    assert found.masks[0, 0, 0, :, 0, 2].tolist() == pytest.approx([1 / 3] * 3)
    assert float(found.depth[0, 0, 0, 0, 2]) == pytest.approx(11)
    assert 2 < float(found.depth[0, 0, 0, 0, 0]) < 6


@pytest.mark.parametrize("mix", ["sum", "weighted_mean"])
def test_one_opaque_slot_of_one_colour_gives_that_colour(mix):
    part = decoder(mix=mix, static_field=False)
    part.field = Solid([0, 1e5, 0], [[0.0] * 3, [0.2, 0.5, 0.9], [1.0] * 3])
    found = painted(part)
    expected = torch.tensor([0.2, 0.5, 0.9]).double()[:, None, None].expand_as(found.reconstruction)
    torch.testing.assert_close(found.reconstruction, expected)
    assert found.masks[:, :, :, 1].min() > 0.999
    assert found.background.max() < 1e-9


def test_shadows_of_all_fields_multiply():
    part = decoder(shadow=True)
    part.field, part.static_field = Solid([9.0] * 3, [[1.0] * 3] * 3, 0.5), Solid([9.0], [[1.0] * 3], 0.9)
    found = painted(part)
    torch.testing.assert_close(found.reconstruction, torch.full_like(found.reconstruction, 0.5**3 * 0.9))


def test_empty_space_shows_the_sky_or_nothing():
    for sky in (False, True):
        part = decoder(static_field=False, sky=sky)
        part.field = Solid([0.0] * 3, [[1.0] * 3] * 3)
        found = painted(part)
        if sky:
            view = random_batch(PAINTED).rays[:, :, :, 3:].movedim(3, -1)
            expected = part.sky(slot_nerf.encode_scalars(view, 1.0)).movedim(-1, 3)
            torch.testing.assert_close(found.reconstruction, expected)
        else:
            assert not found.reconstruction.any()
        assert found.background.min() == 1
        torch.testing.assert_close(found.depth, torch.full_like(found.depth, part.far))


def test_the_static_field_is_background():
    part = decoder()
    part.field = Solid([0.3] * 3, [[0.0] * 3] * 3)
    part.static_field = Solid([0.9], [[1.0] * 3])
    found = painted(part)
    # the first point is at the middle of its bin, so that half a bin is not seen
    left = math.exp(-1.8 * 15 * 5.5 / 6)
    assert found.background.max() == pytest.approx(left + (1 - left) / 2)
    assert found.masks.max() == pytest.approx(1 / 3)


def test_a_slot_can_be_taken_out():
    found = painted(decoder(), random_slots(SLOTS)[:, :, :2])
    assert found.masks.shape[3] == 2


def test_some_rays_have_the_depth_and_background_of_the_whole_image():
    part, batch = decoder(), random_batch(PAINTED).all_views()
    chosen = torch.randint(batch.frames[0, 0, :, 0].numel(), (2, 5, 9), generator=torch.Generator().manual_seed(0))
    whole, some = painted(part, batch=batch), painted(part, batch=batch.take_rays(chosen))
    for name in ("depth", "background"):
        pixels = getattr(whole, name).flatten(2).gather(2, chosen)
        torch.testing.assert_close(getattr(some, name)[:, :, 0, 0], pixels, rtol=0, atol=1e-12)


def test_training_draws_points_and_evaluation_does_not():
    part = decoder()
    assert torch.equal(painted(part).reconstruction, painted(part).reconstruction)
    part.train()
    assert not torch.equal(painted(part).reconstruction, painted(part).reconstruction)


def test_a_new_decoder_lets_some_light_through():
    torch.manual_seed(0)
    part = SlotNeRF(SlotSpec(6, 16), PAINTED, num_points=8).double().eval()
    found = painted(part, random_slots(SlotSpec(6, 16)))
    passed = (part.far - found.depth).mean() / (part.far - part.near)
    assert 0.1 < float(passed) < 0.9
