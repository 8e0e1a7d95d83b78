from __future__ import annotations

import torch

from slotbench.metrics import ChoiceUsage, usage_entropy


def one_hot(*choices: int, of: int = 3) -> torch.Tensor:
    return torch.nn.functional.one_hot(torch.tensor(choices), of).float()


def test_entropy_is_that_of_the_mean_use_over_all_leading_axes():
    chosen = one_hot(0, 0, 0, 1).view(2, 2, 3)
    expected = -(0.75 * torch.tensor(0.75).log() + 0.25 * torch.tensor(0.25).log()) / torch.tensor(3.0).log()
    torch.testing.assert_close(usage_entropy(chosen), expected)
    torch.testing.assert_close(usage_entropy(torch.tensor([[0.75, 0.25, 0.0]])), expected)


def test_the_metric_is_the_entropy_of_all_batches_together():
    torch.manual_seed(0)
    batches = [torch.rand(2, 4, 3).softmax(-1) for _ in range(3)]
    usage = ChoiceUsage()
    for batch in batches:
        usage.update(batch)
    torch.testing.assert_close(usage.compute(), usage_entropy(torch.cat(batches)))
    usage.reset()
    usage.update(one_hot(1, 1))
    assert usage.compute() == usage_entropy(one_hot(0, 0, of=1)) == 0
