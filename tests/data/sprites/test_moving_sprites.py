"""Sprites keep to their law, are drawn right, and an index is the same clip whatever is asked of its looks."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sprite_reference import draw_reference, shade_reference
from torch import Tensor

from slotbench.data.base import LoaderOptions, to_unit_range
from slotbench.data.sprites import world
from slotbench.data.sprites.moving_sprites import MovingSprites
from slotbench.data.sprites.world import COLOURS, SHAPES, SpriteWorld, draw_sprites
from slotbench.interfaces import VideoBatch


def clips(data: MovingSprites, split: str = "test", count: int = 32) -> VideoBatch:
    return data.dataset(split).clips(range(count))  # type: ignore[arg-type,attr-defined]


LAW = clips(MovingSprites(resolution=64), count=500)


@settings(deadline=None)
@given(
    seed=st.integers(0, 10**6),
    num_sprites=st.integers(1, 5),
    resolution=st.sampled_from([1, 7, 16, 33]),
    base_size=st.floats(1.0, 64.0),
    texture=st.sampled_from(["none", "sprites", "background", "both"]),
    first=st.integers(0, 3),
)
def test_compiled_and_readable_drawing_give_the_same_bytes(
    seed: int, num_sprites: int, resolution: int, base_size: float, texture: world.Texture, first: int
) -> None:
    law = SpriteWorld(num_sprites, resolution, base_size, speed=6.0, birth_frames=4, texture=texture)
    sprites = law.draw([np.random.default_rng([seed, clip]) for clip in range(2)], 6)
    fast = draw_sprites(sprites, 6, resolution, first)
    references = {"_shade_sprites": shade_reference, "_draw_sprites": draw_reference}
    with mock.patch.object(world, "compiled", lambda function: references[function.__name__]):
        readable = draw_sprites(sprites, 6, resolution, first)
    for name in ("masks", "visibility", "bboxes"):
        assert np.array_equal(getattr(fast, name), getattr(readable, name)), name
    # lights are summed in another order: a value half-way between two bytes may go either way
    assert np.abs(fast.frames.astype(int) - readable.frames).max() <= (texture != "none")


def test_velocities_are_constant_and_as_fast_as_said() -> None:
    births, positions = LAW.objects["births"], LAW.objects["positions"]
    moved = positions.diff(dim=1)
    speed = moved.norm(dim=-1)
    steps = torch.arange(19)[None, :, None]
    there = (births[:, None] >= 0) & (steps >= births[:, None])
    assert ((speed - 2.65).abs() < 1e-4)[there].all()
    assert (moved - LAW.objects["velocities"][:, 1:]).abs()[there].max() < 1e-4
    assert (speed == 0)[(births[:, None] >= 0) & ~there].all()


def test_sprites_appear_in_the_first_two_frames_three_of_four_and_never_none() -> None:
    births = LAW.objects["births"]
    assert set(births.unique().tolist()) == {-1, 0, 1}
    assert LAW.objects["present"].any(1).all()
    # the mean of three, each there with 3/4, given that one is: 2.25 / (1 - 1/64)
    assert LAW.objects["present"].sum(1).double().mean().item() == pytest.approx(2.2857, abs=0.12)
    among_present = (births == 0).sum() / (births >= 0).sum()
    assert among_present.item() == pytest.approx(2 / 3, abs=0.05)
    starts = LAW.objects["starts"]
    assert starts.min() >= 10
    assert starts.max() <= 53
    assert starts.mean().item() == pytest.approx(31.5, abs=1.0)


def test_sizes_shapes_and_colours_are_drawn_as_said() -> None:
    present = LAW.objects["present"]
    height, width = LAW.objects["scale"][present].unbind(-1)
    assert 21 * 0.9 * 0.8**0.5 - 0.5 <= height.min() <= height.max() <= 21 * 1.1 * 1.2**0.5 + 0.5
    ratio = (height / width).log()
    assert ratio.abs().max() <= -np.log(0.8) + 0.08
    for name, number in (("shape_label", len(SHAPES)), ("color_label", len(COLOURS))):
        labels = LAW.objects[name]
        assert (labels[~present] == -1).all()
        shares = torch.bincount(labels[present], minlength=number) / present.sum()
        assert shares.tolist() == pytest.approx([1 / number] * number, abs=0.05)


@pytest.mark.parametrize("texture", ["none", "sprites"])
def test_a_frame_is_its_layers_painted_one_over_the_other(texture: world.Texture) -> None:
    data = MovingSprites(texture=texture)
    batch = to_unit_range(clips(data))
    layers, masks = data.layers(batch), batch.require("masks")
    assert layers.shape == (32, 20, 3, 3, 64, 64)
    painted, ids = torch.zeros_like(batch.frames), torch.zeros_like(masks)
    for i in range(3):
        covers = layers[:, :, i].amax(2) > 0
        painted = torch.where(covers[:, :, None], layers[:, :, i], painted)
        ids = torch.where(covers, torch.full_like(ids, i + 1), ids)
    assert torch.equal(painted, batch.frames)
    assert torch.equal(ids, masks)
    # some sprites are partly hidden, and are whole in their layers
    hidden = (layers.amax(3) > 0).sum((-1, -2)) - batch.objects["visibility"]
    assert (hidden >= 0).all()
    assert (hidden > 20).any()


def looks(**arguments) -> MovingSprites:
    return MovingSprites(eval_frames=8, **arguments)


def test_an_index_is_the_same_clip_in_all_sizes_colours_and_textures() -> None:
    large, small, textured = clips(looks()), clips(looks(resolution=32)), clips(looks(texture="both"))
    red = clips(looks(colours=("red",)))
    assert set(red.objects["color_label"].unique().tolist()) == {-1, 0}
    assert torch.equal(red.require("masks"), large.require("masks"))
    assert torch.equal(textured.require("masks"), large.require("masks"))
    assert torch.equal(small.objects["births"], large.objects["births"])
    assert torch.equal(small.objects["shape_label"], large.objects["shape_label"])
    assert torch.allclose(small.objects["velocities"] * 2, large.objects["velocities"], atol=1e-5)
    assert (textured.frames[textured.require("masks")[:, :, None].expand_as(textured.frames) == 0] > 0).any()


def test_without_occlusion_nothing_is_ever_hidden() -> None:
    overlapping, apart = MovingSprites(), MovingSprites(occlusion=False)
    hidden: list[Tensor] = []
    for data in (overlapping, apart):
        batch = to_unit_range(clips(data))
        hidden.append((data.layers(batch).amax(3) > 0).sum((-1, -2)) - batch.objects["visibility"])
    assert (hidden[0] > 0).flatten(1).any(1).float().mean() > 0.3
    assert not hidden[1].any()


def test_constant_velocity_is_right_but_for_what_appears_later() -> None:
    data = MovingSprites(resolution=32, birth_frames=6, loader=LoaderOptions(val_size=64))
    batch = data.on_after_batch_transfer(next(iter(data.val_dataloader())), 0)
    late = data.oracle_predictions(batch, 2, 18)["constant velocity"]
    assert torch.equal(data.oracle_predictions(batch, 6, 14)["constant velocity"], batch.frames[:, 6:])
    seen = batch.objects["births"].amax(1) < 2
    assert 0 < seen.sum() < 64
    assert torch.equal(late[seen], batch.frames[seen, 2:])
    assert (late[~seen] != batch.frames[~seen, 2:]).flatten(1).any(1).all()


def test_oracle_predictions_read_no_frame_and_nothing_of_what_appears_later() -> None:
    data = MovingSprites(resolution=16, birth_frames=8, texture="both")
    batch = to_unit_range(clips(data))
    expected = data.oracle_predictions(batch, 4, 10)["constant velocity"]
    later = batch.objects["births"] >= 4
    for name in ("starts", "scale", "shape_label", "color_label"):
        values = batch.objects[name]
        batch.objects[name] = torch.where(later.view(32, 3, *[1] * (values.dim() - 2)), 1, values)
    batch.objects["positions"] = batch.objects["positions"] * torch.nan
    batch.frames = batch.frames * 0
    assert torch.equal(data.oracle_predictions(batch, 4, 10)["constant velocity"], expected)
