"""Slot attention before the modules, in both forms, against loops written from their descriptions."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from slotbench_plugins.cores.rim.draws import noise_of_steps, start_of_draws
from slotbench_plugins.cores.rim.frame_slots import FrameSlots
from small_rim import noise
from torch import Tensor

from slotbench.nn.slot_init import drawn_by_clip

SIZES = st.integers(1, 5)


def gru(w: dict[str, Tensor], x: Tensor, h: Tensor) -> Tensor:
    a = w["gru.input_map.weight"] @ x + w["gru.input_map.bias"]
    b = w["gru.hidden_map.weight"] @ h + w["gru.hidden_map.bias"]
    (ar, az, an), (br, bz, bn) = a.chunk(3), b.chunk(3)
    reset, keep = torch.sigmoid(ar + br), torch.sigmoid(az + bz)
    return (1 - keep) * torch.tanh(an + reset * bn) + keep * h


def normed(x: Tensor, scale: Tensor | None = None, offset: Tensor | None = None) -> Tensor:
    """One vector if there is a scale, else a whole set."""
    if scale is None:
        return (x - x.mean()) / (x.var(unbiased=False) + 1e-5).sqrt()
    return (x - x.mean(-1, keepdim=True)) / (x.var(-1, unbiased=False, keepdim=True) + 1e-5).sqrt() * scale + offset


def by_hand(layer: FrameSlots, tokens: Tensor, drawn: Tensor, joint: bool) -> tuple[Tensor, Tensor]:
    """(slots, assignment) of one frame: tokens "tokens dim", standard normal noise "slots dim"."""
    w = dict(layer.corrector.named_parameters())

    def norm(x: Tensor, name: str) -> Tensor:
        return normed(x) if joint else normed(x, w[f"{name}.weight"], w[f"{name}.bias"])

    key, value = (norm(tokens, "token_norm") @ w["attention.key_value.weight"].T).chunk(2, dim=-1)
    slots = layer.slots.mean + layer.slots.log_deviation.exp() * drawn if layer.draws else drawn
    for _ in range(layer.num_iterations):
        s = norm(slots, "slot_norm")
        query = s @ w["attention.query.weight"].T
        assignment = (query @ key.T / slots.shape[1] ** 0.5).exp()
        assignment = assignment / assignment.sum(dim=0)
        weights = (assignment + 1e-8) / (assignment + 1e-8).sum(dim=1, keepdim=True)
        before = s if joint else slots
        slots = torch.stack([gru(w, weights[k] @ value, before[k]) for k in range(len(slots))])
        hidden = (norm(slots, "mlp.0") @ w["mlp.1.weight"].T + w["mlp.1.bias"]).clamp(min=0)
        slots = slots + hidden @ w["mlp.3.weight"].T + w["mlp.3.bias"]
    return slots, assignment


def layer_of(norm: str, slots: int = 3, token_dim: int = 5, dim: int = 6, **arguments) -> FrameSlots:
    torch.manual_seed(0)
    layer = FrameSlots(token_dim, slots, dim, mlp_dim=7, norm=norm, **arguments).double()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return layer


BOTH = pytest.mark.parametrize("norm", ["vector", "joint"])


@BOTH
@settings(max_examples=12, deadline=None)
@given(batch=SIZES, time=SIZES, tokens=SIZES, slots=SIZES, dim=st.integers(2, 6), iterations=st.integers(1, 3))
def test_all_frames_at_once_are_the_frames_by_hand(norm, batch, time, tokens, slots, dim, iterations):
    layer = layer_of(norm, slots, dim=dim, num_iterations=iterations)
    x, drawn = noise(batch, time, tokens, 5), noise(batch, time, slots, dim, seed=1)
    found, assignment = layer(x, drawn)
    for i in range(batch):
        for t in range(time):
            expected = by_hand(layer, x[i, t], drawn[i, t], norm == "joint")
            torch.testing.assert_close((found[i, t], assignment[i, t]), expected, rtol=1e-9, atol=1e-9)


@BOTH
def test_gradients_are_those_of_the_frames_by_hand(norm):
    layer = layer_of(norm)
    x, drawn, weight = noise(2, 2, 4, 5).requires_grad_(), noise(2, 2, 3, 6, seed=1), noise(3, 6, seed=2)
    wanted = [x, *layer.parameters()]
    loss = (layer(x, drawn)[0] * weight).sum()
    loops = sum(
        (by_hand(layer, x[i, t], drawn[i, t], norm == "joint")[0] * weight).sum() for i in (0, 1) for t in (0, 1)
    )
    for found, expected in zip(torch.autograd.grad(loss, wanted), torch.autograd.grad(loops, wanted), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-7, atol=1e-9)


def test_parameters_count_as_in_the_thesis():
    for dim, expected in ((100, 109_428), (64, 53_952)):
        assert sum(p.numel() for p in FrameSlots(64, 3, dim, norm="joint").parameters()) == expected
        # the original form has a scale and an offset in each of its three norms
        extra = 2 * (64 + dim + dim)
        assert sum(p.numel() for p in FrameSlots(64, 3, dim).parameters()) == expected + extra


@BOTH
def test_learned_slots_start_every_frame_alike_in_their_order(norm):
    layer, x = layer_of(norm, slot_init="learned"), noise(2, 3, 4, 5)
    slots, assignment = layer(x, None)
    for i in range(2):
        for t in range(3):
            expected = by_hand(layer, x[i, t], layer.slots.slots, norm == "joint")
            torch.testing.assert_close((slots[i, t], assignment[i, t]), expected, rtol=1e-9, atol=1e-9)
    assert not layer.draws


def test_the_start_of_the_thesis_is_that_of_pytorch():
    layer = FrameSlots(64, 3, 100, norm="joint", init="thesis")
    for weight, fan_in in (
        (layer.corrector.attention.key_value.weight, 64),
        (layer.corrector.gru.input_map.weight, 100),
    ):
        assert weight.abs().max() <= fan_in**-0.5
        assert weight.std().item() == pytest.approx((3 * fan_in) ** -0.5, rel=0.1)
    assert 0.7 < layer.slots.mean.std() < 1.3
    assert 0.7 < layer.slots.log_deviation.std() < 1.3


def test_noise_of_evaluation_is_that_of_the_clip_and_the_step():
    like = torch.zeros(0, dtype=torch.float64)

    def drawn(clips: list[int], first: int, steps: int) -> Tensor:
        with drawn_by_clip(clips):
            draws = start_of_draws(len(clips), torch.device("cpu"))
        draws = draws._replace(step=draws.step + first)
        return noise_of_steps((3, 4), steps, draws, like, anew=False, kind="normal")

    whole = drawn([7, 9], 0, 5)
    assert torch.equal(drawn([9], 2, 3)[0], whole[1, 2:])
    assert whole.flatten(0, 1).unique(dim=0).shape[0] == 10
    many = drawn(list(range(200)), 0, 20)
    assert many.mean().abs() < 0.02
    assert many.std().item() == pytest.approx(1, abs=0.02)
    # neighbours in clips and in steps have nothing to do with one another
    for left, right in ((many[1:], many[:-1]), (many[:, 1:], many[:, :-1])):
        assert (left * right).mean().abs() < 0.02


def test_gumbel_noise_makes_choices_by_softmax():
    draws = start_of_draws(20_000, torch.device("cpu"))
    scores = torch.tensor([0.0, 1.0, -1.0])
    gumbel = noise_of_steps((3,), 1, draws, scores, anew=True, kind="gumbel")[:, 0]
    shares = torch.nn.functional.one_hot((scores + gumbel).argmax(dim=-1), 3).float().mean(dim=0)
    torch.testing.assert_close(shares, scores.softmax(dim=0), rtol=0, atol=0.02)
