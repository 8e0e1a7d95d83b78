"""The kernels of inverted attention against its reference: dense, streamed, and summed over time."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from slotbench_plugins.cores.psb import PSB
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from slotbench import registry
from slotbench.interfaces import Aggregation, TokenSpec
from slotbench.nn.inverted_attention import InvertedAttention
from slotbench.ops.inverted_attention import (
    KeyValueMemory,
    StepSums,
    TokenMemory,
    keys_cost_more,
    streamed,
    supports_cumulative,
)

NAMES = registry.names("aggregations")
DIM, TOKEN_DIM = 8, 6


class Sizes(TorchDispatchMode):
    """Elements of the largest tensor that an operation made, views of `source` aside."""

    largest = 0

    def __init__(self, source: Tensor):
        super().__init__()
        self.source = source.untyped_storage().data_ptr()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if isinstance(result, Tensor) and result.untyped_storage().data_ptr() != self.source:
            self.largest = max(self.largest, result.numel())
        return result


def noise(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def shaken(module: nn.Module) -> nn.Module:
    """In double precision, with parameters off their initial values."""
    with torch.no_grad():
        for index, parameter in enumerate(module.double().parameters()):
            parameter.add_(0.3 * noise(*parameter.shape, seed=index))
    return module


def made(kernel: str, name: str = "WeightedMean", num_heads: int = 1, **arguments) -> InvertedAttention:
    torch.manual_seed(0)
    aggregation = registry.load("aggregations", name)(DIM // num_heads)
    layer = shaken(InvertedAttention(DIM, TOKEN_DIM, num_heads, aggregation=aggregation, **arguments))
    layer.kernel = kernel
    return layer


def values_and_gradients(layer: InvertedAttention, slots: Tensor, tokens: Tensor, normed: bool, **arguments):
    """Updates, assignment, and the gradients of everything, of a loss that depends on both."""
    slots, tokens = slots.clone().requires_grad_(), tokens.clone().requires_grad_()
    table = noise(layer.num_heads, 65, seed=3).requires_grad_()
    norm = shaken(nn.LayerNorm(TOKEN_DIM)) if normed else None
    memory = layer.memory(tokens, 1, norm)
    assert isinstance(memory, KeyValueMemory) == (layer.kernel == "reference")
    updates, assignment, _ = layer(slots, memory, time_bias=lambda offsets: table[:, offsets + 32], **arguments)
    loss = (updates * noise(*updates.shape, seed=4)).sum() + (assignment * noise(*assignment.shape, seed=5)).sum()
    inputs = [slots, tokens, table, *layer.parameters(), *([] if norm is None else norm.parameters())]
    gradients = torch.autograd.grad(loss, inputs, allow_unused=True, materialize_grads=True)
    return [updates, assignment, *gradients]


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=12)
@given(data=st.data())
def test_streamed_gives_the_values_and_gradients_of_the_reference(name, data):
    draw = lambda low, high, label: data.draw(st.integers(low, high), label=label)  # noqa: E731
    causal = data.draw(st.booleans(), label="causal")
    time, past = draw(1, 4, "time"), draw(0, 3, "past") if causal else 0
    arguments = {
        "causal": causal,
        "window": data.draw(st.none() | st.integers(1, 4), label="window") if causal else None,
    }
    settings_ = {
        "num_heads": data.draw(st.sampled_from([1, 2, 4]), label="heads"),
        "across_heads": data.draw(st.booleans(), label="across heads"),
        "bias": data.draw(st.booleans(), label="bias"),
    }
    normed = data.draw(st.booleans(), label="norm")
    slots = noise(2, time, draw(1, 3, "slots"), DIM)
    tokens = noise(2, past + time, draw(1, 5, "tokens"), TOKEN_DIM, seed=1)
    expected = values_and_gradients(made("reference", name, **settings_), slots, tokens, normed, **arguments)
    with pytest.MonkeyPatch.context() as patch:
        at_once = data.draw(st.sampled_from([1, 60, 300, 2**18]), label="chunk")
        patch.setattr(streamed, "WEIGHTS_AT_ONCE", {"cpu": at_once})
        patch.setattr(streamed, "FEWEST_TOKENS", data.draw(st.sampled_from([1, 2, 64]), label="tokens of a chunk"))
        result = values_and_gradients(made("streamed", name, **settings_), slots, tokens, normed, **arguments)
    # a norm over a head of two channels that are nearly the same magnifies what is rounded
    tolerance = 1e-10 if "Norm" in name else 1e-12
    for value, other in zip(result, expected, strict=True):
        torch.testing.assert_close(value, other, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=15)
@given(data=st.data())
def test_dense_gives_the_values_and_gradients_of_the_reference_frame_by_frame(name, data):
    draw = lambda low, high, label: data.draw(st.integers(low, high), label=label)  # noqa: E731
    num_tokens = data.draw(st.sampled_from([1, 5, 300, 40_000]), label="tokens")
    slots, tokens = noise(2, 2, draw(1, 4, "slots"), DIM), noise(2, 2, num_tokens, TOKEN_DIM, seed=1)
    iterations = draw(1, 3, "iterations")

    def outcome(kernel: str) -> list[Tensor]:
        layer = made(kernel, name, bias=False)
        given_slots, given_tokens = slots.clone().requires_grad_(), tokens.clone().requires_grad_()
        results = []
        for frame, memory in enumerate(layer.frames(given_tokens, slots.shape[2], iterations)):
            statistics, asked = None, given_slots[:, frame]
            for _ in range(iterations):
                asked, assignment, statistics = layer(asked, memory, statistics)
            results += [asked, assignment]
        loss = sum((one * noise(*one.shape, seed=4)).sum() for one in results)
        inputs = [given_slots, given_tokens, *layer.parameters()]
        return [*results, *torch.autograd.grad(loss, inputs, allow_unused=True, materialize_grads=True)]

    tolerance = 1e-9 if "Norm" in name else 1e-11
    for value, other in zip(outcome("dense"), outcome("reference"), strict=True):
        torch.testing.assert_close(value, other, rtol=tolerance, atol=tolerance * max(1.0, other.abs().max().item()))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("num_heads", "window"), [(1, None), (1, 3), (2, 2), (1, 1)])
def test_slots_that_are_alike_at_all_steps_are_summed_over_time(name, num_heads, window):
    layer = made("streamed", name, num_heads, across_heads=num_heads == 1)
    slots, tokens = noise(2, 3, DIM).requires_grad_(), noise(2, 7, 4, TOKEN_DIM, seed=1).requires_grad_()
    norm = shaken(nn.LayerNorm(TOKEN_DIM))

    def outcome(updates, assignment):
        loss = (updates * noise(*updates.shape, seed=4)).sum() + (assignment * noise(*assignment.shape, seed=5)).sum()
        inputs = [slots, tokens, *layer.parameters(), *norm.parameters()]
        return [updates, assignment, *torch.autograd.grad(loss, inputs, materialize_grads=True, allow_unused=True)]

    layer.eval()
    whole = slots[:, None].expand(-1, 7, -1, -1)
    expected = outcome(*layer(whole, TokenMemory(tokens, norm), causal=True, window=window)[:2])
    updates, assignment, _ = layer.cumulative(slots, TokenMemory(tokens, norm), window=window)
    pieces, sums = [], None
    for piece in tokens.split([2, 1, 4], dim=1):
        *found, sums = layer.cumulative(slots, TokenMemory(piece, norm), sums, window=window)
        pieces.append(found)
    in_pieces = outcome(*(torch.cat(parts, dim=1) for parts in zip(*pieces, strict=True)))
    assert sums.mass.shape[1] == (1 if window is None else window - 1)
    for result in (outcome(updates, assignment), in_pieces):
        for value, other in zip(result, expected, strict=True):
            torch.testing.assert_close(value, other, rtol=1e-12, atol=1e-12)


@settings(max_examples=40)
@given(time=st.integers(1, 12), window=st.integers(1, 13), cut=st.integers(0, 11))
def test_sums_over_a_window_are_those_of_its_steps(time, window, cut):
    steps = StepSums(noise(2, time, 1, 3, 4), noise(2, time, 1, 3, 1, seed=1), noise(2, time, 1, 1, 1, seed=2))
    first = StepSums(*(leaf[:, : min(cut, time)] for leaf in steps))
    second = StepSums(*(leaf[:, min(cut, time) :] for leaf in steps))
    kept, parts = None, []
    for part in (first, second):
        if part.mass.shape[1]:
            seen, kept = part.so_far(kept, window)
            parts.append(seen)
    for leaf, *found in zip(steps, *parts, strict=True):
        expected = torch.stack([leaf[:, max(0, t - window + 1) : t + 1].sum(dim=1) for t in range(time)], dim=1)
        torch.testing.assert_close(torch.cat(found, dim=1), expected, rtol=0, atol=1e-13)


def cumulative(layer: InvertedAttention) -> bool:
    return supports_cumulative(layer.maps, layer.aggregation)


def test_competing_heads_and_aggregations_of_ones_own_are_not_summed_over_time():
    assert cumulative(made("streamed", num_heads=2, across_heads=False))
    for layer in (made("streamed", num_heads=2), own_aggregation()):
        assert not cumulative(layer)
        with pytest.raises(ValueError, match="supports_cumulative"):
            layer.cumulative(noise(1, 3, DIM), TokenMemory(noise(1, 2, 4, TOKEN_DIM)))


class SquaredShares(Aggregation):
    def forward(self, assignment, values):
        return torch.einsum("...st,...td->...sd", assignment.square(), values)


def own_aggregation() -> InvertedAttention:
    return shaken(InvertedAttention(DIM, TOKEN_DIM, aggregation=SquaredShares(DIM)))


def test_an_aggregation_that_is_not_made_of_sums_gets_assignment_and_values():
    layer, slots, tokens = own_aggregation(), noise(2, 1, 3, DIM), noise(2, 1, 400, TOKEN_DIM, seed=1)
    assert isinstance(layer.memory(tokens, 1), KeyValueMemory)
    updates, assignment, _ = layer(slots, layer.memory(tokens, 1))
    value = layer.key_value(tokens).chunk(2, dim=-1)[1]
    torch.testing.assert_close(updates, layer.output(assignment.square() @ value))
    from_tokens, _, _ = layer(slots, TokenMemory(tokens))
    torch.testing.assert_close(from_tokens, updates)


def test_neither_keys_nor_values_nor_weights_of_all_tokens_are_made_or_kept():
    layer = made("auto").float()
    slots, tokens = noise(2, 3, 4, DIM).float().requires_grad_(), noise(2, 3, 5000, TOKEN_DIM).float().requires_grad_()
    saved: list[int] = []
    layer.kernel = "streamed"
    pack = lambda tensor: (saved.append(tensor.numel() * (tensor.data_ptr() != tokens.data_ptr())), tensor)[1]  # noqa: E731
    with (
        pytest.MonkeyPatch.context() as patch,
        torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor),
        Sizes(tokens) as sizes,
    ):
        patch.setattr(streamed, "WEIGHTS_AT_ONCE", {"cpu": 2048})
        updates, _, _ = layer(slots, layer.memory(tokens, 12), causal=True, shares=False)
        forward = sizes.largest
        updates.sum().backward()
    assert forward <= 2048, "a chunk of weights"
    assert max(saved) <= 2 * 3 * 4 * DIM, "no tensor of tokens but the tokens waits for the backward pass"
    assert sizes.largest == tokens.numel(), "the gradient of the tokens"


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_sums_are_in_single_precision_whatever_the_tokens_are(dtype):
    torch.manual_seed(0)
    layer = InvertedAttention(DIM, TOKEN_DIM, aggregation=registry.load("aggregations", "WeightedSum")(DIM, scale=1e5))
    layer = layer.to(dtype)
    layer.kernel = "streamed"
    slots, tokens = (
        noise(1, 3, DIM).to(dtype).requires_grad_(),
        (4 + noise(1, 50000, TOKEN_DIM)).to(dtype).requires_grad_(),
    )
    updates, assignment, _ = layer(slots, tokens)
    assert updates.dtype == dtype
    assert assignment.dtype == torch.float32
    expected, _, _ = layer.double()(slots.double(), tokens.double())
    assert (updates.double() - expected).abs().max() < 0.03 * expected.abs().max()
    gradients = torch.autograd.grad(updates.float().sum(), [slots, tokens])
    assert [gradient.dtype for gradient in gradients] == [dtype, dtype]
    assert all(gradient.isfinite().all() for gradient in gradients)


def test_tokens_stay_as_they_are_where_they_are_more_than_the_queries():
    assert keys_cost_more(1024, 11, 192, 192, 1)
    assert not keys_cost_more(16, 24, 16, 16, 1, frames=10**6)
    assert not keys_cost_more(16, 4, 16, 16, 1), "too small to be worth an operation more"
    assert keys_cost_more(16, 4, 16, 16, 1, frames=10**6)
    for queries, heads in itertools.product((4, 33, 200), (2, 4)):
        assert keys_cost_more(10**6, queries, 192, 192, heads) == ((heads - 1) * queries < 192)
    layer = made("auto")
    many, few = torch.zeros(1, 1, 10**6, TOKEN_DIM).double(), torch.zeros(1, 10**5, 3, TOKEN_DIM).double()
    assert isinstance(layer.memory(many, 5), TokenMemory)
    assert isinstance(layer.memory(few, 7), KeyValueMemory)
    assert isinstance(layer.memory(many, 3), TokenMemory)


@pytest.mark.parametrize("window", [None, 3])
def test_memory_of_tokens_grows_and_is_cut_as_that_of_keys(window):
    layer, slots, tokens = made("streamed"), noise(2, 6, 3, DIM), noise(2, 6, 4, TOKEN_DIM)
    whole, _, _ = layer(slots, layer.memory(tokens, 1), causal=True, window=window)
    memory = None
    for step in range(6):
        memory = layer.memory(tokens[:, step : step + 1], 1).after(memory)
        update, _, _ = layer(slots[:, step : step + 1], memory, causal=True, window=window)
        torch.testing.assert_close(update[:, 0], whole[:, step])
        memory = memory if window is None else memory.last(window - 1)
    assert memory.size == (6 if window is None else window - 1, 4)


def small_psb(num_layers: int, window: int | None) -> PSB:
    torch.manual_seed(0)
    core = PSB(TokenSpec(dim=16, num_tokens=5), 3, dim=16, num_layers=num_layers, window=window).double()
    with torch.no_grad():
        for parameter in core.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return core


@pytest.mark.parametrize("window", [None, 1, 3])
@pytest.mark.parametrize("num_layers", [1, 2])
def test_a_first_layer_of_psb_that_is_summed_over_time_is_the_one_that_is_not(window, num_layers):
    core = small_psb(num_layers, window)
    x = noise(2, 7, 5, 16).requires_grad_()
    inputs = [x, *core.parameters()]

    def outcome(cuts: list[int]) -> list[Tensor]:
        pieces, state = [], None
        for piece in x.split(cuts, dim=1):
            output = core(piece, state)
            state = output.state
            pieces.append(torch.cat([output.slots, output.attention], dim=-1))
        assert (state.tokens is None) == (num_layers == 1 and core.layers[0].bottom_up.kernel == "streamed")
        whole = torch.cat(pieces, dim=1)
        loss = (whole * torch.linspace(-1, 1, whole.numel()).view_as(whole)).sum()
        return [whole, *torch.autograd.grad(loss, inputs, allow_unused=True, materialize_grads=True)]

    core.layers[0].bottom_up.kernel = "reference"
    expected = outcome([7])
    core.layers[0].bottom_up.kernel = "streamed"
    for cuts in ([7], [3, 1, 3]):
        for value, other in zip(outcome(cuts), expected, strict=True):
            torch.testing.assert_close(value, other, rtol=1e-10, atol=1e-10)
