"""Volume rendering against closed forms, its definition and numerical gradients."""

from __future__ import annotations

import math

import pytest
import torch
from torch.autograd import gradcheck

from slotbench.nn.volume_rendering import (
    mix_densities,
    ray_points,
    render_weights,
    render_weights_reference,
    termination_depth,
)

NEAR, FAR, POINTS = 2.0, 12.0, 400_000


def random(*shape: int) -> torch.Tensor:
    return torch.rand(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def middle(points: int = POINTS) -> tuple[torch.Tensor, torch.Tensor]:
    return ray_points(NEAR, FAR, torch.full((points,), 0.5, dtype=torch.float64))


@pytest.mark.parametrize("density", [0.05, 0.7, 3.0])
@pytest.mark.parametrize("distance", [0.0, 0.9, 1.4])
def test_a_sphere_of_constant_density_has_the_closed_form(density, distance):
    centre, radius = 6.0, 1.5  # the ray passes the centre at this distance
    half = math.sqrt(radius**2 - distance**2)
    enter, leave, left = centre - half, centre + half, math.exp(-density * 2 * half)
    distances, lengths = middle()
    inside = (distances - centre) ** 2 + distance**2 < radius**2
    rendered = render_weights(density * inside, lengths)
    assert float(rendered.left) == pytest.approx(left, abs=1e-4)
    assert float(rendered.weights.sum()) == pytest.approx(1 - left, abs=1e-4)
    depth = enter + 1 / density - (leave + 1 / density) * left + FAR * left
    assert float(termination_depth(rendered, distances, FAR)) == pytest.approx(depth, abs=5e-4)


def test_slabs_behind_each_other_have_the_closed_form():
    first, second, slant = 0.4, 1.1, 1 / math.cos(0.3)
    distances, lengths = middle()
    slabs = [(distances >= 3) & (distances < 3 + slant), (distances >= 7) & (distances < 7 + 2 * slant)]
    density = first * slabs[0] + second * slabs[1]
    rendered = render_weights(density, lengths)
    shown = [float(rendered.weights[slab].sum()) for slab in slabs]
    passed = math.exp(-first * slant)
    assert shown == pytest.approx([1 - passed, passed * (1 - math.exp(-second * 2 * slant))], abs=1e-4)
    assert float(rendered.left) == pytest.approx(passed * math.exp(-second * 2 * slant), abs=1e-4)


def test_the_shares_are_those_of_the_definition_and_sum_to_1_with_what_is_left():
    density, lengths = 5 * random(3, 4, 9), random(3, 4, 9)
    density[0, 0] = 0
    density[1, 1, 4] = 1e4  # opaque
    found, expected = render_weights(density, lengths), render_weights_reference(density, lengths)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(found.weights.sum(-1) + found.left, torch.ones(3, 4).double(), rtol=0, atol=1e-12)
    assert found.left[0, 0] == 1
    assert found.left[1, 1] == 0


def test_a_denser_point_has_a_larger_share_and_hides_what_is_behind():
    density, lengths = random(6), random(6)
    before = render_weights(density, lengths).weights
    density[2] += 0.5
    after = render_weights(density, lengths).weights
    assert torch.equal(after[:2], before[:2])
    assert after[2] > before[2]
    assert (after[3:] < before[3:]).all()


def test_gradients_are_the_numerical_ones():
    density, lengths = random(2, 5).requires_grad_(), random(2, 5).requires_grad_()
    assert gradcheck(lambda *given: tuple(render_weights(*given)), (density, lengths))
    fields = random(2, 3).requires_grad_()
    for mix in ("sum", "weighted_mean"):
        assert gradcheck(lambda given, mix=mix: mix_densities(given, mix), (fields,))


def test_points_lie_in_their_bins_and_their_lengths_go_from_near_to_far():
    jitter = random(7, 5)
    distances, lengths = ray_points(NEAR, FAR, jitter)
    bins = torch.floor((distances - NEAR) / 2)
    assert torch.equal(bins, torch.arange(5).double().expand(7, 5))
    ends = torch.cat([distances[:, 1:], torch.full((7, 1), FAR).double()], 1)
    torch.testing.assert_close(NEAR + lengths.cumsum(1), ends)
    assert middle(5)[0].tolist() == [3, 5, 7, 9, 11]
    assert middle(5)[1].tolist() == [3, 2, 2, 2, 1]


@pytest.mark.parametrize("points", [1, 4])
def test_even_fog_has_its_closed_form_with_any_number_of_points(points):
    for jitter in (random(points), torch.full((points,), 0.5).double()):
        rendered = render_weights(torch.full((points,), 0.25).double(), ray_points(NEAR, FAR, jitter)[1])
        assert float(rendered.left) == pytest.approx(math.exp(-0.25 * (FAR - NEAR)), rel=1e-12)


def test_densities_are_mixed_by_either_rule():
    density = torch.tensor([3.0, 1.0, 0.0])
    total, shares = mix_densities(density, "sum")
    assert (float(total), shares.tolist()) == (4, [0.75, 0.25, 0])
    total, same = mix_densities(density, "weighted_mean")
    assert (float(total), same.tolist()) == (2.5, shares.tolist())
    assert mix_densities(torch.zeros(3))[1].tolist() == [0, 0, 0]
