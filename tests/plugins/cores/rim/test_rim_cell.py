from __future__ import annotations

from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from slotbench_plugins.cores.rim.cell import Communication, InputAttention, block_gradient, most_relevant
from slotbench_plugins.cores.rim.groups import GroupGRU, GroupLinear, GroupLSTM
from torch import Tensor, nn

from slotbench.nn.gru import SharedGRU, gru_update

BATCH, MODULES, DIM, INPUT = 2, 4, 6, 5


def noise(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def attend(attention: InputAttention, inputs: Tensor, hidden: Tensor) -> Tensor:
    return attention.double()(hidden, attention.keys_values(inputs)[0])


@given(
    values=st.lists(st.lists(st.integers(0, 3), min_size=5, max_size=5), min_size=1, max_size=4), k=st.integers(1, 5)
)
def test_each_sample_selects_the_modules_of_least_null_attention(values, k):
    active = most_relevant(torch.tensor(values).float(), k)
    for row, chosen in zip(values, active.tolist(), strict=True):
        expected = sorted(range(5), key=lambda index: (row[index], index))[:k]
        assert [index for index in range(5) if chosen[index]] == sorted(expected)


def test_blocked_gradient_passes_values_and_reaches_only_active_modules():
    x, active = noise(2, 3, 4).requires_grad_(), torch.tensor([[True, False, True], [False, True, False]])[..., None]
    assert torch.equal(block_gradient(x, active), x)
    weight = noise(2, 3, 4, seed=1)
    (gradient,) = torch.autograd.grad((block_gradient(x, active) * weight).sum(), x)
    assert torch.equal(gradient, weight * active)


def test_several_heads_average_scores_and_values():
    attention = InputAttention(
        MODULES, DIM, INPUT, key_dim=3, value_dim=2, num_heads=2, normalisation="standard"
    ).double()
    hidden, inputs = noise(BATCH, MODULES, DIM), noise(BATCH, 3, INPUT)
    rows = torch.cat([inputs, torch.zeros(BATCH, 1, INPUT, dtype=torch.float64)], dim=1)
    queries, keys = attention.query(hidden).split(3, dim=-1), attention.key(rows).split(3, dim=-1)
    scores = sum(query @ key.mT / 3**0.5 for query, key in zip(queries, keys, strict=True)) / 2
    torch.testing.assert_close(attend(attention, inputs, hidden), scores.softmax(dim=-1))
    torch.testing.assert_close(attention.keys_values(inputs)[1], sum(attention.value(rows).split(2, dim=-1)) / 2)


@pytest.mark.parametrize(("null_row", "null"), [("first", 0), ("last", 3)])
def test_the_null_input_is_a_row_of_zeros_in_its_place_of_which_every_module_has_an_equal_share(null_row, null):
    """Thesis, Eq 3.13-3.14 and section 4.3."""
    attention = InputAttention(MODULES, DIM, INPUT, key_dim=3, null_row=null_row).double()
    hidden, inputs = noise(BATCH, MODULES, DIM), noise(BATCH, 3, INPUT, seed=1)
    scores = attention.query(hidden) @ attention.key(inputs).mT / 3**0.5
    shares = torch.cat([scores.softmax(dim=1), torch.full((BATCH, MODULES, 1), 1 / MODULES)], dim=-1)
    expected = shares / shares.sum(dim=-1, keepdim=True)
    keys, values = attention.keys_values(inputs)
    assert not keys[:, null].any()
    assert not values[:, null].any()
    weights = attention(hidden, keys)
    close = partial(torch.testing.assert_close, atol=1e-7, rtol=0)  # of the thesis' epsilon
    close(attention.null_last(weights), expected)
    close(attention.null_weights(weights), expected[..., -1])
    close(attention.input_weights(weights), expected[..., :-1])
    close(attention.read(weights, values), expected[..., :-1] @ attention.value(inputs))


def test_communication_is_attention_with_maps_of_each_modules_own():
    layer, hidden = Communication(MODULES, DIM, 2, 3, 4, dropout=0.0).double(), noise(BATCH, MODULES, DIM)
    query, key = torch.einsum("bki,kio->bko", hidden, layer.query_key.weight).split(6, dim=-1)
    value = torch.einsum("bki,kio->bko", hidden, layer.value.weight)
    heard = []
    for head in range(2):
        part = slice(3 * head, 3 * head + 3)
        weights = (query[..., part] @ key[..., part].mT / 3**0.5).softmax(dim=-1)
        heard.append(weights @ value[..., 4 * head : 4 * head + 4])
    expected = torch.einsum("bki,kio->bko", torch.cat(heard, dim=-1), layer.output.weight)
    torch.testing.assert_close(layer(hidden), expected)


def test_in_mode_self_every_module_hears_its_own_values():
    layer, hidden = Communication(MODULES, DIM, 2, 3, 4).double(), noise(BATCH, MODULES, DIM)
    torch.testing.assert_close(layer(hidden, mode="self"), layer.output(layer.value(hidden)))


GROUPS, INPUT, DIM = 3, 5, 4

SIZES = st.integers(1, 5)


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


def test_initial_spread_is_xavier_or_as_asked():
    maps = GroupLinear(50, 20, 10, maps=2).weight
    assert maps.abs().max() <= (6 / 30) ** 0.5
    assert maps.std().item() == pytest.approx((2 / 30) ** 0.5, rel=0.05)
    assert GroupLinear(50, 20, 10, std=0.01).weight.std().item() == pytest.approx(0.01, rel=0.05)


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
