from __future__ import annotations

import math

import pytest
import torch
from einops import reduce
from slotbench_plugins.cores.video_transformer import VideoTransformer

from slotbench.interfaces import SlotSpec, TokenSpec
from slotbench.nn.parameters import trainable_parameters

SPEC = TokenSpec(dim=12, num_tokens=16, grid=(4, 4))


def tokens(batch: int = 2, time: int = 5, spec: TokenSpec = SPEC) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(batch, time, spec.num_tokens, spec.dim, generator=generator, dtype=torch.float64)


def small(spec: TokenSpec = SPEC, **arguments) -> VideoTransformer:
    torch.manual_seed(0)
    return VideoTransformer(spec, **{"dim": 16, "num_heads": 2} | arguments).double().eval()


def by_the_book(core: VideoTransformer, x: torch.Tensor) -> torch.Tensor:
    """The whole core over one flat sequence of time x tokens, with the softmax written out."""
    _, time, count, _ = x.shape
    step = torch.arange(time).repeat_interleave(count)
    angles = step[:, None] * 10_000.0 ** -(torch.arange(8).double() / 8)
    x = (
        core.token_projection(x.flatten(1, 2))
        + core.places.repeat(time, 1)
        + torch.cat([angles.sin(), angles.cos()], 1)
    )
    for layer in core.layers:
        query, key, value = (
            part.unflatten(-1, (2, 8)).transpose(1, 2)
            for part in layer.attention.query_key_value(layer.attention_norm(x)).chunk(3, -1)
        )
        logits = query @ key.mT / math.sqrt(8)
        if core.causal:
            logits = logits.masked_fill(step[None, :] > step[:, None], -torch.inf)
        x = x + layer.attention.output((logits.softmax(-1) @ value).transpose(1, 2).flatten(2))
        x = x + layer.mlp(layer.mlp_norm(x))
    x = core.norm(x).unflatten(1, (time, *core.grid))
    rows, cols = core.slot_grid
    return reduce(x, "b t (rows r) (cols c) dim -> b t (rows cols) dim", "mean", rows=rows, cols=cols)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(("grid", "slots", "time"), [((4, 4), (2, 2), 5), ((6, 2), (3, 1), 3), ((1, 4), (1, 2), 1)])
def test_it_is_softmax_over_one_sequence_of_all_tokens_and_a_mean_over_rectangles(causal, grid, slots, time):
    spec = TokenSpec(12, grid[0] * grid[1], grid)
    core, x = small(spec, causal=causal, slot_grid=slots), tokens(3, time, spec).requires_grad_()
    fast, slow = core(x).slots, by_the_book(core, x)
    torch.testing.assert_close(fast, slow, rtol=1e-9, atol=1e-9)
    weight = torch.randn_like(fast)
    gradients = [torch.autograd.grad((y * weight).sum(), [x, *core.parameters()]) for y in (fast, slow)]
    torch.testing.assert_close(*gradients, rtol=1e-8, atol=1e-9)


def test_without_the_mask_every_step_knows_every_other_and_there_is_no_state():
    core, x = small(causal=False), tokens().requires_grad_()
    output = core(x)
    (gradient,) = torch.autograd.grad(output.slots[:, 0].square().sum(), x)
    assert gradient[0].flatten(1).any(dim=-1).all()
    assert output.state is None
    with pytest.raises(ValueError, match="causal=True"):
        core(x, small()(x).state)


def test_the_papers_sizes_are_sixteen_slots_and_about_the_parameters_of_psb():
    paper = VideoTransformer(TokenSpec(192, 256, (16, 16)), dim=192, num_layers=5, causal=False)
    assert paper.slot_spec == SlotSpec(num_slots=16, dim=192)
    layer = 2 * 2 * 192 + 4 * (192 * 192 + 192) + 2 * 4 * 192 * 192 + 5 * 192
    assert layer == 444_864
    assert trainable_parameters(paper)["total"] == 5 * layer + 2 * 192 + 256 * 192 == 2_273_856


@pytest.mark.parametrize(
    ("grid", "slots"), [((16, 16), (4, 4)), ((8, 3), (4, 3)), ((1, 1), (1, 1)), (None, (1, 4))], ids=str
)
def test_by_default_there_are_sixteen_slots_or_as_many_as_there_are_cells(grid, slots):
    spec = TokenSpec(12, math.prod(grid) if grid else 9, grid)
    core = small(spec)
    assert core.slot_grid == slots
    assert core(tokens(spec=spec)).slots.shape == (2, 5, math.prod(slots), 16)
