"""The laws of objectives, for every one that is registered."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from slotbench import registry
from slotbench.interfaces import Scene, SlotSpec, VideoSpec

SLOTS, TARGET = SlotSpec(4, 8), VideoSpec(6, 3, 5)
pytestmark = pytest.mark.parametrize("name", registry.names("objectives"))


def made(name, batch=2, time=3):
    """The objective and a scene, of which slots and what is painted ask for gradients."""
    torch.manual_seed(0)
    objective = registry.load("objectives", name)(SLOTS, TARGET).double()
    rows, cols = TARGET.height, TARGET.width
    painted = torch.randn(batch, time, objective.paints, rows, cols).double().requires_grad_()
    scene = Scene(
        slots=torch.randn(batch, time, SLOTS.num_slots, SLOTS.dim).double().requires_grad_(),
        attention=torch.randn(batch, time, SLOTS.num_slots, rows * cols).double().softmax(2),
        masks=torch.randn(batch, time, SLOTS.num_slots, rows, cols).double().softmax(2),
        target=torch.randn(batch, time, TARGET.channels, rows, cols).double(),
        painted=painted if objective.paints else None,
    )
    return objective, scene


@pytest.mark.parametrize(("batch", "time"), [(2, 3), (1, 3), (2, 1), (1, 1)])
def test_value_and_gradients_are_finite_for_any_clip(name, batch, time):
    objective, scene = made(name, batch, time)
    value = objective(scene)
    assert value.shape == ()
    value.backward()
    read = [tensor for tensor in (scene.slots, scene.painted) if tensor is not None and tensor.grad is not None]
    assert value.isfinite()
    assert read
    assert all(tensor.grad.isfinite().all() for tensor in read)
    if time > 1:
        assert any(tensor.grad.abs().sum() > 0 for tensor in read)
    if scene.painted is not None:
        assert scene.painted.grad is not None, "what an objective paints is trained by it alone"


def test_the_order_of_slots_and_of_clips_is_of_no_matter(name):
    objective, scene = made(name)
    order = torch.tensor([2, 0, 3, 1])
    slots = {name: getattr(scene, name)[:, :, order] for name in ("slots", "attention", "masks")}
    clips = {name: value if value is None else value.flip(0) for name, value in vars(scene).items()}
    expected = objective(scene)
    for permuted in (replace(scene, **slots), Scene(**clips)):
        torch.testing.assert_close(objective(permuted), expected, rtol=1e-12, atol=0)


def test_slots_that_change_places_in_time_cost_as_much_or_more_on_still_clips(name):
    """On a clip whose steps are all alike, no objective prefers slots that wander."""
    objective, scene = made(name)
    still = {name: value if value is None else value[:, :1].expand_as(value) for name, value in vars(scene).items()}
    wandering = torch.stack([still["slots"][:, t].roll(t, dims=1) for t in range(3)], dim=1)
    assert objective(Scene(**(still | {"slots": wandering}))) >= objective(Scene(**still))


def test_the_weight_is_the_tasks_business(name):
    objective, scene = made(name)
    expected = objective(scene)
    objective.weight *= 2
    assert objective(scene) == expected
