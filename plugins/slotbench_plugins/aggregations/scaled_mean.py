"""Scaled mean: the weighted mean, smaller the more slots there are than in training."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from slotbench.interfaces import TokenSums
from slotbench_plugins.aggregations.weighted_mean import EpsForm, WeightedMean


class ScaledMean(WeightedMean):
    """The weighted mean times the number of slots in training over the number of slots now.

        u[k] = (train_slots / K) sum_n g[n, k] v[n] / (sum_n g[n, k] + eps)

    All slots are scaled alike: it does not say which slot has won how much.

    Source: an option of the public code of Krimmel et al., TMLR 2024 ("scaled_mean"), which the paper does not mention.

    Args:
        dim: width of a value; the mean needs no width.
        train_slots: slots in training; the default is the cores' own.
        eps: keeps a slot that has won nothing from dividing by zero.
        eps_form: "sum" adds `eps` to the slot's sum of shares, "entry" to each of its shares.
    """

    def __init__(self, dim: int, train_slots: int = 8, eps: float = 1e-8, eps_form: EpsForm = "entry"):
        super().__init__(dim, eps, eps_form)
        self.train_slots = train_slots

    def from_sums(self, sums: TokenSums) -> Float[Tensor, "*batch slots dim"]:
        """The slots are counted in the sums."""
        return super().from_sums(sums) * (self.train_slots / sums.mass.shape[-2])
