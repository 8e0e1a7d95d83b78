"""Cross-entropy of predicted codes, beside that of the codes' frequencies and of the codes of the frame before."""

from __future__ import annotations

import torch
from jaxtyping import Float, Integer
from torch import Tensor
from torch.nn import functional as F

from slotbench.metric_info import MetricInfo, Reference
from slotbench.metrics.distinct import DistinctMetric

__all__ = ["NEXT_CODES", "NextCodes", "share_of_repeats"]

NEXT_CODES = (MetricInfo("cross_entropy", "cross-entropy of codes", False, unit="nats"),)
"""What `NextCodes` scores."""

_HALVINGS = 60


class NextCodes(DistinctMetric):
    """Cross-entropy in nats per code of the codes of a next frame, over everything that all processes have seen.

    Baselines are counted on the same codes, so that no predictor of the kind does better on them: the entropy of single
    codes, and a mixture that has the code which the cell had before with one probability (`share_of_repeats`), and
    otherwise any code as often as it occurs. For codebooks of any size that is one number more than the frequencies.

    Example:
        >>> codes = NextCodes(4)
        >>> before = torch.tensor([[[0, 1, 2, 3]]])
        >>> codes.update(torch.zeros(1, 4, 1, 4), before, before)
        >>> print(*(round(float(value), 2) for value in codes.compute().values()))
        1.39 1.39 0.0
    """

    higher_is_better = False
    is_differentiable = False
    full_state_update = False
    total: Tensor
    repeated: Tensor
    changed: Tensor

    def __init__(self, num_codes: int) -> None:
        super().__init__()
        self.add_state("total", torch.tensor(0.0, dtype=torch.float64), dist_reduce_fx="sum")
        for name in ("repeated", "changed"):
            self.add_state(name, torch.zeros(num_codes, dtype=torch.long), dist_reduce_fx="sum")

    def update(
        self,
        logits: Float[Tensor, "frames codes rows cols"],
        true: Integer[Tensor, "frames rows cols"],
        before: Integer[Tensor, "frames rows cols"],
    ) -> None:
        """Adds frames: logits of their codes, the codes, and those of the last frame that was seen before each."""
        self.total += F.cross_entropy(logits.float(), true, reduction="none").double().sum()
        same = true == before
        for counts, chosen in ((self.repeated, same), (self.changed, ~same)):
            counts += torch.bincount(true[chosen], minlength=len(counts))

    def compute(self) -> dict[str, Float[Tensor, ""]]:
        """`cross_entropy`, and after "baseline/cross_entropy/" `single_codes` and `previous_frame`; nan before any."""
        counts = (self.repeated + self.changed).double()
        shares = counts / counts.sum()
        stays = share_of_repeats(self.repeated, self.changed)
        chances = torch.stack([stays + (1 - stays) * shares, (1 - stays) * shares])
        mixed = torch.xlogy(torch.stack([self.repeated, self.changed]).double(), chances).sum()
        return {
            "cross_entropy": self.total / counts.sum(),
            Reference("baseline", "cross_entropy", "single_codes"): -torch.xlogy(shares, shares).sum(),
            Reference("baseline", "cross_entropy", "previous_frame"): 0 - mixed / counts.sum(),
        }


def share_of_repeats(repeated: Integer[Tensor, " codes"], changed: Integer[Tensor, " codes"]) -> float:
    """The probability that a cell keeps its code by which the codes are most likely, in the mixture of `NextCodes`."""
    often, total = repeated.double(), int(changed.sum())
    shares = (repeated + changed).double()
    shares = shares / shares.sum()
    if not total:
        return 1.0
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):  # the log-likelihood is concave: its slope falls
        middle = (low + high) / 2
        slope = (often * (1 - shares) / (middle + (1 - middle) * shares)).sum() - total / (1 - middle)
        low, high = (middle, high) if slope > 0 else (low, middle)
    return low
