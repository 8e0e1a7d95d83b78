"""Merging of slots that are alike, after training."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float, Integer
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform
from torch import Tensor
from torch.nn import functional as F

__all__ = ["merge_shares", "merged_slots"]


def merged_slots(slots: Float[Tensor, "batch time slots dim"], threshold: float) -> Integer[Tensor, "batch slots"]:
    """Of each slot, the first slot of the group that it is merged into.

    Slots are alike by the mean over the steps of their cosine. Groups are grown from pairs, the most alike first, as
    long as all of a group are alike by `threshold` at least (complete linkage). A group holds for the whole clip.

    Source: SOLV (Aydemir et al., NeurIPS 2023; gorkaydemir/SOLV, `Slot_Merger`), which merges the slots of one step,
    in training too, by a largest cosine distance, and leaves them alone where less than three would remain.

    Args:
        slots: of clips.
        threshold: smallest cosine within a group.
    """
    unit = F.normalize(slots.detach().double(), dim=-1)
    distances = 1 - torch.einsum("btid,btjd->bij", unit, unit).cpu().numpy() / slots.shape[1]
    found = [_first_of_group(one, 1 - threshold) for one in distances]
    return torch.from_numpy(np.stack(found)).to(slots.device)


def _first_of_group(distances: np.ndarray, largest: float) -> np.ndarray:
    if len(distances) == 1:
        return np.zeros(1, dtype=np.int64)
    groups = fcluster(linkage(squareform(distances, checks=False), "complete"), largest, "distance")
    return (groups[:, None] == groups).argmax(axis=1)


def merge_shares(
    shares: Float[Tensor, "batch time slots *rest"], groups: Integer[Tensor, "batch slots"]
) -> Float[Tensor, "batch time slots *rest"]:
    """Masks or attention in which the first slot of each group has the shares of all of it, and the others none."""
    one_hot = F.one_hot(groups, shares.shape[2]).to(shares.dtype)
    return torch.einsum("bsg,bts...->btg...", one_hot, shares)
