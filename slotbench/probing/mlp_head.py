"""A head with one hidden layer, for what a slot knows and a linear head cannot read."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Integer
from torch import Tensor, nn
from torch.nn import functional as F

from slotbench.probing.heads import standardisation

__all__ = ["MLPHead"]


@dataclass(frozen=True)
class MLPHead:
    """A two-layer network on standardised slots.

    Attributes:
        network: from a standardised slot to standardised numbers, or to a score per class.
        centre: mean of the slots that it was fitted to.
        scale: their standard deviation.
        target_centre: mean of the numbers; None for classes.
        target_scale: their standard deviation; None for classes.
        epochs: passes over the rows that the weights kept are from.
    """

    network: nn.Module
    centre: Float[Tensor, " dim"]
    scale: Float[Tensor, " dim"]
    target_centre: Float[Tensor, " targets"] | None
    target_scale: Float[Tensor, " targets"] | None
    epochs: int

    @classmethod
    def fit(
        cls,
        x: Float[Tensor, "rows dim"],
        y: Float[Tensor, "rows targets"] | Integer[Tensor, " rows"],
        clips: Integer[Tensor, " rows"],
        num_classes: int | None = None,
        *,
        hidden: int = 256,
        learning_rate: float = 1e-3,
        batch_size: int = 512,
        max_epochs: int = 100,
        patience: int = 8,
        held_out: float = 0.1,
        seed: int = 0,
    ) -> MLPHead:
        """Adam on the rows of most clips, stopped when the loss on those of the others has ceased to fall.

        Whole clips are held out, because the frames of one clip resemble each other.

        Args:
            x: slots.
            y: numbers to regress, or classes from 0 on.
            clips: the clip that each row is from.
            num_classes: how many there are; None for numbers.
            hidden: width of the hidden layer.
            learning_rate: Adam's.
            batch_size: rows per step.
            max_epochs: passes over the rows at most.
            patience: passes without a lower loss on the clips held out, after which it stops.
            held_out: share of the clips that stopping is decided on.
            seed: of weights, clips held out and order.
        """
        generator = torch.Generator().manual_seed(seed)
        centre, scale = standardisation(x.float())
        z = (x.float() - centre) / scale
        target_centre = target_scale = None
        targets = y
        if num_classes is None:
            target_centre, target_scale = standardisation(y.float())
            targets = (y.float() - target_centre) / target_scale
        names = clips.unique()
        aside = names[torch.randperm(len(names), generator=generator)[: max(1, round(held_out * len(names)))]]
        watched = torch.isin(clips, aside)
        if watched.all():  # a single clip
            watched = torch.zeros_like(watched)
        fitted, judged = (~watched).nonzero()[:, 0], (watched if watched.any() else ~watched).nonzero()[:, 0]
        # without touching the generator of the process
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            width = y.shape[1] if num_classes is None else num_classes
            network = nn.Sequential(nn.Linear(x.shape[1], hidden), nn.ReLU(), nn.Linear(hidden, width))
        optimizer = torch.optim.Adam(network.parameters(), lr=learning_rate)
        kind: Literal["classes", "numbers"] = "numbers" if num_classes is None else "classes"
        best, best_epoch, best_weights = float("inf"), 0, copy.deepcopy(network.state_dict())
        for epoch in range(1, max_epochs + 1):
            for rows in fitted[torch.randperm(len(fitted), generator=generator)].split(batch_size):
                optimizer.zero_grad()
                _loss(network(z[rows]), targets[rows], kind).backward()
                optimizer.step()
            with torch.no_grad():
                loss = float(_loss(network(z[judged]), targets[judged], kind))
            if loss < best:
                best, best_epoch, best_weights = loss, epoch, copy.deepcopy(network.state_dict())
            elif epoch - best_epoch >= patience:
                break
        network.load_state_dict(best_weights)
        return cls(network.requires_grad_(False), centre, scale, target_centre, target_scale, best_epoch)

    def __call__(self, x: Float[Tensor, "rows dim"]) -> Float[Tensor, "rows targets"] | Integer[Tensor, " rows"]:
        """The numbers that are read off each slot, or its class."""
        out = self.network((x.float() - self.centre) / self.scale)
        if self.target_centre is None or self.target_scale is None:
            return out.argmax(1)
        return out * self.target_scale + self.target_centre


def _loss(out: Tensor, targets: Tensor, kind: Literal["classes", "numbers"]) -> Tensor:
    return F.cross_entropy(out, targets) if kind == "classes" else F.mse_loss(out, targets)
