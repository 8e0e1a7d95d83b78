"""Inverted attention in Triton, run in Triton's interpreter: values and gradients, without a GPU.

Left out without Triton or without its flag; `nox -s triton` has both. The interpreter reads bfloat16 as it should, and
cuts off what it should round where it writes it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scan_inputs import assert_agree
from torch import Tensor

from slotbench import registry
from slotbench.nn.inverted_attention import InvertedAttention
from slotbench.nn.slot_attention import SlotCorrector
from slotbench.ops import KernelError, available_kernels, chosen_kernels, dispatch
from slotbench.ops.inverted_attention import TokenMemory
from slotbench.ops.inverted_attention.competition import Competition
from slotbench.ops.inverted_attention.fused import fused_sums
from slotbench.ops.inverted_attention.streamed import streamed_sums

if find_spec("triton") is None or os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("needs triton and TRITON_INTERPRET=1: nox -s triton", allow_module_level=True)

kernels = import_module("slotbench.ops._cuda.triton_inverted_attention")
FLOAT32 = 2e-5  # relative to the norm, of values and of every gradient
NAMES = registry.names("aggregations")
DIM, TOKEN_DIM, SLOTS = 8, 6, 5


def noise(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def inputs_of(
    batch: int = 2, time: int = 1, past: int = 0, heads: int = 1, slots: int = SLOTS, dim: int = 7, tokens: int = 70
) -> dict[str, Tensor]:
    """In double precision; a bias by time only where heads can compete with one another."""
    query = noise(batch, time, heads, slots, dim)
    given = {"query": query, "bias": noise(*query.shape[:4], 1, seed=1)}
    given["tokens"] = noise(batch, past + time, tokens, dim, seed=2)
    return given | ({"time_bias": noise(heads, time, past + time, seed=3)} if heads > 1 else {})


def results(
    sums: Callable[..., tuple[Tensor, ...]], inputs: dict[str, Tensor], *settings: object, dtype: torch.dtype
) -> dict[str, Tensor]:
    """What `sums` returns, and the gradient of a linear function of all of it for every input."""
    leaves = {name: value.detach().to(dtype).requires_grad_() for name, value in inputs.items()}
    query, bias, tokens, *time_bias = leaves.values()
    outputs = [x for x in sums(query, bias, tokens, *(time_bias or [None]), *settings) if x is not None]
    weights = [torch.cos(torch.arange(x.numel(), dtype=torch.float64)).view(x.shape).to(x) for x in outputs]
    gradients = torch.autograd.grad(outputs, list(leaves.values()), weights)
    named = dict(zip(("values", "mass", "shares"), outputs, strict=False))
    return named | {f"grad {name}": value for name, value in zip(leaves, gradients, strict=True)}


def assert_the_same(inputs: dict[str, Tensor], *settings: object) -> None:
    actual = results(fused_sums, inputs, *settings, dtype=torch.float32)
    expected = results(streamed_sums, inputs, *settings, dtype=torch.float64)
    if not settings[0].across_heads and "grad time_bias" in expected:
        # added to all that compete: whatever is not zero is rounding
        assert actual.pop("grad time_bias").abs().max() < 1e-3
        del expected["grad time_bias"]
    assert_agree(actual, expected, FLOAT32)


# more tokens than a block, none that is full, slots and dimensions past a power of two
@pytest.mark.parametrize(
    "sizes",
    [
        {"slots": 1, "dim": 1, "tokens": 1, "batch": 1},
        {"tokens": 200},
        {"slots": 17, "dim": 130, "tokens": 33},
        {"slots": 32, "dim": 20, "tokens": 64, "batch": 1},
        {"heads": 3, "slots": 6, "dim": 33},
        {"heads": 2, "slots": 1, "tokens": 3},
    ],
)
@pytest.mark.parametrize("across_heads", [True, False])
def test_frames_are_the_reference(sizes, across_heads):
    assert_the_same(inputs_of(**sizes), Competition(across_heads), 0.0, True)


@pytest.mark.parametrize(
    ("causal", "window", "past"), [(False, None, 0), (True, None, 0), (True, None, 2), (True, 1, 0), (True, 2, 2)]
)
def test_clips_are_the_reference(causal, window, past):
    inputs = inputs_of(batch=1, time=3, past=past, heads=2, tokens=20)
    assert_the_same(inputs, Competition(True, causal, window, past), 1e-2, True)


@settings(max_examples=12)
@given(data=st.data())
def test_sums_of_any_size_are_the_reference(data):
    draw = lambda low, high, label: data.draw(st.integers(low, high), label=label)  # noqa: E731
    causal = data.draw(st.booleans(), label="causal")
    past = draw(0, 2, "past") if causal else 0
    competition = Competition(
        data.draw(st.booleans(), label="across heads"),
        causal,
        data.draw(st.none() | st.integers(1, 4), label="window") if causal else None,
        past,
    )
    sizes = {"time": draw(1, 3, "time"), "past": past, "heads": draw(1, 3, "heads"), "slots": draw(1, 5, "slots")}
    sizes |= {"dim": draw(1, 20, "dim"), "tokens": draw(1, 40, "tokens"), "batch": draw(1, 2, "batch")}
    offset = data.draw(st.sampled_from([0.0, 1e-2]), label="offset")
    assert_the_same(inputs_of(**sizes), competition, offset, data.draw(st.booleans(), label="shares"))


@pytest.mark.parametrize("programs", [1, 3, 1000])
def test_parts_of_several_programs_are_summed_and_two_runs_give_the_same_bits(monkeypatch, programs):
    monkeypatch.setattr(kernels, "_PROGRAMS", programs)
    monkeypatch.setattr(kernels, "_FEWEST_BLOCKS", 1)
    inputs, settings_ = inputs_of(batch=1, time=2, tokens=150, heads=2), (Competition(True, True), 1e-2, True)
    assert_the_same(inputs, *settings_)
    once, twice = (results(fused_sums, inputs, *settings_, dtype=torch.float32) for _ in range(2))
    assert all(torch.equal(once[name], twice[name]) for name in once)


@pytest.mark.parametrize(("dtype", "rounding"), [(torch.float16, 1e-3), (torch.bfloat16, 1e-2)])
@pytest.mark.parametrize("steps", [1, 3])
def test_half_tokens_are_summed_in_float32(steps, dtype, rounding):
    inputs = inputs_of(time=steps)
    inputs["tokens"] = inputs["tokens"].to(dtype).double()

    def of_half(query, bias, tokens, *rest):
        return fused_sums(query, bias, tokens.to(dtype), *rest)

    settings_ = Competition(True, steps > 1), 0.0, True
    actual = results(of_half, inputs, *settings_, dtype=torch.float32)
    expected = results(streamed_sums, inputs, *settings_, dtype=torch.float64)
    assert_agree({"grad": actual.pop("grad tokens")}, {"grad": expected.pop("grad tokens")}, rounding)
    assert_agree(actual, expected, FLOAT32)


def test_logits_in_the_thousands_give_no_nan():
    inputs = {name: 1e2 * value for name, value in inputs_of().items()}
    found = results(fused_sums, inputs, Competition(False), 0.0, True, dtype=torch.float32)
    assert all(value.isfinite().all() for value in found.values())
    torch.testing.assert_close(found["shares"].sum(dim=2), torch.ones(2, 1, 70))


def test_tokens_are_read_where_they_lie_and_with_any_strides():
    query, bias, tokens = (value.float() for value in inputs_of(time=1).values())
    clip = torch.stack([tokens[:, 0] + 1, tokens[:, 0], tokens[:, 0] - 1], dim=1)
    expected = fused_sums(query, bias, tokens, None, Competition(True))
    for view in (clip[:, 1:2], tokens.mT.contiguous().mT, torch.cat([tokens, tokens], dim=-1)[..., :7]):
        assert not view.is_contiguous()
        found = fused_sums(query, bias, view, None, Competition(True))
        assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))
    assert kernels._read(clip[:, 1:2])[0].data_ptr() == clip[:, 1:2].data_ptr()


@pytest.mark.parametrize("index", [0, 1, 2])
def test_the_gradient_of_one_result_alone_reaches_the_inputs(index):
    def one(*arguments):
        return [fused_sums(*arguments)[index]]

    def expected(*arguments):
        return [streamed_sums(*arguments)[index]]

    inputs, settings_ = inputs_of(heads=2), (Competition(True), 0.0, True)
    found = results(one, inputs, *settings_, dtype=torch.float32)
    assert_agree(found, results(expected, inputs, *settings_, dtype=torch.float64), FLOAT32)


def test_only_what_is_asked_for_is_made_and_kept():
    query, bias, tokens = (value.float() for value in inputs_of(tokens=300).values())
    kept: list[int] = []
    pack = lambda tensor: (kept.append(tensor.data_ptr()), tensor)[1]  # noqa: E731
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        values, _, own = fused_sums(query.requires_grad_(), bias, tokens, None, Competition(True), 0.0, False)
        assert own is None
        assert set(kept) == {query.data_ptr(), bias.data_ptr(), tokens.data_ptr()}
        (gradient,) = torch.autograd.grad(values.sum(), query)
        assert gradient.shape == query.shape, "of frozen tokens"
    with torch.no_grad():
        assert torch.equal(fused_sums(query, bias, tokens, None, Competition(True))[0], values)


# --- the layer


def layer_of(name: str = "WeightedMean", num_heads: int = 1, **arguments) -> InvertedAttention:
    torch.manual_seed(0)
    aggregation = registry.load("aggregations", name)(DIM // num_heads)
    layer = InvertedAttention(DIM, TOKEN_DIM, num_heads, aggregation=aggregation, **arguments).double()
    with torch.no_grad():
        for index, parameter in enumerate(layer.parameters()):
            parameter.add_(0.3 * noise(*parameter.shape, seed=index))
    return layer


def of_layer(layer: InvertedAttention, kernel: str, dtype: torch.dtype, **arguments) -> dict[str, Tensor]:
    """Updates, assignment and gradients of frames, or of a clip for `causal`."""
    layer, frames = layer.to(dtype), (2,) if "causal" in arguments else ()
    layer.kernel = kernel
    slots = noise(2, *frames, SLOTS, DIM).to(dtype).requires_grad_()
    tokens = noise(2, *frames, 90, TOKEN_DIM, seed=1).to(dtype).requires_grad_()
    updates, shares, _ = layer(slots, tokens, **arguments)
    weights = [noise(*x.shape, seed=4).to(dtype) for x in (updates, shares)]
    inputs = {"slots": slots, "tokens": tokens, **dict(layer.named_parameters())}
    gradients = torch.autograd.grad(
        (updates, shares), list(inputs.values()), weights, allow_unused=True, materialize_grads=True
    )
    return {"updates": updates, "shares": shares, **dict(zip(inputs, gradients, strict=True))}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("arguments", [{}, {"causal": True}])
def test_every_aggregation_gets_its_sums(name, arguments):
    layer = layer_of(name, num_heads=2)
    actual = of_layer(layer, "triton", torch.float32, **arguments)
    expected = of_layer(layer, "reference", torch.float64, **arguments)
    # a norm over a head of four channels magnifies what is rounded
    assert_agree(actual, expected, 1e-3 if "Norm" in name else 1e-4)


def test_slots_that_are_alike_at_all_steps_are_summed_over_time_by_it():
    layer, slots = layer_of(num_heads=2, across_heads=False).float(), noise(2, SLOTS, DIM).float()
    memory = TokenMemory(noise(2, 3, 40, TOKEN_DIM).float())
    found = []
    for layer.kernel in ("triton", "streamed"):
        found.append(layer.cumulative(slots, memory, window=2)[:2])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_a_corrector_runs_its_iterations_by_it(monkeypatch):
    monkeypatch.setattr(dispatch, "_chosen", {})
    corrector = SlotCorrector(DIM, TOKEN_DIM, 2, aggregation=registry.load("aggregations", "WeightedMean")(DIM // 2))
    slots, tokens, found = noise(2, SLOTS, DIM).float(), noise(2, 80, TOKEN_DIM, seed=1).float(), []
    for corrector.attention.kernel in ("reference", "triton"):
        assert chosen_kernels() == {}
        slots.requires_grad_().grad = None
        corrector(slots, tokens, 3).slots.square().sum().backward()
        found.append(slots.grad)
    assert chosen_kernels() == {"inverted_attention": "triton"}
    torch.testing.assert_close(*found, rtol=1e-3, atol=1e-4)


def test_sums_stay_in_float32_under_autocast():
    layer = layer_of().float()
    layer.kernel = "triton"
    slots, tokens = noise(2, SLOTS, DIM).float(), noise(2, 200, TOKEN_DIM, seed=1).float().requires_grad_()
    expected, shares, _ = layer(slots, tokens)
    (outside,) = torch.autograd.grad(expected.sum(), tokens)
    with torch.autocast("cpu", torch.bfloat16):
        updates, rounded, _ = layer(slots, tokens)
        (inside,) = torch.autograd.grad(updates.float().sum(), tokens)
    assert rounded.dtype == inside.dtype == torch.float32
    assert (rounded - shares).abs().max() < 0.02
    assert (updates.float() - expected).abs().max() < 0.02 * expected.abs().max()
    assert (inside - outside).abs().max() < 0.05 * outside.abs().max()


def test_what_it_cannot_do_is_said():
    layer = layer_of()
    layer.kernel = "triton"
    with pytest.raises(KernelError, match="computes in float32 and the tokens are float64: use kernel='auto'"):
        layer(noise(2, SLOTS, DIM), noise(2, 9, TOKEN_DIM))
    layer.float()
    with pytest.raises(KernelError, match="at most 16384 numbers, and 1 x 1100 x 6 make 32768"):
        layer(noise(1, 1100, DIM).float(), noise(1, 9, TOKEN_DIM).float())


def test_the_op_is_what_torch_library_asks_for():
    for sizes in ({"heads": 2, "time": 2}, {}):
        given_ = inputs_of(**sizes, batch=1, tokens=9)
        query, bias, tokens, *time_bias = (x.float().requires_grad_() for x in given_.values())
        settings_ = True, len(time_bias) > 0, 3, 1e-2, False
        given_ = (query, bias, tokens, time_bias[0] if time_bias else None)
        for shares in (True, False):
            torch.library.opcheck(kernels._attend, (*given_, shares, *settings_))


def test_the_interpreter_is_offered_by_name_and_never_taken_by_itself():
    assert available_kernels("inverted_attention", "cpu")["triton"] is None
    assert dispatch.automatic_kernel("inverted_attention", "cpu")[0] == "streamed"
