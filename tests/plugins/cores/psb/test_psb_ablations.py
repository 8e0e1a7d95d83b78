"""What the ablations of PSB put in the place of its parts: an ordinary softmax, T5's buckets, no bias by time."""

from __future__ import annotations

import math
from functools import partial

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from slotbench_plugins.cores.psb import PSB, BucketTimeBias, RelativeTimeBias, SoftmaxAttention
from torch import Tensor, nn

from slotbench.interfaces import TokenSpec
from slotbench.ops.inverted_attention import TokenMemory
from slotbench.testing.laws import attention_sums_as_its_kind_says


def offsets_of(bias: Tensor):
    """A bias by time from a table "heads offsets", whose last entry is that of the step itself."""
    return lambda offsets: bias[:, offsets + bias.shape[1] - 1]


def by_loops(
    layer: SoftmaxAttention, slots: Tensor, tokens: Tensor, window: int | None, bias: Tensor | None
) -> tuple[Tensor, Tensor]:
    """(updates, weights of each step's own tokens), a slot at a time: the equation as one writes it down."""
    batch, time, num_slots, dim = slots.shape
    past, width = tokens.shape[1] - time, dim // layer.num_heads
    updates, own = torch.zeros_like(slots), slots.new_zeros(batch, time, num_slots, tokens.shape[2])
    keys, values = layer.key_value(tokens).chunk(2, dim=-1)
    queries = layer.query(slots)
    for b in range(batch):
        for t in range(time):
            first = 0 if window is None else max(0, past + t - window + 1)
            seen = slice(first, past + t + 1)
            for n in range(num_slots):
                heads = []
                for h in range(layer.num_heads):
                    part = slice(h * width, (h + 1) * width)
                    logits = keys[b, seen, :, part] @ queries[b, t, n, part] / math.sqrt(width)
                    if bias is not None:
                        logits = logits + bias[h, bias.shape[1] - logits.shape[0] :, None]
                    weights = logits.flatten().softmax(0).view_as(logits)
                    heads.append(torch.einsum("sm,smd->d", weights, values[b, seen, :, part]))
                    own[b, t, n] += weights[-1] / layer.num_heads
                updates[b, t, n] = torch.cat(heads)
    return layer.output(updates), own


@settings(max_examples=20, deadline=None)
@given(
    time=st.integers(1, 4),
    past=st.integers(0, 2),
    num_slots=st.integers(1, 3),
    num_tokens=st.integers(1, 4),
    num_heads=st.sampled_from([1, 2]),
    window=st.one_of(st.none(), st.integers(1, 4)),
    biased=st.booleans(),
    seed=st.integers(0, 999),
)
def test_the_softmax_is_that_of_a_loop_in_value_and_gradient(
    time, past, num_slots, num_tokens, num_heads, window, biased, seed
):
    torch.manual_seed(seed)
    layer = SoftmaxAttention(4, num_heads).double()
    slots = torch.randn(2, time, num_slots, 4, dtype=torch.float64, requires_grad=True)
    tokens = torch.randn(2, past + time, num_tokens, 4, dtype=torch.float64, requires_grad=True)
    bias = torch.randn(num_heads, past + time, dtype=torch.float64) if biased else None
    leaves = (slots, tokens, *layer.parameters())
    expected, weights = by_loops(layer, slots, tokens, window, bias)
    gradients = torch.autograd.grad(expected.square().sum(), leaves)
    for shares in (True, False):
        found, own = layer(
            slots,
            TokenMemory(tokens),
            window=window,
            time_bias=None if bias is None else offsets_of(bias),
            shares=shares,
        )
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)
        for value, wanted in zip(torch.autograd.grad(found.square().sum(), leaves), gradients, strict=True):
            torch.testing.assert_close(value, wanted, rtol=1e-8, atol=1e-10)
        if shares:
            torch.testing.assert_close(own, weights, rtol=1e-10, atol=1e-10)
        else:
            assert own is None


def test_the_softmax_applies_a_norm_that_tokens_have_not_got_yet():
    torch.manual_seed(0)
    layer, norm = SoftmaxAttention(4).double(), nn.LayerNorm(4).double()
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    slots, tokens = (torch.randn(2, 3, n, 4, dtype=torch.float64) for n in (2, 5))
    expected, _ = layer(slots, TokenMemory(norm(tokens)))
    found, _ = layer(slots, TokenMemory(nn.functional.layer_norm(tokens, (4,)), norm))
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


def test_without_causality_a_slot_reads_all_steps():
    torch.manual_seed(0)
    layer = SoftmaxAttention(4).double()
    slots, tokens = torch.randn(1, 3, 2, 4, dtype=torch.float64), torch.randn(1, 3, 5, 4, dtype=torch.float64)
    found, own = layer(slots[:, :1].expand(-1, 3, -1, -1), TokenMemory(tokens), causal=False)
    torch.testing.assert_close(found[:, 0], found[:, 2])
    torch.testing.assert_close(own.sum((1, 3)), torch.ones(1, 2, dtype=torch.float64))


def test_buckets_are_those_of_t5():
    bias = BucketTimeBias(1)
    distances = torch.tensor([0, 1, 15, 16, 18, 19, 32, 64, 127, 128, 5000])
    assert bias.buckets(-distances).tolist() == [0, 1, 15, 16, 16, 17, 21, 26, 31, 31, 31]
    assert bias.buckets(torch.tensor([1, 7])).tolist() == [0, 0]
    both = BucketTimeBias(1, causal=False)
    assert both.buckets(torch.tensor([-8, -7, -1, 0, 1, 7, 8, 500])).tolist() == [8, 7, 1, 0, 17, 23, 24, 31]


def test_a_bias_by_time_acts_on_a_softmax_of_one_head():
    torch.manual_seed(0)
    core = PSB(TokenSpec(dim=8, num_tokens=4), 3, dim=8, num_layers=1, attention="softmax", time_bias="buckets")
    tokens = torch.randn(1, 3, 4, 8)
    before = core(tokens).attention
    with torch.no_grad():
        core.layers[0].time_bias.table[0, 0] = 5.0  # the slot's own step
    after = core(tokens).attention
    assert (after[:, 1:].sum(3) > before[:, 1:].sum(3) + 0.1).all()


def test_a_relative_bias_is_a_perceptron_on_eight_sines_and_then_eight_cosines():
    torch.manual_seed(0)
    bias = RelativeTimeBias(5).double()
    assert bias(torch.arange(-5, 2)).shape == (5, 7)
    assert sum(p.numel() for p in bias.parameters()) == 16 * 128 + 128 + 128 * 5 + 5
    code = [math.sqrt(2) * f(2**i * 2 * math.pi / 2047 * -7) for f in (math.sin, math.cos) for i in range(8)]
    hidden = nn.functional.gelu(bias.expand(torch.tensor(code, dtype=torch.float64)))
    torch.testing.assert_close(bias(torch.tensor([-7]))[:, 0], bias.contract(hidden), rtol=1e-12, atol=1e-12)


def test_the_kind_of_attention_follows():
    for attention, kind in (("inverted", "assignment"), ("softmax", "reading")):
        attention_sums_as_its_kind_says(partial(PSB, attention=attention))
        assert PSB(TokenSpec(dim=8, num_tokens=4), attention=attention).attention_kind == kind
