"""Which object each cell of a model shows in each frame, and for how long it stays with it: ACL and MCL.

Source: Lin, "Modular Neural Networks for Video Prediction" (2022), section 4.4 and equations 4.1 and 4.2, and the
author's code (sentient-codebot/RIM-MovingMNIST), from which the window of shifts, the rule for the background and the
scale of the lengths come. Where that code errs, `rule="author"` does as it does.
"""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Float, Integer
from torch import Tensor
from torch.nn import functional as F

from slotbench.metrics.distinct import DistinctMetric

__all__ = ["CellIdentity", "IdentityRule", "consistency", "objects_of_cells", "shift_correlation", "shuffled_in_time"]

IdentityRule = Literal["corrected", "author"]
"""How objects are matched and runs are counted: as defined, or with the errors of the author's code."""

_BACKGROUND_SHARE = 0.1
_SHIFTS = 3


def shift_correlation(
    cells: Float[Tensor, "*batch cells channels height width"],
    objects: Float[Tensor, "*batch objects channels height width"],
) -> Float[Tensor, "*batch cells objects"]:
    """Correlation of images under small shifts: near 1 for the same image, and 0 for images that lie apart.

    With [x * y] the sum over channels, pixels and the nine shifts by -1, 0 and 1 pixels of x times y shifted, it is
    [x * y] / (sqrt [x * x] sqrt [y * y]). The window must be small: over all shifts this is 1 for any two images that
    are not negative and have one channel. nan where an image is black.

    Example:
        >>> image = torch.zeros(1, 1, 1, 5, 5)
        >>> image[..., 2, 2] = 1
        >>> shift_correlation(image, image.roll(1, -1)), shift_correlation(image, image.roll(2, -1))
        (tensor([[[1.]]]), tensor([[[0.]]]))
    """
    near = [_summed_over_shifts(images) for images in (cells, objects)]
    energies = [(images * sums).sum((-3, -2, -1)) for images, sums in zip((cells, objects), near, strict=True)]
    cross = torch.einsum("...kchw, ...ochw -> ...ko", cells, near[1])
    return cross / (energies[0][..., :, None] * energies[1][..., None, :]).sqrt()


def objects_of_cells(
    cells: Float[Tensor, "*batch cells channels height width"],
    objects: Float[Tensor, "*batch objects channels height width"],
    rule: IdentityRule = "corrected",
) -> Integer[Tensor, "*batch cells"]:
    """The object that each cell shows, the one it correlates with most, from 1; 0 for the background.

    A cell whose image sums to less than a tenth of the mean of the objects of that frame, black ones included, shows
    the background. An object without a visible pixel cannot be shown; if none is left, all cells show
    the background.

    Args:
        cells: the image of each cell times its share of each pixel, in [0, 1].
        objects: each object alone on black, also where others cover it.
        rule: "author" gives every cell that is not background to the first black object, if there is one: its
            correlation is nan there, which is the largest value to PyTorch.
    """
    correlation = shift_correlation(cells, objects)
    black = objects.flatten(-3).sum(-1) == 0
    if rule == "author":
        # a black cell is background by the rule below; only black objects are left
        correlation = correlation.nan_to_num(float("-inf")).masked_fill(black[..., None, :], float("inf"))
    else:
        correlation = correlation.nan_to_num(float("-inf")).masked_fill(black[..., None, :], float("-inf"))
    best, which = correlation.max(-1)
    amount, mean = cells.flatten(-3).sum(-1), objects.flatten(-3).sum(-1).mean(-1, keepdim=True)
    background = (amount < _BACKGROUND_SHARE * mean) | (best == float("-inf"))
    return (which + 1).masked_fill(background, 0)


def consistency(
    ids: Integer[Tensor, "sequences time"], rule: IdentityRule = "corrected"
) -> tuple[Float[Tensor, " sequences"], Float[Tensor, " sequences"]]:
    """Average and maximum consistency length, ACL and MCL, of the ids that cells show in the course of time.

    A sequence is cut into its longest runs of one id. A run of n of T frames has the length (n - 1) / (T - 1). MCL is
    the largest length, ACL the mean over runs of two frames or more, 0 without any. A constant id has 1 in both, the
    id of the background too.

    Args:
        ids: what each cell shows, one cell of one clip per row.
        rule: "author" leaves out the last run of those sequences that have the most runs of all in `ids` (and so
            depends on what they come with), and has nan for the ACL where no run of two frames is left, and for both
            where no sequence changes at all.

    Example:
        >>> acl, mcl = consistency(torch.tensor([[0, 0, 0, 0, 0, 0, 4, 4, 4, 5]]))
        >>> acl, mcl
        (tensor([0.3889], dtype=torch.float64), tensor([0.5556], dtype=torch.float64))
    """
    sequences, frames = ids.shape
    if frames < 2:
        raise ValueError(f"sequences of {frames} frame(s) have no consistency; expected 2 frames or more")
    changes = (ids[:, 1:] != ids[:, :-1]).long()
    runs = F.pad(changes.cumsum(1), (1, 0))
    counts = torch.zeros(sequences, frames, dtype=torch.float64, device=ids.device)
    counts.scatter_add_(1, runs, torch.ones_like(runs, dtype=torch.float64))
    if rule == "author" and sequences:
        counts[:, int(runs.max())] = 0
    lengths = (counts - 1).clamp(min=0) / (frames - 1)
    long = counts >= 2
    acl, mcl = lengths.sum(1) / long.sum(1), lengths.amax(1)
    if rule == "author":
        return acl, mcl.masked_fill(counts.sum(1) == 0, float("nan"))
    return acl.nan_to_num(0.0), mcl


def shuffled_in_time(ids: Integer[Tensor, "sequences time"], seed: int = 0) -> Integer[Tensor, "sequences time"]:
    """The ids of each sequence in a random order: what a cell has that keeps nothing but shows each as often."""
    generator = torch.Generator().manual_seed(seed)
    order = torch.rand(ids.shape, generator=generator).argsort(dim=1).to(ids.device)
    return ids.gather(1, order)


def _summed_over_shifts(images: Float[Tensor, "*batch height width"]) -> Float[Tensor, "*batch height width"]:
    flat = images.reshape(-1, 1, *images.shape[-2:])
    sums = F.avg_pool2d(flat, _SHIFTS, stride=1, padding=_SHIFTS // 2, divisor_override=1)
    return sums.view(images.shape)


class CellIdentity(DistinctMetric):
    """Means over cells and clips: ACL, MCL, the share of frames in which a cell shows an object, and a baseline.

    The share stands beside the lengths because a cell that never shows an object is consistent too. "acl_shuffled" and
    "mcl_shuffled" are those of the same ids in a random order.

    Example:
        >>> metric = CellIdentity()
        >>> metric.update(torch.tensor([[[1, 0]], [[1, 0]], [[2, 0]]]).movedim(0, 1))
        >>> {name: round(value.item(), 2) for name, value in metric.compute().items() if "shuffled" not in name}
        {'acl': 0.75, 'mcl': 0.75, 'object_share': 0.5}
    """

    higher_is_better = True
    is_differentiable = False
    full_state_update = False
    totals: Tensor
    counts: Tensor

    names = ("acl", "mcl", "object_share", "acl_shuffled", "mcl_shuffled")

    def __init__(self, rule: IdentityRule = "corrected") -> None:
        super().__init__()
        self.rule: IdentityRule = rule
        self.add_state("totals", torch.zeros(len(self.names), dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("counts", torch.zeros(len(self.names), dtype=torch.float64), dist_reduce_fx="sum")

    def update(self, ids: Integer[Tensor, "batch time cells"]) -> None:
        """Adds clips, as the result of `objects_of_cells` for their frames."""
        rows = ids.movedim(1, 2).flatten(0, 1)
        shuffled = consistency(shuffled_in_time(rows), self.rule)
        values = (*consistency(rows, self.rule), (rows > 0).double().mean(1), *shuffled)
        for place, value in enumerate(values):
            self.totals[place] += value.nansum()
            self.counts[place] += value.isfinite().sum()

    def compute(self) -> dict[str, Float[Tensor, ""]]:
        """The means, by name; nan before any clip."""
        return dict(zip(self.names, self.totals / self.counts, strict=True))
