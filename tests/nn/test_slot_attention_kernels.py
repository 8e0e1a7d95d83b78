"""Slot Attention by every kernel has the values and gradients of the reference, and calls layers of another kind."""

from __future__ import annotations

from functools import partial
from unittest import mock

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from slotbench_plugins.aggregations.batch_scaled import BatchScaled
from slotbench_plugins.aggregations.layer_norm_aggregation import LayerNormAggregation
from slotbench_plugins.aggregations.weighted_mean import WeightedMean
from slotbench_plugins.aggregations.weighted_sum import WeightedSum
from slotbench_plugins.cores.savi import SAVi
from slotbench_plugins.cores.slot_attention import SlotAttention

from slotbench.interfaces import RecurrentCore, TokenSpec
from slotbench.nn.slot_attention import SlotCorrector
from slotbench.nn.temporal_attention import TemporalAttention
from slotbench.ops.inverted_attention import FrameMemory, attention, dense

AGGREGATIONS = [
    WeightedMean,
    partial(WeightedMean, eps=0.01, eps_form="entry"),
    WeightedSum,
    BatchScaled,
    LayerNormAggregation,
]
SIZES = st.tuples(*(st.integers(1, most) for most in (3, 3, 4, 7, 6, 6)))
"""Batch, time, slots, tokens, width of a slot, width of a token."""


def moved(module):
    """The module in double precision, off its initial weights."""
    generator = torch.Generator().manual_seed(1)
    for parameter in module.double().parameters():
        parameter.data.add_(0.3 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    return module


def gradients(outputs, inputs):
    """Of a sum that weighs every number of the outputs differently."""
    loss = sum((torch.linspace(-1, 2, out.numel(), dtype=out.dtype) * out.flatten()).sum() for out in outputs)
    return torch.autograd.grad(loss, inputs, materialize_grads=True, allow_unused=True)


def assert_same(found, wanted):
    for mine, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-7, atol=1e-9)


def frames_of(corrector, tokens, num_slots=3, num_iterations=2):
    return list(corrector.frames(tokens, num_slots, num_iterations))


@pytest.mark.parametrize("overhead", [-(10**9), 10**9], ids=["tokens", "keys and values"])
@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@given(SIZES, st.integers(1, 3), st.sampled_from(["every", "between", "none"]), st.booleans())
def test_values_statistics_and_gradients_are_those_of_the_reference(aggregation, overhead, sizes, count, mlp, training):
    batch, time, num_slots, num_tokens, dim, token_dim = sizes
    torch.manual_seed(0)
    corrector = moved(SlotCorrector(dim, token_dim, mlp=mlp, aggregation=aggregation(dim))).train(training)
    slots = torch.randn(batch, num_slots, dim, dtype=torch.float64, requires_grad=True)
    tokens = torch.randn(batch, time, num_tokens, token_dim, dtype=torch.float64, requires_grad=True)
    inputs = [slots, tokens, *corrector.parameters()]

    def chained(kernel):
        """Every frame from the slots and with the statistics of the one before it."""
        corrector.attention.kernel = kernel
        now, statistics, outputs = slots, None, []
        with mock.patch.object(dense, "LAUNCH_OVERHEAD_MACS", overhead):
            frames = frames_of(corrector, tokens, num_slots, count)
        for frame in frames:
            now, shares, statistics = corrector(now, frame, count, statistics)
            outputs += [now, shares] + ([] if statistics is None else [statistics])
        return frames, outputs

    (frames, found), (_, wanted) = chained("dense"), chained("reference")
    assert len(frames) == time
    assert (frames[0].value_map is None) == (overhead > 0)
    assert_same(found, wanted)
    assert_same(gradients(found, inputs), gradients(wanted, inputs))


@given(SIZES, st.integers(1, 2), st.one_of(st.none(), st.integers(1, 3)), st.sampled_from(AGGREGATIONS))
def test_savi_equals_its_cell_step_by_step(sizes, count, first, aggregation):
    batch, time, num_slots, num_tokens, dim, token_dim = sizes
    torch.manual_seed(0)
    settings = {"num_iterations": count, "first_iterations": first, "predictor_heads": 1, "aggregation": aggregation}
    core = moved(SAVi(TokenSpec(token_dim, num_tokens), num_slots, dim, **settings))
    tokens = torch.randn(batch, time, num_tokens, token_dim, dtype=torch.float64, requires_grad=True)
    inputs = [tokens, *core.parameters()]
    found = core(tokens)
    core.corrector.attention.kernel = "reference"
    wanted = RecurrentCore.forward(core, tokens)
    assert found.attention_kind == wanted.attention_kind == "assignment"
    outputs = [[out.slots, out.attention, out.state.slots] for out in (found, wanted)]
    assert_same(*outputs)
    assert_same(*(gradients(out, inputs) for out in outputs))
    later = [out.slots for out in (core(tokens, found.state), RecurrentCore.forward(core, tokens, wanted.state))]
    torch.testing.assert_close(*later)


@pytest.mark.parametrize("kernel", ["auto", "dense", "streamed"])
def test_slot_attention_equals_itself_by_the_reference(kernel):
    torch.manual_seed(0)
    core = moved(SlotAttention(TokenSpec(6, 50), 3, 8, slot_init="learned"))
    tokens = torch.randn(2, 3, 50, 6, dtype=torch.float64)
    core.corrector.attention.kernel = kernel
    found = core(tokens)
    core.corrector.attention.kernel = "reference"
    wanted = core(tokens)
    assert_same([found.slots, found.attention], [wanted.slots, wanted.attention])


def test_batch_scaling_measures_at_the_first_iteration_of_the_first_frame_alone():
    torch.manual_seed(0)
    core = SAVi(TokenSpec(6, 5), 3, 8, num_iterations=3, aggregation=BatchScaled)
    aggregation = core.corrector.attention.aggregation
    with mock.patch.object(aggregation, "_measure", side_effect=aggregation._measure) as measured:
        core(torch.randn(2, 3, 5, 6))
    assert measured.call_count == 1


def test_few_weights_of_one_head_and_of_sums_are_kept():
    tokens = torch.randn(2, 3, 5, 6)

    def is_dense(corrector, tokens=tokens):
        return isinstance(frames_of(corrector, tokens)[0], FrameMemory)

    made = partial(SlotCorrector, 8, 6, aggregation=WeightedMean(8))
    assert is_dense(made())
    assert not is_dense(SlotCorrector(8, 6, 2, aggregation=WeightedMean(4)))
    assert not is_dense(made().bfloat16(), tokens.bfloat16())
    with torch.autocast("cpu", torch.bfloat16):
        assert not is_dense(made())
    with mock.patch.object(attention, "WEIGHTS_KEPT", 2 * 3 * 5 - 1):
        assert not is_dense(made())
    own = type("OwnMean", (WeightedMean,), {"forward": lambda self, shares, values: 2 * shares @ values})
    assert not is_dense(SlotCorrector(8, 6, aggregation=own(8)))
    named = made()
    named.attention.kernel = "reference"
    assert not is_dense(named)


@pytest.mark.parametrize("name", ["attention.query", "attention.key_value", "gru.input_map", "gru.hidden_map", "mlp.3"])
def test_a_layer_of_another_kind_is_called(name):
    """Such as one with a low-rank change of its weight, or a parametrised one."""

    class Doubled(torch.nn.Linear):
        def forward(self, x):
            return 2 * super().forward(x)

    torch.manual_seed(0)
    corrector, doubled = (SlotCorrector(8, 6, aggregation=WeightedMean(8)) for _ in range(2))
    doubled.load_state_dict(corrector.state_dict())
    with torch.no_grad():
        for parameter in corrector.get_submodule(name).parameters():
            parameter *= 2
    doubled.get_submodule(name).__class__ = Doubled
    slots, tokens = torch.randn(2, 3, 8), torch.randn(2, 5, 6)
    torch.testing.assert_close(doubled(slots, tokens, 2).slots, corrector(slots, tokens, 2).slots)


@given(st.integers(1, 3), st.integers(1, 6), st.sampled_from([1, 2, 4]), st.booleans())
def test_one_step_of_attention_among_slots_is_a_clip_of_one_step(batch, slots, heads, bias):
    torch.manual_seed(0)
    attention = moved(TemporalAttention(8, heads, bias=bias))
    x = torch.randn(batch, slots, 8, dtype=torch.float64, requires_grad=True)
    inputs = [x, *attention.parameters()]
    found, wanted = attention.within_step(x), attention(x[:, None])[0][:, 0]
    torch.testing.assert_close(found, wanted)
    assert_same(gradients([found], inputs), gradients([wanted], inputs))


def test_many_tokens_make_no_keys_and_few_do():
    corrector = SlotCorrector(64, 64, aggregation=WeightedMean(64))
    assert frames_of(corrector, torch.zeros(1, 1, 1024, 64), 7, 3)[0].value_map is not None
    assert frames_of(corrector, torch.zeros(1, 1, 4, 64), 7, 3)[0].value_map is None
