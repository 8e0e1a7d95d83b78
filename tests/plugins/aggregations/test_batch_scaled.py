from __future__ import annotations

import batch_scaled_in_processes as processes
import torch
from forked import Forked
from slotbench_plugins.aggregations.batch_scaled import BatchScaled
from torch import Tensor


def noise(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def sums(seed: int = 0) -> Tensor:
    return 3 * noise(2, 4, 16, seed=seed) + 1


def test_the_first_iteration_is_standardised_and_later_ones_are_put_on_its_scale():
    aggregation, first, second = BatchScaled(16).double(), sums(), 2 * sums(1) + 1
    updates, statistics = aggregation.rescale(first)
    variance = first.var()
    assert abs(updates.mean()) < 1e-6
    torch.testing.assert_close(updates.var(), variance / (variance + 1e-5), rtol=0, atol=1e-5)
    later, handed_on = aggregation.rescale(second, statistics)
    torch.testing.assert_close(later, (second - first.mean()) / (variance + 1e-5).sqrt())
    assert abs(later.mean()) > 0.1
    assert torch.equal(handed_on, statistics)
    assert statistics.shape == (2, 2)


def test_running_averages_move_once_per_measurement_and_not_in_evaluation():
    aggregation, first = BatchScaled(16).double(), sums()
    _, statistics = aggregation.rescale(first)
    for _ in range(3):
        _, statistics = aggregation.rescale(first, statistics)
    torch.testing.assert_close(aggregation.running_mean, 0.1 * first.mean())
    torch.testing.assert_close(aggregation.running_var, 0.9 + 0.1 * first.var())
    before = aggregation.running_mean.clone(), aggregation.running_var.clone()
    aggregation.eval()
    assert aggregation.rescale(first)[1] is None
    assert (aggregation.running_mean, aggregation.running_var) == before
    assert not aggregation.running_mean.requires_grad


def test_gradients_flow_through_the_statistics_from_all_iterations():
    aggregation, first = BatchScaled(16, eps=0.0).double(), sums().requires_grad_()
    updates, statistics = aggregation.rescale(first)
    (gradient,) = torch.autograd.grad(updates.sin().sum(), first, retain_graph=True)
    assert abs(gradient.sum()) < 1e-6, "a shift of all sums changes nothing"
    assert gradient.abs().max() > 1e-3
    later, _ = aggregation.rescale(sums(1), statistics)
    (through,) = torch.autograd.grad(later.sin().sum(), first)
    assert through.abs().max() > 1e-6
    fixed, _ = aggregation.rescale(first, statistics.detach())
    (without,) = torch.autograd.grad(fixed.sin().sum(), first)
    assert abs(without.sum()) > 1e-3


def test_evaluation_is_a_fixed_map_of_each_slot_whatever_else_there_is():
    aggregation = BatchScaled(16).double()
    aggregation.rescale(sums())
    with torch.no_grad():
        aggregation.weight.fill_(1.7)
        aggregation.bias.fill_(-0.2)
    aggregation.eval()
    x = sums(2)
    updates = aggregation.rescale(x)[0]
    torch.testing.assert_close(aggregation.rescale(x[1:, 2:3])[0], updates[1:, 2:3])
    mean, variance = aggregation.running_mean, aggregation.running_var
    torch.testing.assert_close(updates, 1.7 * (x - mean) / (variance + 1e-5).sqrt() - 0.2)
    halved = aggregation.rescale(x / 2)[0]
    torch.testing.assert_close(halved, 1.7 * (x / 2 - mean) / (variance + 1e-5).sqrt() - 0.2)


def test_sums_over_different_numbers_of_tokens_can_be_brought_to_one_scale():
    assignment, values = noise(1, 2, 3, 6).softmax(dim=-2), noise(1, 1, 6, 4)
    assignment[:, 0, :, 2:] = 0
    plain = BatchScaled(4).double().gather(assignment, values)
    scaled = BatchScaled(4, reference_tokens=6).double().gather(assignment, values)
    torch.testing.assert_close(scaled[:, 0], 3 * plain[:, 0])
    torch.testing.assert_close(scaled[:, 1], plain[:, 1])


def test_processes_share_their_statistics_and_the_gradients_through_them(tmp_path):
    workers = [Forked(processes.work, rank, str(tmp_path)) for rank in range(len(processes.SHARES))]
    assert [worker.output() for worker in workers] == ["", ""]
    logits, values = processes.batch()
    values.requires_grad_()
    whole = BatchScaled(4).double()
    expected = processes.loss(whole, logits, values)
    expected.backward()
    parts = [torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in range(2)]
    torch.testing.assert_close(parts[0][0] + parts[1][0], expected.detach())
    torch.testing.assert_close(torch.cat([part[1] for part in parts]), values.grad)
    for part in parts:
        torch.testing.assert_close(part[2], whole.running_mean)
        torch.testing.assert_close(part[3], whole.running_var)
