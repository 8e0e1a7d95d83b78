from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from slotbench_plugins.aggregations.batch_scaled import BatchScaled
from slotbench_plugins.aggregations.weighted_mean import WeightedMean
from slotbench_plugins.aggregations.weighted_sum import WeightedSum
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from slotbench.nn.inverted_attention import InvertedAttention
from slotbench.ops.inverted_attention import KeyValueMemory, reference


class Recorder(WeightedMean):
    """A weighted mean that keeps what it was given, and so has to be given keys and values."""

    def forward(self, assignment, values):
        self.assignment, self.values = assignment, values
        return super().forward(assignment, values)


class Sizes(TorchDispatchMode):
    """Elements of the largest tensor that an operation made."""

    largest = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if isinstance(result, Tensor):
            self.largest = max(self.largest, result.numel())
        return result


def noise(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def made(num_heads: int = 1, dim: int = 8, **arguments) -> InvertedAttention:
    torch.manual_seed(0)
    return InvertedAttention(dim, 6, num_heads, aggregation=Recorder(dim // num_heads), **arguments).double()


def table_bias(num_heads: int, longest: int = 32, seed: int = 5):
    table = noise(num_heads, 2 * longest + 1, seed=seed)
    return lambda offsets: table[:, offsets + longest]


def by_hand(layer: InvertedAttention, slots: Tensor, tokens: Tensor, causal: bool, window: int | None, bias) -> Tensor:
    """Step by step, and with the mask before the softmax where the paper has it: an empty column becomes zero."""
    heads, time = layer.num_heads, slots.shape[1]
    query = layer.query(slots).unflatten(-1, (heads, -1))
    key, value = (part.unflatten(-1, (heads, -1)) for part in layer.key_value(tokens).chunk(2, dim=-1))
    past, updates = tokens.shape[1] - time, []
    for t in range(time):
        logits = torch.einsum("bnhd,bslhd->bhnsl", query[:, t], key) * query.shape[-1] ** -0.5
        offsets = torch.arange(tokens.shape[1]) - (past + t)
        logits = logits + bias(offsets)[:, None, :, None]
        hidden = (offsets > 0) if causal else torch.zeros_like(offsets, dtype=torch.bool)
        if window is not None:
            hidden = hidden | (offsets <= -window)
        logits = logits.masked_fill(hidden[:, None], -torch.inf)
        if layer.across_heads:
            weights = logits.flatten(1, 2).softmax(dim=1).unflatten(1, (heads, -1))
        else:
            weights = logits.softmax(dim=2)
        weights = weights.nan_to_num(0.0)
        weights = weights / (weights.sum(dim=(-1, -2), keepdim=True) + 1e-5)
        updates.append(torch.einsum("bhnsl,bslhd->bnhd", weights, value).flatten(-2))
    return layer.output(torch.stack(updates, dim=1))


@settings(max_examples=25)
@given(data=st.data())
def test_equals_the_definition_with_the_mask_before_the_softmax(data):
    draw = lambda low, high, label: data.draw(st.integers(low, high), label=label)  # noqa: E731
    heads, causal = data.draw(st.sampled_from([1, 2, 4])), data.draw(st.booleans(), label="causal")
    time, past = draw(1, 5, "time"), draw(0, 3, "past") if causal else 0
    window = data.draw(st.none() | st.integers(1, 4), label="window") if causal else None
    layer = made(heads, across_heads=data.draw(st.booleans(), label="across heads"))
    slots, tokens = noise(2, time, draw(1, 4, "slots"), 8), noise(2, past + time, draw(1, 3, "tokens"), 6, seed=1)
    bias = table_bias(heads)
    expected = by_hand(layer, slots, tokens, causal, window, bias)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reference, "WEIGHTS_AT_ONCE", data.draw(st.sampled_from([1, 100, 2**22]), label="chunk"))
        result, _, _ = layer(slots, layer.memory(tokens, 1), causal=causal, window=window, time_bias=bias)
    torch.testing.assert_close(result, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("num_heads", [1, 4])
def test_shares_of_a_visible_token_sum_to_one_and_a_hidden_token_has_none(num_heads):
    layer = made(num_heads)
    layer(noise(2, 5, 3, 8), layer.memory(noise(2, 5, 4, 6), 1), causal=True, time_bias=table_bias(num_heads))
    assignment = layer.aggregation.assignment.unflatten(-1, (5, 4))
    assert assignment.shape == (2, num_heads, 5, 3, 5, 4)
    visible = torch.ones(5, 5, dtype=torch.bool).tril()
    shares = assignment.sum(dim=(1, 3))
    torch.testing.assert_close(shares[:, visible], torch.ones(2, 15, 4, dtype=torch.float64), rtol=0, atol=1e-12)
    assert not shares[:, ~visible].any()
    mass = assignment.sum(dim=(-1, -2))
    weights = mass / (mass + 1e-5)
    assert weights.min() >= 1 - 1e-3
    assert weights.max() <= 1


def test_each_head_can_hold_a_competition_of_its_own():
    layer = made(4, across_heads=False)
    _, assignment, _ = layer(noise(2, 3, 8), noise(2, 5, 6))
    recorded = layer.aggregation.assignment
    torch.testing.assert_close(recorded.sum(dim=3), torch.ones(2, 4, 1, 5, dtype=torch.float64))
    torch.testing.assert_close(assignment.sum(dim=1), torch.ones(2, 5, dtype=torch.float64))


@pytest.mark.parametrize("across_heads", [True, False])
def test_assignment_says_who_won_the_tokens_of_the_step_itself(across_heads):
    layer = made(2, across_heads=across_heads)
    slots, tokens = noise(2, 3, 4, 8), noise(2, 5, 7, 6)
    _, assignment, _ = layer(slots, layer.memory(tokens, 1), causal=True)
    for step in range(3):
        _, alone, _ = layer(slots[:, step], tokens[:, 2 + step])
        torch.testing.assert_close(assignment[:, step], alone)


def test_one_step_asked_again_through_its_memory_gives_the_same():
    layer = made(2)
    slots, tokens = noise(2, 3, 8), noise(2, 5, 6)
    memory = layer.memory(tokens[:, None], 1)
    updates, assignment, _ = layer(slots[:, None], memory)
    assert torch.equal(updates[:, 0], layer(slots, tokens)[0])
    assert torch.equal(assignment[:, 0], layer(slots, tokens)[1])


@pytest.mark.parametrize("window", [None, 3])
def test_steps_one_by_one_with_a_growing_memory_equal_all_at_once(window):
    layer, slots, tokens = made(2), noise(2, 6, 3, 8), noise(2, 6, 4, 6)
    bias = table_bias(2)
    whole, _, _ = layer(slots, layer.memory(tokens, 1), causal=True, window=window, time_bias=bias)
    memory: KeyValueMemory | None = None
    for step in range(6):
        memory = layer.memory(tokens[:, step : step + 1], 1).after(memory)
        update, _, _ = layer(slots[:, step : step + 1], memory, causal=True, window=window, time_bias=bias)
        torch.testing.assert_close(update[:, 0], whole[:, step])
        memory = memory if window is None else memory.last(window - 1)
    assert memory.key.shape[2] == (6 if window is None else window - 1)


@pytest.mark.parametrize(
    ("num_heads", "across_heads", "matters"), [(1, True, False), (4, True, True), (4, False, False)]
)
def test_a_bias_of_the_offset_acts_between_heads_only(num_heads, across_heads, matters):
    layer, slots, tokens = made(num_heads, across_heads=across_heads), noise(1, 5, 3, 8), noise(1, 5, 4, 6)
    memory = layer.memory(tokens, 1)
    plain, biased = (layer(slots, memory, causal=True, time_bias=bias)[0] for bias in (None, table_bias(num_heads)))
    assert ((plain - biased).abs().max() > 1e-3) == matters
    if not matters:
        assert (plain - biased).abs().max() < 1e-12


def gradients(layer: InvertedAttention, slots: Tensor, tokens: Tensor) -> list[Tensor]:
    slots, tokens = slots.clone().requires_grad_(), tokens.clone().requires_grad_()
    table = noise(2, 65).requires_grad_()
    updates, assignment, _ = layer(
        slots, layer.memory(tokens, 1), causal=True, time_bias=lambda offsets: table[:, offsets + 32]
    )
    loss = (updates * noise(*updates.shape, seed=3)).sum() + assignment.square().sum()
    return [loss, *torch.autograd.grad(loss, [slots, tokens, table, *layer.parameters()])]


@pytest.mark.parametrize("at_once", [1, 500])
def test_chunks_change_neither_values_nor_gradients(monkeypatch, at_once):
    layer, slots, tokens = made(2), noise(2, 7, 3, 8), noise(2, 7, 4, 6)
    expected = gradients(layer, slots, tokens)
    monkeypatch.setattr(reference, "WEIGHTS_AT_ONCE", at_once)
    for value, other in zip(gradients(layer, slots, tokens), expected, strict=True):
        torch.testing.assert_close(value, other)


def test_weights_take_what_they_must_and_in_chunks_no_more_than_is_allowed(monkeypatch):
    batch, time, num_slots, num_tokens = 2, 12, 16, 16
    layer = made(1).float()
    slots, tokens = noise(batch, time, num_slots, 8).float(), noise(batch, time, num_tokens, 6).float()
    with Sizes() as sizes:
        layer(slots, layer.memory(tokens, 1), causal=True)
    weights = layer.aggregation.assignment
    assert sizes.largest == weights.numel()
    assert weights.numel() * weights.element_size() == 4 * batch * time**2 * num_slots * num_tokens

    allowed = 3 * batch * time * num_slots * num_tokens
    monkeypatch.setattr(reference, "WEIGHTS_AT_ONCE", allowed)
    saved: list[int] = []
    pack = lambda tensor: (saved.append(tensor.numel()), tensor)[1]  # noqa: E731
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor), Sizes() as sizes:
        updates, _, _ = layer(slots, layer.memory(tokens, 1), causal=True)
    assert sizes.largest <= allowed, "one chunk at a time"
    assert max(saved) < allowed, "no weights wait for the backward pass"
    with Sizes() as sizes:
        updates.sum().backward()
    assert sizes.largest <= allowed, "nor does the backward pass make more at a time"


def batch_scaled(slots: Tensor, tokens: Tensor) -> tuple[list[Tensor], BatchScaled]:
    torch.manual_seed(0)
    layer = InvertedAttention(8, 6, 2, aggregation=BatchScaled(4)).double()
    return gradients(layer, slots, tokens), layer.aggregation


@pytest.mark.parametrize("at_once", [1, 500])
def test_chunks_share_one_scale_that_is_measured_once(monkeypatch, at_once):
    slots, tokens = noise(2, 7, 3, 8), noise(2, 7, 4, 6)
    expected, whole = batch_scaled(slots, tokens)
    monkeypatch.setattr(reference, "WEIGHTS_AT_ONCE", at_once)
    results, aggregation = batch_scaled(slots, tokens)
    for value, other in zip(results, expected, strict=True):
        torch.testing.assert_close(value, other)
    torch.testing.assert_close(aggregation.running_var, whole.running_var)
    assert whole.running_var != 1


def test_a_later_iteration_is_on_the_scale_of_the_first():
    torch.manual_seed(0)
    layer = InvertedAttention(8, 6, aggregation=BatchScaled(8), output_map=False).double()
    memory = layer.memory(noise(2, 3, 4, 6).flatten(0, 1)[:, None], 1)
    first, _, statistics = layer(noise(6, 1, 3, 8), memory)
    torch.testing.assert_close(first.var().item(), 1.0, rtol=1e-3, atol=0)
    later, assignment, handed_on = layer(5 * noise(6, 1, 3, 8, seed=1), memory, statistics)
    assert handed_on is statistics
    own, own_assignment, _ = layer(5 * noise(6, 1, 3, 8, seed=1), memory)
    assert torch.equal(assignment, own_assignment)
    assert (own - later).abs().max() > 1e-3
    assert made()(noise(6, 1, 3, 8), memory)[2] is None


@pytest.mark.parametrize(("num_heads", "across_heads"), [(1, True), (4, True), (4, False)])
def test_a_sum_is_over_the_tokens_that_a_step_may_see(num_heads, across_heads):
    torch.manual_seed(0)
    layer = InvertedAttention(
        8, 6, num_heads, aggregation=WeightedSum(8 // num_heads), across_heads=across_heads, output_map=False
    ).double()
    slots, tokens = noise(2, 5, 3, 8), noise(2, 5, 4, 6)
    for window, seen in ((None, [1, 2, 3, 4, 5]), (2, [1, 2, 2, 2, 2])):
        updates, _, _ = layer(slots, layer.memory(tokens, 1), causal=True, window=window)
        for step, steps in enumerate(seen):
            first = step + 1 - steps
            value = layer.key_value(tokens[:, first : step + 1].flatten(1, 2)).chunk(2, dim=-1)[1]
            total = updates[:, step].sum(dim=1)
            if across_heads and num_heads > 1:
                assert (total.abs() < value.abs().amax(dim=1)).all()
            else:
                torch.testing.assert_close(total, value.mean(dim=1))
