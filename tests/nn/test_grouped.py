from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from slotbench.nn.grouped import GroupGRU, GroupLinear, GroupLSTM
from slotbench.nn.gru import SharedGRU, gru_update
from slotbench.nn.parameters import decay_groups

GROUPS, INPUT, DIM = 3, 5, 4
SIZES = st.integers(1, 5)


def noise(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def as_gru_cells(group: GroupGRU) -> list[nn.GRUCell]:
    cells = []
    for index, weight in enumerate(group.input_weight):
        cell = nn.GRUCell(weight.shape[0], weight.shape[1] // 3).to(weight)
        weights = (weight.T, group.hidden_weight[index].T, group.input_bias[index, 0], group.hidden_bias[index, 0])
        with torch.no_grad():
            for parameter, value in zip(cell.parameters(), weights, strict=True):
                parameter.copy_(value)
        cells.append(cell)
    return cells


def as_lstm_cells(group: GroupLSTM) -> list[nn.LSTMCell]:
    cells = []
    for index, weight in enumerate(group.input_weight):
        dim = weight.shape[1] // 4
        cell = nn.LSTMCell(weight.shape[0], dim, bias=False).to(weight)
        with torch.no_grad():
            for parameter, value in ((cell.weight_ih, weight), (cell.weight_hh, group.hidden_weight[index])):
                enter, keep, show, candidate = value.T.split(dim)  # torch has the candidate third
                parameter.copy_(torch.cat([enter, keep, candidate, show]))
        cells.append(cell)
    return cells


@settings(max_examples=15)
@given(batch=SIZES, groups=SIZES, input_dim=SIZES, dim=SIZES)
def test_group_gru_is_that_many_gru_cells_side_by_side(batch, groups, input_dim, dim):
    group = GroupGRU(groups, input_dim, dim).double()
    x, hidden = noise(batch, groups, input_dim), noise(batch, groups, dim, seed=1)
    expected = [cell(x[:, k], hidden[:, k]) for k, cell in enumerate(as_gru_cells(group))]
    torch.testing.assert_close(group(x, hidden), torch.stack(expected, dim=1), rtol=1e-12, atol=1e-12)


def test_group_gru_has_the_gradients_of_gru_cells():
    group = GroupGRU(GROUPS, INPUT, DIM).double()
    inputs = [noise(2, GROUPS, INPUT).requires_grad_(), noise(2, GROUPS, DIM, seed=1).requires_grad_()]
    cells, weight = as_gru_cells(group), noise(2, GROUPS, DIM, seed=2)
    outputs = torch.stack([cell(inputs[0][:, k], inputs[1][:, k]) for k, cell in enumerate(cells)], dim=1)
    expected = torch.autograd.grad((outputs * weight).sum(), inputs, retain_graph=True)
    (outputs * weight).sum().backward()
    gradients = torch.autograd.grad((group(*inputs) * weight).sum(), [*inputs, *group.parameters()])
    torch.testing.assert_close(gradients[:2], expected)
    for k, cell in enumerate(cells):
        torch.testing.assert_close(gradients[2][k].T, cell.weight_ih.grad)
        torch.testing.assert_close(gradients[3][k].T, cell.weight_hh.grad)
        torch.testing.assert_close(gradients[4][k, 0], cell.bias_ih.grad)
        torch.testing.assert_close(gradients[5][k, 0], cell.bias_hh.grad)


@settings(max_examples=15)
@given(batch=SIZES, groups=SIZES, input_dim=SIZES, dim=SIZES)
def test_group_lstm_is_that_many_lstm_cells_side_by_side(batch, groups, input_dim, dim):
    group = GroupLSTM(groups, input_dim, dim).double()
    x, hidden, memory = noise(batch, groups, input_dim), noise(batch, groups, dim), noise(batch, groups, dim, seed=1)
    after = [cell(x[:, k], (hidden[:, k], memory[:, k])) for k, cell in enumerate(as_lstm_cells(group))]
    expected = tuple(torch.stack(leaves, dim=1) for leaves in zip(*after, strict=True))
    torch.testing.assert_close(group(x, hidden, memory), expected, rtol=1e-12, atol=1e-12)


def test_group_linear_gives_each_group_its_own_map():
    layer, x = GroupLinear(GROUPS, INPUT, DIM).double(), noise(2, GROUPS, INPUT)
    expected = torch.stack([x[:, k] @ layer.weight[k] for k in range(GROUPS)], dim=1)
    torch.testing.assert_close(layer(x), expected)


@pytest.mark.parametrize("layer", [GroupLinear(GROUPS, INPUT, 12), GroupGRU(GROUPS, INPUT, 4), GroupLSTM(GROUPS, 5, 3)])
def test_all_units_of_all_groups_start_different(layer):
    for parameter in layer.parameters():
        columns = parameter.transpose(1, 2).flatten(0, 1)
        assert columns.shape[0] == GROUPS * 12
        assert columns.unique(dim=0).shape[0] == columns.shape[0]


def test_initial_spread_is_xavier_or_as_asked():
    maps = GroupLinear(50, 20, 10, maps=2).weight
    assert maps.abs().max() <= (6 / 30) ** 0.5
    assert maps.std().item() == pytest.approx((2 / 30) ** 0.5, rel=0.05)
    assert GroupLinear(50, 20, 10, std=0.01).weight.std().item() == pytest.approx(0.01, rel=0.05)


def test_matrices_of_groups_decay_and_their_biases_do_not():
    gru = GroupGRU(GROUPS, INPUT, DIM)
    decayed, rest = (group["params"] for group in decay_groups(gru.parameters()))
    assert {id(p) for p in decayed} == {id(gru.input_weight), id(gru.hidden_weight)}
    assert {id(p) for p in rest} == {id(gru.input_bias), id(gru.hidden_bias)}


def test_shared_gru_is_a_gru_cell():
    shared, cell = SharedGRU(INPUT, DIM).double(), nn.GRUCell(INPUT, DIM).double()
    with torch.no_grad():
        for name, half in (("ih", shared.input_map), ("hh", shared.hidden_map)):
            half.weight.copy_(getattr(cell, f"weight_{name}"))
            half.bias.copy_(getattr(cell, f"bias_{name}"))
    x, hidden = noise(2, INPUT), noise(2, DIM, seed=1)
    torch.testing.assert_close(shared(shared.input_gates(x), hidden), cell(x, hidden), rtol=1e-12, atol=1e-12)


def test_gru_update_has_the_gradient_of_its_equations():
    inputs = [noise(2, 3, 3 * DIM, seed=seed).requires_grad_() for seed in (0, 1)]
    inputs.append(noise(2, 3, DIM, seed=2).requires_grad_())
    assert torch.autograd.gradcheck(gru_update, inputs)


def test_gru_update_keeps_the_precision_of_the_state():
    gates = noise(2, 3 * DIM).bfloat16()
    assert gru_update(gates, gates, noise(2, DIM).float()).dtype == torch.float32
