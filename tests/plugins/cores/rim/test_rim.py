from __future__ import annotations

import math

import pytest
import torch
from slotbench_plugins.cores.rim import RIM, RIMState
from small_rim import CELLS, DIM, MODULES, PLAIN, noise, small, tokens
from torch import Tensor

from slotbench.interfaces import TokenSpec


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
