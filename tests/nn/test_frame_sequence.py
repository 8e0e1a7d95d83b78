from __future__ import annotations

import math

import pytest
import torch
from slotbench_plugins.cores.performer import FavorAttention
from torch import Tensor, nn

from slotbench.nn.frame_sequence import FrameLayer, FrameSequence
from slotbench.nn.temporal_attention import TemporalAttention


def sequence(grid: tuple[int, int] = (2, 2), patch: int | None = None, **arguments) -> FrameSequence:
    torch.manual_seed(0)
    model = FrameSequence(
        5, grid, lambda _: TemporalAttention(8, 2), dim=8, num_layers=2, mlp_ratio=2, patch=patch, **arguments
    ).double()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.4)
    return model


def tokens(batch: int = 2, time: int = 6, count: int = 4) -> Tensor:
    return torch.randn(
        batch, time, count, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64, requires_grad=True
    )


def layer_norm(norm: nn.LayerNorm, x: Tensor) -> Tensor:
    centred = x - x.mean(dim=-1, keepdim=True)
    return norm.weight * centred / (centred.square().mean(dim=-1, keepdim=True) + 1e-6).sqrt() + norm.bias


def full_attention(attention: TemporalAttention, x: Tensor) -> Tensor:
    heads, dim = attention.num_heads, x.shape[-1] // attention.num_heads
    query, key, value = (
        part.unflatten(-1, (heads, dim)).transpose(1, 2) for part in attention.query_key_value(x).chunk(3, dim=-1)
    )
    logits = query @ key.mT / math.sqrt(dim)
    visible = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril()
    mean = logits.masked_fill(~visible, -torch.inf).softmax(dim=-1) @ value
    return attention.output(mean.transpose(1, 2).flatten(2))


def written_out(model: FrameSequence, x: Tensor) -> Tensor:
    """The model line by line, over the whole clip, for one patch of the whole grid."""
    batch, time = x.shape[:2]
    x = model.project.linear(x.flatten(2))
    x = torch.cat([model.start.expand(batch, 1, 8), x], dim=1)
    x = model.input_map(x)
    for step in range(time + 1):
        angles = [step / 10_000 ** (i / 4) for i in range(4)]
        position = torch.tensor([math.sin(a) for a in angles] + [math.cos(a) for a in angles])
        x = x + position.double() * (torch.arange(time + 1) == step)[:, None]
    for layer in model.layers:
        x = x + full_attention(layer.attention, layer_norm(layer.attention_norm, x))
        hidden = layer.expand(layer_norm(layer.mlp_norm, x))
        x = x + layer.contract(hidden / (1 + torch.exp(-1.702 * hidden)))
    x = model.output_map(x)
    x = 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    return model.unproject.linear(layer_norm(model.output_norm, x)[:, 1:]).unflatten(-1, (4, -1))


def test_value_and_gradient_are_those_of_the_model_written_out():
    model, x = sequence(output_dim=3), tokens()
    output, _ = model(x)
    expected = written_out(model, x)
    torch.testing.assert_close(output, expected, rtol=1e-6, atol=1e-6)
    weight = torch.randn_like(expected)
    of = [x, *model.parameters()]
    for found, wanted in zip(
        torch.autograd.grad((output * weight).sum(), of),
        torch.autograd.grad((expected * weight).sum(), of),
        strict=True,
    ):
        torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)


def test_the_learned_element_comes_once_before_the_first_frame():
    model, x = sequence(), tokens()
    _, state = model(x[:, :2])
    assert state.next_step.tolist() == [3, 3]
    assert [layer.key.shape[2] for layer in state.layers] == [3, 3]
    _, state = model(x[:, 2:], state)
    assert state.next_step.tolist() == [7, 7]
    assert [layer.key.shape[2] for layer in state.layers] == [7, 7]


@pytest.mark.parametrize("attention", [lambda: TemporalAttention(64, 4), lambda: FavorAttention(64, 4)])
def test_weights_start_as_in_the_public_code(attention):
    torch.manual_seed(0)
    layer = FrameLayer(64, attention())
    normal = layer.attention.query_key_value.weight
    assert normal.std().item() == pytest.approx(64**-0.5, rel=0.03)
    assert normal.abs().max() > 3 * 64**-0.5, "the attention's weights are not cut"
    for linear in (layer.expand, layer.contract):
        std = linear.in_features**-0.5
        assert linear.weight.std().item() == pytest.approx(std, rel=0.03)
        assert linear.weight.abs().max() <= 2 * std / 0.8796 + 1e-6
        assert not linear.bias.any()
    starts = [FrameSequence(5, (1, 1), lambda _: attention(), dim=64).start for _ in range(20)]
    assert torch.stack([start.detach() for start in starts]).std().item() == pytest.approx(0.02, rel=0.05)
