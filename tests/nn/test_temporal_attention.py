from __future__ import annotations

import pytest
import torch
from einops import rearrange
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from slotbench.nn import temporal_attention
from slotbench.nn.temporal_attention import TemporalAttention


class TableBias(nn.Module):
    """One number per head and offset, for offsets of at most `reach` steps; any other is an error."""

    def __init__(self, num_heads: int, reach: int, future: bool):
        super().__init__()
        self.reach = reach
        self.table = nn.Parameter(torch.randn(num_heads, reach + 1 + (reach if future else 0), dtype=torch.float64))

    def forward(self, offsets: Tensor) -> Tensor:
        assert offsets.min() >= -self.reach
        assert offsets.max() < self.table.shape[1] - self.reach
        return self.table[:, offsets + self.reach]


def reference(attention: TemporalAttention, x: Tensor, time_bias: nn.Module | None = None) -> Tensor:
    """The same attention with its weights in the open and one mask over all pairs of tokens."""
    steps, slots = x.shape[1:3]
    pattern = "batch time slots (part heads dim) -> part batch heads (time slots) dim"
    query, key, value = rearrange(attention.query_key_value(x), pattern, part=3, heads=attention.num_heads)
    step = torch.arange(steps).repeat_interleave(slots)
    offset = step[None, :] - step[:, None]
    visible = torch.ones_like(offset, dtype=torch.bool)
    if attention.causal:
        visible &= offset <= 0
    if attention.window is not None:
        visible &= offset.abs() < attention.window
    logits = query @ key.mT * query.shape[-1] ** -0.5
    if time_bias is not None:
        known = time_bias(torch.arange(offset[visible].min(), offset[visible].max() + 1))
        logits = logits + known[:, offset.clamp(offset[visible].min(), offset[visible].max()) - offset[visible].min()]
    weights = logits.masked_fill(~visible, -torch.inf).softmax(dim=-1)
    return attention.output(
        rearrange(weights @ value, "batch heads (time slots) dim -> batch time slots (heads dim)", slots=slots)
    )


def gradients(output: Tensor, *of: Tensor) -> tuple[Tensor, ...]:
    weight = torch.randn(output.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return torch.autograd.grad((output * weight).sum(), of)


@st.composite
def cases(draw: st.DrawFn) -> tuple[TemporalAttention, Tensor, TableBias | None]:
    torch.manual_seed(draw(st.integers(0, 1000), label="seed"))
    heads, time = draw(st.integers(1, 3), label="heads"), draw(st.integers(1, 12), label="time")
    causal = draw(st.booleans(), label="causal")
    window = draw(st.one_of(st.none(), st.integers(1, 14)), label="window")
    attention = TemporalAttention(4 * heads, heads, causal=causal, window=window).double()
    for parameter in attention.parameters():
        nn.init.normal_(parameter, std=0.5)
    shape = (draw(st.integers(1, 3), label="batch"), time, draw(st.integers(1, 4), label="slots"), 4 * heads)
    reach = min(time, window or time) - 1
    time_bias = TableBias(heads, reach, future=not causal) if draw(st.booleans(), label="time_bias") else None
    return attention, torch.randn(shape, dtype=torch.float64, requires_grad=True), time_bias


@settings(max_examples=60)
@given(case=cases(), chunk=st.integers(1, 20))
def test_value_and_gradient_are_those_of_open_weights(case, chunk):
    attention, x, time_bias = case
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(temporal_attention, "QUERY_TOKENS", chunk)
        output, _ = attention(x, time_bias=time_bias)
        expected = reference(attention, x, time_bias)
        torch.testing.assert_close(output, expected, rtol=1e-9, atol=1e-9)
        of = [x, *attention.parameters(), *(time_bias.parameters() if time_bias else ())]
        for found, wanted in zip(gradients(output, *of), gradients(expected, *of), strict=True):
            torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-9)


@settings(max_examples=40)
@given(case=cases(), data=st.data())
def test_a_clip_in_pieces_equals_the_whole_and_hands_back_the_same_gradient(case, data):
    attention, x, time_bias = case
    attention.causal = True
    time = x.shape[1]
    cuts = sorted(data.draw(st.sets(st.integers(1, time - 1)) if time > 1 else st.just(set()), label="cuts"))
    whole, last = attention(x, time_bias=time_bias)
    pieces, cache = [], None
    for piece in x.tensor_split(cuts, dim=1):
        output, cache = attention(piece, cache, time_bias)
        pieces.append(output)
    torch.testing.assert_close(torch.cat(pieces, dim=1), whole, rtol=1e-9, atol=1e-9)
    for part, expected in zip(cache, last, strict=True):
        torch.testing.assert_close(part, expected, rtol=1e-9, atol=1e-9)
    for found, wanted in zip(gradients(torch.cat(pieces, dim=1), x), gradients(whole, x), strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-9)


def sees(attention: TemporalAttention, time: int, slots: int) -> Tensor:
    """Which step (columns) each step (rows) has a gradient in, exactly."""
    x = torch.randn(1, time, slots, 8, dtype=torch.float64, requires_grad=True)
    output = attention.double()(x)[0]
    rows = [torch.autograd.grad(output[:, step].square().sum(), x, retain_graph=True)[0] for step in range(time)]
    return torch.stack([row[0].flatten(1).any(dim=-1) for row in rows])


@pytest.mark.parametrize("slots", [1, 3])
@pytest.mark.parametrize("window", [None, 1, 3, 6, 9])
@pytest.mark.parametrize("causal", [True, False])
def test_a_step_sees_what_window_and_causality_allow_and_exactly_nothing_else(slots, window, causal):
    offset = torch.arange(6)[None, :] - torch.arange(6)[:, None]
    expected = (offset <= 0) | (not causal)
    if window is not None:
        expected &= offset.abs() < window
    assert torch.equal(sees(TemporalAttention(8, 2, causal=causal, window=window), 6, slots), expected)


def test_every_slot_sees_all_slots_of_its_own_step():
    x = torch.randn(1, 3, 4, 8, dtype=torch.float64, requires_grad=True)
    output = TemporalAttention(8, 2).double()(x)[0]
    for slot in range(4):
        (gradient,) = torch.autograd.grad(output[:, 1, slot].square().sum(), x, retain_graph=True)
        assert gradient[0, :2].any(dim=-1).all()
        assert not gradient[0, 2].any()


@pytest.mark.parametrize("window", [1, 2, 5])
def test_the_cache_keeps_what_the_next_step_may_see(window):
    attention, cache = TemporalAttention(8, 2, window=window), None
    for steps, seen in ((3, 3), (1, 4), (1, 5), (4, 9)):
        _, cache = attention(torch.randn(2, steps, 3, 8), cache)
        assert cache.key.shape == cache.value.shape == (2, 2, min(window - 1, seen), 3, 4)
    assert cache.key.untyped_storage().nbytes() == cache.key.numel() * 4, "the cache keeps more than it shows alive"


class LargestTensor(TorchDispatchMode):
    """Elements of the largest tensor that an operation returned."""

    def __init__(self):
        super().__init__()
        self.largest = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        sizes = [leaf.numel() for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]
        self.largest = max(self.largest, *sizes, 0)
        return result


@pytest.mark.parametrize("slots", [1, 6])
@pytest.mark.parametrize("window", [None, 20])
@pytest.mark.parametrize("past", [0, 50])
def test_no_tensor_has_one_element_per_pair_of_tokens(slots, window, past):
    time = 1200 // slots
    attention = TemporalAttention(4, 1, window=window)
    cache = attention(torch.randn(1, past, slots, 4))[1] if past else None
    x = torch.randn(1, time, slots, 4, requires_grad=True)
    with LargestTensor() as recorded:
        attention(x, cache)[0].sum().backward()
    keys = time * slots + (past * slots if window is None else 0)
    chunk = temporal_attention.QUERY_TOKENS
    columns = chunk + (keys if window is None else (window - 1) * slots)
    assert recorded.largest <= max(chunk * columns, 12 * keys)
    assert recorded.largest * 5 < (time * slots) ** 2


@pytest.mark.parametrize(("causal", "slots", "past"), [(True, 4, 9), (True, 1, 9), (False, 4, 0)])
def test_no_mask_where_none_is_needed(causal, slots, past, monkeypatch):
    attention = TemporalAttention(8, 2, causal=causal)
    cache = attention(torch.randn(2, past, slots, 8))[1] if past else None
    fused, masks = temporal_attention.scaled_dot_product_attention, []

    def spy(*arguments, attn_mask=None, **options):
        masks.append(attn_mask)
        return fused(*arguments, attn_mask=attn_mask, **options)

    monkeypatch.setattr(temporal_attention, "scaled_dot_product_attention", spy)
    attention(torch.randn(2, 1 if causal else 40, slots, 8), cache)
    assert masks == [None]


def test_a_clip_goes_on_from_a_cache_of_either_precision():
    attention, x = TemporalAttention(16, 2), torch.randn(2, 6, 3, 16)
    exact, (_, cache) = attention(x)[0][:, 3:], attention(x[:, :3])
    with torch.autocast("cpu", torch.bfloat16):
        half_cache, continued = attention(x[:, :3])[1], attention(x[:, 3:], cache)[0]
    for found in (continued, attention(x[:, 3:], half_cache)[0]):
        assert (found.float() - exact).norm() < 0.02 * exact.norm()
