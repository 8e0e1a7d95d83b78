from __future__ import annotations

import math

import pytest
import torch
from slotbench_plugins.aggregations.batch_scaled import BatchScaled
from slotbench_plugins.aggregations.layer_norm_aggregation import LayerNormAggregation
from slotbench_plugins.aggregations.weighted_mean import WeightedMean
from slotbench_plugins.aggregations.weighted_sum import WeightedSum
from torch import Tensor

from slotbench.nn.slot_attention import SlotCorrector
from slotbench.nn.slot_init import GaussianSlots


def noise(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def moved(module: torch.nn.Module) -> torch.nn.Module:
    """The module in double precision, with its parameters off their initial values."""
    with torch.no_grad():
        for index, parameter in enumerate(module.parameters()):
            parameter.add_(0.2 * noise(*parameter.shape, seed=index))
    return module.double()


def made(dim: int = 8, aggregation=WeightedMean, num_heads: int = 1, **arguments) -> SlotCorrector:
    torch.manual_seed(0)
    return moved(SlotCorrector(dim, 6, num_heads, aggregation=aggregation(dim // num_heads), **arguments).double())


def run(corrector: SlotCorrector, slots: Tensor, tokens: Tensor, iterations: int):
    return corrector(slots, tokens, iterations)


def normalised(x: Tensor, norm: torch.nn.LayerNorm) -> Tensor:
    centred = x - x.mean()
    return centred / (centred.square().mean() + norm.eps).sqrt() * norm.weight + norm.bias


def by_loops(corrector: SlotCorrector, slots: Tensor, tokens: Tensor, iterations: int) -> tuple[Tensor, Tensor]:
    """Image by image, slot by slot, token by token, from the paper's Algorithm 1 and the GRU's equations."""
    dim = slots.shape[-1]
    wq, (wk, wv) = corrector.attention.query.weight, corrector.attention.key_value.weight.chunk(2)
    input_r, input_z, input_n = corrector.gru.input_map.weight.chunk(3)
    hidden_r, hidden_z, hidden_n = corrector.gru.hidden_map.weight.chunk(3)
    bias_r, bias_z, bias_n = corrector.gru.input_map.bias.chunk(3)
    hias_r, hias_z, hias_n = corrector.gru.hidden_map.bias.chunk(3)
    all_slots, all_shares = [], []
    for image in range(len(slots)):
        seen = [normalised(token, corrector.token_norm) for token in tokens[image]]
        state = list(slots[image])
        for _ in range(iterations):
            queries = [wq @ normalised(slot, corrector.slot_norm) for slot in state]
            shares = []
            for x in seen:
                powers = [torch.exp((wk @ x) @ query / math.sqrt(dim)) for query in queries]
                shares.append([power / sum(powers) for power in powers])
            after = []
            for k, hidden in enumerate(state):
                mass = sum(share[k] for share in shares)
                u = sum(share[k] * (wv @ x) for share, x in zip(shares, seen, strict=True)) / (mass + 1e-5)
                reset = torch.sigmoid(input_r @ u + bias_r + hidden_r @ hidden + hias_r)
                update = torch.sigmoid(input_z @ u + bias_z + hidden_z @ hidden + hias_z)
                candidate = torch.tanh(input_n @ u + bias_n + reset * (hidden_n @ hidden + hias_n))
                slot = (1 - update) * candidate + update * hidden
                norm, expand, _, contract = corrector.mlp
                inner = torch.relu(expand.weight @ normalised(slot, norm) + expand.bias)
                after.append(slot + contract.weight @ inner + contract.bias)
            state = after
        all_slots.append(torch.stack(state))
        all_shares.append(torch.stack([torch.stack(share) for share in shares], dim=1))
    return torch.stack(all_slots), torch.stack(all_shares)


@pytest.mark.parametrize("iterations", [1, 3])
def test_equals_the_algorithm_written_out_in_loops(iterations):
    corrector, slots, tokens = made(), noise(2, 3, 8), noise(2, 5, 6, seed=1)
    expected, shares = by_loops(corrector, slots, tokens, iterations)
    corrected = run(corrector, slots, tokens, iterations)
    torch.testing.assert_close(corrected.slots, expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(corrected.assignment, shares, rtol=0, atol=1e-12)
    torch.testing.assert_close(corrected.assignment.sum(dim=1), torch.ones(2, 5).double())
    assert corrected.statistics is None


@pytest.mark.parametrize(
    ("aggregation", "num_heads"),
    [(WeightedMean, 1), (WeightedMean, 2), (WeightedSum, 1), (BatchScaled, 1), (LayerNormAggregation, 2)],
)
def test_gradients_are_those_of_finite_differences(aggregation, num_heads):
    corrector = made(4, aggregation, num_heads)
    slots, tokens = noise(2, 2, 4).requires_grad_(), noise(2, 3, 6, seed=1).requires_grad_()
    result = lambda slots, tokens: run(corrector, slots, tokens, 2)[:2]  # noqa: E731
    assert torch.autograd.gradcheck(result, (slots, tokens))


def test_batch_scaling_measures_at_the_first_iteration_alone():
    aggregation = BatchScaled(8)
    measured: list[bool] = []
    rescale = aggregation.rescale
    aggregation.rescale = lambda gathered, statistics: (
        measured.append(statistics is None),
        rescale(gathered, statistics),
    )[1]
    corrector = SlotCorrector(8, 6, aggregation=aggregation).double()
    slots, tokens = noise(2, 3, 8), noise(2, 5, 6, seed=1)
    corrected = run(corrector, slots, tokens, 3)
    assert measured == [True, False, False]
    before = aggregation.running_mean.clone()
    corrector(corrected.slots, tokens, 2, corrected.statistics)
    assert measured[3:] == [False, False]
    assert torch.equal(before, aggregation.running_mean)


def test_where_the_mlp_follows():
    slots, tokens = noise(2, 3, 8), noise(2, 5, 6, seed=1)
    every, between = made(), made(mlp="between")
    none = made(mlp="none")
    assert none.mlp is None
    none.load_state_dict({name: value for name, value in every.state_dict().items() if not name.startswith("mlp")})
    torch.testing.assert_close(run(between, slots, tokens, 1).slots, run(none, slots, tokens, 1).slots)
    with_mlp, without = run(every, slots, tokens, 2).slots, run(between, slots, tokens, 2).slots
    torch.testing.assert_close(without + every.mlp(without), with_mlp)
    assert (without - run(none, slots, tokens, 2).slots).abs().max() > 1e-3


def test_heads_hold_competitions_of_their_own_and_are_mapped_together():
    corrector = made(num_heads=2)
    assert not corrector.attention.across_heads
    assert isinstance(corrector.attention.output, torch.nn.Linear)
    assert isinstance(made().attention.output, torch.nn.Identity)
    shares = run(corrector, noise(2, 3, 8), noise(2, 5, 6), 2).assignment
    torch.testing.assert_close(shares.sum(dim=1), torch.ones(2, 5).double())


@pytest.mark.parametrize(
    ("dim", "mlp_ratio", "count"), [(64, 2, 54_336), (128, 4, 280_960)], ids=["CLEVR", "DINO features"]
)
@pytest.mark.parametrize(("aggregation", "more"), [(WeightedMean, 0), (WeightedSum, 0), (BatchScaled, 2)])
def test_parameter_counts_are_those_of_the_paper(dim, mlp_ratio, count, aggregation, more):
    corrector = SlotCorrector(dim, mlp_ratio=mlp_ratio, aggregation=aggregation(dim))
    parts = [*corrector.parameters(), *GaussianSlots(7, dim).parameters()]
    assert sum(parameter.numel() for parameter in parts) == count + more
    norm = SlotCorrector(dim, mlp_ratio=mlp_ratio, aggregation=LayerNormAggregation(dim))
    assert sum(p.numel() for p in norm.parameters()) - sum(p.numel() for p in corrector.parameters()) == 2 * dim - more
