from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from slotbench_plugins.cores.psb import PSB, DecoupledInteraction, JointInteraction
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from slotbench.interfaces import TokenSpec
from slotbench.nn.inverted_attention import InvertedAttention

pytestmark = pytest.mark.usefixtures("unchecked_shapes")

SPEC = TokenSpec(dim=16, num_tokens=5)


def tokens(time: int = 6, batch: int = 2, spec: TokenSpec = SPEC, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(batch, time, spec.num_tokens, spec.dim, generator=generator, dtype=torch.float64)


@pytest.fixture(autouse=True, params=["auto", "streamed"])
def kernel(request, monkeypatch) -> str:
    """What runs the attention to the frames: here "auto" is the reference, as there is little to do."""
    monkeypatch.setattr(InvertedAttention, "kernel", request.param)
    return request.param


def small(num_slots: int = 3, spec: TokenSpec = SPEC, **arguments) -> PSB:
    """A core with parameters off their initial values, so that no scaled-down map hides anything."""
    torch.manual_seed(0)
    core = PSB(spec, num_slots, **{"dim": 16, "num_layers": 2} | arguments).double()
    with torch.no_grad():
        for parameter in core.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return core


VARIANTS = pytest.mark.parametrize(
    "arguments",
    [{}, {"bottom_up_heads": 4}, {"interaction": "joint"}, {"bottom_up_heads": 2, "window": 3}],
    ids=lambda arguments: ", ".join(f"{k}={v}" for k, v in arguments.items()) or "default",
)


def count(module: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


@pytest.mark.parametrize(("heads", "block", "stack"), [(1, 742_981, 2_229_327), (4, 743_368, 2_230_488)])
def test_parameter_counts_are_those_of_the_paper(heads, block, stack):
    core = PSB(TokenSpec(dim=192, num_tokens=16), 11, dim=192, num_layers=3, bottom_up_heads=heads)
    assert [count(layer) for layer in core.layers] == [block] * 3
    assert count(core) == stack + 11 * 192
    assert not list(core.buffers())


def test_maps_onto_the_slots_start_scaled_down_by_the_depth():
    core = PSB(SPEC, dim=32, num_layers=3)
    bound = math.sqrt(6 / 64)
    for layer in core.layers:
        attentions = [layer.bottom_up, layer.interaction.time_attention, layer.interaction.slot_attention]
        largest = [attention.output.weight.abs().max().item() for attention in attentions]
        assert largest == pytest.approx([bound * 12**-0.5] * 3, rel=0.02)
        assert layer.mlp.contract.weight.abs().max().item() == pytest.approx(math.sqrt(6 / 160 / 12), rel=0.02)
        assert layer.mlp.expand.weight.abs().max().item() == pytest.approx(math.sqrt(6 / 32), rel=0.02)
        assert layer.bottom_up.query.weight.abs().max().item() == pytest.approx(bound, rel=0.02)


def test_a_core_that_is_not_causal_sees_the_whole_clip_and_cannot_go_on():
    core, x = small(causal=False), tokens()
    output = core(x)
    changed = x.clone()
    changed[:, 4:] += tokens(2, seed=1)
    assert (core(changed).slots - output.slots)[:, :4].abs().amax(dim=(0, 2, 3)).min() > 1e-3
    assert output.state is None
    with pytest.raises(ValueError, match="causal=False"):
        core(x, small()(x).state)
    with pytest.raises(ValueError, match="causal"):
        core.sliding_window(x, 2)


@pytest.mark.parametrize(
    ("num_layers", "window", "interaction"), [(2, 2, "decoupled"), (2, 3, "joint"), (3, 2, "joint")]
)
def test_eviction_leaves_exactly_the_frames_that_layers_upon_layers_reach(num_layers, window, interaction):
    reach = (num_layers + 1) * (window - 1) + 1
    core, state = small(num_layers=num_layers, window=window, interaction=interaction), None
    x = tokens(reach + 3).requires_grad_()
    for step in x.split(1, dim=1):
        output = core(step, state)
        state = output.state
    (gradient,) = torch.autograd.grad(output.slots.sin().sum(), x)
    assert gradient.abs().amax(dim=(0, 2, 3)).ne(0).tolist() == [False] * 3 + [True] * reach
    assert state.tokens.tokens.shape[1] == window - 1
    sums = state.layers[0].sums or ()
    assert all(leaf.shape[1] == window - 1 for leaf in sums)


def test_time_is_relative():
    """Beyond what the layers reach, shifting the clip shifts the slots: nothing knows the absolute step."""
    core, x = small(num_layers=1, window=3), tokens(12)
    torch.testing.assert_close(core(x[:, 4:]).slots[:, 4:], core(x).slots[:, 8:], rtol=0, atol=1e-12)


def test_attention_over_time_keeps_slots_apart_and_attention_among_slots_keeps_steps_apart():
    torch.manual_seed(0)
    layer = DecoupledInteraction(16, 4, 4, causal=True, window=None).double()
    slots = torch.randn(1, 5, 3, 16, dtype=torch.float64, requires_grad=True)
    bias = lambda offsets: torch.zeros(4, *offsets.shape, dtype=torch.float64)  # noqa: E731
    along_time, _ = layer.along_time(slots, None, bias)
    (gradient,) = torch.autograd.grad(along_time[:, 3, 1].sin().sum(), slots)
    assert gradient.abs().amax(dim=(0, 3)).ne(0).tolist() == [[False, step <= 3, False] for step in range(5)]
    (gradient,) = torch.autograd.grad(layer.among_slots(slots)[:, 3, 1].sin().sum(), slots)
    assert gradient.abs().amax(dim=(0, 3)).ne(0).tolist() == [[step == 3] * 3 for step in range(5)]
    joint = JointInteraction(16, 4, causal=True, window=None).double()
    (gradient,) = torch.autograd.grad(joint(slots, None, bias)[0][:, 3, 1].sin().sum(), slots)
    assert gradient.abs().amax(dim=(0, 3)).ne(0).tolist() == [[step <= 3] * 3 for step in range(5)]


def randomise_bias(core: PSB, outputs: slice) -> PSB:
    with torch.no_grad():
        for layer in core.layers:
            last = layer.time_bias.contract
            last.weight[outputs] = torch.randn_like(last.weight[outputs])
    return core


@pytest.mark.parametrize(("heads", "matters"), [(1, False), (4, True)])
def test_the_bias_of_bottom_up_attention_is_dead_with_one_head(heads, matters):
    core, x = small(bottom_up_heads=heads), tokens()
    before = core(x).slots
    before.sin().sum().backward()
    gradient = core.layers[0].time_bias.contract.weight.grad
    assert gradient[:heads].any(dim=1).all() == matters
    assert gradient[heads:].any(dim=1).all(), "attention over time uses its own"
    change = (randomise_bias(core, slice(heads))(x).slots - before).abs().max().item()
    assert change > 1e-3 if matters else change < 1e-12
    assert (randomise_bias(core, slice(heads, None))(x).slots - before).abs().max() > 1e-3


def test_one_bottom_up_head_is_blind_to_the_order_of_frames_but_the_stack_is_not(kernel):
    core, x = small(), tokens()
    swapped, seen = x[:, [1, 0, 2, 3, 4, 5]], []
    name = "forward" if kernel == "auto" else "cumulative"
    read_frames = getattr(InvertedAttention, name)
    with pytest.MonkeyPatch.context() as patch:

        def watch(*arguments, **keywords):
            seen.append(read_frames(*arguments, **keywords)[0])
            return read_frames(*arguments, **keywords)

        patch.setattr(InvertedAttention, name, watch)
        slots, other = core(x).slots, core(swapped).slots
    first, first_swapped = seen[0], seen[len(seen) // 2]
    assert (first - first_swapped)[:, 1:].abs().max() < 1e-12
    assert (first - first_swapped)[:, 0].abs().max() > 1e-3
    assert (slots - other)[:, 1:].abs().amax(dim=(0, 2, 3)).min() > 1e-4


@pytest.mark.parametrize("slot_init", ["learned", "gaussian"])
def test_all_steps_start_from_the_same_slots(slot_init):
    core, starts = small(slot_init=slot_init), []
    core.layers[0].register_forward_pre_hook(lambda _, arguments: starts.append(arguments[0]))
    core(tokens())
    (start,) = starts
    assert torch.equal(start, start[:, :1].expand_as(start))
    assert torch.equal(start[0], start[1]) == (slot_init == "learned")
    core(tokens())
    assert torch.equal(starts[1], starts[0]) == (slot_init == "learned")


def test_drawn_slots_are_kept_in_the_state_and_repeat_with_the_seed():
    core, x = small(slot_init="gaussian"), tokens()
    torch.manual_seed(4)
    whole = core(x)
    torch.manual_seed(4)
    first = core(x[:, :2])
    # whatever is drawn in between
    second = core(x[:, 2:], first.state)
    torch.testing.assert_close(torch.cat([first.slots, second.slots], dim=1), whole.slots)
    assert torch.equal(second.state.drawn, first.state.drawn)
    assert not torch.equal(core(x).slots, whole.slots)
    assert core.slot_parameters() is None
    assert small().slot_parameters() == {"slot_init.slots": 0}


@VARIANTS
def test_a_sliding_window_is_the_parallel_run_at_first_and_then_a_run_of_its_own_per_step(arguments):
    core, x = small(**arguments), tokens(8)
    whole, windows = core(x), core.sliding_window(x, 3)
    torch.testing.assert_close(windows.slots[:, :3], whole.slots[:, :3], rtol=0, atol=1e-12)
    torch.testing.assert_close(windows.attention[:, :3], whole.attention[:, :3], rtol=0, atol=1e-12)
    for step in range(3, 8):
        alone = core(x[:, step - 2 : step + 1])
        torch.testing.assert_close(windows.slots[:, step], alone.slots[:, -1], rtol=0, atol=1e-12)
        torch.testing.assert_close(windows.attention[:, step], alone.attention[:, -1], rtol=0, atol=1e-12)
    assert (windows.slots - whole.slots)[:, 3:].abs().amax(dim=(0, 2, 3)).min() > 1e-4
    evicting = small(**arguments | {"window": 3})(x).slots
    assert (windows.slots - evicting)[:, 3:].abs().amax(dim=(0, 2, 3)).min() > 1e-4
    assert windows.state is None


def test_a_sliding_window_wider_than_the_clip_is_the_parallel_run():
    core, x = small(), tokens(4)
    assert torch.equal(core.sliding_window(x, 9).slots, core(x).slots)


def test_drawn_slots_are_the_same_in_all_windows():
    core, x = small(slot_init="gaussian"), tokens(6)
    torch.manual_seed(4)
    windows = core.sliding_window(x, 2).slots
    torch.manual_seed(4)
    last = core(x[:, -2:]).slots[:, -1]
    torch.testing.assert_close(windows[:, -1], last, rtol=0, atol=1e-12)


class Operations(TorchDispatchMode):
    """How many operations have run, views and all."""

    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += 1
        return func(*args, **(kwargs or {}))


def test_the_number_of_operations_does_not_grow_with_the_clip():
    """So neither does the number of those that must wait for one another."""
    counts = []
    for time in (2, 8, 32):
        with Operations() as operations, torch.no_grad():
            small()(tokens(time))
        counts.append(operations.count)
    assert counts[0] == counts[1] == counts[2]


@pytest.mark.parametrize("kernel", ["auto"], indirect=True)
def test_multiply_adds_are_a_linear_and_a_quadratic_term(kernel):
    core, lengths, flops = small(), np.arange(2, 34, 4), []
    for time in lengths:
        with FlopCounterMode(display=False) as counter:
            core(tokens(int(time), batch=1))
        flops.append(counter.get_total_flops() / 2)
    terms = np.stack([lengths, lengths**2], axis=1).astype(float)
    coefficients, *_ = np.linalg.lstsq(terms, np.array(flops), rcond=None)
    error = np.array(flops) - terms @ coefficients
    assert 1 - (error @ error) / np.var(flops) / len(flops) > 0.999
    per_layer = 2 * 3 * 5 * 16  # slots times tokens times width, for the logits and for the mean
    time_attention = 2 * 3 * 16  # which the counter may not see inside the fused kernel
    assert 2 * per_layer <= coefficients[1] * 1.001
    assert coefficients[1] <= 2 * (per_layer + time_attention) * 1.001
