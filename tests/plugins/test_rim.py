from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from slotbench_plugins.cores.rim import RIM, RIMState
from torch import Tensor

from slotbench.interfaces import TokenSpec, map_state
from slotbench.nn.parameters import decay_groups

SPEC = TokenSpec(dim=5, num_tokens=3)
MODULES, DIM = 4, 6
CELLS = pytest.mark.parametrize("cell_type", ["gru", "lstm"])
PLAIN = {"input_dropout": 0.0, "communication_dropout": 0.0, "communication_output": "linear"}


def noise(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def tokens(batch: int = 2, time: int = 6) -> Tensor:
    return noise(batch, time, SPEC.num_tokens, SPEC.dim)


def small(top_k: int = 2, num_inputs: int | str | None = None, **arguments) -> RIM:
    torch.manual_seed(0)
    core = RIM(SPEC, MODULES, DIM, top_k, num_inputs, num_heads=2, encoder_layers=1, **(PLAIN | arguments))
    return core.double()


def one_step(core: RIM, batch: int = 2, hidden: Tensor | None = None) -> tuple[RIMState, RIMState, Tensor]:
    """(state before, state after, which modules are active) for a random state."""
    memory = noise(batch, MODULES, DIM, seed=2) if core.cell_type == "lstm" else None
    before = RIMState(noise(batch, MODULES, DIM, seed=1) if hidden is None else hidden, memory)
    output = core(tokens(batch, 1), before)
    return before, output.state, output.attention[:, 0].sum(dim=-1) > 0


@CELLS
@pytest.mark.parametrize("expose", [False, True])
@pytest.mark.parametrize("top_k", [1, 2, MODULES])
def test_as_many_modules_as_asked_change_and_the_others_keep_their_state_to_the_bit(top_k, expose, cell_type):
    core = small(top_k, cell_type=cell_type, expose_inactive_update=expose)
    before, after, active = one_step(core, batch=5)
    assert active.sum(dim=1).tolist() == 5 * [top_k]
    for old, new in zip(before, after, strict=True):
        if old is not None:
            assert torch.equal((old == new).all(dim=-1), ~active)
            assert torch.equal((old != new).any(dim=-1), active)


def test_of_six_modules_four_change_per_step_and_with_six_all_do():
    for top_k in (4, 6):
        core = RIM(SPEC, num_slots=6, dim=DIM, top_k=top_k, encoder_layers=1, num_heads=2).double().eval()
        slots = core(tokens(time=8)).slots
        changed = (slots[:, 1:] != slots[:, :-1]).any(dim=-1).sum(dim=-1)
        assert (changed == top_k).all()


def test_ties_at_a_start_from_zeros_go_to_the_first_modules():
    core = small(3, initial="zeros")
    slots = core(tokens(time=1)).slots[:, 0]
    assert slots.any(dim=-1).tolist() == 2 * [[True, True, True, False]]


def test_with_all_modules_active_the_step_is_the_formula_without_masks():
    core = small(MODULES)
    before, after, _ = one_step(core)
    keys, values = core.input_attention.keys_values(tokens(time=1)[:, 0])
    updated = core.units(core.input_attention(before.hidden, keys) @ values, before.hidden)
    torch.testing.assert_close(after.hidden, updated + core.communication(updated))


@pytest.mark.parametrize("expose", [False, True])
def test_no_gradient_reaches_the_unit_query_and_output_of_a_module_that_is_not_active(expose):
    core = small(2, expose_inactive_update=expose)
    _, after, active = one_step(core, batch=1)
    (after.hidden * noise(1, MODULES, DIM, seed=3)).sum().backward()
    queries = core.communication.query_key.weight.grad.chunk(2, dim=-1)[0]
    own = {"query": queries, "output": core.communication.output.weight.grad}
    own |= {name: parameter.grad for name, parameter in core.units.named_parameters()}
    for name, gradient in own.items():
        assert torch.equal(gradient.flatten(1).any(dim=1), active[0]), name
    # what the others hear of it is their business: keys and values of all modules learn
    assert core.communication.value.weight.grad.flatten(1).any(dim=1).all()


def test_gradient_passes_through_the_state_that_an_inactive_module_keeps():
    core = small(2, communication="off")
    hidden = noise(1, MODULES, DIM, seed=1).requires_grad_()
    _, after, active = one_step(core, batch=1, hidden=hidden)
    asleep = int((~active[0]).nonzero()[0])
    jacobian = torch.stack([torch.autograd.grad(x, hidden, retain_graph=True)[0][0] for x in after.hidden[0, asleep]])
    assert torch.equal(jacobian[:, asleep], torch.eye(DIM, dtype=torch.float64))
    assert not jacobian[:, [k for k in range(MODULES) if k != asleep]].any()


def reach(core: RIM) -> tuple[Tensor, Tensor]:
    """(whether module i's next state depends on module j's state, which modules are active)."""
    hidden = noise(1, MODULES, DIM, seed=1).requires_grad_()
    _, after, active = one_step(core, batch=1, hidden=hidden)
    rows = [
        torch.autograd.grad((after.hidden[0, i] * noise(DIM)).sum(), hidden, retain_graph=True)[0] for i in range(4)
    ]
    return torch.stack([row[0].any(dim=-1) for row in rows]), active[0]


@pytest.mark.parametrize("mode", ["off", "self"])
def test_without_communication_and_competition_modules_do_not_meet(mode):
    depends, _ = reach(small(2, communication=mode, input_attention="standard"))
    assert torch.equal(depends, torch.eye(MODULES, dtype=torch.bool))


def test_competition_for_the_inputs_is_the_only_other_way_to_meet():
    core = small(MODULES, communication="off")
    depends, _ = reach(core)
    assert depends.all()
    attend = core.input_attention.forward
    core.input_attention.forward = lambda hidden, keys: attend(hidden, keys).detach()
    depends, _ = reach(core)
    assert torch.equal(depends, torch.eye(MODULES, dtype=torch.bool))


def test_active_modules_hear_all_and_the_others_none():
    depends, active = reach(small(2, input_attention="standard"))
    assert depends[active].all()
    assert torch.equal(depends[~active], torch.eye(MODULES, dtype=torch.bool)[~active])


@pytest.mark.parametrize("expose", [False, True])
def test_others_see_the_kept_state_of_an_inactive_module_unless_its_update_is_exposed(expose):
    core = small(2, expose_inactive_update=expose)
    _, expected, active = one_step(core, batch=1)
    with torch.no_grad():
        core.units.input_bias[~active[0]] += 1.0
    _, after, still_active = one_step(core, batch=1)
    assert torch.equal(active, still_active)
    assert (not torch.equal(after.hidden, expected.hidden)) is expose


@CELLS
def test_the_unit_of_a_module_is_its_own(cell_type):
    core = small(MODULES, communication="off", cell_type=cell_type)
    _, expected, _ = one_step(core)
    with torch.no_grad():
        core.units.hidden_weight[1] += 0.5
    _, after, _ = one_step(core)
    assert (after.hidden != expected.hidden).any(dim=-1).tolist() == 2 * [[False, True, False, False]]
    assert all(parameter.shape[0] == MODULES for parameter in core.units.parameters())


@CELLS
@pytest.mark.parametrize("output", ["linear", "gated"])
def test_modules_permuted_with_their_parameters_and_states_permute_the_slots(cell_type, output):
    core = small(2, cell_type=cell_type, communication_output=output)
    permuted, order = small(2, cell_type=cell_type, communication_output=output), torch.tensor([2, 0, 3, 1])
    axis = {"initial_modules": 1, "input_attention.query.weight": 0}
    axis |= {f"units.{name}": 0 for name, _ in core.units.named_parameters()}
    axis |= {f"communication.{name}.weight": 0 for name in ("query_key", "value")}
    if output == "linear":
        axis["communication.output.weight"] = 0
    weights = {n: w.index_select(axis[n], order) if n in axis else w for n, w in core.state_dict().items()}
    permuted.load_state_dict(weights)
    torch.testing.assert_close(permuted(tokens()).slots, core(tokens()).slots[:, :, order])


def test_permuting_the_modules_states_alone_does_not_permute_the_slots():
    core, order = small(MODULES), torch.tensor([2, 0, 3, 1])
    before, after, _ = one_step(core)
    _, moved, _ = one_step(core, hidden=before.hidden[:, order])
    assert (moved.hidden - after.hidden[:, order]).abs().max() > 0.1
    assert core.slot_parameters() is None


def test_order_of_the_tokens_is_of_no_effect():
    core = small()
    torch.testing.assert_close(core(tokens()[:, :, [2, 0, 1]]).slots, core(tokens()).slots)


def test_a_token_of_zeros_is_a_second_null_input():
    """Where the null input stands, first or last, is then of no effect either."""
    core = small(MODULES, input_attention="standard")
    padded = torch.cat([torch.zeros_like(tokens()[:, :, :1]), tokens()], dim=2)
    attention = core(padded).attention
    torch.testing.assert_close(attention[..., 0], 1 - attention.sum(dim=-1))


def test_a_small_step_is_what_one_computes_by_hand():
    """Two modules of width 2, one token of width 1, one head; module 0 is active."""
    core = RIM(
        TokenSpec(1, 1), 2, 2, 1, None, input_attention="standard", input_key_dim=1, input_value_dim=1,
        communication_heads=1, communication_key_dim=1, communication_value_dim=1, **PLAIN,
    ).double()  # fmt: skip
    values = {
        "input_attention.query.weight": [[[1.0], [0.0]], [[0.0], [1.0]]],
        "input_attention.key.weight": [[2.0]],
        "input_attention.value.weight": [[3.0]],
        "units.input_weight": [[[0.1, 0.2, 0.3, 0.4, 0.5, 0.6]], [[9.0] * 6]],
        "units.hidden_weight": [[[0.0] * 6, [0.0] * 6], [[9.0] * 6, [9.0] * 6]],
        "units.input_bias": [[[0.0] * 6], [[0.0] * 6]],
        "units.hidden_bias": [[[0.0, 0.0, 0.0, 0.0, 0.7, 0.8]], [[0.0] * 6]],
        "communication.query_key.weight": [[[1.0, 1.0], [0.0, 0.0]], [[0.0, 0.5], [0.0, 0.0]]],
        "communication.value.weight": [[[1.0], [0.0]], [[0.0], [1.0]]],
        "communication.output.weight": [[[2.0, -1.0]], [[5.0, 5.0]]],
    }
    core.load_state_dict(
        {name: torch.tensor(value, dtype=torch.float64) for name, value in values.items()}, strict=False
    )
    hidden = [[0.5, -0.25], [0.75, -1.0]]
    token = 0.8

    def sigmoid(x: float) -> float:
        return 1 / (1 + math.exp(-x))

    # module 0: score 0.5 * 1.6 against 0; module 1: -1.0 * 1.6 against 0, so module 0 is active
    read = sigmoid(0.5 * 2 * token) * 3 * token
    updated = []
    for i, h in enumerate(hidden[0]):
        reset, keep = sigmoid((0.1, 0.2)[i] * read), sigmoid((0.3, 0.4)[i] * read)
        candidate = math.tanh((0.5, 0.6)[i] * read + reset * (0.7, 0.8)[i])
        updated.append((1 - keep) * candidate + keep * h)
    to_itself, to_other = math.exp(updated[0] * updated[0]), math.exp(updated[0] * 0.5 * hidden[1][0])
    heard = (to_itself * updated[0] + to_other * hidden[1][1]) / (to_itself + to_other)
    expected = [[updated[0] + 2 * heard, updated[1] - heard], hidden[1]]

    x = torch.full((1, 1, 1, 1), token, dtype=torch.float64)
    slots = core(x, RIMState(torch.tensor([hidden], dtype=torch.float64), None)).slots
    torch.testing.assert_close(slots[0, 0], torch.tensor(expected, dtype=torch.float64), rtol=1e-12, atol=1e-12)


@CELLS
@pytest.mark.parametrize("num_inputs", [None, 2])
@settings(max_examples=6)
@given(cut=st.integers(1, 6), top_k=st.integers(1, MODULES))
def test_a_clip_in_two_pieces_is_the_clip(cell_type, num_inputs, cut, top_k):
    core, x = small(top_k, num_inputs, cell_type=cell_type), tokens(time=7).requires_grad_()
    whole = core(x)
    first = core(x[:, :cut])
    second = core(x[:, cut:], first.state)
    torch.testing.assert_close(torch.cat([first.slots, second.slots], dim=1), whole.slots)
    expected, gradient = (torch.autograd.grad(y.slots[:, -1].square().sum(), x)[0] for y in (whole, second))
    torch.testing.assert_close(gradient, expected)


@CELLS
@pytest.mark.parametrize("initial", ["learned", "zeros", "normal"])
def test_evaluation_is_the_same_every_time_and_for_every_sample_of_a_batch(initial, cell_type):
    core = small(initial=initial, cell_type=cell_type, input_dropout=0.3, communication_dropout=0.3).eval()
    slots = core(tokens(batch=3)).slots
    assert torch.equal(core(tokens(batch=3)).slots, slots)
    for sample in range(3):
        torch.testing.assert_close(core(tokens(batch=3)[sample : sample + 1]).slots[0], slots[sample])


def test_training_draws_dropout_and_a_normal_start_anew():
    for arguments in ({"input_dropout": 0.5}, {"communication_dropout": 0.5}, {"initial": "normal"}):
        core = small(MODULES, **arguments)
        assert not torch.equal(core(tokens()).slots, core(tokens()).slots), arguments


def test_a_normal_start_differs_between_clips_in_training_only():
    core = small(initial="normal")
    start = core.initial_state(tokens(batch=4)[:, 0]).hidden
    assert start.flatten(1).unique(dim=0).shape[0] == 4
    start = core.eval().initial_state(tokens(batch=4)[:, 0]).hidden
    assert start.flatten(1).unique(dim=0).shape[0] == 1
    assert 0.5 < start.std() < 1.5


def test_attention_is_in_terms_of_the_tokens_and_only_of_modules_that_read():
    for num_inputs in (None, "num_slots", 2):
        core = small(2, num_inputs)
        attention = core(tokens()).attention
        assert attention.shape == (2, 6, MODULES, 3)
        read = attention.sum(dim=-1)
        assert ((read > 0).sum(dim=-1) == 2).all()
        assert (read < 1).all()


def test_encoder_makes_as_many_inputs_as_asked():
    assert small(num_inputs=None).encoder is None
    assert small(num_inputs="num_slots").encoder.queries.shape == (MODULES, DIM)
    assert small(num_inputs=7).encoder.queries.shape == (7, DIM)


def test_parameters_of_the_thesis_count_as_in_the_thesis():
    def count(module: torch.nn.Module) -> int:
        return sum(parameter.numel() for parameter in module.parameters())

    core = RIM.thesis(TokenSpec(dim=64, num_tokens=1))
    assert (count(core.units), count(core.communication), count(core)) == (543_600, 316_800, 915_696)
    assert count(RIM.thesis(TokenSpec(dim=100, num_tokens=3))) == 925_200


@pytest.mark.parametrize("cell_type", ["gru", "lstm"])
def test_original_settings_are_four_of_six_with_a_gate_after_the_communication(cell_type):
    core = RIM.original(TokenSpec(dim=10, num_tokens=1), cell_type=cell_type).eval()
    slots = core(torch.randn(2, 4, 1, 10)).slots
    assert ((slots[:, 1:] != slots[:, :-1]).any(dim=-1).sum(dim=-1) == 4).all()
    assert slots.shape == (2, 4, 6, 100)
    assert core.communication.output.weight.shape == (200, 64)


@pytest.mark.parametrize("preset", [RIM.thesis, RIM.original])
def test_presets_start_their_modules_projections_small(preset):
    weight = preset(SPEC).communication.value.weight
    assert weight.std().item() == pytest.approx(0.01, rel=0.1)


def test_communication_can_be_taken_from_a_trained_core():
    core = small(MODULES)
    full = core(tokens()).slots
    core.communication_mode = "off"
    off = core(tokens()).slots
    alone = small(MODULES, communication="off")
    alone.load_state_dict({n: w for n, w in core.state_dict().items() if not n.startswith("communication.")})
    assert not torch.equal(full, off)
    assert torch.equal(off, alone(tokens()).slots)


def test_state_is_finite_after_huge_tokens():
    core, x = small(), (1e4 * tokens()).requires_grad_()
    slots = core(x).slots
    (gradient,) = torch.autograd.grad(slots.square().sum(), x)
    assert slots.isfinite().all()
    assert gradient.isfinite().all()


def test_default_states_do_not_grow_with_the_length_of_the_clip():
    for seed in (0, 1):
        torch.manual_seed(seed)
        core = RIM(TokenSpec(dim=64, num_tokens=4)).eval()
        with torch.no_grad():
            slots = core(torch.randn(1, 600, 4, 64)).slots
        assert slots.abs().max() < 10


def test_two_thirds_are_active_unless_told():
    assert [RIM(SPEC, num_slots=n).top_k for n in (1, 3, 6, 8)] == [1, 2, 4, 5]


def test_learned_start_and_biases_do_not_decay():
    core = small()
    rest = {id(parameter) for parameter in decay_groups(core.parameters())[1]["params"]}
    assert {name for name, parameter in core.named_parameters() if id(parameter) in rest} == {
        "initial_modules",
        "units.input_bias",
        "units.hidden_bias",
    }


def test_state_without_memory_maps_to_one_without():
    state = small()(tokens()).state
    assert map_state(torch.clone, state).memory is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"top_k": 9}, "top_k=9 of num_slots=8 .* choose 1 to 8"),
        ({"top_k": 0}, "top_k=0 of num_slots=8"),
        ({"num_slots": 0}, "at least one module, got num_slots=0"),
        ({"share_query": True, "initial": "zeros"}, "same query at the first step"),
        ({"num_inputs": 0}, "at least 1 slot"),
    ],
)
def test_arguments_that_cannot_be_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        RIM(SPEC, **arguments)
