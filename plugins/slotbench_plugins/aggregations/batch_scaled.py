"""Batch scaling: a slot's sum over tokens, divided by the scale of such sums over the batch."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from slotbench.interfaces import StagedAggregation, SummedAggregation, TokenSums
from slotbench.nn.distributed import sum_over_processes

BatchStatistics = Float[Tensor, "batch 2"]


class BatchScaled(StagedAggregation, SummedAggregation):
    """The sum of the values by share, less a mean and over a deviation that are two numbers for the whole batch.

        u[k] = weight (s[k] - m) / sqrt(v + eps) + bias,    s[k] = sum_n g[n, k] v[n]

    In training m and v are mean and variance of s over clips, steps, heads, slots and channels, and gradients flow
    through them; under a distributed run, over the clips of all processes. They are taken at the first iteration: who
    iterates hands the statistics of the first `rescale` to the next ones, and a recurrent core carries them from frame
    to frame. In evaluation m and v are running averages of those of training, so that the map is fixed and slots,
    iterations, clip lengths and batch may change. `weight` and `bias` are learned numbers.

    In training a core that runs over all steps at once also takes these two numbers from later steps, and from other
    clips. The running averages start at 0 and 1 and are not corrected for that: evaluate after 100 updates or more.

    Source: Krimmel, Achterhold, Stueckler, "Attention Normalization Impacts Cardinality Generalization in Slot
    Attention", TMLR 2024, Section 4.2, Eq 14-15; `eps` and `momentum` from the public code, which has the variance with
    `unbiased=False`. `reference_tokens` is ours.

    Args:
        dim: width of a value; two numbers need no width.
        eps: added to the variance.
        momentum: share of the new statistics in the running averages.
        unbiased: divide by one less than the number of numbers in the variance.
        reference_tokens: where steps see different numbers of tokens (a causal core that looks back, such as PSB), s
            grows with that number; it is scaled to this number of tokens. None leaves it as it is.
    """

    running_mean: Tensor
    running_var: Tensor

    def __init__(
        self,
        dim: int,
        eps: float = 1e-5,
        momentum: float = 0.1,
        unbiased: bool = True,
        reference_tokens: int | None = None,
    ):
        super().__init__(dim)
        self.eps = eps
        self.momentum = momentum
        self.unbiased = unbiased
        self.reference_tokens = reference_tokens
        self.weight = nn.Parameter(torch.ones(()))
        self.bias = nn.Parameter(torch.zeros(()))
        self.register_buffer("running_mean", torch.zeros(()))
        self.register_buffer("running_var", torch.ones(()))

    def gather(
        self, assignment: Float[Tensor, "*batch slots tokens"], values: Float[Tensor, "*#batch tokens dim"]
    ) -> Float[Tensor, "*batch slots dim"]:
        """The sums s, in float32 at least."""
        return self.from_sums(self.sums(assignment, values))

    def from_sums(self, sums: TokenSums) -> Float[Tensor, "*batch slots dim"]:
        """The sums s, before the scale is known."""
        if self.reference_tokens is None:
            return sums.values
        return sums.values * (self.reference_tokens / sums.num_tokens.clamp(min=1))

    def rescale(
        self, gathered: Float[Tensor, "batch *others dim"], statistics: BatchStatistics | None = None
    ) -> tuple[Float[Tensor, "batch *others dim"], BatchStatistics | None]:
        """(updates, statistics to hand to later iterations)."""
        if not self.training:
            mean, variance, statistics = self.running_mean, self.running_var, None
        elif statistics is None:
            mean, variance = self._measure(gathered)
            with torch.no_grad():
                self.running_mean.lerp_(mean.to(self.running_mean), self.momentum)
                self.running_var.lerp_(variance.to(self.running_var), self.momentum)
            statistics = torch.stack([mean, variance]).expand(gathered.shape[0], 2)
        else:
            mean, variance = (part.view(-1, *[1] * (gathered.ndim - 1)) for part in statistics.unbind(-1))
        return self.weight * (gathered - mean) * torch.rsqrt(variance + self.eps) + self.bias, statistics

    def _measure(self, gathered: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance over everything, and over all processes; in two passes, for the digits."""
        count = sum_over_processes(gathered.new_tensor(gathered.numel()))
        mean = sum_over_processes(gathered.sum()) / count
        squares = sum_over_processes((gathered - mean).square().sum())
        return mean, squares / (count - 1 if self.unbiased else count).clamp(min=1)
